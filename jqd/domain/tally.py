"""Counts events of jobs by jobtype, for metrics and for the history of numbers. It costs a microsecond per job, because
the counts are passed on only when somebody reads them."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import add

from jqd.domain.job import INTERRUPTED, SNOOZE, Fate, Held, Outcome
from jqd.domain.tenant import annotate

NAMES_MAX = 10_000  # jobtypes counted apart between two readings, at most a minute: some 6 MB
OTHER = "\x1e"  # stands for jobtypes that are not counted apart; not printable, so no jobtype is named so
EVERYBODY = annotate("*", OTHER)  # OTHER for all tenants; "*" cannot be a tenant
OUTCOMES = ("succeeded", "failed", "dead", "retried", "put_off", "interrupted", "cancelled")
WAIT_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0)
"""Upper bounds (s) of the histogram's buckets for waits. One more bucket is for longer waits."""
RUN_S = (0.01, 0.05, *WAIT_S)
"""Upper bounds (s) of the histogram's buckets for run times. One more bucket is for longer ones."""
_WAIT_MS, _RUN_MS = (tuple(round(bound * 1000) for bound in bounds) for bounds in (WAIT_S, RUN_S))
_NO_WAITS, _NO_RUNS = [0] * (len(WAIT_S) + 1), [0] * (len(RUN_S) + 1)
_SUCCEEDED, _FAILED, _DEAD, _RETRIED, _PUT_OFF, _INTERRUPTED, _CANCELLED = range(len(OUTCOMES))
_BY_FATE = {Fate.SUCCEEDED: _SUCCEEDED, Fate.FAILED: _FAILED, Fate.DEAD: _DEAD, Fate.RETRY: _RETRIED}
ENTRUSTED = Fate.ENTRUSTED  # a module's name, as reading an attribute of an enum costs as much as a call
_BY_REASON = {SNOOZE: _PUT_OFF, INTERRUPTED: _INTERRUPTED}


class Counts:
    """The counts of one jobtype."""

    __slots__ = ("ended", "pushed", "run", "run_ms", "started", "wait", "wait_ms")

    def __init__(self) -> None:
        self.pushed = 0
        self.started = 0
        """Number of attempts that began."""
        self.ended = [0] * len(OUTCOMES)
        """The number of each of OUTCOMES. They count attempts, cancelled jobs, and jobs that failed without an
        attempt."""
        self.wait, self.run = [*_NO_WAITS], [*_NO_RUNS]
        """Two histograms, as counts by bucket: how long jobs waited, and how long attempts ran."""
        self.wait_ms = 0
        self.run_ms = 0

    def waited(self, ms: int) -> None:
        self.wait[bisect_left(_WAIT_MS, ms)] += 1
        self.wait_ms += ms

    def ran(self, ms: int) -> None:
        self.run[bisect_left(_RUN_MS, ms)] += 1
        self.run_ms += ms

    def add(self, other: "Counts") -> None:
        self.pushed += other.pushed
        self.started += other.started
        self.ended = [*map(add, self.ended, other.ended)]
        self.wait, self.run = [*map(add, self.wait, other.wait)], [*map(add, self.run, other.run)]
        self.wait_ms += other.wait_ms
        self.run_ms += other.run_ms

    @property
    def moves(self) -> int:
        """Return the total number of events of the jobtype. Jobtypes are ranked by it."""
        return self.pushed + self.started + sum(self.ended)


Row = Mapping[str, Counts]
"""Qualified jobtype → its counts."""


class Tally:
    """Counts jobs pushed, started and ended at this daemon, by jobtype, and passes the counts to functions: the metrics
    and the history."""

    def __init__(self) -> None:
        self.pushed: dict[tuple[str, str], int] = {}
        """(tenant, jobtype) → number of acknowledged jobs. Code that adds to it calls `settle` when it has NAMES_MAX
        entries."""
        self.readers: list[Callable[[Row], None]] = []
        """Functions that `settle` calls with all counts since its last call. They must not keep the `Counts`
        objects."""
        self._row: dict[str, Counts] = {}

    def settle(self) -> None:
        """Pass all counts since the last call to the readers, and start again from zero."""
        for (tenant, name), count in self.pushed.items():
            self._counts(annotate(tenant, name)).pushed += count
        self.pushed.clear()
        row, self._row = self._row, {}
        for read in self.readers:
            read(row)

    def started(self, held: Sequence[Held], now_ms: int) -> None:
        """Count attempts that are given to a worker, and how long their jobs waited.

        A wait is counted only for a job's first attempt since its push or retry, and only if the job had no parents.
        For all other attempts it is not known here since when the job could have begun.
        """
        for each in held:
            counts = self._row.get(each.job.jobtype) or self._counts(each.job.jobtype)
            counts.started += 1
            if each.attempt == 1 and not each.snoozes and not each.interruptions and (ready_ms := _ready_ms(each)):
                counts.waited(max(0, now_ms - ready_ms))

    def ended(self, outcomes: Sequence[Outcome], void: Collection[int] | None) -> None:
        """Count attempts whose outcomes the store has applied. `void`: indexes of outcomes that changed nothing; None:
        the store's answer was lost, so all are counted."""
        for place, outcome in enumerate(outcomes):
            if outcome.fate is ENTRUSTED or (void and place in void):
                continue
            counts = self._row.get(outcome.jobtype) or self._counts(outcome.jobtype)
            kind = _BY_FATE[outcome.fate]
            counts.ended[kind if kind != _RETRIED else _BY_REASON.get(outcome.reason, _RETRIED)] += 1
            ran_ms = outcome.finished_at_ms - outcome.started_at_ms
            counts.ran(ran_ms if ran_ms > 0 else 0)

    def cancelled(self, jobtypes: Iterable[str]) -> None:
        """Count cancelled jobs by jobtype. "" stands for an unknown jobtype and is not counted."""
        for jobtype in jobtypes:
            if jobtype:
                self._counts(jobtype).ended[_CANCELLED] += 1

    def died(self, numbers: Mapping[str, int]) -> None:
        """Count jobs that failed in the store without an attempt, such as expired ones. `numbers`: jobtype → how
        many."""
        for jobtype, number in numbers.items():
            if jobtype:
                self._counts(jobtype).ended[_DEAD] += number

    def _counts(self, jobtype: str) -> Counts:
        return counts_of(self._row, jobtype)


def counts_of(row: dict[str, Counts], jobtype: str) -> Counts:
    """Return a jobtype's counts in `row` (jobtype → counts). If they are missing, add new ones. If the row has
    NAMES_MAX jobtypes already, return the counts of EVERYBODY, which stands for all further jobtypes."""
    counts = row.get(jobtype)
    if counts is None:
        counts = row.setdefault(jobtype if len(row) < NAMES_MAX else EVERYBODY, Counts())
    return counts


def _ready_ms(held: Held) -> int:
    """Return since when a job could have begun (Unix ms); 0 if that is unknown."""
    job = held.job
    if job.flow is not None and job.flow.after:
        return 0
    return max(job.created_at_ms, job.eligible_at_ms, held.generation // 1000)  # a generation is a time in µs
