"""Cancels and deletes jobs. A cancel is journaled, and the store decides what becomes of the job.

A job's *generation* is the number of its content: a retry, or a push that replaces the job, gives it a new one. A
cancel applies to all generations up to a given one.
"""

from collections.abc import Mapping, Sequence

from jqd.domain.errors import Conflict, Denied, NotYet, StoreAway
from jqd.domain.job import State
from jqd.domain.jobid import parse_id
from jqd.domain.record import Lane, cancel_of, encode_cancels, only_generation
from jqd.domain.tokens import Role
from jqd.service.edit import latest
from jqd.service.find import Coming, find, never_given, not_found, resolve
from jqd.service.server_only import expect_allowed, may_change
from jqd.service.services import Services
from jqd.service.settings import record
from jqd.store import JobView, OnItsWay

CANCELS_MAX = 3  # cancels per request: a job that is replaced while it is cancelled is cancelled again


async def cancel(services: Services, given: str) -> State:
    """Cancel a job and return its state. CANCELLED means that the job will never start. `given`: the daemon's or
    pusher's id.

    If the returned state is not final, the cancel is journaled, but the job is running or the store did not confirm the
    cancel in time. Raises NotFound, JournalRefused, StoreRefused."""
    job_id = await resolve(services, given)
    is_away = False
    try:
        before = await find(services, job_id, named=job_id != given, given=given)
    except StoreAway:
        is_away = True
        ids = parse_id(job_id)
        if ids is None or never_given(services, ids, job_id):
            raise not_found(job_id) from None
        if services.principal.is_bound and (
            services.principal.scopes or not services.journal.ids.is_of(job_id, services.principal.tenant)
        ):
            raise  # only the store can tell whose job it is
        # The cancel meets the job when the store is back. If there is no such job, it does no harm.
        before = Coming(job_id, ids.at_ms)
    if not may_change(services, before):
        expect_allowed(services, [(await latest(services, given)).jobtype])
    for number in range(CANCELS_MAX):
        if before.state is State.CANCELLED and not services.control.settled(services.where(job_id)):
            return State.RUNNING  # the store rolled back: a daemon may run the job and not have told the store yet
        if before.state.is_final and before.state is not State.CANCELLED:
            return before.state
        # A cancelled job is cancelled, too: a retry of it may be in the journal and on its way.
        if not number:
            await record(services, "job cancel", given)
        unsure = State.WAITING if before.state is State.CANCELLED else before.state
        up_to = await record_cancels(services, [before], is_away=is_away)
        if up_to is None:
            return unsure
        try:
            after = await services.store.get_job(job_id)
        except StoreAway:
            return unsure
        if not services.control.settled(services.where(job_id)):
            return State.RUNNING  # the store rolled back meanwhile, as above
        if isinstance(after, OnItsWay) and after.held:
            return State.RUNNING  # the daemon that runs it reported it before the store got the job itself
        if not isinstance(after, JobView):
            return State.CANCELLED  # the job is not in the store yet; the store keeps the cancel for it
        if after.state.is_final or after.generation <= up_to[job_id]:
            return after.state
        expect_allowed(services, [after.jobtype])
        before = after  # it was replaced meanwhile, and the cancel counts for the old content only
    return before.state


async def record_cancels(
    services: Services, found: Sequence[JobView | Coming], *, as_seen: bool = False, is_away: bool = False
) -> dict[str, int] | None:
    """Journal cancels of these jobs, and wait until the store has applied them: then none of these jobs starts any
    more.

    Returns job id → last generation that is cancelled; None if the store is not known to have applied the cancels.
    `as_seen`: cancel only the contents in `found`, and no replacement of a job that came later. `is_away`: the store
    did not answer a moment ago, so do not wait for it, and return None."""
    up_to, sure = await cancelled_to(services, found, as_seen=as_seen, is_away=is_away)
    position = write_cancels(services, up_to)
    await services.journal.wsync(position, shielded=True)
    if is_away:
        return None
    where = services.where(*(job.id for job in found))
    applied = await services.control.wait_caught_up(Lane.CANCELS, position, services.config.cancel_s, where)
    # While the store is in recovery, a daemon may still report that it runs such a job.
    return up_to if applied and services.control.settled(where) and sure else None


def write_cancels(services: Services, up_to: Mapping[str, int]) -> int:
    """Append cancels to the journal, and return the journal's position after them. They are on disk after a `wsync` to
    that position. `up_to`: job id → number of the last version of the job (each replacement is one) to cancel."""
    records = [cancel_of(job_id, generation) for job_id, generation in up_to.items()]
    return services.journal.write(Lane.CANCELS, len(records), encode_cancels(records))


async def cancelled_to(
    services: Services, found: Sequence[JobView | Coming], *, as_seen: bool = False, is_away: bool = False
) -> tuple[dict[str, int], bool]:
    """Return job id → the last generation to which a cancel made now applies, and whether the store gave all these
    generations.

    A job under its pusher's id may have a replacement that is acknowledged but not in the store yet: the cancel applies
    to the replacement, too. With `as_seen` it applies only to the contents in `found`. This is for jobs that are
    cancelled because a parent failed, since a replacement may have other parents; `Flow.cancelled_for` recognizes such
    cancels by their generation."""
    seen = {job.id: 0 if isinstance(job, Coming) else job.generation for job in found}
    moving = [
        job.id for job in found if isinstance(job, Coming) or job.name or job.generation or job.state is State.CANCELLED
    ]
    up_to, sure = await _up_to_now(services, [] if as_seen else moving, is_away=is_away)
    return {
        job_id: only_generation(generation) for job_id, generation in seen.items()
    } if as_seen else seen | up_to, sure


async def _up_to_now(
    services: Services, job_ids: Sequence[str], *, is_away: bool = False
) -> tuple[dict[str, int], bool]:
    """Return job id → a generation higher than that of any content which the job has had, and whether the store gave
    all these generations.

    While the store is away, this daemon makes the generation from its clock (microseconds), as the store does."""
    numbers: dict[frozenset[int], int] = {}  # one for each partition
    sure = True
    for job_id in job_ids:
        where = services.where(job_id)
        if where not in numbers:
            try:
                numbers[where] = 0 if is_away else await services.store.reserve_change(job_id)
            except StoreAway:
                is_away = True
            if is_away:
                numbers[where], sure = (services.clock.wall_ms() + 1) * 1_000, False
    return {job_id: numbers[services.where(job_id)] for job_id in job_ids}, sure


async def purge(services: Services, given: str) -> None:
    """Delete an ended job for good. Raises NotFound, Conflict if it has not ended, Denied, NotYet, StoreAway,
    StoreRefused."""
    if not services.principal.may(Role.OPERATOR):
        raise Denied("to delete a job for good is for operators; a cancel leaves what is known of it")
    job_id = await resolve(services, given)
    if services.principal.is_bound or not services.principal.is_server:
        # A job that the principal must not see raises NotFound before anything is done.
        found = await find(services, job_id, named=job_id != given, given=given)
        if not may_change(services, found):
            expect_allowed(services, [(await latest(services, given)).jobtype])
    await record(services, "job delete", given)
    if await services.store.delete_dead([job_id]):
        return
    view = await find(services, job_id)
    if view.state.is_final:
        raise NotYet(f"jobs that wait for job {given} are being told how it ended; delete it after that")
    raise Conflict(f"job {given} has not ended: it is {view.state.value}; cancel it first")
