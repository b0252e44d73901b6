"""Finding a job by its id, the daemon's or its pusher's own, wherever it is on its way."""

from jqd.api.parts import Parts
from jqd.api.problems import RETRY_AFTER_S, Problem
from jqd.api.show import Coming
from jqd.errors import StoreAway
from jqd.job import NAME_LENGTH_MAX
from jqd.jobid import IdParts, parse_id, partition_of_name
from jqd.record import Lane
from jqd.store import JobView, OnItsWay

CLOCK_AHEAD_MS = 60_000  # other daemons' clocks may be ahead of ours by this and their ids still be believed


async def resolve(parts: Parts, given: str) -> str:
    """The daemon's id of a job. Only the store knows whose a pusher's own id is.

    Raises Problem 404, or 503 while the store is being told what it forgot; StoreAway, StoreRefused.
    """
    if parse_id(given) is not None:
        return given
    if not 0 < len(given) <= NAME_LENGTH_MAX or not given.isprintable():
        raise not_found(given)
    job_id = await parts.store.resolve(given)
    if job_id is not None:
        return job_id
    if not parts.control.settled({partition_of_name(given, parts.partitions)}):
        raise Problem(
            503,
            "the store is being told what it forgot, and cannot say yet whose id this is",
            retry_after_s=RETRY_AFTER_S,
        )
    raise not_found(given)


async def find(parts: Parts, job_id: str, *, named: bool = False) -> JobView | Coming:
    """The job of a daemon's id, or that it is on its way to the store. Raises Problem 404, StoreAway, StoreRefused.

    `named`: the store gave this id for a pusher's own, so there is such a job. Its id was taken before the store was
    asked for the name: jobs with later ids may have come before it.
    """
    ids = parse_id(job_id)
    if ids is None:
        raise not_found(job_id)
    # Of what this daemon journaled and has not applied yet it knows more than the store, and without it.
    where = parts.where(job_id)
    awaited = parts.taken.awaits(job_id, min(parts.journal.read_point(Lane.JOBS, partition) for partition in where))
    try:
        view = await parts.store.get_job(job_id)
    except StoreAway:
        if awaited:
            return Coming(job_id, ids.at_ms)
        raise
    if isinstance(view, JobView):
        return view
    # While daemons still tell the store what it forgot, it cannot say of any job that it never was.
    unknown = isinstance(view, OnItsWay) or not parts.control.settled(where)
    if awaited or named or (unknown and not never_given(parts, ids, job_id)):
        return Coming(job_id, ids.at_ms)
    raise not_found(job_id)


def not_found(job_id: str) -> Problem:
    """404."""
    return Problem(404, f"there is no job {job_id[:64]!r}; it never was, or its keep time is over")


def never_given(parts: Parts, ids: IdParts, job_id: str) -> bool:
    """Whether no journal can have given this id yet: ours knows its last one, others' clocks are about ours."""
    source = parts.journal.ids
    if ids.journal != source.journal:
        return ids.at_ms > parts.clock.wall_ms() + CLOCK_AHEAD_MS
    return job_id > source.last_id if source.last_id else ids.at_ms > source.last_ms
