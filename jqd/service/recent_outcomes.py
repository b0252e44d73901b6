"""Remembers outcomes that this daemon took and the store may not know yet: the first one counts from the moment it
came."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from jqd.domain.job import NIL, Outcome
from jqd.runner import TAKE_BYTES_MAX

ROWS_MAX = 20_000  # some 10 MB; older ones are forgotten first, and the store knows them by then or soon
FRAME_BYTES = TAKE_BYTES_MAX  # of results, errors and jobs that follow: as settle has it


class RecentOutcome(NamedTuple):
    outcome: Outcome
    position: int | None
    """The journal's position behind the outcome; None: it is on its way there through the runner."""


class RecentOutcomes:
    """Outcomes by job and fence, without their results."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], RecentOutcome] = {}
        self._last: dict[str, int] = {}

    def find(self, job_id: str, fence: int) -> RecentOutcome | None:
        """Return the outcome of that claim, with its position: the store may have it by now."""
        return self._rows.get((job_id, fence))

    def last(self, job_id: str) -> int:
        """The position of the last outcome of that job; 0 when there is none."""
        return self._last.get(job_id, 0)

    def note(self, outcomes: Sequence[Outcome], position: int) -> None:
        """Remember outcomes that are journaled, up to `position`."""
        if len(self._rows) > 2 * ROWS_MAX:
            self._rows = dict(list(self._rows.items())[-ROWS_MAX:])
            self._last = {job_id: self._last[job_id] for job_id, _ in self._rows}
        for one in outcomes:
            light = one if one.result == NIL else msgspec.structs.replace(one, result=NIL)
            self._rows[one.job_id, one.fence] = RecentOutcome(light, position)
            self._last[one.job_id] = position

    def forget(self, outcomes: Iterable[Outcome]) -> None:
        """Forget outcomes that did not reach the disk. Their positions were given out: whoever waits for one comes
        by."""
        for one in outcomes:
            self._rows.pop((one.job_id, one.fence), None)


def frames(fresh: Mapping[int, Outcome]) -> Iterator[dict[int, Outcome]]:
    """Cut outcomes into parts that fit one frame each: the names of followers make them larger than the request."""
    some: dict[int, Outcome] = {}
    size = 0
    for place, outcome in fresh.items():
        weight = outcome.content_bytes
        if some and size + weight > FRAME_BYTES:
            yield some
            some, size = {}, 0
        some[place] = outcome
        size += weight
    if some:
        yield some
