"""Finds one job by the daemon's or the pusher's id, and waits until it has ended.

When a job ends at this daemon, the events of its waiters are set at once (waiters.py). Jobs end at other daemons, too:
so a loop for each partition asks the store which awaited jobs are unfinished, hundreds in one call, and sets the events
of the others. Each waiter then looks its job up itself, so an event that is set needlessly costs only one look-up.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import trio

from jqd.domain.errors import NotFound, NotYet, StoreAway, StoreRefused, StoreUnsettled
from jqd.domain.job import Fate, State, is_name
from jqd.domain.jobid import IdParts, is_made, parse_id, partition_of, partition_of_name
from jqd.domain.record import Lane
from jqd.domain.results import LargeResult
from jqd.domain.tenant import bare
from jqd.service.services import Services
from jqd.store import JobView, OnItsWay

# How long the store may take, after this daemon, to note that recovery is over: three renewals.
SETTLED_S = 1.0
SETTLED_POLL_S = 0.02  # the first pause; each next one is twice as long
COMING_POLL_S = 0.05  # between looks for a job on its way into the store, which takes some milliseconds
INGEST_S = 0.25  # wait for a record of this daemon to reach the store: milliseconds, unless ingest is behind
JOBS_PER_CALL = 500  # jobs per call of the store: it stays below a millisecond or two

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Coming:
    """A job that was accepted and is still on its way into the store."""

    id: str
    created_at_ms: int

    @property
    def state(self) -> State:
        return State.WAITING


async def resolve(services: Services, given: str) -> str:
    """Return the daemon's id of a job. `given`: the daemon's id, or the pusher's own, which is looked up in the store.

    Raises NotFound, StoreUnsettled while the store is in recovery, StoreAway, StoreRefused.
    """
    if parse_id(given) is not None:
        return given
    if not is_name(given):
        raise not_found(given)
    name = services.qualified_name(given)
    where = {partition_of_name(name, services.partitions)}
    job_id = await once_settled(services, where, partial(services.store.resolve, name))
    if job_id is None:
        raise not_found(given)
    return job_id


async def once_settled(services: Services, where: Collection[int], ask: Callable[[], Awaitable[T]]) -> T:
    """Call `ask`, which asks the store, and return its answer. For a moment after a recovery the store may still refuse
    questions as unsettled. So if this daemon knows that recovery of the partitions `where` is over, `ask` is called
    again for up to SETTLED_S. Raises StoreUnsettled, and what `ask` raises."""
    deadline_s, pause_s = trio.current_time() + SETTLED_S, SETTLED_POLL_S
    while True:
        try:
            return await ask()
        except StoreUnsettled:
            if not services.control.settled(where) or trio.current_time() >= deadline_s:
                raise
        await trio.sleep(pause_s)
        pause_s *= 2


async def exists(services: Services, name: str) -> bool:
    """Return whether the store has a job under a pusher's own id. An id that is only reserved does not count, as its
    push may never come.

    Raises StoreAway, StoreRefused."""
    try:
        return isinstance(await services.store.get_job(await resolve(services, name)), JobView)
    except NotFound:
        return False


async def find(
    services: Services, job_id: str, *, named: bool = False, given: str = "", deadline_s: float | None = None
) -> JobView | Coming:
    """Return the job with a daemon's id, or a `Coming` if it is on its way into the store.

    `given`: the id in the request, for errors, which must not reveal that another tenant's job exists. `named`: the id
    was found in the store by a pusher's own id, so the job exists, even if the store has jobs with later ids already.

    Another tenant's job raises NotFound. While a job is on its way, its tenant may be unknown. Then a principal from
    whom some jobs are hidden waits until the store has the job, or raises NotYet at `deadline_s` (None: after
    `find_s`). Raises StoreAway, StoreRefused."""
    if deadline_s is None:
        deadline_s = trio.current_time() + services.config.find_s
    while True:
        found = await _find(services, job_id, named=named)
        if isinstance(found, JobView):
            if not services.principal.can_access(found.jobtype):
                raise not_found(given or job_id)
            return found
        if not services.principal.is_bound:
            return found
        if not services.principal.scopes and (named or services.journal.ids.is_of(job_id, services.principal.tenant)):
            return found
        who = services.principal
        if not who.sees_all and not named and services.journal.ids.is_of_another(job_id, who.tenant):
            raise not_found(given or job_id)  # at once, like an unknown id: a delay would reveal that others push
        if trio.current_time() >= deadline_s:
            raise NotYet(f"whether there is a job {(given or job_id)[:64]!r} is not known yet; try again")
        await trio.sleep(COMING_POLL_S)


async def _find(services: Services, job_id: str, *, named: bool) -> JobView | Coming:
    ids = parse_id(job_id)
    if ids is None:
        raise not_found(job_id)
    # This daemon knows which of its journaled jobs are not in the store yet.
    where = services.where(job_id)
    awaited = services.journal.ids.awaits(
        job_id, min(services.journal.read_point(Lane.JOBS, partition) for partition in where)
    )
    try:
        view = await services.store.get_job(job_id)
    except StoreAway:
        if awaited:
            return Coming(job_id, ids.at_ms)
        raise
    if isinstance(view, JobView):
        return view
    # A store in recovery cannot tell that a job never existed.
    unknown = isinstance(view, OnItsWay) or not services.control.settled(where)
    if awaited or named or (unknown and not never_given(services, ids, job_id)):
        return Coming(job_id, ids.at_ms)
    raise not_found(job_id)


async def expect_promised(services: Services, given: str) -> None:
    """Raise NotFound if a pusher's own id is only reserved, and its push did not come in time: the disk refused it,
    another job of the push was refused, or the daemon died.

    Two kinds of job may come later, so nothing is raised for them: jobs that this daemon journaled and could not
    confirm; and followers of an outcome whose ids were made for them, since these ids are never confirmed."""
    if is_made(given):
        return
    name = services.qualified_name(given)
    where = {partition_of_name(name, services.partitions)}
    applied = min(services.journal.read_point(Lane.CHANGES, partition) for partition in where)
    if applied < services.journal.unsure_to:
        return
    if await once_settled(services, where, partial(services.store.resolve, name, promised=True)) is None:
        raise NotFound(
            f"there is no job {given[:64]!r}: the id was reserved for a push that was not taken; if that was told to "
            "nobody because its daemon died, it may come with that daemon"
        )


def not_found(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id[:64]!r}; it never was, or its keep time is over")


def never_given(services: Services, ids: IdParts, job_id: str) -> bool:
    """Return whether this daemon's journal has not assigned this id yet. False for ids of other journals, where that is
    unknown."""
    source = services.journal.ids
    return ids.journal == source.journal and job_id > source.last_id


def worker_of(services: Services, view: JobView) -> str:
    """Return the name of the worker that runs or ended a job; empty if the job waits, or only another daemon knows the
    worker."""
    if view.state is State.RUNNING:
        running = services.runner.of(view.id).running(view.id)
        return bare(running.worker if running else view.worker)
    return bare(view.outcome.worker) if view.outcome and view.state.is_final else ""


async def look_up(services: Services, given: str, wait_s: float) -> JobView | Coming:
    """Find a job by the daemon's or the pusher's id (`given`), wait up to `wait_s` until it has ended, and return it. A
    `Coming` is returned if the job is still on its way into the store. Raises NotFound, StoreAway, NotYet."""
    job_id = await resolve(services, given)
    view = await wait_final(services, job_id, wait_s, named=job_id != given, given=given)
    lane, where = Lane.JOBS if job_id == given else Lane.CHANGES, services.where(job_id)
    if isinstance(view, Coming) and await services.control.wait_caught_up(lane, services.journal.end, INGEST_S, where):
        try:  # so a client that looks right after its push sees the whole job
            return await wait_final(services, job_id, 0.0, named=job_id != given, given=given)
        except (StoreAway, NotYet):
            return view  # the store went away, or a report is late
    return view


async def wait_final(
    services: Services, job_id: str, wait_s: float, *, named: bool = False, given: str = ""
) -> JobView | Coming:
    """Wait until the job has ended or `wait_s` is over, and return the job. Short outages of the store are waited out.
    `given`: the id in the request, for errors. `named`: the id was found by a pusher's own id, so the job exists.

    Needs `watch` to run for the job's partition."""
    deadline_s = trio.current_time() + wait_s
    while True:
        # Listen before looking: if the job ends between the two, the event is set.
        with services.waiters.waiting(job_id) as may_have_ended:
            left_s = deadline_s - trio.current_time()
            try:
                is_shown = await _wait_shown(services, job_id)
                view = await find(services, job_id, named=named, given=given)
                if not is_shown and not view.state.is_final:
                    raise NotYet(f"a report of job {(given or job_id)[:64]!r} is not in the store yet; look again")
                if named and isinstance(view, Coming):
                    await expect_promised(services, given)
            except (StoreAway, NotYet):
                if left_s <= 0:
                    raise
            else:
                if view.state.is_final or left_s <= 0:
                    return view
            with trio.move_on_after(left_s):
                await may_have_ended.wait()


async def _wait_shown(services: Services, job_id: str) -> bool:
    """Wait up to `find_s` until the store has applied all outcomes of this job that this daemon acknowledged. Return
    whether it has; if not, the store shows an old state of the job."""
    (partition,) = where = services.where(job_id)
    ended = services.runner.of(job_id).ended(job_id)
    is_applied = services.recent_outcomes.last(job_id) <= services.journal.read_point(Lane.OUTCOMES, partition)
    if is_applied and (ended is None or ended.fate is Fate.ENTRUSTED):
        return True
    return await services.control.wait_caught_up(Lane.OUTCOMES, services.journal.end, services.config.find_s, where)


async def take_result(services: Services, view: JobView | Coming, *, consume: bool) -> bytes | LargeResult | None:
    """Return the result of a job; None if it has no result yet, or no longer.

    `consume`: also delete the result in the store. A large result is not deleted here: the caller reads it with
    `read_pieces`, and then calls `drop_result`. Raises StoreAway, StoreRefused."""
    result = view.result if isinstance(view, JobView) else None
    if isinstance(result, bytes) and consume:
        await services.store.drop_result(view.id, result)
    return result


async def read_pieces(services: Services, large: LargeResult) -> AsyncIterator[bytes]:
    """Yield a large result piece by piece. Raises NotFound if it is deleted meanwhile, StoreAway, StoreRefused."""
    for at in range(large.pieces):
        piece = await services.store.get_piece(large, at)
        if piece is None:
            raise NotFound(f"the result of job {large.job_id} was dropped while it was read")
        yield piece


async def drop_result(services: Services, large: LargeResult) -> None:
    """Delete a large result after it was read, but no newer result of the job. Raises StoreAway, StoreRefused."""
    await services.store.drop_result(large.job_id, large)


async def watch(services: Services, partition: int) -> None:
    """Ask the store every `poll_s` which awaited jobs of a partition have ended, and wake the requests that wait for
    them."""
    while True:
        await trio.sleep(services.config.poll_s)
        # A job in this daemon's journal that is not applied cannot have ended: in a backlog that is most of them.
        read_point = services.journal.read_point(Lane.JOBS, partition)
        job_ids = [
            job_id
            for job_id in services.waiters.job_ids
            if partition_of(job_id, services.partitions) == partition
            and not services.journal.ids.awaits(job_id, read_point)
        ]
        for at in range(0, len(job_ids), JOBS_PER_CALL):
            piece = job_ids[at : at + JOBS_PER_CALL]
            try:
                unfinished = frozenset(await services.store.unfinished(piece))
            except StoreAway:
                break  # asked again after a pause; a waiter whose time is over asks the store itself
            except StoreRefused:
                unfinished = frozenset()  # so each waiter looks, and gets the error of its own job
            services.waiters.ring(job_id for job_id in piece if job_id not in unfinished)
