"""Finds one job by its id, the daemon's or its pusher's own, and waits until it has ended.

A job that this daemon ends sets its waiters' events at once (waiters.py). Jobs end through other daemons, too:
one loop for each partition asks the store which of the awaited jobs are unfinished, hundreds in one call, and sets the
events of the others. Each waiter then looks its job up itself; an event that was set for nothing costs one look-up.
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

# Three renewals in motion: the store notes so soon that it was told all, which this daemon knows before.
SETTLED_S = 1.0
SETTLED_POLL_S = 0.02  # and twice as long each time: jobs may be told again for minutes
COMING_POLL_S = 0.05  # between looks for a job on its way: that takes some milliseconds
INGEST_S = 0.25  # for what was journaled here to come to the store: some milliseconds, unless it is behind
JOBS_PER_CALL = 500  # looked at in one function of the store: it stays below a millisecond or two

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Coming:
    """A job that was accepted and is not in the store yet."""

    id: str
    created_at_ms: int

    @property
    def state(self) -> State:
        return State.WAITING


async def resolve(services: Services, given: str) -> str:
    """Return the daemon's id of a job: only the store knows the jobs behind pushers' own ids.

    Raises NotFound; StoreUnsettled while the store is in recovery; StoreAway, StoreRefused.
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
    """Ask the store, and ask again for a moment where it is not settled: it notes that it is, a moment after the last
    daemon knows. Raises StoreUnsettled, and
    what `ask` raises.
    """
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
    """Return whether the store has a job under a pusher's own id, not only a reservation, whose daemon may die.

    Raises StoreAway, StoreRefused.
    """
    try:
        return isinstance(await services.store.get_job(await resolve(services, name)), JobView)
    except NotFound:
        return False


async def find(
    services: Services, job_id: str, *, named: bool = False, given: str = "", deadline_s: float | None = None
) -> JobView | Coming:
    """Return the job with a daemon's id, or that it is on its way to the store. Raises NotFound, StoreAway,
    StoreRefused.

    `given`: the id in the request, for the error: it must not reveal that another tenant's job exists.
    `named`: the store gave this id for a pusher's own, so there is such a job. Its id was taken before the store was
    asked for the name: jobs with later ids may have come before it.

    Another tenant's job is not found. Whose a job on its way is may not be known yet: a bound principal waits until the
    store has it, for `find_s` or until `deadline_s`. Raises NotYet then.
    """
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
            raise not_found(given or job_id)  # at once, as where there is none: else it tells when others push
        if trio.current_time() >= deadline_s:
            raise NotYet(f"whether there is a job {(given or job_id)[:64]!r} is not known yet; try again")
        await trio.sleep(COMING_POLL_S)


async def _find(services: Services, job_id: str, *, named: bool) -> JobView | Coming:
    ids = parse_id(job_id)
    if ids is None:
        raise not_found(job_id)
    # This daemon knows by itself what it journaled and has not applied yet.
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
    # While daemons still tell the store what it forgot, it cannot say of any job that it never was.
    unknown = isinstance(view, OnItsWay) or not services.control.settled(where)
    if awaited or named or (unknown and not never_given(services, ids, job_id)):
        return Coming(job_id, ids.at_ms)
    raise not_found(job_id)


async def expect_promised(services: Services, given: str) -> None:
    """Raise NotFound where a pusher's own id is only reserved and the push did not come in time: its disk refused it,
    another job of it was refused, or its daemon died.

    What this daemon wrote and could not confirm may be on its way for longer, and so may what an outcome made, which is
    never confirmed: it comes in any case.
    """
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
    """Return whether our journal cannot have given this id yet. Of others it is unknown: their clocks may be ahead."""
    source = services.journal.ids
    return ids.journal == source.journal and job_id > source.last_id


def worker_of(services: Services, view: JobView) -> str:
    """Return the worker that runs a job, or ended it. Empty: the job waits, or only another daemon knows."""
    if view.state is State.RUNNING:
        running = services.runner.of(view.id).running(view.id)
        return bare(running.worker if running else view.worker)
    return bare(view.outcome.worker) if view.outcome and view.state.is_final else ""


async def look_up(services: Services, given: str, wait_s: float) -> JobView | Coming:
    """As `wait_final`, by the daemon's or the pusher's id."""
    job_id = await resolve(services, given)
    view = await wait_final(services, job_id, wait_s, named=job_id != given, given=given)
    lane, where = Lane.JOBS if job_id == given else Lane.CHANGES, services.where(job_id)
    if isinstance(view, Coming) and await services.control.wait_caught_up(lane, services.journal.end, INGEST_S, where):
        try:  # a client that looks behind its push sees the whole job
            return await wait_final(services, job_id, 0.0, named=job_id != given, given=given)
        except (StoreAway, NotYet):
            return view  # as before it went, or before a report that is late
    return view


async def wait_final(
    services: Services, job_id: str, wait_s: float, *, named: bool = False, given: str = ""
) -> JobView | Coming:
    """Return the job when it has ended or `wait_s` is over. The store may be away meanwhile.

    `watch` must be running for the partition of the job.
    """
    deadline_s = trio.current_time() + wait_s
    while True:
        # Listen first, look then: an ending between the two sets the event.
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
    """Wait up to `find_s` until the store has the outcomes of the job that this daemon acknowledged, and return whether
    it has. Before that the store shows an old state."""
    (partition,) = where = services.where(job_id)
    ended = services.runner.of(job_id).ended(job_id)
    is_applied = services.recent_outcomes.last(job_id) <= services.journal.read_point(Lane.OUTCOMES, partition)
    if is_applied and (ended is None or ended.fate is Fate.ENTRUSTED):
        return True
    return await services.control.wait_caught_up(Lane.OUTCOMES, services.journal.end, services.config.find_s, where)


async def take_result(services: Services, view: JobView | Coming, *, consume: bool) -> bytes | LargeResult | None:
    """Return the result of a job; None when there is none, not yet or no longer.

    `consume`: drop it, unless it is large: then it is read first. Raises StoreAway, StoreRefused.
    """
    result = view.result if isinstance(view, JobView) else None
    if isinstance(result, bytes) and consume:
        await services.store.drop_result(view.id, result)
    return result


async def read_pieces(services: Services, large: LargeResult) -> AsyncIterator[bytes]:
    """A large result, piece by piece. Raises NotFound where it is dropped meanwhile, StoreAway, StoreRefused."""
    for at in range(large.pieces):
        piece = await services.store.get_piece(large, at)
        if piece is None:
            raise NotFound(f"the result of job {large.job_id} was dropped while it was read")
        yield piece


async def drop_result(services: Services, large: LargeResult) -> None:
    """Drop what was read; no newer one of the same job. Raises StoreAway, StoreRefused."""
    await services.store.drop_result(large.job_id, large)


async def watch(services: Services, partition: int) -> None:
    """Read all awaited jobs of one partition from the store every `poll_s`."""
    while True:
        await trio.sleep(services.config.poll_s)
        # What is in our journal and not applied cannot have ended: under a backlog that is most of them.
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
                break  # asked again after a pause; a waiter whose time is over looks itself, and reports it
            except StoreRefused:
                unfinished = frozenset()  # each waiter looks itself, and gets the error of its own job
            services.waiters.ring(job_id for job_id in piece if job_id not in unfinished)
