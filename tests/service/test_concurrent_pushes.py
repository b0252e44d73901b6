import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from jqd.domain.errors import Overloaded
from jqd.service.concurrent_pushes import WAIT_S, ConcurrentPushes


async def test_who_shares_a_name_waits_and_who_waited_for_what_was_taken_goes_on_with_the_others() -> None:
    under, ends, began = ConcurrentPushes(), {name: trio.Event() for name in "abcd"}, list[str]()

    async def push(name: str, names: set[str], *, fails: bool = False) -> None:
        try:
            async with under.claim_names(names):
                began.append(name)
                await ends[name].wait()
                if fails:
                    raise ValueError("its disk failed")
        except ValueError:
            assert fails

    async def start(name: str, names: set[str], *, fails: bool = False) -> None:
        nursery.start_soon(lambda: push(name, names, fails=fails))
        await wait_all_tasks_blocked()

    async with trio.open_nursery() as nursery:
        await start("a", {"x", "y"}, fails=True)
        await start("b", {"y", "z"})
        await start("c", {"z"})
        assert began == ["a", "c"], "what has no name in common goes on"
        ends["a"].set()
        await wait_all_tasks_blocked()
        assert began == ["a", "c"], "it has one with another, too"
        ends["c"].set()
        await wait_all_tasks_blocked()
        await start("d", {"x", "y"})
        assert began == ["a", "c", "b"]
        for end in ends.values():
            end.set()
    assert (began, under._first) == (["a", "c", "b", "d"], {})


async def test_a_repeat_goes_on_once_the_first_is_stored_and_else_is_told_to_come_again(autojump_clock: None) -> None:
    under, stored, went_on = ConcurrentPushes(), trio.Event(), list[float]()

    async def first() -> None:
        async with under.claim_names({"x"}, is_request=True) as push:
            await stored.wait()
            push.mark_stored()
            await trio.sleep(2 * WAIT_S)

    async def repeat() -> None:
        async with under.claim_names({"x"}, is_request=True):
            went_on.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await wait_all_tasks_blocked()
        with pytest.raises(Overloaded, match="counts once"):
            await repeat()
        for _ in range(3):
            nursery.start_soon(repeat)
        await wait_all_tasks_blocked()
        began_s = trio.current_time()
        stored.set()
        await wait_all_tasks_blocked()
        assert went_on == [began_s] * 3, "whatever the first waits for yet"
    assert under._first == {}


async def test_a_push_whose_disk_stands_still_holds_up_no_other_for_long(autojump_clock: None) -> None:
    under = ConcurrentPushes()
    async with trio.open_nursery() as nursery:

        async def stuck() -> None:
            async with under.claim_names({"x"}):
                await trio.sleep_forever()

        nursery.start_soon(stuck)
        await wait_all_tasks_blocked()
        began_s = trio.current_time()
        async with under.claim_names({"x"}):
            assert trio.current_time() - began_s == pytest.approx(WAIT_S)
        nursery.cancel_scope.cancel()
    assert under._first == {}
