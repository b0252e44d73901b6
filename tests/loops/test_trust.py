"""What becomes of jobs in flight when a daemon does not trust its lease any more."""

from typing import Any

import trio

from jqd.store import Renewed
from tests.loops.house import house


async def test_answers_that_came_while_the_loop_stood_still_count(autojump_clock: None) -> None:
    """It came to itself behind the end of trust: what had been done by then was thrown away, and all ran twice."""
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.wait_claimable()
        stops, renew, answered = here.runner.stops, here.store.renew_sysid, trio.Event()

        async def late(*args: Any, **named: Any) -> Renewed:
            answer = await renew(*args, **named)
            await answered.wait()
            return answer

        here.store.renew_sysid = late  # type: ignore[method-assign]
        while (left_s := here.membership.work_left_s) > 0:
            await trio.sleep(left_s)
        assert not here.membership.trusts()
        answered.set()
        await trio.sleep(1)
        assert (here.membership.trusts(), here.runner.stops) == (True, stops)
        nursery.cancel_scope.cancel()
