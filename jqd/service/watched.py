"""One job that somebody follows at this daemon, as it was seen last, and who follows it. Pure but for the bells."""

from collections.abc import Hashable
from typing import Any

import trio

from jqd.store import NO_LOG, JobView, Log

WAKEN = 25  # watchers at once: the loop does something else before the next ones
LOG_BYTES_MAX = 65_536  # of a job, as the store keeps


class Watched:
    """One job, and the listeners that follow it."""

    def __init__(self, job_id: str, view: JobView | None, *, named: bool) -> None:
        """`named`: the job was found by its pusher's own id, so it exists."""
        self.job_id, self.named = job_id, named
        self.view = view
        """The job, as the store had it last; None: it is on its way into the store."""
        self.log = NO_LOG
        self.is_gone = False
        """Whether the job was deleted."""
        self.is_looked_at = False
        """Whether the store was queried for the job's log."""
        self.bells: dict[trio.Event, str | None] = {}
        """Set when something has changed; and whose they are: a tenant, None: of one that sees all."""
        self.shared_events: dict[Hashable, Any] = {}
        """What many say alike, until the next change."""

    def add(self, part: Log | None) -> bool:
        """Append what the job printed to the lines that are known. Returns whether there were any."""
        if part is None or part == self.log:
            return False
        if part.fence == self.log.fence and self.log.start <= part.start <= self.log.end:
            data = self.log.data[: part.start - self.log.start] + part.data
            first = _first_line(data) if len(data) > LOG_BYTES_MAX else 0
            part = Log(part.fence, self.log.start + first, data[first:])
        self.log = part
        return True

    def ring(self) -> None:
        """Wake all who watch the job."""
        for bell in list(self.bells):
            bell.set()

    async def wake(self) -> None:
        """Let all that watch the job look again."""
        self.shared_events.clear()
        for number, bell in enumerate(list(self.bells)):
            if number % WAKEN == WAKEN - 1:
                await trio.lowlevel.checkpoint()
            bell.set()


def _first_line(data: bytes) -> int:
    """Return where the lines begin that are kept; of a last line that is longer, where its end does."""
    first = data.find(b"\n", len(data) - LOG_BYTES_MAX) + 1
    return first if 0 < first < len(data) else len(data) - LOG_BYTES_MAX
