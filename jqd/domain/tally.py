"""Counts what this daemon does, by jobtype: once, for metrics and for numbers over time, which get it when somebody
reads them. It costs the way of a job a microsecond. Pure."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import add

from jqd.domain.job import INTERRUPTED, SNOOZE, Fate, Held, Outcome
from jqd.domain.tenant import annotate

NAMES_MAX = 10_000  # jobtypes between two readings, which are a minute apart at most: some 6 MB
OTHER = "\x1e"  # cannot be printed, so no jobtype is called so
EVERYBODY = annotate("*", OTHER)  # no tenant is called so
OUTCOMES = ("succeeded", "failed", "dead", "retried", "put_off", "interrupted", "cancelled")
WAIT_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0)
"""Upper bounds of buckets; one more holds what is above the last. Coarse: to wait less than the first is well."""
RUN_S = (0.01, 0.05, *WAIT_S)
_WAIT_MS, _RUN_MS = (tuple(round(bound * 1000) for bound in bounds) for bounds in (WAIT_S, RUN_S))
_NO_WAITS, _NO_RUNS = [0] * (len(WAIT_S) + 1), [0] * (len(RUN_S) + 1)
_SUCCEEDED, _FAILED, _DEAD, _RETRIED, _PUT_OFF, _INTERRUPTED, _CANCELLED = range(len(OUTCOMES))
_BY_FATE = {Fate.SUCCEEDED: _SUCCEEDED, Fate.FAILED: _FAILED, Fate.DEAD: _DEAD, Fate.RETRY: _RETRIED}
ENTRUSTED = Fate.ENTRUSTED  # reading it there costs as much as a call
_BY_REASON = {SNOOZE: _PUT_OFF, INTERRUPTED: _INTERRUPTED}


class Counts:
    """The numbers of one jobtype."""

    __slots__ = ("ended", "pushed", "run", "run_ms", "started", "wait", "wait_ms")

    def __init__(self) -> None:
        self.pushed = 0
        self.started = 0
        """Number of attempts that began."""
        self.ended = [0] * len(OUTCOMES)
        """Attempts, cancelled jobs, and those that died without one."""
        self.wait, self.run = [*_NO_WAITS], [*_NO_RUNS]
        """Numbers of jobs by bucket of a histogram: how long they waited, and ran."""
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
        """Return how much happened."""
        return self.pushed + self.started + sum(self.ended)


Row = Mapping[str, Counts]
"""Qualified jobtype → its numbers."""


class Tally:
    def __init__(self) -> None:
        self.pushed: dict[tuple[str, str], int] = {}
        """By tenant and name: jobs that were acknowledged to their pushers. Whoever adds to it settles at NAMES_MAX."""
        self.readers: list[Callable[[Row], None]] = []
        """Each gets all that is counted, once; it keeps none of the counts."""
        self._row: dict[str, Counts] = {}

    def settle(self) -> None:
        """Hand the counts since the last call to the readers."""
        for (tenant, name), count in self.pushed.items():
            self._counts(annotate(tenant, name)).pushed += count
        self.pushed.clear()
        row, self._row = self._row, {}
        for read in self.readers:
            read(row)

    def started(self, held: Sequence[Held], now_ms: int) -> None:
        """Count attempts that are given to a worker.

        How long a job waited is noted of its first attempt, or the first since it was tried anew, unless it waited for
        parents: of others nobody here knows since when they could have begun.
        """
        for each in held:
            counts = self._row.get(each.job.jobtype) or self._counts(each.job.jobtype)
            counts.started += 1
            if each.attempt == 1 and not each.snoozes and not each.interruptions and (ready_ms := _ready_ms(each)):
                counts.waited(max(0, now_ms - ready_ms))

    def ended(self, outcomes: Sequence[Outcome], void: Collection[int] | None) -> None:
        """Count attempts whose end is in the store. `void`: places of those that changed nothing; None: nobody
        knows, as the store's answer was lost, and all count."""
        for place, one in enumerate(outcomes):
            if one.fate is ENTRUSTED or (void and place in void):
                continue
            counts = self._row.get(one.jobtype) or self._counts(one.jobtype)
            kind = _BY_FATE[one.fate]
            counts.ended[kind if kind != _RETRIED else _BY_REASON.get(one.reason, _RETRIED)] += 1
            ran_ms = one.finished_at_ms - one.started_at_ms
            counts.ran(ran_ms if ran_ms > 0 else 0)

    def cancelled(self, jobtypes: Iterable[str]) -> None:
        """Count cancelled jobs. "": of a job whose type is not known here."""
        for jobtype in jobtypes:
            if jobtype:
                self._counts(jobtype).ended[_CANCELLED] += 1

    def died(self, numbers: Mapping[str, int]) -> None:
        """Count jobs that the store itself found dead, by jobtype: they expired, say."""
        for jobtype, number in numbers.items():
            if jobtype:
                self._counts(jobtype).ended[_DEAD] += number

    def _counts(self, jobtype: str) -> Counts:
        return counts_of(self._row, jobtype)


def counts_of(row: dict[str, Counts], jobtype: str) -> Counts:
    """Return a jobtype's counts of a row, which has NAMES_MAX at most; those of EVERYBODY beyond."""
    counts = row.get(jobtype)
    if counts is None:
        counts = row.setdefault(jobtype if len(row) < NAMES_MAX else EVERYBODY, Counts())
    return counts


def _ready_ms(held: Held) -> int:
    """Return since when a job could have begun; 0: not known."""
    job = held.job
    if job.flow is not None and job.flow.after:
        return 0
    return max(job.created_at_ms, job.eligible_at_ms, held.generation // 1000)  # it is in µs
