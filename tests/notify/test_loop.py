"""One daemon tells what failed, whatever dies, or is lost on the way to the store."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from jqd.notify import loop
from jqd.notify.board import Notice
from jqd.notify.loop import HOLD_S
from jqd.notify.rule import Fate, Result
from tests.loops.conftest import threads_in_place
from tests.notify.site import SENT, Site, Told, lose_one

__all__ = ["threads_in_place"]


async def test_two_daemons_send_one_notice(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    for sysid in ("one", "two"):
        await site.daemon(sysid)
    await site.fail("no", "no", "other")
    await trio.sleep(600)
    assert site.told.new == [{"no": 2, "other": 1}]


async def test_old_failures_are_told_when_notices_are_switched_on(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    await site.fail(*["no"] * 250)
    await trio.sleep(86_400)
    await site.daemon()
    await trio.sleep(600)
    assert site.told.new == [{"no": 250}]
    assert site.told.notices[0].rows[0].is_over


async def test_many_of_one_moment_are_counted_exactly(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    await site.daemon(resolved_s=600)
    for _ in range(2):
        await site.fail(*["no"] * 1_100)
    await trio.sleep(60)
    await site.fail(*["no"] * 10)
    await trio.sleep(1_000)
    assert sum(each["no"] for each in site.told.new) == 2_210


@pytest.mark.parametrize("is_other", [True, False], ids=["another goes on", "it comes back"])
async def test_a_daemon_that_dies_while_it_sends(autojump_clock: None, nursery: trio.Nursery, is_other: bool) -> None:
    site = Site(nursery)
    await site.look()
    site.told.within_s = 20
    one = await site.daemon("one")
    await trio.sleep(1)
    if is_other:
        await site.daemon("two")
    await site.fail("no")
    await trio.sleep(45)
    assert len(site.told.notices) == 1
    one.scope.cancel()
    if not is_other:
        await site.daemon("one")
    await trio.sleep(HOLD_S + 10 if is_other else 5)
    first, second = site.told.notices
    assert (first.id, first.rows) == (second.id, second.rows), "it may have arrived, and is the same"
    await trio.sleep(3_000)
    assert len(site.told.notices) == 2


async def test_the_holder_goes_on_while_it_sends_for_long(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    site.told.within_s = 140
    for sysid in ("one", "two", "three"):
        await site.daemon(sysid)
    for letter in "abcde":
        await site.fail(f"error {letter}")
        await trio.sleep(190)
    await trio.sleep(200)
    assert site.told.new == [{f"error {letter}": 1} for letter in "abcde"]


async def test_failures_that_differ_in_numbers_are_one_group_with_an_example(
    autojump_clock: None, nursery: trio.Nursery
) -> None:
    site = Site(nursery)
    await site.look()
    await site.daemon("one")
    for n in range(5):
        await site.fail(f"no user {n}")
    await trio.sleep(120)
    assert site.told.new == [{"no user …": 5}]
    assert [row.example for row in site.told.notices[0].rows] == ["no user 4"]


async def test_a_daemon_that_was_suspended_while_it_sent_changes_nothing(
    autojump_clock: None, nursery: trio.Nursery
) -> None:
    site = Site(nursery)
    await site.look()
    slow, quick = Told(), Told()
    slow.within_s = 500
    one = await site.daemon("one", slow)
    await trio.sleep(1)
    await site.daemon("two", quick)
    await site.fail("no")
    await trio.sleep(40)
    one.stores[0].away = "its daemon is suspended"
    await trio.sleep(1_000)
    one.stores[0].away = None
    await site.fail("more")
    await trio.sleep(100)
    assert (slow.new, quick.new) == ([{"no": 1}], [{"no": 1}, {"more": 1}])


async def test_one_that_is_late_with_the_exchange_sends_nothing(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    late, other = Told(), Told()
    one = await site.daemon("one", late)
    await trio.sleep(1)
    await site.daemon("two", other)
    await trio.sleep(9)
    client = one.stores[0].client
    call: Callable[..., Any] = client.call

    async def stalls(name: str, *arguments: Any) -> object:
        if name == "swap_notices" and b"is_out" in arguments[-1]:
            await trio.sleep(200)
        return await call(name, *arguments)

    client.call = stalls  # type: ignore[method-assign]
    await site.fail("no")
    await trio.sleep(1_000)
    assert (late.new, other.new) == ([], [{"no": 1}])


@pytest.mark.parametrize("nth", range(4))
@pytest.mark.parametrize("is_applied", [True, False], ids=["applied", "not applied"])
async def test_calls_that_are_lost_lose_nothing(
    autojump_clock: None, nursery: trio.Nursery, nth: int, is_applied: bool
) -> None:
    site = Site(nursery)
    await site.look()
    daemon = await site.daemon()
    await trio.sleep(10)
    lose_one(daemon, nth, is_applied=is_applied)
    await site.fail("no")
    await trio.sleep(1)
    await site.fail(*["no"] * 1_200, "other")
    await trio.sleep(400)
    told = {line: sum(each.get(line, 0) for each in site.told.new) for line in ("no", "other")}
    assert told == {"no": 1_201, "other": 1}
    assert len({notice.id for notice in site.told.notices}) == 1


async def test_a_state_of_a_newer_daemon_is_left_alone_and_told(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    await site.stores[0].swap_notices(0, b"\x93newer")
    daemon = await site.daemon()
    await site.fail("no")
    await trio.sleep(200)
    assert site.told.notices == []
    assert "is not understood" in daemon.notices.complaints()[0]
    assert (await site.stores[0].swap_notices(0)).state == b"\x93newer"


async def test_what_is_wrong_is_told_at_all_daemons_and_counted(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    one = await site.daemon("one")
    await trio.sleep(1)
    two = await site.daemon("two")
    site.told.result = Result(Fate.REFUSED, "550 no such user")
    await site.fail("no")
    await trio.sleep(1_800)
    assert one.notices.complaints() == two.notices.complaints() == ["notices: 550 no such user"]
    assert [notice.is_plain for notice in site.told.notices] == [False, True], "no loop"
    assert one.notices.counts["hook"] == {"sent": 0, "later": 0, "unknown": 0, "refused": 2}
    site.told.result = SENT
    await trio.sleep(3_600)
    assert one.notices.complaints() == two.notices.complaints() == []


async def test_one_that_cannot_be_written_ends_no_daemon(autojump_clock: None, nursery: trio.Nursery) -> None:
    class Strict(Told):
        async def send(self, notice: Notice) -> Result:
            if not notice.is_plain:
                raise UnicodeEncodeError("ascii", "\xd7", 0, 1, "a word that nobody can write")
            return await super().send(notice)

    site = Site(nursery)
    await site.look()
    strict = Strict()
    daemon = await site.daemon(told=strict)
    await site.fail("no")
    await trio.sleep(60)
    assert "cannot be written" in daemon.notices.complaints()[0]
    await trio.sleep(60)
    assert (strict.new, daemon.notices.complaints()) == ([{"no": 1}], [])


async def test_a_store_that_comes_and_goes_brings_no_second_try(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    daemon = await site.daemon()
    site.told.result = Result(Fate.REFUSED, "550 no")
    await site.fail("no")
    await trio.sleep(60)
    for _ in range(5):
        daemon.stores[0].away = "cable pulled"
        await trio.sleep(60)
        daemon.stores[0].away = None
        await trio.sleep(60)
    assert [notice.is_plain for notice in site.told.notices] == [False, True]


async def test_what_was_sent_is_noted_when_the_store_is_back(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    daemon = await site.daemon()
    site.told.within_s = 10
    await site.fail("no")
    await trio.sleep(35)
    assert len(site.told.notices) == 1
    daemon.stores[0].away = "cable pulled"
    await trio.sleep(600)
    daemon.stores[0].away = None
    await trio.sleep(600)
    assert len(site.told.notices) == 1


async def test_the_quiet_state_is_written_rarely(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    await site.daemon()
    await trio.sleep(60)
    before = (await site.stores[0].swap_notices(0)).version
    writes = 0
    for _ in range(150):
        await trio.sleep(1)
        now = (await site.stores[0].swap_notices(0)).version
        writes, before = writes + (now != before), now
    assert writes <= 150 / loop.BEAT_S + 1
