"""Runs claimed jobs on HTTP workers: says which workers are free, sends them claimed jobs, and returns the outcomes.

The runner does not wait for store or journal, and does not decide what runs next. A job is in flight from `run_jobs`
until `forget`. A job that cannot be delivered is handed back, and no attempt is counted.
"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import trio

from jqd.domain.backoff import Backoff
from jqd.domain.clock import Clock
from jqd.domain.errors import JournalRefused
from jqd.domain.job import Held, Outcome, Wanted
from jqd.domain.log import get_logger
from jqd.domain.outcome_followers import FollowerOptions, push_separately
from jqd.domain.pauses import Paused
from jqd.runner.callbacks import receiver_of
from jqd.runner.cancel import ASKED_MAX, Teller
from jqd.runner.capacity import Capacity
from jqd.runner.carriers import Carriers
from jqd.runner.config import RunnerConfig
from jqd.runner.delivery import Delivery, DeliveryContext
from jqd.runner.demand import Linger
from jqd.runner.failures import finish, put_off
from jqd.runner.in_flight import InFlightJob, InFlightJobs, Phase, Stopped, posts_of
from jqd.runner.lease_handover import LeaseHandover
from jqd.runner.outcome import Report, nothing_follows, succeed_late
from jqd.runner.pulls import Offer, Pull
from jqd.runner.registry import WorkerRegistry
from jqd.runner.ssrf import AddressPolicy
from jqd.runner.transport import End, Ending, LargeReads, Pool, Post

RECORDED_S = 5.0  # the longest that a report waits for the disk; a sync takes milliseconds


class Running(NamedTuple):
    worker: str
    started_at_ms: int
    jobtype: str = ""
    lease: int = 0
    """See `InFlightJob.lease`. It is set once the worker has answered 202."""


class Runner:
    def __init__(
        self,
        config: RunnerConfig,
        *,
        workers: WorkerRegistry,
        clock: Clock,
        source: random.Random,
        trusts: Callable[[], bool],
        backoff: Backoff,
        daemon: str,
        pool: Pool,
        capacity: Capacity,
        wrong: Callable[[bytes, Sequence[str]], str] = nothing_follows,
        options: FollowerOptions = push_separately,
    ) -> None:
        """`trusts`: returns whether the daemon's lease is valid now. `backoff`: delays after failed attempts. `pool`,
        `capacity`: shared by all partitions, so that together they send a worker no more jobs than it takes. `wrong`:
        returns what is wrong with followers (jobs pushed after a success) for a token's scopes; `options`: their
        default options."""
        self._config = config
        self._workers = workers
        self.paused = Paused(workers.settings)
        self._capacity = capacity
        self.divide = capacity.divide
        self._clock = clock
        self._pool = pool
        self._in_flight = InFlightJobs()
        self.is_served = True
        """Whether some worker takes jobs now, or will after some time, such as the end of a back-off."""
        self.get_running_jobs = self._in_flight.fences
        self.get_generations = self._in_flight.generations
        self.wait_stopped = self._in_flight.wait_stopped
        self.drain = self._in_flight.wait_idle
        self.mark_durable = self._in_flight.mark_durable
        self.refused = self._in_flight.refused
        self.release_undelivered = self._in_flight.release_undelivered
        self.ended = self._in_flight.ended
        self.wait_free = capacity.wait_free
        mark = f"{source.getrandbits(32):08x}"
        self._shared = DeliveryContext(
            self._in_flight, workers, clock, source, trusts, backoff, daemon, config, capacity, wrong, options, mark
        )
        self._carriers = Carriers(self._carry, self._settle)
        self._canceller = Teller(self._shared)
        self._cancelled: dict[str, int] = {}  # fences of jobs that were not in flight when their cancel came
        self._linger = Linger()
        self._work = trio.Event()
        self._handover = LeaseHandover(self._shared)
        self.given = self._handover.given
        self._log = get_logger("runner")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send deliveries and time out attempts until cancelled. Cancelling also ends requests under way; their jobs
        stay in flight."""
        large = LargeReads(self._is_backlogged, self._capacity.tenants)
        self._post = Post(self._pool, self._capacity.connections, self._config, large)
        async with trio.open_nursery() as nursery:
            self._carriers.open(nursery)
            task_status.started()
            try:
                while True:  # ends attempts that take too long
                    self._work = trio.Event()
                    if not self._shared.open:
                        await self._work.wait()
                    now_s = self._clock.mono_s()
                    for delivery in [*self._shared.open]:
                        delivery.expire(now_s)
                    await trio.sleep(self._config.tick_s)
            finally:
                self._carriers.close()

    async def _carry(self, delivery: Delivery) -> Ending | None:
        if delivery.is_callback and put_off(self._shared, delivery):
            return None
        return await delivery.send(self._post)

    def _settle(self, delivery: Delivery, ending: Ending | None) -> None:
        """Decide about each job left in a delivery that has ended: it stops, or is sent again in a new delivery."""
        parts = list[Delivery]()
        delivery.scope = None  # from here on the scope may belong to another delivery
        if ending is None:
            # Cancelled: by a timeout, by a lost lease, or because the answer did not end after its last outcome.
            missing = len(delivery.missing)
            assert not missing, f"{delivery.jobtype} was cancelled with {missing} jobs waited for"
        elif delivery.missing or ending.end is not End.COMPLETE:
            parts = finish(self._shared, delivery, ending)
        del self._capacity.requests[delivery], self._shared.open[delivery]
        if delivery.isolated is not None:
            delivery.isolated.left(self._clock.mono_s())
            self._capacity.note_free()
        for part in parts:
            self._carriers.begin(part)

    # ------------------------------------------------ for the dispatch loop

    def wanted(self) -> list[Wanted]:
        if self._is_backlogged():
            return []
        wanted, posting = self._capacity.wanted(self.paused)
        self.is_served = bool(wanted or posting) or not self._capacity.connections.free
        return wanted

    def offer(self, jobtype: str, priority: int, waiting: int | None = None) -> Offer | None:
        """Return the worker for a job of this type: that of a waiting poll, else the worker with the most free
        capacity; None: no worker is free.

        `waiting`: how many jobs of the type wait. If they do not fill a batch, a worker may wait for more (see
        `linger_s`)."""
        if self._is_backlogged() or self.paused.holds(jobtype):
            return None
        return self._capacity.offer(jobtype, priority, waiting, self._linger)

    def linger_s(self) -> float:
        """Return the seconds until the first batch that waits for more jobs is claimed anyway; infinity if none
        waits."""
        return self._linger.next_s(self._clock.mono_s())

    def run_jobs(self, worker_id: str, jobtype: str, held: Sequence[Held], pull: Pull | None = None) -> None:
        """Take claimed jobs of one jobtype and send them to a worker. Never waits.

        `pull`: hand them over to this poll of the worker instead. A job of another jobtype, from a store entry that jqd
        did not write, is handed back.
        """
        if not held:
            return
        is_sound = True
        for each in held:
            if each.job.id in self._shared.deliveries:
                self._drop_void(each)
            is_sound = is_sound and each.job.jobtype == jobtype and each.job.id not in self._cancelled
        if self._linger.since:
            self._linger.over(jobtype)
        entries = self._in_flight.take(worker_id, held)
        if not is_sound and not (entries := self._keep_sound(entries, jobtype)):
            return
        if pull is not None:
            self._handover.begin(pull, entries)
            return
        worker = self._workers.get(worker_id)
        if worker is None or worker.url is None:
            self._give_back(entries)  # the worker left between offer and claim
            return
        breaker = self._capacity.breakers.get(worker_id)
        if breaker is None or breaker.worker is not worker:
            breaker = self._capacity.breaker(worker)
        posts: Iterable[tuple[list[InFlightJob], int]]
        if self._capacity.crash_isolation.known:
            posts = self._posts(entries, breaker.post_jobs_max)
        else:
            one_post = len(entries) == 1
            parts = [entries] if one_post else posts_of(entries, breaker.post_jobs_max, self._config.batch_bytes_max)
            posts = zip(parts, repeat(0), strict=False)
        now_s = self._clock.mono_s()
        for part, losses in posts:
            whom = receiver_of(worker, part[0].held.job) if worker.standing is AddressPolicy.CALLBACK else worker
            delivery = Delivery(self._shared, whom, breaker, jobtype, part, losses=losses)
            breaker.take(jobtype, delivery.missing, now_s)
            self._carriers.begin(delivery)
        self._work.set()

    def at_work(self, job_id: str) -> bool:
        return job_id in self._shared.deliveries

    # ------------------------------------------------ for the outcomes loop

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def is_working(self) -> bool:
        """Whether a job is queued or running here. Other jobs in flight have stopped."""
        return self._in_flight.at_work > 0

    def get_stopped_jobs(self, limit: int) -> Stopped:
        """Take up to `limit` outcomes and up to `limit` jobs to hand back. No later call has them again. The jobs stay
        in flight until `forget`."""
        backlogged = self._is_backlogged()
        stopped = self._in_flight.get_stopped(limit)
        if backlogged and not self._is_backlogged():
            self._capacity.note_free()
        return stopped

    def forget(self, claims: Iterable[tuple[str, int]], epoch: int = 0, void: Collection[int] | None = ()) -> None:
        """Forget claims (id, fence) whose end or hand-over to a worker the store knows. A hand-over is void if its
        fence is below `epoch`. `void`: indexes of further claims whose hand-over the store refused, None if unknown."""
        claims = [*claims]
        self._capacity.ended(self._in_flight.forget(claims))
        self._handover.arrived(claims, epoch, void)

    def drop_lost(self, job_ids: Iterable[str]) -> None:
        """Stop jobs of which the store says that this daemon does not hold them. No outcome is made for them. Unknown
        ids are ignored."""
        for job_id in job_ids:
            if (delivery := self._shared.deliveries.get(job_id)) is not None:
                delivery.drop(delivery.missing[job_id])

    def skip_succeeded(self, claims: Iterable[tuple[str, int]]) -> None:
        """Hand back jobs that were claimed again although an earlier claim succeeded, unless already sent. `claims`:
        (id, fence) of the claims that succeeded."""
        for job_id, fence in claims if self._shared.deliveries else ():
            delivery = self._shared.deliveries.get(job_id)
            if delivery is not None and delivery.missing[job_id].held.fence > fence:
                delivery.withdraw(job_id)

    def cancel(self, claims: Iterable[tuple[str, int]]) -> None:
        """Cancel the jobs of these claims (id, fence). A job that was not sent is handed back; otherwise its worker
        gets a cancel. The cancel of an unknown claim is remembered for a while, because the store's answer with its job
        may still arrive."""
        for job_id, fence in claims:
            entry, delivery = self._in_flight.find(job_id), self._shared.deliveries.get(job_id)
            if entry is None or entry.held.fence < fence:
                self._cancelled[job_id] = fence
                if len(self._cancelled) > ASKED_MAX:
                    del self._cancelled[next(iter(self._cancelled))]
            elif delivery is None or entry.held.fence > fence:
                continue  # that claim has stopped, and its outcome is on its way
            elif not delivery.withdraw(job_id) and (nursery := self._carriers.nursery) is not None:
                nursery.start_soon(self._canceller.send_cancel, self._post, delivery, job_id)

    # ------------------------------------------------ for the API

    def done(self, job_id: str, report: Report, *, fence: int = 0, worker_id: str = "") -> bool:
        """End a job's attempt with a report that its worker sent in a request of its own. The first report of an
        attempt counts.

        `fence`, `worker_id`: must match if given. Returns False if the job does not run here: it is unknown, timed out,
        was reported already, or was left to its worker.
        """
        delivery = self._shared.deliveries.get(job_id)
        if delivery is None or delivery.sent_at_s is None or (worker_id and delivery.worker.id != worker_id):
            return False
        if fence and delivery.missing[job_id].held.fence != fence:
            return False
        return delivery.report(job_id, report)

    async def wait_durable(self, job_id: str, fence: int) -> None:
        """Wait until the outcome of a claim (id, fence) is on disk, in the journal.

        Raises JournalRefused if that takes too long; the outcome then stays in flight and is written later.
        """
        entry = self._in_flight.find(job_id)
        if entry is not None and entry.held.fence != fence:
            raise _kept(job_id, "its lease was lost meanwhile, and the job came here again", full=False)
        if entry is None or entry.outcome is None:
            return
        try:
            with trio.fail_after(RECORDED_S):
                await self._in_flight.wait_durable(entry)
        except trio.TooSlowError:
            raise _kept(job_id, f"the disk takes more than {RECORDED_S:g} s", full=False) from None
        except JournalRefused as error:
            raise _kept(job_id, str(error), full=error.full) from None

    def end(self, held: Held, report: Report, worker_id: str) -> Outcome:
        """Return the outcome of an attempt that is not running in this runner: its worker or another daemon has it."""
        return self._shared.outcome(held, report, worker_id, held.fence // 1000)

    def succeed_late(self, attempt: Outcome, report: Report, then: bytes, trace: str = "") -> Outcome | None:
        """Return the outcome of an attempt that was given up (timed out, say) but succeeded. None: its result is
        required but too large, is too large for the follower jobs, or is nested too deep. `then`: the followers that
        the job's pusher gave. `trace`: the job's traceparent."""
        now_ms, bytes_max = self._clock.wall_ms(), self._config.result_bytes_max
        return succeed_late(
            attempt,
            report,
            then=then,
            trace=trace,
            finished_at_ms=now_ms,
            result_bytes_max=bytes_max,
            options=self._shared.options,
        )

    def running(self, job_id: str) -> Running | None:
        """Return where a job is running here; None: it is not.

        A job that its worker will report later counts as running here until the store knows that the worker has it."""
        entry = self._in_flight.find(job_id)
        if entry is None or not (entry.phase is Phase.RUNNING or entry.is_entrusted):
            return None
        return Running(entry.worker_id, entry.started_at_ms, entry.held.job.jobtype, entry.lease)

    def stats(self) -> dict[str, Any]:
        return {**self._in_flight.stats(), "workers": self._capacity.load(self._clock.mono_s())}

    # ------------------------------------------------ for membership and shutdown

    def stop_work(self, interruption: str = "") -> None:
        """End all requests and hand back their jobs, because the daemon's lease is no longer trusted.

        The jobs stay in flight until the store is told, as it may still have this daemon as their owner.
        `interruption`: the reason reported for jobs that had begun."""
        if self._in_flight.at_work:
            self._log.warning("runner.stop_work", count=self._in_flight.at_work)
        for delivery in [*self._shared.open]:
            delivery.release(interruption=interruption)
            delivery.cancel()

    # ------------------------------------------------

    def _posts(self, entries: Sequence[InFlightJob], jobs_max: int) -> Iterator[tuple[list[InFlightJob], int]]:
        """Divide jobs among requests. Jobs suspected of crashes get requests of their own. Yields (jobs of a request,
        how often a connection broke while they ran)."""
        found = [(entry, self._capacity.crash_isolation.of(entry.held.job.id)) for entry in entries]
        bytes_max = self._config.batch_bytes_max
        for part in posts_of([entry for entry, why in found if why is None], jobs_max, bytes_max):
            yield part, 0
        for suspicion in sorted({why for _, why in found if why is not None}):
            same = [entry for entry, why in found if why == suspicion]
            for part in posts_of(same, min(jobs_max, suspicion.group), bytes_max):
                yield part, suspicion.losses

    def _drop_void(self, held: Held) -> None:
        """Stop the earlier attempt of a job that was claimed anew: this daemon's lease was lost in between."""
        delivery = self._shared.deliveries.get(held.job.id)
        if delivery is not None and (entry := delivery.missing[held.job.id]).held.fence < held.fence:
            self._log.warning("runner.void_claim", job_id=held.job.id, fence=entry.held.fence)
            delivery.drop(entry)

    def _keep_sound(self, entries: Sequence[InFlightJob], jobtype: str) -> list[InFlightJob]:
        """Hand back jobs whose cancel came before their claim, or that have another jobtype. Returns the others."""
        sound: list[InFlightJob] = []
        back: list[InFlightJob] = []
        for entry in entries:
            is_cancelled = self._cancelled.pop(entry.held.job.id, None) == entry.held.fence
            (sound if entry.held.job.jobtype == jobtype and not is_cancelled else back).append(entry)
        self._give_back(back)
        return sound

    def _give_back(self, entries: Sequence[InFlightJob]) -> None:
        for entry in entries:
            self._in_flight.release(entry)

    def _is_backlogged(self) -> bool:
        """Return whether too many outcomes wait for the journal, so that no more jobs should start."""
        here, config = self._in_flight, self._config
        return here.untaken >= config.untaken_jobs_max or here.untaken_bytes >= config.untaken_bytes_max


def _kept(job_id: str, why: str, *, full: bool) -> JournalRefused:
    return JournalRefused(
        f"the report of job {job_id} is not on disk yet: {why}; it is kept in memory and may be sent again", full=full
    )
