"""Asks daemons for jobs. For a worker that daemons cannot reach, as it needs no port (docs/operate/SECOND-MACHINE.md).

    room for jobs ──▶ POST /v1/leases ──▶ a batch of the service ──▶ outcomes, until a daemon has taken them

Each daemon is asked by a task of its own, one lease after the other, so that an unavailable daemon delays no other. The
jobs run in other tasks. If jobs are quick, the worker asks for more than can begin at once (`ahead.py`).
"""

from collections.abc import Awaitable, Callable, Sequence

import httpx2
import msgspec
import trio
from msgspec import Raw

from jqd.domain.clock import Clock, SystemClock
from jqd.domain.log import get_logger
from jqd.worker.ahead import Ahead
from jqd.worker.batch import LeasedBatch
from jqd.worker.lease import INVALID_RESPONSE, REPORT_JOBS_MAX, UNREADABLE, Lease, NoLease, Outcome, ask
from jqd.worker.process_pool import ProcessPool
from jqd.worker.refusal import Message
from jqd.worker.register import Registration
from jqd.worker.service import Service
from jqd.worker.wire import CANCELLED_STATUS, MSGPACK, BatchIn, JobIn

SILENCE_S_DEFAULT = 10.0  # a worker that is silent for so long counts as dead: its jobs run again elsewhere
REST_S = 1.0  # pause after a failed request, and while nothing can be run here
NO_ROOM = "it could not begin at once, and this worker asks ahead for quick jobs with attempts left alone"
LEFT_S = 5.0  # at the end, for daemons to take the last outcomes; other jobs run again elsewhere


class _Leased(msgspec.Struct):
    lease_id: str | None
    jobs: list[JobIn]


_NIL, _NONE = Raw(msgspec.msgpack.encode(None)), Raw(msgspec.msgpack.encode([]))


class _RawOutcome(Outcome, kw_only=True):
    """An outcome whose values stay encoded, so that they are passed on unchanged."""

    result: Raw = _NIL
    error: Raw = _NIL
    jobs: Raw = _NONE


_decode_leased = msgspec.msgpack.Decoder(_Leased).decode
_decode_outcome = msgspec.msgpack.Decoder(_RawOutcome).decode


class Puller:
    """Leases jobs from daemons, runs them, and reports their outcomes."""

    def __init__(
        self,
        service: Service,
        places: Sequence[Registration],
        http: httpx2.AsyncClient,
        *,
        process_pool: ProcessPool | None = None,
        silence_s: float = SILENCE_S_DEFAULT,
        clock: Clock | None = None,
    ) -> None:
        """`process_pool`: the pool that runs the service's jobs; None: this process runs them."""
        self._process_pool = process_pool
        self._service, self._places, self._http, self._silence_s = service, places, http, silence_s
        self._clock = clock or SystemClock()
        self._freed = trio.Event()
        self._coming = 0  # jobs that are leased, and not in the service yet
        self._ahead = Ahead()
        self.stopping, self.ended = trio.Event(), trio.Event()
        """`stopping`: set it to stop asking for jobs. `ended`: set when daemons have taken all outcomes."""
        self._log = get_logger("worker")

    async def run(self) -> None:
        """Ask for jobs and run them until stopped; then wait until daemons have taken all outcomes."""
        try:
            async with trio.open_nursery() as leases:
                for place in self._places:
                    leases.start_soon(self._ask, place, leases)
            self.ended.set()
        finally:
            self._service.close()

    async def _ask(self, place: Registration, leases: trio.Nursery) -> None:
        """Ask a daemon for as many jobs as there is room for, again and again until stopped. A request under way is
        never cancelled, for its answer may bring jobs."""
        while not self.stopping.is_set():
            if not place.is_known or self._service.refusing() is not None:
                await self._rest(REST_S / 4)
            elif (wanted := self._wanted()) < 1:
                await self._wait_freed(REST_S / 4)  # with a timeout: a process that replaces a killed one sets no event
            elif (leased := await self._lease(place, wanted)) is not None:
                self._coming += len(leased.jobs)
                if not await leases.start(self._work, place, leased):
                    await self._wait_freed(REST_S)  # all went back: perhaps only the other kind of function has room

    def _free(self, jobtype: str | None = None) -> int:
        """Return how many more jobs of a type (None: of any type) may begin now. A negative number: so many wait."""
        free, process_pool = self._service.free, self._process_pool
        return free if process_pool is None else min(free, process_pool.free(jobtype))

    def _wanted(self) -> int:
        in_flight = self._service.jobs_in_flight
        return self._ahead.wanted(self._free() + in_flight, in_flight + self._coming, self._clock.mono_s())

    async def _lease(self, place: Registration, wanted: int) -> _Leased | None:
        asked = {"worker_id": place.worker_id, "max_jobs": min(wanted, REPORT_JOBS_MAX), "heartbeat": self._silence_s}
        try:
            leased = await ask(self._http, place.daemon, asked, _decode_leased)
        except NoLease as error:
            self._log.debug("worker.no_lease", daemon=place.daemon, why=str(error))
            place.hurry()  # register again: it may have forgotten this worker, or another daemon may answer
            await self._rest(REST_S)
            return None
        return leased if leased.lease_id is not None else None

    async def _work(self, place: Registration, leased: _Leased, task_status: trio.TaskStatus[bool]) -> None:
        """Run the jobs of a lease, and report them until daemons have taken all outcomes. `task_status` gets True if
        any job of the lease is to run here, False if all are handed back."""
        service, lease_id, jobs = self._service, leased.lease_id or "", leased.jobs
        self._coming -= len(jobs)
        self._freed.set()  # jobs that go back take no room
        kept, back = ([], jobs) if service.refusing() is not None else self._sorted(jobs)
        task_status.started(bool(kept))

        def settle(job_id: str, outcome: bytes) -> None:
            report = _read(job_id, outcome)
            lease.put(report)
            ran = report.type != "refused" and report.status != CANCELLED_STATUS
            self._ahead.ended(jobs[0].name, self._clock.mono_s(), ran=ran)
            self._freed.set()

        def stop(job_id: str) -> None:
            for item in [item for item in batch.items if item.job_id == job_id and not item.ended]:
                service.stop(item)

        def daemon() -> str:
            return place.answering

        lease = Lease(lease_id, [job.job_id for job in jobs], self._http, daemon, self._silence_s, place.hurry)
        batch = LeasedBatch(MSGPACK, len(kept), settle, self._clock.mono_s(), lease_id)
        lease.stop = stop  # `lease.printed` stays unset: `ProgressReporter` sends jobs' output, and sooner
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lease.beat)
            nursery.start_soon(lease.report)
            for job in back:
                lease.put(Outcome(job_id=job.job_id, type="refused", message=service.refusing() or NO_ROOM))
            if kept:
                await service.run(batch, BatchIn(kept), service.room, _receive, _send)
            await lease.wait_taken()
            nursery.cancel_scope.cancel()

    def _sorted(self, jobs: Sequence[JobIn]) -> tuple[list[JobIn], list[JobIn]]:
        """Divide the jobs of a lease, and return (jobs to run, jobs to hand back). Handed back are jobs for which there
        is no room, and jobs on their last attempt that cannot begin at once."""
        service, now_s, jobtype = self._service, self._clock.mono_s(), jobs[0].name
        begin, in_flight = max(0, self._free(jobtype)), service.jobs_in_flight
        self._ahead.arrived(jobtype, 0, now_s)
        room = max(begin, self._ahead.window(self._free() + in_flight, now_s) - in_flight)
        kept, back = list(jobs[:begin]), list(jobs[room:])
        for job in jobs[begin:room]:
            (back if job.attempt > job.max_retry else kept).append(job)
        if len(back) > len(jobs[room:]):
            self._ahead.stop_asking_ahead(now_s)
        self._ahead.arrived(jobtype, len(kept), now_s)
        return kept, back

    async def _wait_freed(self, seconds: float) -> None:
        if self._freed.is_set():  # else keep the event: the task of another daemon may wait for it
            self._freed = trio.Event()
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for event in (self._freed, self.stopping):
                    nursery.start_soon(then_cancel, event.wait, nursery)

    async def _rest(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.stopping.wait()


def _read(job_id: str, outcome: bytes) -> Outcome:
    try:
        return _decode_outcome(outcome)
    except UNREADABLE as error:  # a job's result may be encodable but not decodable
        why = f"{INVALID_RESPONSE}: its outcome nests too deep to be read, or is none ({error}); return plain values"
        return Outcome(job_id=job_id, status=422, message=why)


async def _receive() -> Message:
    """Wait for ever. Stands for the `receive` of an ASGI server, whose client never disconnects: a leased batch has no
    client."""
    await trio.sleep_forever()
    raise AssertionError("unreachable")


async def _send(message: Message) -> None:
    """Do nothing. Stands for the `send` of an ASGI server: a leased batch's outcomes are reported to a daemon, not sent
    as an answer."""


async def then_cancel(wait: Callable[[], Awaitable[None]], nursery: trio.Nursery) -> None:
    await wait()
    nursery.cancel_scope.cancel()
