"""The same done to many jobs: cancel, retry, clean. One request does a bounded piece, and says where to go on."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import trio

from jqd.api.change import Kind, change
from jqd.api.find import find, resolve
from jqd.api.jobs import record_cancels
from jqd.api.listing import bad_cursor, state_named
from jqd.api.message import DECODE_ERRORS, Request, Response, answer, read_value
from jqd.api.parts import Parts
from jqd.api.problems import Problem, as_problem, field_problem
from jqd.api.schema import eligible_at_ms, explain, faults
from jqd.api.show import Coming
from jqd.store import JobView
from jqd.words.errors import JqdError
from jqd.words.job import Fate, State
from jqd.words.record import PushedJob

STEP_JOBS = 500  # looked at in one step: a script of the store stays below some milliseconds
STEPS_MAX = 20  # in one request
WITHIN_S = 5.0  # no step is begun later than this: the answer comes before a client or a proxy gives up
IDS_MAX = 1_000  # named in one request
CHANGES_MAX = 64  # under way at once: they share the syncs of the journal
MORE = "more"  # the cursor of a clean that goes on: what is gone needs no place to begin at

Found = JobView | Coming
Test = Callable[[Found], bool]
Act = Callable[[Sequence[Found]], Awaitable[None]]


class Filter(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/jobs/cancel` and `/retry`: all that is given must be so of a job."""

    state: str | None = None
    name: str | None = None
    tag: str | None = None
    job_ids: list[str] | None = None
    dry_run: bool = False
    cursor: str = ""


class Clean(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/jobs/clean`."""

    before: str | float
    dry_run: bool = False
    cursor: str = ""


@dataclass(slots=True)
class Tally:
    """What a request found and did."""

    matched: int = 0
    changed: int = 0
    cursor: str = ""
    """Where the next request goes on; empty when that was all."""


async def cancel_many(parts: Parts, request: Request) -> Response:
    """`POST /v1/jobs/cancel`: jobs that have not ended → 200 {matched, changed, cursor}. Changed: recorded."""
    wanted, tally = _filter(request), Tally()

    async def act(found: Sequence[Found]) -> None:
        await record_cancels(parts, found)
        tally.changed += len(found)

    await _each_piece(parts, wanted, tally, lambda view: not view.state.is_final, act)
    return answer(200, asdict(tally), request.answer_language())


async def retry_many(parts: Parts, request: Request) -> Response:
    """`POST /v1/jobs/retry`: jobs that failed, and cancelled ones if asked for → 200 {matched, changed, cursor}."""
    wanted, tally = _filter(request), Tally()
    if wanted.state is None and wanted.job_ids is None:
        wanted.state = State.FAILED.value

    async def act(found: Sequence[Found]) -> None:
        await _retry_each(parts, found, tally)

    await _each_piece(parts, wanted, tally, lambda view: view.state in (State.FAILED, State.CANCELLED), act)
    return answer(200, asdict(tally), request.answer_language())


async def clean(parts: Parts, request: Request) -> Response:
    """`POST /v1/jobs/clean`: deletes what ended before a date, never the dead → 200 {matched, changed, cursor}."""
    wanted, tally = _read(request, Clean), Tally()
    date = PushedJob(name="any", run_at=wanted.before)
    for _, detail in faults(date, parts.config.job_bytes_max):
        raise field_problem("/before", detail)
    before_ms = eligible_at_ms(date, 0)
    if wanted.dry_run:
        everything = Filter(cursor=wanted.cursor)
        await _each_piece(parts, everything, tally, lambda view: _ended_before(view, before_ms))
        return answer(200, asdict(tally), request.answer_language())
    tally.cursor, until_s = MORE, trio.current_time() + WITHIN_S
    with _telling(tally):
        for _ in range(STEPS_MAX):
            gone = await parts.store.clean_ended(before_ms, STEP_JOBS)
            tally.changed += gone
            if not gone:
                tally.cursor = ""
            if not gone or trio.current_time() >= until_s:
                break
    tally.matched = tally.changed
    return answer(200, asdict(tally), request.answer_language())


@contextmanager
def _telling(tally: Tally) -> Iterator[None]:
    """An error half-way says what was done before it. To ask again is right: what is done matches no more."""
    try:
        yield
    except JqdError as error:
        if not tally.changed:
            raise
        problem = as_problem(error)
        detail = f"{tally.changed} jobs were changed before this: {problem.detail}"
        raise Problem(problem.status, detail, errors=problem.errors, retry_after_s=problem.retry_after_s) from error


def _filter(request: Request) -> Filter:
    """Raises Problem 400, 415, 422."""
    wanted: Filter = _read(request, Filter)
    if wanted.state is None and wanted.name is None and wanted.tag is None and wanted.job_ids is None:
        raise Problem(422, "a filter of nothing is every job there is; give state, name, tag or job_ids")
    if wanted.job_ids is not None and len(wanted.job_ids) > IDS_MAX:
        raise field_problem("/job_ids", f"one request names at most {IDS_MAX} jobs, this one {len(wanted.job_ids)}")
    if wanted.state is not None:
        state_named(wanted.state)
    return wanted


def _read(request: Request, kind: Any) -> Any:
    value = read_value(request)
    if not isinstance(value, dict):
        raise Problem(422, f"a map is needed, with some of {', '.join(kind.__struct_fields__)}")
    try:
        return msgspec.convert(value, kind)
    except DECODE_ERRORS as error:
        raise field_problem(*explain(str(error), kind.__struct_fields__)) from error


async def _each_piece(parts: Parts, wanted: Filter, tally: Tally, may: Test, act: Act | None = None) -> None:
    """Find jobs by the filter that `may` be changed, count them, and `act` on them unless it is a dry run."""
    with _telling(tally):
        if wanted.job_ids is not None:
            await _act_on(await _named(parts, wanted), wanted, tally, may, act)
            return
        state = None if wanted.state is None else State(wanted.state)
        until_s = trio.current_time() + WITHIN_S
        tally.cursor = wanted.cursor
        for _ in range(STEPS_MAX):
            try:
                page = await parts.store.list_jobs(state, wanted.name, wanted.tag, STEP_JOBS, tally.cursor)
            except ValueError as error:
                raise bad_cursor(wanted.cursor) from error
            tally.cursor = page.cursor
            await _act_on(page.jobs, wanted, tally, may, act)
            if not tally.cursor or trio.current_time() >= until_s:
                return


async def _act_on(found: Sequence[Found], wanted: Filter, tally: Tally, may: Test, act: Act | None) -> None:
    matched = [job for job in found if may(job)]
    tally.matched += len(matched)
    if matched and act is not None and not wanted.dry_run:
        await act(matched)


async def _named(parts: Parts, wanted: Filter) -> list[Found]:
    """Those named that fit. Ids of no job match nothing."""
    found: list[Found] = []
    for given in dict.fromkeys(wanted.job_ids or ()):
        try:
            job_id = await resolve(parts, given)
            job = await find(parts, job_id, named=job_id != given)
        except Problem as problem:
            if problem.status != 404:
                raise
            continue
        if _fits(job, wanted):
            found.append(job)
    return found


def _fits(view: Found, wanted: Filter) -> bool:
    if isinstance(view, Coming):
        return wanted.name is None and wanted.tag is None and wanted.state in (None, view.state.value)
    return (
        (wanted.state is None or view.state.value == wanted.state)
        and (wanted.name is None or view.jobtype == wanted.name)
        and (wanted.tag is None or wanted.tag in view.tags)
    )


async def _retry_each(parts: Parts, views: Sequence[Found], tally: Tally) -> None:
    """One that somebody else changed meanwhile is left as it is. Raises the first error once all have ended."""
    limiter = trio.CapacityLimiter(CHANGES_MAX)
    failed: list[JqdError] = []

    async def one(job_id: str) -> None:
        async with limiter:
            if failed:
                return
            try:
                # A list tells no arguments, and the change is the whole job once more.
                view = await parts.store.get_job(job_id)
                if not isinstance(view, JobView):
                    return
                await change(parts, view, Kind.RETRY)
            except JqdError as error:
                if not (isinstance(error, Problem) and error.status == 409):
                    failed.append(error)
            else:
                tally.changed += 1

    async with trio.open_nursery() as nursery:
        for view in views:
            nursery.start_soon(one, view.id)
    if failed:
        raise failed[0]


def _ended_before(view: Found, before_ms: int) -> bool:
    """By when the last attempt ended, or the job was pushed if there was none; the store itself goes by the end."""
    if not isinstance(view, JobView) or not view.state.is_final:
        return False
    if view.outcome is not None and view.outcome.fate is Fate.DEAD:
        return False
    return (view.outcome.finished_at_ms if view.outcome is not None else view.created_at_ms) < before_ms
