"""Leases of workers that pull jobs, and the heartbeats that renew them.

A lease covers the jobs of one claim: all of one type, under one fence, held by the worker itself. No daemon holds these
jobs, so they survive the end of any daemon, and any daemon takes their outcomes.
"""

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
import trio
from msgspec import Meta

from jqd.domain.errors import Closed, Conflict, NotFound, StoreAway
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.job import Held
from jqd.domain.lease import allowed_silence_s
from jqd.runner import Pull, Worker
from jqd.runner.presence import sign_every_s
from jqd.service.find import find, resolve
from jqd.service.services import Services
from jqd.service.settings import get_or_refresh
from jqd.service.workers import covers
from jqd.store import CALL_JOBS_MAX, NO_LOG, Hold, Log, lines_of

PROGRESS_LENGTH_MAX = 200  # characters: it is kept in the store's memory, and shown in one line
SOON_S = 0.1  # the least wait for jobs: a claim takes some milliseconds
ANEW_S = 5.0  # then a waiting poll begins anew, with the worker's latest registration
HANDED_S = 10.0  # after the wait, for a claim in progress and the lease that follows; both take milliseconds
# Share of the worker's allowed silence. The first jobs of a poll wait so long at most for the others, and jobs that are
# older than that are checked: the worker does not know of them yet, so its lease may end because of its silence.
PART = 0.5


class Lease(NamedTuple):
    lease_id: str
    """The fence of the lease, as text; empty: no job came in time."""
    jobs: list[Held]
    """The leased jobs, all of one jobtype."""
    silence_s: int = 0
    """The longest time in seconds that the worker may go without a heartbeat."""


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a job, as its worker reports it."""

    done: Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")] | None = None
    message: Annotated[str, Meta(max_length=PROGRESS_LENGTH_MAX)] | None = None
    at_ms: int = 0


def read_progress(packed: bytes) -> Progress | None:
    """Decode a job's progress as the store keeps it; None if it is unreadable."""
    try:
        return msgspec.msgpack.decode(packed, type=Progress)
    except DECODE_ERRORS:
        return None


class Lines(NamedTuple):
    """Lines that a job printed, as its worker sends them."""

    start: int
    """How many bytes the attempt had printed before these lines."""
    text: str


NO_LINES = Lines(0, "")


class Beat(NamedTuple):
    """The answer to a worker's heartbeat for one job that it runs."""

    cancelled: bool
    """Whether a client cancelled the job, so that the worker should stop it."""
    silence_s: int
    """The longest time in seconds until the next heartbeat; 0: none is needed, as a daemon holds the job."""
    log_end: int | None = None
    """How many bytes of the attempt's output the store has; None: nobody follows the job, so output need not be
    sent."""


async def pull(
    services: Services,
    worker_id: str,
    jobs_max: int,
    wait_s: float,
    heartbeat_s: float | None = None,
    warm: Sequence[str] = (),
) -> Lease:
    """Wait up to `wait_s` for jobs for a worker that pulls, and lease them to it. If none came, the returned lease has
    no jobs. If the call is cancelled, as when the client has disconnected, the jobs become ready again.

    `heartbeat_s`: longest time between heartbeats; None: as the worker registered it. `warm`: jobtypes whose jobs this
    worker gets before other waiting workers. Raises NotFound, Conflict for a worker that jobs are posted to, Closed
    while the daemon shuts down, StoreAway if the store does not confirm the lease."""
    deadline_s = trio.current_time() + max(wait_s, SOON_S)
    own = [services.qualified_name(name) for name in warm]
    while True:
        worker = await _puller(services, worker_id)  # as it is registered now; its wait is a sign of life
        if services.pulls.is_closed:
            raise Closed("this daemon is shutting down; ask another one", full=False)
        until_s = min(deadline_s, trio.current_time() + min(ANEW_S, sign_every_s(worker)))
        poll = await _wait(services, worker, jobs_max, until_s, heartbeat_s or worker.heartbeat_s, own)
        if poll.given:
            return Lease(str(poll.given[0].fence), poll.given, poll.silence_s)
        if trio.current_time() >= deadline_s:
            return Lease("", [])


def lost(services: Services, lease: Lease) -> None:
    """Make the jobs of a lease ready again, without counting an attempt, as the answer with them did not reach the
    worker whole."""
    services.runner.release_undelivered(((held.job.id, held.fence) for held in lease.jobs), maybe_delivered=True)


async def beat(
    services: Services,
    given: str,
    fence: int,
    progress: Progress | None = None,
    extend_s: float | None = None,
    lines: Lines = NO_LINES,
) -> Beat:
    """Renew the lease of a job after a heartbeat of its worker. Raises NotFound, Conflict if the lease is over.

    `given`: the daemon's or the pusher's id. `extend_s`: how long the worker may go without a heartbeat from now on.
    """
    job_id = await resolve(services, given)
    silence_s = allowed_silence_s(extend_s) if extend_s is not None else 0
    packed = msgspec.msgpack.encode(progress) if progress is not None else b""
    if services.principal.is_bound:
        # A job that the principal must not see raises NotFound before its lease is renewed.
        await find(services, job_id, named=job_id != given, given=given)
    log = NO_LOG if not lines.text else Log(fence, lines.start, lines_of(lines.text))
    (seen,) = await services.store.touch([(job_id, fence)], rows=False, silence_s=silence_s, progress=packed, log=log)
    if seen.hold is not Hold.STANDS:
        await find(services, job_id)
        raise Conflict(
            f"job {given} is not in lease {fence} any more: stop the work; whatever it gives but success is late"
        )
    services.workers.reached(seen.worker)
    return Beat(seen.cancelled, silence_s or seen.silence_s, seen.log_end)


async def _wait(
    services: Services,
    worker: Worker,
    jobs_max: int,
    deadline_s: float,
    heartbeat_s: float | None,
    warm: Sequence[str],
) -> Pull:
    """Register a poll for jobs, and wait until it has jobs, leasing them has failed, or `deadline_s` has come. Return
    the poll with its jobs. Jobs that were claimed for the poll but came too late become ready again."""
    with services.pulls.waiting(worker, jobs_max, heartbeat_s, warm) as poll:
        try:
            with trio.move_on_at(deadline_s):
                await poll.wait_first()
        finally:
            poll.close()
            with trio.move_on_after(HANDED_S, shield=True) as late:
                await poll.wait_first()
            if poll.given:
                with trio.move_on_after(min(HANDED_S, poll.silence_s * PART), shield=True):
                    await poll.wait()
            if trio.current_effective_deadline() == -math.inf:  # the client has gone
                services.runner.release_undelivered((held.job.id, held.fence) for held in poll.given)
        await trio.lowlevel.checkpoint_if_cancelled()
    if late.cancelled_caught and not poll.given:
        raise StoreAway("jobs were claimed, and the store does not say that they are handed over; ask again")
    if poll.given and services.clock.boot_s() - poll.handed_s > poll.silence_s * PART:
        await _drop_missed(services, poll)
    return poll


async def _drop_missed(services: Services, poll: Pull) -> None:
    """Remove from a poll the jobs that its worker no longer holds: leasing took so long that they timed out."""
    claims = [(held.job.id, held.fence) for held in poll.given]
    stands: list[Held] = []
    is_asked = False
    try:
        for at in range(0, len(claims), CALL_JOBS_MAX):
            seen = await services.store.touch(claims[at : at + CALL_JOBS_MAX], rows=False)
            stands += [held for held, each in zip(poll.given[at:], seen, strict=False) if each.hold is Hold.STANDS]
        is_asked = True
    finally:
        if not is_asked:
            services.runner.release_undelivered(claims)
    poll.given = stands


async def _puller(services: Services, worker_id: str) -> Worker:
    own = services.qualified_name(worker_id)
    if services.workers.get(own) is None:
        services.workers.reached(own)  # it may be known, but was silent for longer than its ttl
    worker = await get_or_refresh(services, lambda: services.workers.get(own))
    if worker is None or not covers(services, worker):
        raise NotFound(f"there is no worker {worker_id[:64]!r}; register it with POST /v1/workers, without a url")
    if worker.url is not None:
        raise Conflict(
            f"jobs are posted to worker {worker_id[:64]!r}, at its url; register without one to ask for them"
        )
    services.workers.reached(own)
    return worker
