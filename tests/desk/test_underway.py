import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from jqd.desk.underway import WAIT_S, Underway


async def test_who_shares_a_name_waits_and_who_waited_for_what_was_taken_goes_on_with_the_others() -> None:
    under, ends, began = Underway(), {name: trio.Event() for name in "abcd"}, list[str]()

    async def push(name: str, names: set[str], *, fails: bool = False) -> None:
        try:
            async with under.turn(names):
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


async def test_a_push_whose_disk_stands_still_holds_up_no_other_for_long(autojump_clock: None) -> None:
    under = Underway()
    async with trio.open_nursery() as nursery:

        async def stuck() -> None:
            async with under.turn({"x"}):
                await trio.sleep_forever()

        nursery.start_soon(stuck)
        await wait_all_tasks_blocked()
        began_s = trio.current_time()
        async with under.turn({"x"}):
            assert trio.current_time() - began_s == pytest.approx(WAIT_S)
        nursery.cancel_scope.cancel()
    assert under._first == {}
