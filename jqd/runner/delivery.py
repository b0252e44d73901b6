"""The jobs of one POST: which of them are still waited for, what is heard of the others, when waiting ends.

A worker may run the jobs of a batch one after another, and while it reports outcomes, it works. So a job times out
when, for its timeout and a margin, neither its own outcome came nor any other of the same delivery. "Begun" counts as
such a report once for each job.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import trio

from jqd.domain.backoff import Backoff
from jqd.domain.clock import Clock
from jqd.domain.job import Fate, Held, Outcome, lease_claim
from jqd.domain.lease import allowed_silence_s
from jqd.domain.log import get_logger
from jqd.runner.capacity import Capacity
from jqd.runner.circuit_breaker import CircuitBreaker
from jqd.runner.config import RunnerConfig
from jqd.runner.counters import Counters
from jqd.runner.crash_isolation import COMPANY_LOSSES, Extent, Stay
from jqd.runner.in_flight import InFlightJob, InFlightJobs, Phase
from jqd.runner.outcome import INVALID_RESPONSE, Report, end_attempt, interrupted, timed_out
from jqd.runner.protocols import Answer, Chain, ItemFailures, Judgement, Refused, Sending, Started, Unclear, WorkerSaid
from jqd.runner.registry import WorkerRegistry
from jqd.runner.worker import Worker

Ended = tuple[InFlightJob, Report]


@dataclass(slots=True)
class DeliveryContext:
    """What all deliveries of a runner share."""

    in_flight: InFlightJobs
    workers: WorkerRegistry
    clock: Clock
    source: random.Random
    trusts: Callable[[], bool]
    backoff: Backoff
    daemon: str
    config: RunnerConfig
    gates: Capacity
    wrong: Callable[[bytes, Sequence[str]], str]
    """What is wrong with jobs that are to follow, or nothing; the scopes that they are bound by."""
    counters: Counters = field(default_factory=Counters)
    deliveries: dict[str, "Delivery"] = field(default_factory=dict)
    """Id of each job queued or running → its delivery."""
    open: dict["Delivery", None] = field(default_factory=dict)
    """Deliveries with jobs still waited for, oldest first."""
    posts: int = 0

    def end(self, held: Held, report: Report, worker: str, started_at_ms: int, scopes: Sequence[str] = ()) -> Outcome:
        return end_attempt(
            held,
            report,
            backoff=self.backoff,
            source=self.source,
            worker=worker,
            started_at_ms=started_at_ms,
            finished_at_ms=self.clock.wall_ms(),
            result_bytes_max=self.config.result_bytes_max,
            max_interruptions=self.config.max_interruptions,
            wrong=lambda follows: self.wrong(follows, scopes),
        )

    def entrust(self, entries: Sequence[InFlightJob], worker_id: str, heartbeat_s: float | None) -> int:
        """These are their worker's from now on: it reports them to any daemon. Returns how long it may be silent."""
        longest_s = max(entry.held.job.timeout for entry in entries)
        silence_s = allowed_silence_s(heartbeat_s or longest_s + self.config.timeout_margin_s)
        handed = partial(lease_claim, worker=worker_id, silence_s=silence_s)
        self.in_flight.stop((entry, handed(entry.held, started_at_ms=entry.started_at_ms)) for entry in entries)
        self.counters.entrusted += len(entries)
        return silence_s

    def next_batch_id(self, mark: str) -> str:
        """Unique for this daemon's life, and over lives by `mark`."""
        self.posts += 1
        return f"{self.daemon or 'jqd'}-{mark}-{self.posts}"


class Delivery:
    """A `Listener` of the carrier."""

    def __init__(
        self,
        shared: DeliveryContext,
        worker: Worker,
        gate: CircuitBreaker,
        jobtype: str,
        entries: Sequence[InFlightJob],
        *,
        losses: int = 0,
    ) -> None:
        """`losses`: so often these jobs were lost with the worker that had them; see `suspects.py`."""
        self.worker, self.gate, self.jobtype, self.losses = worker, gate, jobtype, losses
        self.stay = Stay(worker.url or worker.id, gate.isolation, gate.house)
        self.missing = {entry.held.job.id: entry for entry in entries}
        self.size = len(self.missing)
        self.scope = trio.CancelScope()
        self.sent: Sending | None = None
        self.set_out_at_s = 0.0
        self.sent_at_s: float | None = None
        self.has_status = False
        self.unclear = ""
        """Why a value of the answer was no outcome, if one was not."""
        self._shared = shared
        self._ids = frozenset(self.missing)
        self._begun: set[str] = set()
        """Jobs that the worker has said to have begun."""
        self._had_room = False  # for all jobs of ours at its worker, these included: then it began each at once
        self._heard_at_s = 0.0
        self._timeout_min_s = 0.0
        self._log = get_logger("runner")
        shared.deliveries.update(dict.fromkeys(self._ids, self))
        shared.open[self] = None

    # ------------------------------------------------ what the carrier tells

    def pack(self) -> list[Held]:
        self.size = len(self.missing)
        self._ids = frozenset(self.missing)
        return [entry.held for entry in self.missing.values()]

    @property
    def group(self) -> int:
        """So many suspects of its kind may be at work at once. More than when it was packed, if more broke since."""
        first = self._shared.gates.suspects.of(next(iter(self.missing), ""))
        return first.group if first is not None else 1

    @property
    def extent(self) -> Extent:
        """What suspects of its kind take along."""
        return self._shared.gates.suspects.extent(self.missing)

    @property
    def is_thinned(self) -> bool:
        """Whether a job has left since it was packed: the request would start it, and must not go out."""
        return len(self.missing) != self.size

    def sending(self) -> bool:
        """The request goes out now, if our lease is trusted and nothing of it was withdrawn."""
        if not self.missing or self.is_thinned or not self._shared.trusts():
            return False
        now_s = self._shared.clock.mono_s()
        self.sent_at_s = self._heard_at_s = now_s
        self._had_room = self.gate.in_hand <= self.worker.max_jobs
        self._timeout_min_s = min(entry.held.job.timeout for entry in self.missing.values())
        self._shared.in_flight.sent(self.missing.values(), self._shared.clock.wall_ms())
        self.stay.entered(len(self.missing), self.losses, now_s)
        self._shared.counters.posts += 1
        self._shared.counters.sent += len(self.missing)
        return True

    def answered(self, judgement: Judgement) -> None:
        """The worker lives, and said whether it takes the jobs."""
        self.has_status = True
        self._shared.workers.reached(self.worker.id)
        self.stay.answered()
        if judgement in (Judgement.READ, Judgement.LATER, Judgement.NOT_TAKEN, Judgement.FAILED):
            self.gate.answered(self._sent_at_s())

    def said(self, answers: Iterable[Answer]) -> None:
        """The worker speaks of some jobs, or of all. Ends that are told in a row, hundreds often, are taken at once."""
        ended: list[Ended] = []
        try:
            for answer in answers:
                if not isinstance(answer, WorkerSaid):
                    self._heard(ended)
                    ended = []
                    self._said_else(answer)
                elif (job_id := self._meant(answer.job_id)) is not None and (entry := self._take(job_id)) is not None:
                    ended.append((entry, answer.report))
        finally:
            self._heard(ended)

    def _said_else(self, answer: Answer) -> None:
        match answer:
            case Refused(job_id, retry_after_s, interruption):
                self._refused(self._meant(job_id), retry_after_s, interruption)
            case Started(job_id):
                self._started(self._meant(job_id))
            case ItemFailures(job_ids, status):
                self._item_failures(job_ids, status)
            case Chain():
                self._note_chain()
            case Unclear(why):
                self._note_unclear(why)

    # ------------------------------------------------ how jobs leave

    def report(self, job_id: str, report: Report) -> bool:
        """An attempt ended. False: the job is not of this delivery, or an earlier outcome stands."""
        entry = self._take(job_id)
        self._heard([(entry, report)] if entry is not None else [])
        return entry is not None

    def report_all(self, report: Report) -> None:
        self._end([(entry, report) for entry in self._take_all()], self._shared.clock.mono_s())

    def entrust(self) -> None:
        """The worker took what is still waited for and reports it later. Its slots stay taken until then."""
        entries = self._take_all()
        self.stay.fewer(len(entries))  # nobody hears of its death from us any more
        for entry in entries:
            del self._shared.deliveries[entry.held.job.id]
            self._shared.gates.lend(self.gate, entry.held)
        if entries:
            self._shared.entrust(entries, self.worker.id, self.worker.heartbeat_s)
        self._after()

    def give_back(self, *, refused: bool = False, interruption: str = "") -> None:
        """Every job still waited for goes back. `refused`: the worker says that it began none."""
        for entry in self._take_all():
            self._return(entry, refused=refused, interruption=interruption)
        self._after()

    def drop(self, entry: InFlightJob) -> None:
        """This claim of the job is void or was withdrawn: hand the job back, and report nothing of its work."""
        del self.missing[entry.held.job.id]
        self._return(entry)
        self._after()
        if not self.missing:
            self.scope.cancel()

    def withdraw(self, job_id: str) -> bool:
        """Hand a job back that the worker has not seen. False: its request may be there already."""
        entry = self.missing[job_id]
        entry.cancelled = True
        if entry.phase is not Phase.QUEUED:
            return False
        self.drop(entry)
        return True

    def expire(self, now_s: float) -> None:
        """End the attempts that were waited for long enough; end the request when that was all of them."""
        quiet_s = now_s - self._heard_at_s - self._shared.config.timeout_margin_s
        if self.sent_at_s is None or quiet_s < self._timeout_min_s:
            return
        overdue = [entry for entry in self.missing.values() if entry.held.job.timeout <= quiet_s]
        for entry in overdue:
            del self.missing[entry.held.job.id]
        self._end([(entry, timed_out(entry.held, self.worker.name)) for entry in overdue], now_s)
        self._shared.counters.timeouts += len(overdue)
        if self.missing:
            self._timeout_min_s = min(entry.held.job.timeout for entry in self.missing.values())
        else:
            self.scope.cancel()
            if overdue and not self.has_status:
                # Not a word in all that time: perhaps the worker is gone. Single jobs find out.
                self.gate.back_off(self._sent_at_s(), now_s, why="it did not answer in the time of its jobs")

    def split(self) -> "list[Delivery]":
        """What is still waited for, in two halves to be sent anew."""
        entries = self._hand_on()
        half = (len(entries) + 1) // 2
        self._shared.counters.splits += 1
        return [self._of(part) for part in (entries[:half], entries[half:]) if part]

    def lost(self, report: Report) -> None:
        """The worker went down with it. Who did it is not known, unless one job had the worker to itself.

        One that was lost often enough in company pays as well.
        """
        burst = self.stay.lost(self._shared.clock.mono_s())
        self._shared.gates.suspects.lost([*self.missing], burst)
        is_known = (self.losses and self.stay.is_alone()) or self.losses + 1 >= COMPANY_LOSSES
        if self.size > 1 or not is_known:
            self.give_back()
            return
        self._end([(entry, report) for entry in self._take_all()], self._shared.clock.mono_s(), cleared=False)

    def repacked(self) -> "Delivery":
        """What is still waited for, to be packed anew: the request with the withdrawn job did not go out."""
        return self._of(self._hand_on())

    # ------------------------------------------------

    def _of(self, entries: Sequence[InFlightJob]) -> "Delivery":
        return Delivery(self._shared, self.worker, self.gate, self.jobtype, entries, losses=self.losses)

    def _hand_on(self) -> list[InFlightJob]:
        """Leave the jobs still waited for to other deliveries. Cancelled ones go back instead."""
        for entry in [entry for entry in self.missing.values() if entry.cancelled]:
            self.drop(entry)
        entries = self._take_all()
        if self.sent_at_s is not None:
            self.stay.fewer(len(entries))
        self._shared.open.pop(self, None)
        self._shared.in_flight.requeue(entries)
        return entries

    def _sent_at_s(self) -> float:
        return self._shared.clock.mono_s() if self.sent_at_s is None else self.sent_at_s

    def _heard(self, ended: Sequence[Ended]) -> None:
        """The worker told how these ended."""
        if ended:
            self._heard_at_s = self._shared.clock.mono_s()
            self._end(ended, self._heard_at_s)

    def _end(self, ended: Sequence[Ended], now_s: float, *, cleared: bool = True) -> None:
        shared, name, scopes = self._shared, self.worker.id, self.worker.scopes
        outcomes = [(one, shared.end(one.held, report, name, one.started_at_ms, scopes)) for one, report in ended]
        self._leave([entry for entry, _ in ended], now_s, ended=True)
        shared.gates.suspects.cleared(one.job_id for _, one in outcomes if cleared or one.fate is not Fate.RETRY)
        shared.in_flight.stop(outcomes)
        shared.counters.ended(one.fate for _, one in outcomes)
        self._after()

    def _return(self, entry: InFlightJob, *, refused: bool = False, interruption: str = "") -> None:
        """`interruption`: what ends its attempt, if it is at work: what its worker had no room for has not begun."""
        shared = self._shared
        self._leave([entry], shared.clock.mono_s())
        is_begun = refused or self._had_room or entry.held.job.id in self._begun
        if interruption and entry.phase is Phase.RUNNING and is_begun:
            report = interrupted(interruption)
            shared.in_flight.stop([(entry, shared.end(entry.held, report, self.worker.id, entry.started_at_ms))])
            shared.counters.interrupted += 1
        else:
            shared.in_flight.give_back(entry, refused=refused)
            shared.counters.returned += 1

    def _leave(self, entries: Sequence[InFlightJob], now_s: float, *, ended: bool = False) -> None:
        job_ids = [entry.held.job.id for entry in entries]
        for job_id in job_ids:
            del self._shared.deliveries[job_id]
        if self.sent_at_s is not None:
            self.stay.fewer(len(job_ids))
        self.gate.give(self.jobtype, job_ids, now_s, ended=ended)

    def _after(self) -> None:
        self._shared.gates.note_free()
        if not self.missing and self in self._shared.open:
            del self._shared.open[self]
            # All is said. Let the answer end in good order, so that the connection can be used again.
            self.scope.deadline = trio.current_time() + self._shared.config.linger_s

    def _meant(self, job_id: str | None) -> str | None:
        """The job an outcome speaks of. An outcome without an id means the one job of a request of one."""
        if job_id is None and self.size == 1:
            (job_id,) = self._ids
        if job_id is None:
            self._note_unclear("an outcome without job_id")
        return job_id

    def _take(self, job_id: str) -> InFlightJob | None:
        entry = self.missing.pop(job_id, None)
        if entry is None:
            if job_id in self._ids:
                self._shared.counters.repeated_ids += 1
            else:
                self._shared.counters.unknown_ids += 1
        return entry

    def _take_all(self) -> list[InFlightJob]:
        entries = [*self.missing.values()]
        self.missing.clear()
        return entries

    def _refused(self, job_id: str | None, retry_after_s: float | None, interruption: str) -> None:
        """The worker has not begun the job and will not, or was interrupted: the job goes back."""
        entry = self._take(job_id) if job_id is not None else None
        if entry is None:
            return
        now_s = self._heard_at_s = self._shared.clock.mono_s()
        self._return(entry, refused=True, interruption=interruption)
        self.gate.crowded(self._sent_at_s(), now_s, retry_after_s)
        self._after()

    def _started(self, job_id: str | None) -> None:
        """The job's time runs from now. This counts once, or a worker could hold a job for ever."""
        if job_id is not None and job_id in self.missing and job_id not in self._begun:
            self._begun.add(job_id)
            self.missing[job_id].begun = True
            self._heard_at_s = self._shared.clock.mono_s()

    def _item_failures(self, job_ids: Iterable[str], status: int) -> None:
        listed = frozenset(job_ids)
        if unknown := listed - self._ids:
            message = f"{INVALID_RESPONSE}: batchItemFailures lists {len(unknown)} ids that are not of this batch"
            self._shared.counters.unknown_ids += len(unknown)
            self.report_all(Report(status=500, message=message))
            return
        good, bad = Report(status=status), Report(status=500, message="listed in batchItemFailures")
        ended = [(entry, bad if entry.held.job.id in listed else good) for entry in self._take_all()]
        self._end(ended, self._shared.clock.mono_s())

    def _note_unclear(self, why: str) -> None:
        self.unclear = self.unclear or why
        self._shared.counters.unclear += 1

    def _note_chain(self) -> None:
        if not self._shared.counters.chains_ignored:
            self._log.warning("runner.chain_ignored", worker=self.worker.id, hint="new jobs in lines are not taken yet")
        self._shared.counters.chains_ignored += 1
