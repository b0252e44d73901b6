"""A schedule's last job that is on its way: how long it is waited for, until it is taken for lost with its journal."""

import pytest

from jqd.cron.firing import COMING_S, fire, last_runs
from jqd.domain.record import Lane
from tests.api.whole import Whole
from tests.cron.test_firing import LONG_S, edge, firing, known, services

__all__ = ["edge"]


async def test_an_outage_does_not_count(edge: Whole) -> None:
    """The first look after one said that the job is on its way still: two ran at once, a moment later."""
    assert await fire(services(edge), [firing(edge)], lambda life: True) == {}
    edge.journal.read_points[Lane.CHANGES] = edge.journal.end  # as if another daemon's journal had it
    assert await last_runs(services(edge), known(edge), 0.0)
    edge.clock.advance(COMING_S + 1)
    assert await last_runs(services(edge), known(edge), 2.0), "the store has answered for two seconds"
    edge.clock.advance(COMING_S)
    assert not await last_runs(services(edge), known(edge), COMING_S + 2)


@pytest.mark.parametrize("steady_s", [2.0, LONG_S])
async def test_what_this_daemons_journal_may_have_is_not_lost(edge: Whole, steady_s: float) -> None:
    """However far behind its lane is: all of it comes."""
    assert await fire(services(edge), [firing(edge)], lambda life: True) == {}
    for _ in range(3):
        assert await last_runs(services(edge), known(edge), steady_s)
        edge.clock.advance(COMING_S + 1)
    await edge.apply()
    assert await last_runs(services(edge), known(edge), steady_s), "it waits"
    assert known(edge).coming is None
