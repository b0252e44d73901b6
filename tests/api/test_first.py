"""Of two verdicts on one attempt the first one wins, whatever the store is told while it is asked."""

from typing import Any

import pytest
import trio

from jqd.words.job import Fate
from tests.api.fakes import outcome
from tests.api.test_leases import _edge as _edge  # the fixture
from tests.api.test_leases import handed, journaled, report
from tests.api.whole import Whole


@pytest.mark.parametrize("first", ["told before", "told meanwhile", "in a daemon's hand"])
async def test_the_first_verdict_wins_while_the_store_learns_of_it(edge: Whole, first: str) -> None:
    """The store said that the lease stands, and what ended it was applied before that answer came."""
    claim, touch = await handed(edge), edge.store.touch
    success = {**claim, "type": "success"}
    if first == "in a daemon's hand":
        await edge.push(name="own")
        (held,) = await edge.claim("own")
        claim = {"job_id": held.job.id, "lease_id": str(held.fence)}
        edge.runner.untold[held.job.id] = outcome(held.job.id, fence=held.fence, fate=Fate.SUCCEEDED)
    elif first == "told before":
        assert await report(edge, success) == [(200, "")]
    answered, goes_on = trio.Event(), trio.Event()

    async def slow(*named: Any, **how: Any) -> Any:
        seen = await touch(*named, **how)
        answered.set()
        await goes_on.wait()
        return seen

    told: list[tuple[int, str]] = []

    async def fail() -> None:
        told.extend(await report(edge, {**claim, "type": "failure"}))

    async with trio.open_nursery() as nursery:
        edge.store.touch = slow  # type: ignore[method-assign]
        nursery.start_soon(fail)
        await answered.wait()
        edge.store.touch = touch  # type: ignore[method-assign]
        if first == "told meanwhile":
            assert await report(edge, success) == [(200, "")]
        await edge.apply()
        edge.runner.untold.clear()
        goes_on.set()
    assert [status for status, _ in told] == [409]
    assert Fate.RETRY not in {one.fate for one in journaled(edge)}
