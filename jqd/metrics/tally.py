"""What this daemon did, by jobtype: plain numbers, read when somebody asks. Pure.

How many names there are is bounded: after `types_max` of them what is new counts as OTHER. A name keeps its row until
the daemon stops, for a counter must not begin anew.
"""

from collections.abc import Collection, Iterable, Sequence

from jqd.domain.histogram import Histogram
from jqd.domain.job import INTERRUPTED, SNOOZE, Fate, Held, Job, Outcome
from jqd.domain.tenant import bare, tenant_of
from jqd.metrics.config import MetricsConfig

OTHER = "other"
NAMES_MAX = 10_000  # qualified names whose row is found at once: a megabyte or two
SECONDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0)
"""Coarse, as they are kept for each jobtype: what waits or runs for less than that is well."""
WAIT_S = SECONDS
RUN_S = (0.01, 0.05, *SECONDS)
OUTCOMES = ("succeeded", "failed", "dead", "retried", "put_off", "interrupted")
_SUCCEEDED, _FAILED, _DEAD, _RETRIED, _PUT_OFF, _INTERRUPTED = range(len(OUTCOMES))
_BY_FATE = {Fate.SUCCEEDED: _SUCCEEDED, Fate.FAILED: _FAILED, Fate.DEAD: _DEAD, Fate.RETRY: _RETRIED}
_BY_REASON = {SNOOZE: _PUT_OFF, INTERRUPTED: _INTERRUPTED}


class Row:
    """The numbers of one label."""

    __slots__ = ("ended", "pushed", "run", "started", "wait")

    def __init__(self) -> None:
        self.pushed = 0
        self.started = 0
        """Attempts."""
        self.ended = [0] * len(OUTCOMES)
        """Attempts, by OUTCOMES."""
        self.wait = Histogram(WAIT_S)
        self.run = Histogram(RUN_S)


class Tally:
    def __init__(self, config: MetricsConfig) -> None:
        self._config = config
        self.rows: dict[tuple[str, str], Row] = {("", OTHER): Row()}
        """By tenant and jobtype; without labels for tenants that is ""."""
        self._names: dict[str, Row] = {}

    def pushed(self, tenant: str, names: Iterable[str]) -> None:
        for name in names:
            self._row(f"{tenant}\x1f{name}" if tenant else name).pushed += 1

    def started(self, held: Sequence[Held], now_ms: int) -> None:
        """Count attempts that are given to a worker. How long it waited is noted of a job's first attempt only, for
        nothing knows here since when a later one could have begun; and not of jobs that waited for others."""
        for each in held:
            job = each.job
            row = self._row(job.jobtype)
            row.started += 1
            if each.attempt == 1 and not each.snoozes and not each.interruptions and (since_ms := _ready_ms(job)):
                row.wait.note(max(0, now_ms - since_ms) / 1000)

    def ended(self, outcomes: Sequence[Outcome], void: Collection[int] | None) -> None:
        """Count attempts whose end is in the store. `void`: places of those that changed nothing; None: nobody
        knows, as the store's answer was lost, and all count."""
        for place, one in enumerate(outcomes):
            if one.fate is Fate.ENTRUSTED or (void and place in void):
                continue
            row = self._row(one.jobtype)
            row.ended[_BY_REASON.get(one.reason, _RETRIED) if one.fate is Fate.RETRY else _BY_FATE[one.fate]] += 1
            row.run.note(max(0, one.finished_at_ms - one.started_at_ms) / 1000)

    def cancelled(self, jobtypes: Iterable[str]) -> None:
        """Count nothing: a cancel ends no attempt, and one that was under way is told as ended."""

    def _row(self, qualified: str) -> Row:
        row = self._names.get(qualified)
        if row is None:
            row = self._admit(qualified)
            if len(self._names) < NAMES_MAX:
                self._names[qualified] = row
        return row

    def _admit(self, qualified: str) -> Row:
        label = label_of(qualified, self._config)
        row = self.rows.get(label)
        if row is None:
            if len(self.rows) > self._config.types_max:
                return self.rows["", OTHER]
            row = self.rows[label] = Row()
        return row


def label_of(qualified: str, config: MetricsConfig) -> tuple[str, str]:
    return tenant_of(qualified) if config.tenants else "", bare(qualified)


def _ready_ms(job: Job) -> int:
    """Since when a job could have begun; 0: not known."""
    if job.flow is not None and job.flow.after:
        return 0
    return max(job.created_at_ms, job.eligible_at_ms)
