"""The same done to many jobs: cancel, retry, clean. One request does a bounded piece, and says where to go on."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import msgspec
import trio
from msgspec import Meta

from jqd.desk.cancel import record_cancels
from jqd.desk.change import Kind, change
from jqd.desk.desk import Desk
from jqd.desk.find import Coming, find, resolve
from jqd.desk.job import Date
from jqd.desk.listing import list_jobs
from jqd.store import JobView
from jqd.words.dates import instant_ms
from jqd.words.errors import Conflict, Fault, Interrupted, Invalid, JqdError, NotFound
from jqd.words.job import Fate, State

STEP_JOBS = 500  # looked at in one step: a script of the store stays below some milliseconds
STEPS_MAX = 20  # in one request
WITHIN_S = 5.0  # no step is begun later than this: the answer comes before a client or a proxy gives up
IDS_MAX = 1_000  # named in one request
CHANGES_MAX = 64  # under way at once: they share the syncs of the journal
MORE = "more"  # the cursor of a clean that goes on: what is gone needs no place to begin at

JobIds = Annotated[list[str], Meta(max_length=IDS_MAX, description=f"an array of at most {IDS_MAX} ids")]
Found = JobView | Coming
Test = Callable[[Found], bool]
Act = Callable[[Sequence[Found]], Awaitable[None]]


class Filter(msgspec.Struct, forbid_unknown_fields=True):
    """Which jobs are meant: all that is given must be so of one."""

    state: State | None = None
    name: str | None = None
    tag: str | None = None
    job_ids: JobIds | None = None
    dry_run: bool = False
    cursor: str = ""


class Clean(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be deleted: what ended before a date, as clients write it."""

    before: Date
    dry_run: bool = False
    cursor: str = ""


class Tally(msgspec.Struct):
    """What a request found and did."""

    matched: int = 0
    changed: int = 0
    cursor: str = ""
    """Where the next request goes on; empty when that was all."""


async def cancel_many(desk: Desk, wanted: Filter) -> Tally:
    """Cancel jobs that have not ended; changed are those whose cancel is recorded. Raises Invalid, Interrupted."""
    tally = _tally_for(wanted)

    async def act(found: Sequence[Found]) -> None:
        await record_cancels(desk, found)
        tally.changed += len(found)

    await _each_piece(desk, wanted, tally, lambda view: not view.state.is_final, act)
    return tally


async def retry_many(desk: Desk, wanted: Filter) -> Tally:
    """Try jobs anew that failed, and cancelled ones if asked for. Raises Invalid, Interrupted."""
    tally = _tally_for(wanted)
    if wanted.state is None and wanted.job_ids is None:
        wanted.state = State.FAILED

    async def act(found: Sequence[Found]) -> None:
        await _retry_each(desk, found, tally)

    await _each_piece(desk, wanted, tally, lambda view: view.state in (State.FAILED, State.CANCELLED), act)
    return tally


async def clean(desk: Desk, wanted: Clean) -> Tally:
    """Delete what ended before a date, never the dead. Raises Invalid, Interrupted."""
    tally = Tally()
    try:
        before_ms = instant_ms(wanted.before)
    except ValueError as error:
        raise Invalid(str(error), [Fault("/before", str(error))]) from error
    if wanted.dry_run:
        everything = Filter(cursor=wanted.cursor)
        await _each_piece(desk, everything, tally, lambda view: _ended_before(view, before_ms))
        return tally
    tally.cursor, until_s = MORE, trio.current_time() + WITHIN_S
    with _telling(tally):
        for _ in range(STEPS_MAX):
            gone = await desk.store.clean_ended(before_ms, STEP_JOBS)
            tally.changed += gone
            if not gone:
                tally.cursor = ""
            if not gone or trio.current_time() >= until_s:
                break
    tally.matched = tally.changed
    return tally


@contextmanager
def _telling(tally: Tally) -> Iterator[None]:
    """An error half-way says what was done before it. To ask again is right: what is done matches no more."""
    try:
        yield
    except JqdError as error:
        if not tally.changed:
            raise
        raise Interrupted(tally.changed, error) from error


def _tally_for(wanted: Filter) -> Tally:
    """An empty one. Raises Invalid for a filter that means nothing, or too much."""
    if wanted.state is None and wanted.name is None and wanted.tag is None and wanted.job_ids is None:
        raise Invalid("a filter of nothing is every job there is; give state, name, tag or job_ids")
    return Tally()


async def _each_piece(desk: Desk, wanted: Filter, tally: Tally, may: Test, act: Act | None = None) -> None:
    """Find jobs by the filter that `may` be changed, count them, and `act` on them unless it is a dry run."""
    with _telling(tally):
        if wanted.job_ids is not None:
            await _act_on(await _named(desk, wanted), wanted, tally, may, act)
            return
        until_s = trio.current_time() + WITHIN_S
        tally.cursor = wanted.cursor
        for _ in range(STEPS_MAX):
            page = await list_jobs(desk, wanted.state, wanted.name, wanted.tag, STEP_JOBS, tally.cursor)
            tally.cursor = page.cursor
            await _act_on(page.jobs, wanted, tally, may, act)
            if not tally.cursor or trio.current_time() >= until_s:
                return


async def _act_on(found: Sequence[Found], wanted: Filter, tally: Tally, may: Test, act: Act | None) -> None:
    matched = [job for job in found if may(job)]
    tally.matched += len(matched)
    if matched and act is not None and not wanted.dry_run:
        await act(matched)


async def _named(desk: Desk, wanted: Filter) -> list[Found]:
    """Those named that fit. Ids of no job match nothing."""
    found: list[Found] = []
    for given in dict.fromkeys(wanted.job_ids or ()):
        try:
            job_id = await resolve(desk, given)
            job = await find(desk, job_id, named=job_id != given)
        except NotFound:
            continue
        if _fits(job, wanted):
            found.append(job)
    return found


def _fits(view: Found, wanted: Filter) -> bool:
    if isinstance(view, Coming):
        return wanted.name is None and wanted.tag is None and wanted.state in (None, view.state)
    return (
        (wanted.state is None or view.state is wanted.state)
        and (wanted.name is None or view.jobtype == wanted.name)
        and (wanted.tag is None or wanted.tag in view.tags)
    )


async def _retry_each(desk: Desk, views: Sequence[Found], tally: Tally) -> None:
    """One that somebody else changed meanwhile is left as it is. Raises the first error once all have ended."""
    limiter = trio.CapacityLimiter(CHANGES_MAX)
    failed: list[JqdError] = []

    async def one(job_id: str) -> None:
        async with limiter:
            if failed:
                return
            try:
                # A list tells no arguments, and the change is the whole job once more.
                view = await desk.store.get_job(job_id)
                if not isinstance(view, JobView):
                    return
                await change(desk, view, Kind.RETRY)
            except Conflict:
                return
            except JqdError as error:
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
