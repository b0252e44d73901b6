"""Finding a job by its id, the daemon's or its pusher's own, wherever it is on its way."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import trio

from jqd.domain.errors import NotFound, NotYet, StoreAway, StoreUnsettled
from jqd.domain.job import Fate, State, is_name
from jqd.domain.jobid import IdParts, parse_id, partition_of_name
from jqd.domain.record import Lane
from jqd.domain.tenant import bare
from jqd.service.services import Services
from jqd.store import JobView, OnItsWay

NOTED_S = 1.0  # three renewals in motion: so soon the store notes what this daemon knows, that it was told all
NOTED_POLL_S = 0.02
COMING_POLL_S = 0.05  # between looks for a job on its way: that takes some milliseconds
CLOCK_AHEAD_MS = 60_000  # other daemons' clocks may be ahead of ours by this and their ids still be believed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Coming:
    """A job that was taken but is not in the store yet."""

    id: str
    created_at_ms: int

    @property
    def state(self) -> State:
        """It waits to be ingested."""
        return State.WAITING


async def resolve(services: Services, given: str) -> str:
    """The daemon's id of a job. Only the store knows whose a pusher's own id is.

    Raises NotFound; StoreUnsettled while the store is being told what it forgot; StoreAway, StoreRefused.
    """
    if parse_id(given) is not None:
        return given
    if not is_name(given):
        raise not_found(given)
    name = services.qualified_name(given)
    where = {partition_of_name(name, services.partitions)}
    job_id = await once_noted(services, where, partial(services.store.resolve, name))
    if job_id is None:
        raise not_found(given)
    return job_id


async def once_noted(services: Services, where: Collection[int], ask: Callable[[], Awaitable[T]]) -> T:
    """What the store answers, which it does not while it is told what it forgot.

    It goes by its own note that this is over, so that no daemon's opinion is late; that note comes a moment after the
    last daemon knows. Raises StoreUnsettled, and what `ask` raises.
    """
    deadline_s = trio.current_time() + NOTED_S
    while True:
        try:
            return await ask()
        except StoreUnsettled:
            if not services.control.settled(where) or trio.current_time() >= deadline_s:
                raise
        await trio.sleep(NOTED_POLL_S)


async def stands(services: Services, name: str) -> bool:
    """Whether a job stands under a pusher's own id. Else that is only promised, and whoever it is promised to may die.

    Raises StoreAway, StoreRefused.
    """
    try:
        return isinstance(await services.store.get_job(await resolve(services, name)), JobView)
    except NotFound:
        return False


async def find(
    services: Services, job_id: str, *, named: bool = False, given: str = "", deadline_s: float | None = None
) -> JobView | Coming:
    """The job of a daemon's id, or that it is on its way to the store. Raises NotFound, StoreAway, StoreRefused.

    `given`: how it was asked for, for the error: of another's job it must not tell that it is there.
    `named`: the store gave this id for a pusher's own, so there is such a job. Its id was taken before the store was
    asked for the name: jobs with later ids may have come before it.

    Another tenant's is not found. Of an id that is on its way whose it is may not be known here: whoever does not see
    all waits until the store has it, at most `find_s`, or until `deadline_s`. Raises NotYet then.
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
        if not services.principal.scopes and (named or services.recent_pushes.is_of(job_id, services.principal.tenant)):
            return found
        if trio.current_time() >= deadline_s:
            raise NotYet(f"whether there is a job {(given or job_id)[:64]!r} is not known yet; try again")
        await trio.sleep(COMING_POLL_S)


async def _find(services: Services, job_id: str, *, named: bool) -> JobView | Coming:
    ids = parse_id(job_id)
    if ids is None:
        raise not_found(job_id)
    # Of what this daemon journaled and has not applied yet it knows more than the store, and without it.
    where = services.where(job_id)
    awaited = services.recent_pushes.awaits(
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


async def wait_shown(services: Services, job_id: str) -> bool:
    """Whether the store has what this daemon was told of the job, within `find_s`: what it shows else is known to be
    old, and whoever was answered that his report is taken looks for it here."""
    (partition,) = where = services.where(job_id)
    ended = services.runner.ended(job_id)
    is_told = services.recent_outcomes.last(job_id) <= services.journal.read_point(Lane.OUTCOMES, partition)
    if is_told and (ended is None or ended.fate is Fate.ENTRUSTED):
        return True
    return await services.control.wait_caught_up(Lane.OUTCOMES, services.journal.end, services.config.find_s, where)


async def expect_promised(services: Services, given: str) -> None:
    """Raises NotFound where nothing under a pusher's own id is in the store but that it was reserved, and the push did
    not come in time: its disk refused it, another job of it was refused, or its daemon died.

    What this daemon wrote and could not confirm may be on its way for longer.
    """
    name = services.qualified_name(given)
    where = {partition_of_name(name, services.partitions)}
    if (
        min(services.journal.read_point(Lane.CHANGES, partition) for partition in where)
        < services.recent_pushes.unsure_to
    ):
        return
    if await once_noted(services, where, partial(services.store.resolve, name, promised=True)) is None:
        raise NotFound(
            f"there is no job {given[:64]!r}: the id was reserved for a push that was not taken; if that was told to "
            "nobody because its daemon died, it may come with that daemon"
        )


def not_found(job_id: str) -> NotFound:
    """The error for a job that is not there."""
    return NotFound(f"there is no job {job_id[:64]!r}; it never was, or its keep time is over")


def never_given(services: Services, ids: IdParts, job_id: str) -> bool:
    """Whether no journal can have given this id yet: ours knows its last one, others' clocks are about ours."""
    source = services.journal.ids
    if ids.journal != source.journal:
        return ids.at_ms > services.clock.wall_ms() + CLOCK_AHEAD_MS
    return job_id > source.last_id if source.last_id else ids.at_ms > source.last_ms


def worker_of(services: Services, view: JobView) -> str:
    """Who has a job in hand, or ended it. Empty: it waits, or only the daemon that has it knows."""
    if view.state is State.RUNNING:
        running = services.runner.running(view.id)
        return bare(running.worker if running else view.worker)
    return bare(view.outcome.worker) if view.outcome and view.state.is_final else ""
