"""Counts what this daemon does, by jobtype, since it was taken last. It costs the way of a job a microsecond. Pure."""

from collections.abc import Collection, Iterable, Sequence

from jqd.domain.job import INTERRUPTED, SNOOZE, Fate, Held, Job, Outcome
from jqd.domain.tenant import annotate
from jqd.history.counts import EVERYBODY, OUTCOMES, Counts, Row

NAMES_MAX = 10_000  # jobtypes between two takings, a minute apart: some 6 MB
_SUCCEEDED, _FAILED, _DEAD, _RETRIED, _PUT_OFF, _INTERRUPTED, _CANCELLED = range(len(OUTCOMES))
_BY_FATE = {Fate.SUCCEEDED: _SUCCEEDED, Fate.FAILED: _FAILED, Fate.DEAD: _DEAD, Fate.RETRY: _RETRIED}
_BY_REASON = {SNOOZE: _PUT_OFF, INTERRUPTED: _INTERRUPTED}


class HistoryTally:
    def __init__(self) -> None:
        self._row: dict[str, Counts] = {}

    def take(self) -> Row:
        """Return what was counted, and begin anew."""
        row, self._row = self._row, {}
        return row

    def pushed(self, tenant: str, names: Iterable[str]) -> None:
        """Count jobs that were acknowledged to their pushers."""
        for name in names:
            self._counts(annotate(tenant, name)).pushed += 1

    def started(self, held: Sequence[Held], now_ms: int) -> None:
        """Count attempts that are given to a worker.

        How long a job waited is noted of its first attempt, unless it waited for parents: of others nobody here knows
        since when they could have begun.
        """
        for each in held:
            counts = self._counts(each.job.jobtype)
            counts.started += 1
            if each.attempt == 1 and not each.snoozes and not each.interruptions and (ready_ms := _ready_ms(each.job)):
                counts.waited(max(0, now_ms - ready_ms))

    def ended(self, outcomes: Sequence[Outcome], void: Collection[int] | None) -> None:
        """Count attempts whose end is in the store. `void`: places of those that changed nothing; None: nobody
        knows, as the store's answer was lost, and all count."""
        for place, one in enumerate(outcomes):
            if one.fate is Fate.ENTRUSTED or (void and place in void):
                continue
            counts = self._counts(one.jobtype)
            retry = one.fate is Fate.RETRY
            counts.ended[_BY_REASON.get(one.reason, _RETRIED) if retry else _BY_FATE[one.fate]] += 1
            counts.ran(max(0, one.finished_at_ms - one.started_at_ms))

    def cancelled(self, jobtypes: Iterable[str]) -> None:
        """Count cancelled jobs. "": of a job whose type is not known here."""
        for jobtype in jobtypes:
            if jobtype:
                self._counts(jobtype).ended[_CANCELLED] += 1

    def _counts(self, jobtype: str) -> Counts:
        counts = self._row.get(jobtype)
        if counts is None:
            if len(self._row) >= NAMES_MAX:
                jobtype = EVERYBODY
            counts = self._row.setdefault(jobtype, Counts())
        return counts


def _ready_ms(job: Job) -> int:
    """Return since when a job could have begun; 0: not known."""
    if job.flow is not None and job.flow.after:
        return 0
    return max(job.created_at_ms, job.eligible_at_ms)
