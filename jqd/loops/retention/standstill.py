"""Reports when the journal deletes nothing for long although records are past the retention, whatever the cause.

Each check of the journal notes what prevented a deletion. Records that stay on purpose, because a job is unfinished or
another daemon needs them, are no standstill."""

from collections.abc import Sequence

from jqd.domain.clock import Clock
from jqd.domain.log import get_logger
from jqd.journal import Journal
from jqd.loops.backoff import LoopBackoff
from jqd.loops.retention.horizon import Horizon

COMPLAIN_S = 1_200.0  # long enough for a server that only takes snapshots now and then; at 20 MB/s these are 24 GB
WARN_S = 3_600.0  # between two warnings that segments are kept for others


class Standstill:
    def __init__(self, journal: Journal, clock: Clock, backoff: LoopBackoff) -> None:
        self.why = ""
        """Why the check in progress deletes nothing; set by `Retention`."""
        self._journal, self._clock, self._backoff = journal, clock, backoff
        self._held_by = ""  # the last look
        self._place, self._moved_at_s = (0, 0), clock.mono_s()
        self._warn_at_s = 0.0
        self._given_up = 0  # bytes since the last log line
        self._log = get_logger("retention")

    @property
    def complaint(self) -> str | None:
        """Why the journal has deleted nothing for long, for health; None: all is well. A disk that refuses is named at
        once."""
        for_s = self._clock.mono_s() - self._moved_at_s
        if self._backoff.stuck or not self._held_by or for_s < COMPLAIN_S:
            return self._backoff.reason if self._backoff.stuck else None
        return (
            "nothing of what the journal no longer keeps (journal.retention_s, journal.retention_bytes) was deleted "
            f"for {for_s / 60:.0f} minutes, so the disk fills: {self._held_by}"
        )

    def looked(self, applied: int) -> None:
        """Note that one check of the journal is over. `applied`: the position up to which the store had everything."""
        journal = self._journal
        begun = max(journal.retired, journal.start)
        trimmable = journal.closed(min(journal.retired, applied))
        is_owed = journal.retirable(applied) > begun or trimmable > journal.start
        self._held_by, self.why = (self.why or self._backoff.reason or "") if is_owed else "", ""
        place = journal.start, journal.retired
        if place != self._place or not self._held_by:
            self._place, self._moved_at_s = place, self._clock.mono_s()

    def log_held(self, horizons: Sequence[Horizon], wanted: int, *, kept: int, given_up: int) -> None:
        """Log now and then which other journals are the reason that `kept` bytes stay here. The log also says how many
        bytes were deleted although other journals may need them; `given_up` is added to these."""
        now_s, others_s = self._clock.mono_s(), self._journal.others_s
        self._given_up += given_up
        if now_s < self._warn_at_s:
            return
        self._warn_at_s, given_up, self._given_up = now_s + WARN_S, self._given_up, 0
        journals = sorted({journal for horizon in horizons for journal in horizon.holders(wanted, others_s)})
        log = self._log.warning if given_up else self._log.info
        log("retention.held_for_others", bytes=kept, given_up_bytes=given_up, journals=journals)
