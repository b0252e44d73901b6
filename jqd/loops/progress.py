"""Reports a lane of the journal that is not applied any further, whatever the cause.

Known causes are reported elsewhere: the store is away, the disk cannot be read, another daemon is waited for. This
catches the unknown ones: a lane has records to read, and neither its read point nor its position in the store moves.
Without it acknowledged jobs might wait for ever while health is green.
"""

from collections.abc import Callable, Iterable
from typing import Any

import trio

from jqd.domain.beat import rest
from jqd.domain.clock import Clock
from jqd.domain.log import get_logger
from jqd.domain.record import Lane
from jqd.journal import Journal
from jqd.loops.ingest import Ingest

LOOK_S = 5.0  # short beside STALLED_S
STALLED_S = 30.0  # a chunk takes milliseconds, and an unanswered call fails in less

Mark = tuple[int | None, int]


class Progress:
    def __init__(
        self, *, journal: Journal, lanes: Iterable[Ingest[Any]], clock: Clock, excused: Callable[[], bool]
    ) -> None:
        """`excused`: returns whether a known cause holds up the lanes."""
        self.reason: str | None = None
        """Which lane does not move, for how long, and what to do, for `/readyz`; None while all is well."""
        self._journal = journal
        self._lanes = list(lanes)
        self._clock = clock
        self._excused = excused
        self._marks: dict[Lane, tuple[Mark, float]] = {}
        self._stalled: set[Lane] = set()
        self._log = get_logger("ingest")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            self.look()
            await rest(LOOK_S)

    def look(self) -> None:
        """Update `reason`: find lanes with records to apply that have made no progress for STALLED_S."""
        now_s, excused, reasons = self._clock.mono_s(), self._excused(), []
        for ingest in self._lanes:
            waits = ingest.is_behind
            mark = ingest.last_position, self._journal.read_point(ingest.lane, ingest.reader)
            seen, since_s = self._marks.get(ingest.lane, (None, now_s))
            if excused or not waits or mark != seen:
                since_s = now_s
            self._marks[ingest.lane] = mark, since_s
            if now_s - since_s >= STALLED_S:
                reasons.append(self._stands_still(ingest, now_s - since_s))
            elif ingest.lane in self._stalled and not excused:
                self._stalled.remove(ingest.lane)
                self._log.info("ingest.goes_on", lane=ingest.lane.name.lower(), position=ingest.last_position)
        self.reason = "; ".join(reasons) or None

    def _stands_still(self, ingest: Ingest[Any], for_s: float) -> str:
        sentence = (
            f"lane {ingest.lane.name.lower()} stands still at position {ingest.last_position} of {self._journal.end} "
            f"since {for_s:.0f} s, for no reason that is known: what was acknowledged waits, and is safe in the "
            "journal. Start the daemon again, and report it with its log"
        )
        if ingest.lane not in self._stalled:
            self._stalled.add(ingest.lane)
            self._log.error("ingest.stalled", why=sentence)
        return sentence
