"""Remembers outcomes that this daemon accepted and the store may not have yet, so that a later report of the same
attempt is recognized at once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from jqd.domain.job import NIL, Outcome
from jqd.runner import TAKE_BYTES_MAX

ROWS_MAX = 20_000  # some 10 MB; the oldest are forgotten first, and the store has them by then or soon
FRAME_BYTES = TAKE_BYTES_MAX  # of results, errors and following jobs in one frame: the limit of `loops/outcomes.py`


class RecentOutcome(NamedTuple):
    outcome: Outcome
    position: int | None
    """The journal's position after the outcome; None: the runner has the outcome and will journal it."""


class RecentOutcomes:
    """The latest outcomes by claim (job id and fence), without their results."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], RecentOutcome] = {}
        self._last: dict[str, int] = {}

    def find(self, job_id: str, fence: int) -> RecentOutcome | None:
        """Return the remembered outcome of a claim, None if there is none. The store may have it by now."""
        return self._rows.get((job_id, fence))

    def last(self, job_id: str) -> int:
        """Return the journal's position after the last outcome of a job; 0 if none is remembered."""
        return self._last.get(job_id, 0)

    def note(self, outcomes: Sequence[Outcome], position: int) -> None:
        """Remember journaled outcomes. `position`: the journal's position after them."""
        if len(self._rows) > 2 * ROWS_MAX:
            self._rows = dict(list(self._rows.items())[-ROWS_MAX:])
            self._last = {job_id: self._last[job_id] for job_id, _ in self._rows}
        for outcome in outcomes:
            light = outcome if outcome.result == NIL else msgspec.structs.replace(outcome, result=NIL)
            self._rows[outcome.job_id, outcome.fence] = RecentOutcome(light, position)
            self._last[outcome.job_id] = position

    def forget(self, outcomes: Iterable[Outcome]) -> None:
        """Forget outcomes that did not reach the disk. `last` still returns their positions, which does no harm: the
        journal goes beyond them anyway."""
        for outcome in outcomes:
            self._rows.pop((outcome.job_id, outcome.fence), None)


def frames(fresh: Mapping[int, Outcome]) -> Iterator[dict[int, Outcome]]:
    """Split outcomes (index in the request → outcome) into parts of the same form that fit one frame of the journal
    each: with the names of their followers they may be larger than the request that brought them."""
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
