"""What many open pages cost a daemon: counted in calls, on a clock that tests move."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, cast
from urllib.parse import quote

import pytest
import trio
from trio.testing import MockClock

from jqd.client import AsyncClient, JobEvent
from jqd.testing.clock import ManualClock
from jqd.webui.app import Ui, create_app
from jqd.webui.config import UiConfig
from jqd.webui.feed import CALLS_A_S, PAGES_A_S, QUIET_S, Pacing

PAGES = 300
FAR_S = 20.0


class TrioClock(ManualClock):
    def mono_s(self) -> float:
        return trio.current_time()


class Daemon:
    """Answers at once, counts what it is asked, and has another number of jobs each second."""

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self.client = self

    def ask(self, path: str, **params: Any) -> dict[str, Any]:
        self.asked[f"{path} {params.get('name')}"] += 1
        return {"role": "master", "all_tenants": True} if path == "/v1/me" else {"jobs": [], "cursor": ""}

    async def in_thread(self, call: Callable[[], Any], *, abandon: bool = False) -> Any:
        await trio.lowlevel.checkpoint()
        return call()

    async def counters(self) -> AsyncIterator[JobEvent]:
        while True:
            await trio.sleep(1)
            yield JobEvent("counters", {"store": {"waiting": trio.current_time()}})

    def close(self) -> None:
        """Hold nothing."""


def ui_of(daemon: Daemon) -> Ui:
    return create_app(UiConfig(urls=["http://127.0.0.1:9"]), lambda _: cast("AsyncClient", daemon), TrioClock())


async def open_pages(daemon: Daemon, page: Callable[[int], str]) -> tuple[float, list[int], list[float]]:
    """Open PAGES of them for FAR_S. Return calls a second, how often each page came, and the paces that were told."""
    ui, came, told = ui_of(daemon), [0] * PAGES, list[float]()

    async def look(number: int) -> None:
        path = f"/live?page={quote(page(number), safe='')}"
        asking: Any = ui.app.test_client().request(path, headers={"host": "localhost"})
        async with asking as connection:
            await connection.send_complete()
            while event := await connection.receive():
                if event.startswith(b"event: pace"):
                    told.append(float(event.split()[-1]))
                else:
                    came[number] += event.startswith(b"data: ")

    async with ui.app.test_app(), trio.open_nursery() as nursery:
        for number in range(PAGES):
            nursery.start_soon(look, number)
        await trio.sleep(FAR_S / 2)  # until all have a turn
        before, came[:] = daemon.asked.total(), [0] * PAGES
        await trio.sleep(FAR_S)
        calls, found = daemon.asked.total() - before, [*came]
        ui.close_streams()
    return calls / FAR_S, found, told


async def test_pages_that_share_nothing_cost_a_daemon_so_many_calls_a_second(autojump_clock: MockClock) -> None:
    rate, came, told = await open_pages(Daemon(), lambda number: f"/jobs?name=type-{number}")
    turn_s = PAGES / CALLS_A_S
    assert rate == pytest.approx(CALLS_A_S, rel=0.1), "200 a second before there was a bound"
    assert min(came) >= FAR_S // turn_s - 1, "each has its turns"
    assert max(came) <= FAR_S // turn_s + 1
    assert max(told) > QUIET_S, "which is said where it takes long"


async def test_pages_that_show_the_same_cost_a_daemon_what_one_costs(autojump_clock: MockClock) -> None:
    rate, came, told = await open_pages(Daemon(), lambda _: "/jobs?state=failed")
    assert rate <= 2
    assert min(came) >= FAR_S / 3
    assert told == []


async def test_a_turn_costs_what_was_asked_in_it_and_one_that_is_left_nothing(autojump_clock: MockClock) -> None:
    turns = Pacing()
    first, second, third = turns.turn(5), turns.turn(1), turns.turn(1)
    assert [turn.wait_s for turn in (first, second, third)] == pytest.approx([0, 5 / CALLS_A_S, 6 / CALLS_A_S])
    first.end(1)
    second.end(0)
    assert turns.turn(1).wait_s == pytest.approx(2 / CALLS_A_S + 1 / PAGES_A_S)
    await turns.wait(1)
    assert trio.current_time() == pytest.approx(3 / CALLS_A_S + 1 / PAGES_A_S)
    await trio.sleep(9)
    assert turns.turn(1).wait_s == 0, "time that nobody used is gone"
