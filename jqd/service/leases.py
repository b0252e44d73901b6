"""Leases of workers that pull, and the heartbeats that renew them.

A lease is what one claim gave: jobs of one type, under one fence, held by the worker itself. No daemon holds them, so
they survive any daemon, and any daemon takes their outcomes.
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
SOON_S = 0.1  # without a wait: a look and a claim, which take some milliseconds
ANEW_S = 5.0  # a poll that waits longer begins anew: so long an older registration of its worker may count
HANDED_S = 10.0  # for a claim and a hand-over under way when the wait is over; both take milliseconds
# Of the time for which a worker may be silent: so long at most the jobs that came wait for the rest, and later they are
# checked first. The worker does not know of them yet, and whoever watches leases would take it for silent.
PART = 0.5


class Lease(NamedTuple):
    lease_id: str
    """Empty: there is none, for nothing came in time."""
    jobs: list[Held]
    """The leased jobs, all of one jobtype."""
    silence_s: int = 0
    """For how long its worker may be silent."""


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """How far a worker is with a job."""

    done: Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")] | None = None
    message: Annotated[str, Meta(max_length=PROGRESS_LENGTH_MAX)] | None = None
    at_ms: int = 0


def read_progress(packed: bytes) -> Progress | None:
    """Read progress from the store, whatever lies there."""
    try:
        return msgspec.msgpack.decode(packed, type=Progress)
    except DECODE_ERRORS:
        return None


class Lines(NamedTuple):
    """The lines that a job printed."""

    start: int
    """How many bytes its attempt printed before."""
    text: str


NO_LINES = Lines(0, "")


class Beat(NamedTuple):
    """The answer to a heartbeat."""

    cancelled: bool
    """Somebody wants the job stopped."""
    silence_s: int
    """For so long no heartbeat is needed; 0: a daemon holds the job, and waits for its outcome."""
    log_end: int | None = None
    """Somebody watches the job, and so many bytes of what its attempt printed are known."""


async def pull(
    services: Services,
    worker_id: str,
    jobs_max: int,
    wait_s: float,
    heartbeat_s: float | None = None,
    warm: Sequence[str] = (),
) -> Lease:
    """Wait for jobs for a worker that pulls; none when the time is over. A worker that is `warm` for a jobtype gets its
    jobs before others that wait as well. If cancelled, as when the client has left,
    jobs that came go back. Raises NotFound, Conflict for a worker that
    jobs are posted to, Closed while the daemon shuts down, StoreAway when a hand-over cannot be finished.
    """
    deadline_s = trio.current_time() + max(wait_s, SOON_S)
    own = [services.qualified_name(name) for name in warm]
    while True:
        worker = await _puller(services, worker_id)  # as it is registered now; that it waits is a sign of life
        if services.pulls.is_closed:
            raise Closed("this daemon is shutting down; ask another one", full=False)
        until_s = min(deadline_s, trio.current_time() + min(ANEW_S, sign_every_s(worker)))
        poll = await _wait(services, worker, jobs_max, until_s, heartbeat_s or worker.heartbeat_s, own)
        if poll.given:
            return Lease(str(poll.given[0].fence), poll.given, poll.silence_s)
        if trio.current_time() >= deadline_s:
            return Lease("", [])


def lost(services: Services, lease: Lease) -> None:
    """Give the jobs of a lease back untried: the answer did not reach its worker whole."""
    services.runner.release_undelivered(((held.job.id, held.fence) for held in lease.jobs), maybe_delivered=True)


async def beat(
    services: Services,
    given: str,
    fence: int,
    progress: Progress | None = None,
    extend_s: float | None = None,
    lines: Lines = NO_LINES,
) -> Beat:
    """Renew the lease of a job by a heartbeat; `given`: the daemon's or the pusher's id. Raises NotFound, Conflict.

    `extend_s`: from now on the worker may be silent for so long.
    """
    job_id = await resolve(services, given)
    silence_s = allowed_silence_s(extend_s) if extend_s is not None else 0
    packed = msgspec.msgpack.encode(progress) if progress is not None else b""
    if services.principal.is_bound:
        # Another's job is not found, before its lease is renewed.
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
    """Wait for one poll: until it has jobs, the hand-over failed, or the time is over. Jobs that arrived are the
    worker's and are answered; the rest goes back when the store is there."""
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
    """Keep only the jobs of a late hand-over that the worker still holds; the rest timed out or went back."""
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
        services.workers.reached(own)  # it was silent for longer than its ttl, and speaks again
    worker = await get_or_refresh(services, lambda: services.workers.get(own))
    if worker is None or not covers(services, worker):
        raise NotFound(f"there is no worker {worker_id[:64]!r}; register it with POST /v1/workers, without a url")
    if worker.url is not None:
        raise Conflict(
            f"jobs are posted to worker {worker_id[:64]!r}, at its url; register without one to ask for them"
        )
    services.workers.reached(own)
    return worker
