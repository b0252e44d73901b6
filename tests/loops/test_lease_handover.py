"""Jobs on their way to who asked for them, of which the store says that the hand-over came too late, or nothing."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from jqd.domain.errors import StoreAway
from jqd.domain.job import Fate, Outcome, State
from jqd.runner.worker import Worker
from jqd.store import JobView
from tests.loops.house import until
from tests.loops.pairs import HERE, Pair, pair

WORKER = Worker(name="w", id="w", jobs=(HERE,), max_jobs=1, priority_min=-9, priority_max=9, registered_at_ms=0)
OTHER = "ab" * 16
Void = list[int] | None


def meddle(here: Pair, what: str) -> list[Outcome]:
    """At the first hand-over that the daemon tells the store. Returns those it told."""
    store, told = here.stores[0], list[Outcome]()
    apply = store.apply_outcomes

    async def applied(journal_id: str, start: int, end: int, outcomes: Sequence[Outcome], **fields: Any) -> Void:
        told.extend(outcomes)
        if len(told) > len(outcomes):
            return await apply(journal_id, start, end, outcomes, **fields)
        fence = told[0].fence + {"ended before": -1, "rolled back": 1}.get(what, 0)
        if fence != told[0].fence:
            ending = Outcome(told[0].job_id, fence, Fate.SUCCEEDED, HERE, 0, 1)
            assert await apply(OTHER, 0, 1, [ending]) == []
        void = await apply(journal_id, start, end, outcomes, **fields)
        if what == "answer lost":
            raise StoreAway("the answer did not come")
        return void

    store.apply_outcomes = applied  # type: ignore[method-assign]
    return told


@pytest.mark.parametrize("what", ["ended before", "rolled back", "answer lost"])
async def test_a_poll_is_answered_with_nothing_that_ended_meanwhile(autojump_clock: None, what: str) -> None:
    """Either a success of an attempt counts whose worker was found silent. Or the store was rolled back to when our
    seat and our claim stood, and is told again that another daemon ran the job, after it had taken us for dead.
    """
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        told = meddle(here, what)
        with here.daemon.capacity.pulls.waiting(WORKER, 1) as poll:
            (job_id,) = await here.push(HERE)
            with trio.fail_after(30):
                await poll.wait()
            assert ([one.fate for one in told[:1]], told[0].job_id) == ([Fate.ENTRUSTED], job_id)
            assert poll.given == []
        await until(lambda: not here.daemon.partitions[0].runner.in_flight)
        await trio.sleep(1)
        found = await here.stores[0].get_job(job_id)
        assert isinstance(found, JobView)
        assert found.state is (State.WAITING if what == "answer lost" else State.SUCCEEDED), "given back untried"
        nursery.cancel_scope.cancel()
