"""How late a job with a date starts at an idle store, in the test's own time: within the tenth of a second promised."""

import pytest
import trio

from jqd.words.job import Job
from tests.loops.house import house, offer, until

PROMISED_S = 0.1


@pytest.mark.parametrize("due_ms", [1, 49, 50, 51, 1_037, 20_011])
async def test_a_job_starts_within_a_tenth_of_a_second_of_its_date(due_ms: int, autojump_clock: None) -> None:
    async with house(sole=True) as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer()}
        await here.add(Job("0", "a"))
        await here.join(nursery)
        await nursery.start(here.dispatch.run)
        await until(lambda: here.started == ["0"])
        due_s = trio.current_time() + due_ms / 1000
        await here.add(Job("1", "a", eligible_at_ms=here.clock.wall_ms() + due_ms))
        await trio.sleep_until(due_s - 0.001)
        assert here.started == ["0"], "never before its date"
        await trio.sleep_until(due_s + PROMISED_S)
        assert here.started == ["0", "1"]
        nursery.cancel_scope.cancel()


async def test_a_nearer_date_that_comes_later_is_not_overlooked(autojump_clock: None) -> None:
    async with house(sole=True) as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer()}
        await here.add(Job("far", "a", eligible_at_ms=here.clock.wall_ms() + 86_400_000))
        await here.join(nursery)
        await nursery.start(here.dispatch.run)
        await trio.sleep(5)
        due_s = trio.current_time() + 0.2
        await here.add(Job("near", "a", eligible_at_ms=here.clock.wall_ms() + 200))
        await trio.sleep_until(due_s + PROMISED_S)
        assert here.started == ["near"]
        nursery.cancel_scope.cancel()
