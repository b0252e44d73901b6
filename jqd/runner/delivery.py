"""The jobs of one request to a worker: which jobs still lack an outcome, how the others ended, and when they time out.

A worker may run the jobs of a batch one after another, and while it reports outcomes, it works. So a job times out when
no outcome of any job of the same delivery came for its timeout and a margin. The report that a job has begun restarts
this time as well, once for each job."""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import trio

from jqd.domain.backoff import Backoff
from jqd.domain.clock import Clock, Inactivity
from jqd.domain.job import Fate, Held, Outcome, lease_claim
from jqd.domain.lease import allowed_silence_s
from jqd.domain.outcome_followers import FollowerOptions
from jqd.runner.capacity import Capacity
from jqd.runner.circuit_breaker import CircuitBreaker
from jqd.runner.config import RunnerConfig
from jqd.runner.crash_site import IsolatedRequest
from jqd.runner.in_flight import RUNNING, Counters, InFlightJob, InFlightJobs
from jqd.runner.outcome import INVALID_RESPONSE, Report, end_attempt, interrupted, timed_out
from jqd.runner.protocols.protocol import (
    Answer,
    ItemFailures,
    JobReport,
    Judgement,
    Pending,
    Refused,
    Sending,
    Started,
    Unclear,
)
from jqd.runner.registry import WorkerRegistry
from jqd.runner.ssrf import AddressPolicy
from jqd.runner.transport import Ending, Post
from jqd.runner.worker import Worker

Ended = tuple[InFlightJob, Report]


@dataclass(slots=True)
class DeliveryContext:
    in_flight: InFlightJobs
    workers: WorkerRegistry
    clock: Clock
    source: random.Random
    trusts: Callable[[], bool]
    backoff: Backoff
    daemon: str
    config: RunnerConfig
    capacity: Capacity
    wrong: Callable[[bytes, Sequence[str]], str]
    """Checks followers (jobs pushed when a job succeeds), an array, against scopes. Returns what is wrong, or ""."""
    options: FollowerOptions
    mark: str
    """A random part of batch ids, so that they stay unique when the daemon restarts."""
    deliveries: dict[str, "Delivery"] = field(default_factory=dict)
    open: dict["Delivery", None] = field(default_factory=dict)
    """Deliveries that lack outcomes or whose answer has not ended, oldest first."""
    batches: int = 0

    @property
    def counters(self) -> Counters:
        return self.in_flight.counters

    def outcome(self, held: Held, report: Report, worker: str, at_ms: int, posted_to: Worker | None = None) -> Outcome:
        """Return the outcome of a report. `posted_to`: the worker in whose answer the report came; its token limits
        which followers (jobs pushed after a success) are allowed."""

        def wrong(follows: bytes) -> str:
            if posted_to is not None and self.workers.is_disowned(posted_to):
                return "the token that its worker was registered with was revoked or is over"
            return self.wrong(follows, () if posted_to is None else posted_to.scopes)

        return end_attempt(
            held,
            report,
            backoff=self.backoff,
            source=self.source,
            worker=worker,
            started_at_ms=at_ms,
            finished_at_ms=self.clock.wall_ms(),
            result_bytes_max=self.config.result_bytes_max,
            max_interruptions=self.config.max_interruptions,
            wrong=wrong,
            options=self.options,
        )

    def entrust(self, entries: Sequence[InFlightJob], worker_id: str, heartbeat_s: float | None) -> int:
        """Record that the worker now keeps these jobs. Returns for how many seconds it may give no sign of life."""
        longest_s = max(entry.held.job.timeout for entry in entries)
        silence_s = allowed_silence_s(heartbeat_s or longest_s + self.config.timeout_margin_s)
        claim = partial(lease_claim, worker=worker_id, silence_s=silence_s)
        self.in_flight.stop([(one, claim(one.held, started_at_ms=one.started_at_ms)) for one in entries])
        return silence_s


class Delivery:
    """The jobs of one request to a worker, driven by the transport."""

    def __init__(
        self,
        shared: DeliveryContext,
        worker: Worker,
        breaker: CircuitBreaker,
        jobtype: str,
        entries: Sequence[InFlightJob],
        *,
        losses: int = 0,
    ) -> None:
        """`losses`: how often a connection broke while these jobs ran; if above 0, they run apart from other jobs."""
        self.worker, self.breaker, self.jobtype, self.losses = worker, breaker, jobtype, losses
        self.is_callback = worker.standing is AddressPolicy.CALLBACK
        self.missing: dict[str, InFlightJob] = {}
        self._timeout_min_s = math.inf
        for entry in entries:
            job = entry.held.job
            self.missing[job.id], shared.deliveries[job.id] = entry, self
            self._timeout_min_s = min(self._timeout_min_s, job.timeout)
        self.size, self._ids = len(self.missing), frozenset(self.missing)
        self.scope: trio.CancelScope | None = None  # of the task that sends it; None: no task does
        self.sent: Sending | None = None
        self.set_out_at_s = 0.0
        self.sent_at_s: float | None = None
        self.has_status = False
        self.unclear = ""
        """What was wrong with the first value of the answer that could not be used; "": nothing."""
        self._shared = shared
        self._begun: set[str] = set()
        self._had_room = False  # whether the worker had a slot for each job when it was sent, so began it at once
        self._inactivity = Inactivity()
        self.pause_timeouts = partial(self._inactivity.pause, shared.clock.mono_s)
        """Returns a context manager in which timeouts do not run, because the worker waits for this daemon."""
        self._over_at_s = math.inf  # when the last of its jobs left it
        shared.open[self] = shared.capacity.requests[self] = None
        self.isolated: IsolatedRequest | None = None
        # The breaker may belong to a later registration by now, at another host and port.
        is_watched = breaker.site is not None if breaker.worker is worker else worker.place in shared.capacity.sites
        if losses or is_watched:
            self.isolated = shared.capacity.isolate(worker.place).track(worker.url or worker.id)

    async def send(self, post: Post) -> Ending | None:
        """Send the batch once crash isolation allows it, and act on the answer.

        Returns how the request ended; None: nothing was sent, and all jobs were handed back.
        """
        shared = self._shared
        if self.isolated is not None:
            now_s, wait_free = shared.clock.mono_s, shared.capacity.wait_free
            send_s, suspects = shared.config.connect_timeout_s, shared.capacity.crash_isolation
            await self.isolated.wait_admitted(self, suspects, send_s, now_s, wait_free)
        self.set_out_at_s = shared.clock.mono_s()
        known = shared.workers.get(self.worker.id) is not None and not shared.workers.is_disowned(self.worker)
        is_here = known and not self.breaker.is_open(self.set_out_at_s)
        if not self.missing or not is_here or not shared.trusts():
            self.release()
            return None
        self.size, self._ids = len(self.missing), frozenset(self.missing)
        shared.batches += 1
        batch_id = f"{shared.daemon or 'jqd'}-{shared.mark}-{shared.batches}"
        held, sent_at_ms = [entry.held for entry in self.missing.values()], shared.clock.wall_ms()
        self.sent = Sending(self.worker, self.jobtype, held, batch_id, shared.daemon, sent_at_ms)
        return await post.carry(self.sent, self)

    def cancel(self) -> None:
        if self.scope is not None:
            self.scope.cancel()

    # ------------------------------------------------ called by the transport

    def sending(self) -> bool:
        """Mark the jobs as running, just before they are sent. False: they must not be sent."""
        shared = self._shared
        if not self.missing or len(self.missing) != self.size or not shared.trusts():
            return False
        self.sent_at_s = self._inactivity.since_s = shared.clock.mono_s()
        self._had_room = self.breaker.in_flight <= self.worker.max_jobs
        shared.in_flight.sent(self.missing.values(), shared.clock.wall_ms())
        if self.isolated is not None:
            self.isolated.entered(len(self.missing), self.losses, self.sent_at_s)
        shared.in_flight.counters.posts += 1
        shared.in_flight.counters.sent += len(self.missing)
        return True

    def answered(self, judgement: Judgement) -> None:
        """Note that the worker answered. Close its circuit breaker if the status shows that it works."""
        self.has_status = True
        self._shared.workers.reached(self.worker.id)
        if self.is_callback and judgement is Judgement.READ:
            self._shared.capacity.receivers.answered(self.worker.place)
            self.report_all(Report())  # a success, whatever the body says
        if judgement in (Judgement.READ, Judgement.LATER, Judgement.NOT_TAKEN):
            assert self.sent_at_s is not None
            self.breaker.answered(self.sent_at_s)
            # Receivers of callbacks share a breaker, so it notes nothing of them.
            if self.worker.secrets and self.breaker.worker is self.worker and judgement is not Judgement.NOT_TAKEN:
                assert self.sent is not None
                self.breaker.accepted(self.sent.sent_at_ms, self.set_out_at_s)

    def receive(self, answers: Iterable[Answer]) -> None:
        """Act on a worker's answers, in order. Adjacent outcomes, often hundreds, are handled together."""
        ended: list[Ended] = []
        try:
            for answer in answers:
                if not isinstance(answer, JobReport):
                    self.end(ended, self._shared.clock.mono_s(), by_worker=True)
                    ended = []
                    self._handle_other(answer)
                elif (entry := self._take(answer.job_id)) is not None:
                    ended.append((entry, answer.report))
        finally:
            if ended:
                self.end(ended, self._shared.clock.mono_s(), by_worker=True)

    def _handle_other(self, answer: Answer) -> None:
        match answer:
            case Refused(job_id, retry_after_s, interruption):
                self._refused(job_id, retry_after_s, interruption)
            case Started(job_id):
                self._started(job_id)
            case ItemFailures(job_ids, status):
                self._item_failures(job_ids, status)
            case Pending():
                self._inactivity.since_s = self._shared.clock.mono_s()
            case Unclear(why):
                self._note_unclear(why)

    # ------------------------------------------------ how jobs leave

    def report(self, job_id: str, report: Report) -> bool:
        """End one job's attempt with a report. False: the job is not in this delivery, or has an outcome already."""
        entry = self._take(job_id)
        if entry is not None:
            self.end([(entry, report)], self._shared.clock.mono_s(), by_worker=True)
        return entry is not None

    def report_all(self, report: Report) -> None:
        self.end([(entry, report) for entry in self.take_all()], self._shared.clock.mono_s())

    def entrust(self) -> None:
        """Leave the jobs that lack an outcome to the worker, in its slots, until it reports them."""
        entries = self.take_all()
        if self.isolated is not None:
            self.isolated.fewer(len(entries))  # a worker that dies now breaks no connection of ours
        for entry in entries:
            del self._shared.deliveries[entry.held.job.id]
            self._shared.capacity.entrust(self.breaker, entry.held)
        if entries:
            self._shared.entrust(entries, self.worker.id, self.worker.heartbeat_s)
        self._leave((), self._shared.clock.mono_s())

    def release(self, *, refused: bool = False, interruption: str = "") -> None:
        """Hand back every job that lacks an outcome. `refused`: the worker says that it began none of them.
        `interruption`: why begun jobs were stopped."""
        for entry in self.take_all():
            self._return(entry, refused=refused, interruption=interruption)

    def drop(self, entry: InFlightJob) -> None:
        """Hand back one job without counting an attempt, because its claim was lost or it was cancelled."""
        del self.missing[entry.held.job.id]
        self._return(entry)
        if not self.missing:
            self.cancel()

    def withdraw(self, job_id: str) -> bool:
        """Mark a job as cancelled, and hand it back if it was not sent. False: it may have reached the worker."""
        entry = self.missing[job_id]
        entry.cancelled = True
        if entry.phase is RUNNING:
            return False
        self.drop(entry)
        return True

    def expire(self, now_s: float) -> None:
        """Time out overdue attempts. Cancel the request if no job is left, or if it goes on after the last outcome."""
        if now_s - self._over_at_s >= self._shared.config.linger_s:
            self.cancel()
        quiet_s = self._inactivity.lasts_s(now_s) - self._shared.config.timeout_margin_s
        if self.sent_at_s is None or quiet_s < self._timeout_min_s or not self.missing:
            return
        overdue = [entry for entry in self.missing.values() if entry.held.job.timeout <= quiet_s]
        for entry in overdue:
            del self.missing[entry.held.job.id]
        self.end([(entry, timed_out(entry.held, self.worker.name)) for entry in overdue], now_s)
        self._shared.counters.timeouts += len(overdue)
        if self.missing:
            self._timeout_min_s = min(entry.held.job.timeout for entry in self.missing.values())
            return
        self.cancel()
        if self.is_callback:
            self._shared.capacity.receivers.failed(self.worker.place, now_s)
        elif not self.has_status:
            # No answer in all that time: perhaps the worker is gone. Probes of one job find out.
            self.breaker.back_off(self.sent_at_s, now_s, why="it did not answer in the time of its jobs", hung=True)

    def end(self, ended: Sequence[Ended], now_s: float, *, by_worker: bool = False, cleared: bool = True) -> None:
        """End attempts with their reports.

        `by_worker`: the worker reported them, so it still works. `cleared`: whether these jobs are no longer suspected
        of a crash; False: those that are retried stay suspected."""
        if not ended:
            return
        if by_worker:
            self._inactivity.since_s = now_s
        shared, worker = self._shared, self.worker
        outcomes: list[tuple[InFlightJob, Outcome]] = []
        job_ids: list[str] = []
        for entry, report in ended:
            outcome = shared.outcome(entry.held, report, worker.id, entry.started_at_ms, worker)
            outcomes.append((entry, outcome))
            job_ids.append(outcome.job_id)
        if (isolation := shared.capacity.crash_isolation).known:
            isolation.cleared(one.job_id for _, one in outcomes if cleared or one.fate is not Fate.RETRY)
        shared.in_flight.stop(outcomes)
        self._leave(job_ids, now_s, ended=True)

    def _return(self, entry: InFlightJob, *, refused: bool = False, interruption: str = "") -> None:
        """Hand back one job. `interruption`: the worker stopped the job, and why; ignored if the job had not begun."""
        shared = self._shared
        is_begun = refused or self._had_room or entry.held.job.id in self._begun
        if interruption and entry.phase is RUNNING and is_begun:
            report = interrupted(interruption)
            shared.in_flight.stop([(entry, shared.outcome(entry.held, report, self.worker.id, entry.started_at_ms))])
        else:
            shared.in_flight.release(entry, refused=refused)
        self._leave([entry.held.job.id], shared.clock.mono_s())

    def _leave(self, job_ids: Sequence[str], now_s: float, *, ended: bool = False) -> None:
        for job_id in job_ids:
            del self._shared.deliveries[job_id]
        if self.sent_at_s is not None and self.isolated is not None:
            self.isolated.fewer(len(job_ids))
        self.breaker.give(self.jobtype, job_ids, now_s, ended=ended)
        self._shared.capacity.freed.set()
        if not self.missing:
            # No outcome is missing. If the answer ends in good order, the connection can be used again.
            self._over_at_s = now_s

    def _take(self, job_id: str | None) -> InFlightJob | None:
        """Remove and return the job of an outcome; None: it has ended, or is unknown. No id: the delivery's only
        job."""
        if job_id is None and self.size == 1:
            (job_id,) = self._ids
        if job_id is None:
            self._note_unclear("an outcome without job_id")
            return None
        entry = self.missing.pop(job_id, None)
        if entry is None:
            if job_id in self._ids:
                self._shared.counters.repeated_ids += 1
            else:
                self._shared.counters.unknown_ids += 1
        return entry

    def take_all(self) -> list[InFlightJob]:
        entries = [*self.missing.values()]
        self.missing.clear()
        return entries

    def _refused(self, job_id: str | None, retry_after_s: float | None, interruption: str) -> None:
        """Hand back a job that the worker refused or stopped, and let fewer jobs be in flight at this worker."""
        if (entry := self._take(job_id)) is not None:
            assert self.sent_at_s is not None
            now_s = self._inactivity.since_s = self._shared.clock.mono_s()
            self._return(entry, refused=True, interruption=interruption)
            self.breaker.crowded(self.sent_at_s, now_s, retry_after_s)

    def _started(self, job_id: str | None) -> None:
        """Restart the timeouts when a worker begins a job: once for each job, or the worker could hold it for ever."""
        if job_id is None and self.size == 1:
            (job_id,) = self._ids
        if job_id is None:
            self._note_unclear("an outcome without job_id")
        elif job_id in self.missing and job_id not in self._begun:
            self._begun.add(job_id)
            self.missing[job_id].begun = True
            self._inactivity.since_s = self._shared.clock.mono_s()

    def _item_failures(self, job_ids: Iterable[str], status: int) -> None:
        listed = frozenset(job_ids)
        if unknown := listed - self._ids:
            message = f"{INVALID_RESPONSE}: batchItemFailures lists {len(unknown)} ids that are not of this batch"
            self._shared.counters.unknown_ids += len(unknown)
            self.report_all(Report(status=500, message=message))
            return
        good, bad = Report(status=status), Report(status=500, message="listed in batchItemFailures")
        ended = [(entry, bad if entry.held.job.id in listed else good) for entry in self.take_all()]
        self.end(ended, self._shared.clock.mono_s())

    def _note_unclear(self, why: str) -> None:
        self.unclear = self.unclear or why
        self._shared.counters.unclear += 1
