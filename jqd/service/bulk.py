"""Changes many jobs: cancel, retry, delete, clean. A request handles a bounded number of jobs, and returns a cursor for
the next request."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeVar

import msgspec
import trio
from msgspec import Meta

from jqd.domain.dates import instant_ms, iso
from jqd.domain.errors import Conflict, Denied, Interrupted, Invalid, JqdError, NotFound, Overloaded
from jqd.domain.job import State
from jqd.domain.job_spec import Date
from jqd.domain.tenant import bare
from jqd.service.act_on_each import act_on_each
from jqd.service.cancel import record_cancels
from jqd.service.edit import Kind, change
from jqd.service.find import Coming, expect_promised, find, resolve
from jqd.service.job_filter import JobFilter, entered_at_ms
from jqd.service.listing import (
    FREE_JOBS,
    LIST_S,
    STEP_JOBS,
    STEPS_MAX,
    WALK_S,
    Looked,
    Of,
    examined_of,
    fitting,
    page_of,
)
from jqd.service.server_only import any_reserved, may_change
from jqd.service.services import Services
from jqd.service.settings import Note, describe, noting
from jqd.store import JobView

IDS_MAX = 1_000  # named in one request
MORE = "more"  # prefix of the cursor of a clean; behind it is the date up to which the clean goes on

ENDED = tuple(state for state in State if state.is_final)
UNENDED = tuple(state for state in State if not state.is_final)
RETRYABLE = (State.FAILED, State.CANCELLED)

JobIds = Annotated[list[str], Meta(max_length=IDS_MAX, description=f"an array of at most {IDS_MAX} ids")]
Count = Annotated[int, Meta(ge=0, description="a whole number")]
T = TypeVar("T")
Found = JobView | Coming
Test = Callable[[Found], bool]
Act = Callable[[Sequence[Found], "Tally"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Reserved(Coming):
    """A pusher's own id that was reserved for a push, but the push did not come in time: no job has the id."""

    why: str


class Filter(JobFilter, frozen=True, forbid_unknown_fields=True):
    """Chooses jobs: all fields that are given must match."""

    job_ids: JobIds | None = None
    dry_run: bool = False
    # An earlier dry run counted so many. Jobs of later steps are counted when their step comes.
    matched_max: Count | None = None
    """409 if more jobs match"""


WORDS = [name for name in Filter.__struct_fields__ if name not in ("cursor", "dry_run", "matched_max")]
"""Fields that choose jobs; a request needs at least one."""


class Clean(msgspec.Struct, forbid_unknown_fields=True):
    """What to delete: jobs that ended before a date."""

    before: Date
    dry_run: bool = False
    cursor: str = ""


class Refused(msgspec.Struct, frozen=True):
    """A job that was named in the request and not changed."""

    job_id: str
    status: Annotated[
        int, Meta(description="404: there is none; 409: its state, or the filter, does not allow it; 503: not yet")
    ]
    detail: str


class Tally(msgspec.Struct):
    """How many jobs a request found and changed."""

    matched: int = 0
    changed: int = 0
    cursor: str = ""
    """To be sent with the next request; empty: no jobs are left to examine."""
    looked: Looked = msgspec.UNSET
    """Number of jobs examined. `looked` and `of` are set only if there is a cursor."""
    of: Of = msgspec.UNSET
    at: str | msgspec.UnsetType = msgspec.UNSET
    """Only for a dry run by a filter: when it began. With it as `before`, the same jobs can be changed later."""
    whole: bool | msgspec.UnsetType = msgspec.UNSET
    """Only for a flow: false if some of its jobs may have been left out. They are on their way into the store, or
    behind a million links, or the cursor is from another daemon or older than a minute. Ask again, or for another job
    of the flow."""
    refused: list[Refused] | msgspec.UnsetType = msgspec.UNSET
    """Jobs that were named in the request or belong to the flow, and were not changed; each with the reason."""

    def refuse(self, job_id: str, status: int, detail: str) -> None:
        self.refused = [*(self.refused or ()), Refused(job_id, status, detail)]


async def cancel_many(services: Services, wanted: Filter) -> Tally:
    """Cancel the matching jobs that have not ended. `Tally.changed` counts the cancels that were journaled. Raises
    Invalid, Interrupted."""

    async def act(found: Sequence[Found], tally: Tally) -> None:
        await record_cancels(services, found)
        tally.changed += _jobs_in(found)

    return await _change_many(services, "cancel", wanted, UNENDED, "cancelled", act)


async def retry_many(services: Services, wanted: Filter) -> Tally:
    """Retry the matching failed jobs, or cancelled jobs if the filter asks for that state. Raises Invalid,
    Interrupted."""

    async def act(found: Sequence[Found], tally: Tally) -> None:
        await _retry_each(services, found, wanted, tally)

    return await _change_many(services, "retry", wanted, RETRYABLE, "retried", act)


async def delete_many(services: Services, wanted: Filter) -> Tally:
    """Delete the matching failed jobs, or those in another final state if the filter asks for it. Raises Invalid,
    Interrupted."""

    async def act(found: Sequence[Found], tally: Tally) -> None:
        tally.changed += len(await services.store.delete_dead([view.id for view in found]))

    return await _change_many(services, "delete", wanted, ENDED, "deleted", act)


async def _change_many(
    services: Services, what: str, wanted: Filter, states: Sequence[State], done: str, act: Act
) -> Tally:
    """Find the jobs that match the filter and are in one of `states`, and call `act` with them. A filter with neither a
    state nor ids finds failed jobs only, if `states` contains that state.

    `what`: the action's name for the audit log. `done`: its past participle for error messages. Raises Invalid if the
    filter is empty, or asks for a state that is not in `states`."""
    if all(getattr(wanted, each) is None for each in WORDS):
        raise Invalid(f"a filter of nothing is every job there is; give {', '.join(WORDS[:-1])} or {WORDS[-1]}")
    if wanted.state is not None and wanted.state not in states:  # a 0 would read as if there were no such jobs
        why = f"state must be one of {', '.join(states)}, not '{wanted.state.value}': no other jobs can be {done}"
        raise Invalid.at("/state", why)
    note = noting(services, f"jobs {what}", describe(wanted))
    if State.FAILED in states and wanted.state is None and wanted.job_ids is None:
        wanted = msgspec.structs.replace(wanted, state=State.FAILED)
    tally = Tally(at=iso(services.clock.wall_ms())) if wanted.dry_run else Tally()
    may = partial(_may_act_on, services, states)
    await _each_piece(services, wanted, tally, may, _recorded(note, act))
    return tally


def _may_act_on(services: Services, states: Sequence[State], view: Found) -> bool:
    return view.state in states and may_change(services, view)


def _recorded(note: Note, act: Act) -> Act:
    """Return a function that calls `act`, but before its first call writes the request to the audit log (`note`)."""

    async def recorded(found: Sequence[Found], tally: Tally) -> None:
        await note()
        await act(found, tally)

    return recorded


async def clean(services: Services, wanted: Clean) -> Tally:
    """Delete jobs that succeeded or were cancelled before a date, never failed ones. Raises Invalid, Interrupted."""
    tally = Tally()
    try:
        before_ms = instant_ms(wanted.before)
    except ValueError as error:
        raise Invalid.at("/before", str(error)) from error
    note = noting(services, "jobs clean", describe(wanted))
    if wanted.dry_run or services.principal.is_bound or any_reserved(services):
        # The store's own clean goes by the date alone: it counts nothing, and knows no principal.
        async def act(found: Sequence[Found], tally: Tally) -> None:
            tally.changed += len(await services.store.delete_dead(await _without_results(services, found)))

        def may(view: Found) -> bool:
            return _ended_before(view, before_ms) and may_change(services, view)

        await _each_piece(
            services, Filter(cursor=wanted.cursor, dry_run=wanted.dry_run), tally, may, _recorded(note, act)
        )
        return tally
    await note()
    before_ms, until_s = _from(wanted.cursor, before_ms), trio.current_time() + WALK_S
    with counting_changes(tally):
        for _ in range(STEPS_MAX):
            cleaned = await services.store.clean_ended(before_ms, STEP_JOBS)
            before_ms, tally.changed = cleaned.before_ms, tally.changed + cleaned.gone
            tally.cursor = f"{MORE}{before_ms}" if cleaned.examined else ""
            if not cleaned.examined or trio.current_time() >= until_s:
                break
    tally.matched = tally.changed
    return tally


def _from(cursor: str, before_ms: int) -> int:
    """Return the date (Unix ms) up to which jobs are deleted: the date in `cursor` if it has one, but never later than
    `before_ms`."""
    date = cursor.removeprefix(MORE)
    return min(before_ms, int(date)) if cursor.startswith(MORE) and date.isdecimal() and date.isascii() else before_ms


@contextmanager
def counting_changes(tally: Tally) -> Iterator[None]:
    """Turn an error after the first change into Interrupted, which tells how many jobs were changed.

    The client may send the same request again: jobs that were changed no longer match.
    """
    try:
        yield
    except JqdError as error:
        if not tally.changed:
            raise
        raise Interrupted(tally.changed, error) from error


async def _each_piece(services: Services, wanted: Filter, tally: Tally, may: Test, act: Act) -> None:
    """Find the jobs that match the filter and for which `may` returns true, page by page. Count them in `tally`, and
    call `act` with them unless the filter asks for a dry run."""
    wanted.expect_dates()
    with counting_changes(tally):
        if wanted.job_ids is not None:
            await _act_on(await _named(services, wanted, tally, may), wanted, tally, act)
            return
        until_s, looked = trio.current_time() + (LIST_S if wanted.dry_run else WALK_S), 0
        free, tally.cursor = FREE_JOBS if wanted.dry_run else 0, wanted.cursor
        for _ in range(STEPS_MAX):
            page = await page_of(services, wanted, wanted.step(STEP_JOBS), tally.cursor)
            tally.cursor, looked = page.cursor, looked + page.examined
            await _act_on(await fitting(services, wanted, [*filter(may, page.jobs)]), wanted, tally, act)
            if not tally.cursor or (looked >= free and trio.current_time() >= until_s):
                break
        if tally.cursor:
            tally.looked, tally.of = await examined_of(services, wanted, tally.cursor, looked)


async def _act_on(matched: Sequence[Found], wanted: Filter, tally: Tally, act: Act) -> None:
    tally.matched += _jobs_in(matched)
    if wanted.matched_max is not None and tally.matched > wanted.matched_max:
        least = "at least " if tally.cursor else ""
        raise Conflict(
            f"{least}{tally.matched} jobs match, and at most {wanted.matched_max} were to be changed: some came into "
            "this state meanwhile; count again"
        )
    if matched and not wanted.dry_run:
        await act(matched, tally)


def _jobs_in(found: Sequence[Found]) -> int:
    return sum(not isinstance(each, Reserved) for each in found)


async def _named(services: Services, wanted: Filter, tally: Tally, may: Test) -> list[Found]:
    """Look up the jobs that the filter names. Return those jobs that match the filter and for which `may` returns true;
    add the other jobs to `tally.refused`."""
    found: dict[str, Found | NotFound] = {}
    wished = list(dict.fromkeys(wanted.job_ids or ()))

    async def look_up(given: str) -> None:
        try:
            job_id = await resolve(services, given)
            found[given] = job = await find(services, job_id, named=job_id != given, given=given)
            if job_id != given and isinstance(job, Coming):
                try:
                    await expect_promised(services, given)
                except NotFound as error:
                    found[given] = Reserved(job.id, job.created_at_ms, str(error))
        except NotFound as error:
            found[given] = error

    await act_on_each(wished, look_up)
    fit: list[Found] = []
    for given in wished:
        job = found[given]
        if isinstance(job, NotFound):
            tally.refuse(given, 404, str(job))
        elif isinstance(job, Reserved):
            tally.refuse(given, 404, job.why)
            fit += [job] if may(job) else []  # its push may still come, and is to be cancelled then
        elif not may(job):
            why = "" if may_change(services, job) else ", and only for the master key to change"
            tally.refuse(given, 409, f"job {given} is {job.state.value}{why}")
        elif not _fits(job, wanted):
            tally.refuse(given, 409, f"job {given} is none of those that the filter means")
        else:
            fit.append(job)
    return fit


def _fits(view: Found, wanted: Filter) -> bool:
    if isinstance(view, Coming):
        return wanted.name is None and wanted.tag is None and wanted.is_for_store and wanted.state in (None, view.state)
    return (
        (wanted.state is None or view.state is wanted.state)
        and (wanted.name is None or bare(view.jobtype) == wanted.name)
        and (wanted.tag is None or wanted.tag in view.tags)
        and wanted.fits(view)
    )


async def _retry_each(services: Services, views: Sequence[Found], wanted: Filter, tally: Tally) -> None:
    """Retry the jobs in `views`, and count the retried jobs in `tally`. Jobs whose state no longer allows a retry are
    left as they are.

    Raises the first error. If a quota is used up, the error tells how many of the jobs were not retried."""
    left = len(views)
    await services.hooks.count_usage(services)

    async def retry(found: Found) -> None:
        # Read again: a retry journals the whole job, and pages of jobs have no arguments.
        nonlocal left
        view = await services.store.get_job(found.id)
        if isinstance(view, JobView) and may_change(services, view):
            try:
                await change(services, view, Kind.RETRY)
            except (Conflict, Denied) as error:
                if wanted.job_ids is not None:
                    tally.refuse(bare(view.name) or view.id, 409, str(error))
            else:
                tally.changed += 1
        left -= 1

    try:
        await act_on_each(views, retry)
    except Overloaded as error:
        why = f"{left} of the {tally.matched} that were found are left as they are: {error}"
        raise Overloaded(why, retry_after_s=error.retry_after_s) from error


async def _without_results(services: Services, found: Sequence[Found]) -> list[str]:
    """Return the ids of the jobs in `found` that have no kept result. The jobs in `found` come without their results,
    so a job that may have one is looked up in the store."""
    free = [job.id for job in found if not (isinstance(job, JobView) and job.keep_result)]

    async def look_up(job_id: str) -> None:
        view = await services.store.get_job(job_id)
        if isinstance(view, JobView) and view.result is None:
            free.append(job_id)

    await act_on_each(list({job.id for job in found}.difference(free)), look_up)
    return free


def _ended_before(view: Found, before_ms: int) -> bool:
    """Return whether a job succeeded or was cancelled before a date."""
    if not isinstance(view, JobView) or view.state not in (State.SUCCEEDED, State.CANCELLED):
        return False
    return entered_at_ms(view) < before_ms
