"""Applying records to a partition: what may take the event loop is bounded for a call, not for each of its records."""

from typing import Any
from unittest.mock import AsyncMock, Mock

from jqd.domain.job import Fate, Job, Outcome
from jqd.domain.outcome_followers import encode_as_jobs
from jqd.domain.record import Lane
from jqd.lanes import MATCH_S, PartitionLanes
from jqd.testing.clock import ManualClock
from tests.contract.bench import JOURNAL

PARENT = "01MCC5RM00000004HMASW900{:02}"


async def test_constraints_are_matched_for_a_moment_in_all_whatever_outcomes_bring_the_jobs() -> None:
    clock = ManualClock()
    parts: dict[str, Any] = dict.fromkeys(("watch", "membership", "runner", "claims", "outbox", "flows"), Mock())
    shared, store = Mock(clock=clock, partitions=1), AsyncMock()
    shared.journal.retired = shared.journal.opened_at = 0
    shared.constraints.queue_of = slow(clock, MATCH_S / 2)
    store.put_results.side_effect = lambda *args: args[-1]
    items = [{"name": "next", "argument": None}] * 2
    outcomes = [
        Outcome(parent, 1, Fate.SUCCEEDED, "a", 0, 1, follows=encode_as_jobs(items, parent, "a", 0, 5, options=[]))
        for parent in map(PARENT.format, range(10, 20))
    ]
    lanes = PartitionLanes(shared, 0, store, **parts).build(Mock())
    await lanes[Lane.OUTCOMES]._settings.apply(JOURNAL, 0, 10, outcomes)
    given = store.apply_outcomes.call_args.kwargs["followers"]
    assert [len(given[place]) for place in range(10)] == [2] * 10
    assert [job.queue for jobs in given.values() for job in jobs] == ["keyed"] * 2 + [""] * 18


def slow(clock: ManualClock, took_s: float) -> Any:
    """Match a constraint in so long."""

    def queue_of(_: Job) -> str:
        clock.advance(took_s)
        return "keyed"

    return queue_of
