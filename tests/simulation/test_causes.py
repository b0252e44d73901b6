"""What the checker excuses is excused by its cause, and no further."""

import trio
from trio.testing import MockClock

from tests.simulation.causes import Causes, Loss
from tests.simulation.plan import LEASE


async def _seen(causes: Causes, *, back_s: float | None, until_s: float) -> tuple[bool, bool]:
    """d0 renews at 1 s, and `back_s` after the store forgot all at 2 s. What is excused: forgotten, unheard."""
    await trio.sleep_until(1.0)
    causes.renewed("d0", 0)
    await trio.sleep_until(2.0)
    causes.losses.append(Loss(2.0, 0, 0))
    if back_s is not None:
        await trio.sleep(back_s)
        causes.renewed("d0", 0)
    await trio.sleep_until(until_s)
    return causes.forgotten(0, 1.5, "d0", trio.current_time()), causes.unheard(0, "d0")


async def test_who_notices_a_loss_within_the_lease_that_others_wait_excuses_nothing(autojump_clock: MockClock) -> None:
    assert await _seen(Causes(1), back_s=LEASE.lease_s * 0.9, until_s=60.0) == (False, False)


async def test_who_notices_a_loss_later_excuses_what_was_forgotten(autojump_clock: MockClock) -> None:
    causes = Causes(2)
    assert await _seen(causes, back_s=LEASE.lease_s * 1.1, until_s=60.0) == (True, False)
    assert not causes.forgotten(0, 2.5, "d0", 60.0), "it was told after the loss"
    assert not causes.forgotten(1, 1.5, "d0", 60.0), "another partition lost it"


async def test_of_who_has_not_noticed_yet_the_store_may_not_have_heard(autojump_clock: MockClock) -> None:
    causes = Causes(1)
    assert await _seen(causes, back_s=None, until_s=2.0 + LEASE.lease_s * 0.9) == (False, False)
    await trio.sleep(LEASE.lease_s * 0.2)
    assert causes.forgotten(0, 1.5, "d0", trio.current_time())
    assert causes.unheard(0, "d0")
    causes.renewed("d0", 0)
    assert not causes.unheard(0, "d0")
