"""Finds the position in our journal before which no *ending* (outcome, cancel) is needed, for one partition. Pure.

An ending is needed as long as the job it ends may be applied again, from any daemon's journal. Jobs are written, and
copied, while they are unfinished. So an ending that the store had before another journal wrote its oldest job ends none
of that journal's jobs. The store's growing sequence orders the two:

    a mark     written ┐           ┌ applied        "jobs from `written` on come later than `now`, and
                       └── now ────┘                 endings up to `applied` came before it"
    journal A  reports since = now of its last mark before which all jobs are retired
    journal B  drops endings up to `applied` of its last mark whose now ≤ every other journal's `since`

docs/adr/0001.
"""

from collections.abc import Mapping
from typing import NamedTuple

from jqd.store import DurableReply, KeptJob

MARKS_MAX = 4_000  # five hours of looks; beyond that every second mark is dropped, which keeps endings a little longer
EDIT_US = 60_000_000  # an edit is written less than a minute after the store agreed to it


class Mark(NamedTuple):
    """A moment of the store, with positions in our journal: of what came before it, and of what came after it."""

    now: int
    """The moment, as a number of the store's growing sequence."""
    applied: int
    """All endings before this position were applied before `now`."""
    written: int
    """All frames from this position on were written after `now`."""


class Horizon:
    """Decides which endings (outcomes, cancels) are needed, by our marks (positions of our journal at a moment) and the
    reports of other journals in one partition."""

    def __init__(self, journal_id: str, *, may_be_emptied: bool = False) -> None:
        """`may_be_emptied`: whether the store may have been emptied before this start, and lost other journals'
        reports."""
        self._journal_id = journal_id
        self._may_be_emptied = may_be_emptied
        """Whether the store was emptied before this start. Certain once it answered: then it lacks our report."""
        self._began = 0
        """When the store's life began that we met first. A journal's silence before that does not count."""
        self._marks: list[Mark] = []  # oldest first
        self._others: dict[str, DurableReply] = {}  # also those that an emptied store does not know any more

    def note(self, answer: KeptJob, *, applied: int, written: int) -> None:
        """Add a mark, and the other journals' reports, from an answer of the store. `applied`: how far endings were
        applied before the call; `written`: the position of our journal's end."""
        if not self._marks:
            self._began = answer.began
            self._may_be_emptied = self._may_be_emptied and not answer.journals[self._journal_id].since
        mark = Mark(answer.now, applied, written)
        if len(self._marks) > 1 and self._marks[-2][1:] == self._marks[-1][1:] == mark[1:]:
            del self._marks[-1]  # of marks with equal positions the first matters for endings, the last for jobs
        self._marks.append(mark)
        if len(self._marks) > MARKS_MAX:
            del self._marks[1:-1:2]
        for journal_id, report in answer.journals.items():
            if journal_id != self._journal_id:
                known = self._others.get(journal_id, report)
                self._others[journal_id] = DurableReply(max(report.since, known.since), max(report.at, known.at))

    def jobs_written_after(self, retired: int) -> int:
        """Return what to report to other journals: a number of the store's growing sequence. All our jobs from position
        `retired` on were written after it."""
        return max((mark.now - EDIT_US for mark in self._marks if mark.written <= retired), default=0)

    def unneeded(self, others_s: float) -> int | None:
        """Return the position before which no ending is needed; None: there is no other journal.

        Ignores journals that reported nothing for `others_s` seconds."""
        if self._may_be_emptied and self._now - self._began <= others_s * 1_000_000:
            return 0  # daemons that are away have had too little time to report again
        since = [report.since for report in self._living(others_s).values()]
        return max((mark.applied for mark in self._marks if mark.now <= min(since)), default=0) if since else None

    def holders(self, position: int, others_s: float) -> list[str]:
        """Return the ids of the other daemons' journals because of which our journal must keep its outcomes before
        `position`: they may still have copies of these jobs. Ignores journals that reported nothing for `others_s`
        seconds."""
        after = min((mark.now for mark in self._marks if mark.applied >= position), default=None)
        living = self._living(others_s).items()
        return [journal_id for journal_id, report in living if after is None or report.since < after]

    def _living(self, others_s: float) -> Mapping[str, DurableReply]:
        after = self._now - others_s * 1_000_000
        others = self._others.items()
        return {journal_id: report for journal_id, report in others if max(report.at, self._began) >= after}

    @property
    def _now(self) -> int:
        return self._marks[-1].now if self._marks else 0
