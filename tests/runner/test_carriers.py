"""Deliveries share tasks and cancel scopes, one after the other; no cancel reaches another one's."""

from types import SimpleNamespace
from typing import Any, cast

import trio
from trio.testing import wait_all_tasks_blocked

from jqd.runner.carriers import Carriers
from jqd.runner.delivery import Delivery
from jqd.runner.transport import End, Ending

ENDING = Ending(End.COMPLETE)


class Room:
    """Carries each delivery until it is let go."""

    def __init__(self) -> None:
        self.carriers = Carriers(self.carry, self.settle)
        self.tasks: dict[str, trio.lowlevel.Task] = {}
        self.go: dict[str, trio.Event] = {}
        self.settled: list[tuple[str, Ending | None]] = []

    async def carry(self, delivery: Delivery) -> Ending | None:
        self.tasks[delivery.jobtype] = trio.lowlevel.current_task()
        await self.go[delivery.jobtype].wait()
        return ENDING

    def settle(self, delivery: Delivery, ending: Ending | None) -> None:
        delivery.scope = None  # as the runner does
        self.settled.append((delivery.jobtype, ending))

    def begin(self, name: str) -> Any:
        self.go[name] = trio.Event()
        delivery = SimpleNamespace(jobtype=name, scope=None)
        self.carriers.begin(cast("Delivery", delivery))
        return delivery

    async def end(self, name: str) -> None:
        self.go[name].set()
        await wait_all_tasks_blocked()


async def test_a_task_carries_one_delivery_after_the_other(nursery: trio.Nursery) -> None:
    room = Room()
    room.carriers.open(nursery)
    for name in ("a", "b"):
        room.begin(name)
    await wait_all_tasks_blocked()
    await room.end("a")
    room.begin("c")
    await room.end("c")
    await room.end("b")
    assert room.settled == [("a", ENDING), ("c", ENDING), ("b", ENDING)]
    assert room.tasks["a"] is room.tasks["c"] is not room.tasks["b"]


async def test_a_cancel_ends_one_delivery_and_its_task(nursery: trio.Nursery) -> None:
    room = Room()
    room.carriers.open(nursery)
    first = room.begin("first")
    await wait_all_tasks_blocked()
    scope = first.scope
    await room.end("first")
    assert first.scope is None
    second, _ = room.begin("second"), room.begin("third")
    assert second.scope is scope
    await wait_all_tasks_blocked()
    second.scope.cancel()
    await wait_all_tasks_blocked()
    assert room.settled[1:] == [("second", None)]
    room.begin("fourth")
    await room.end("fourth")
    await room.end("third")
    assert room.settled[2:] == [("fourth", ENDING), ("third", ENDING)]
    assert room.tasks["fourth"] is not room.tasks["second"]


async def test_a_cancel_before_its_first_step_and_one_at_its_end_spoil_no_other(nursery: trio.Nursery) -> None:
    room = Room()
    room.carriers.open(nursery)
    room.begin("warm")
    await room.end("warm")
    early = room.begin("early")  # its task is awake, and has not run yet
    early.scope.cancel()
    await wait_all_tasks_blocked()
    assert room.settled[1:] == [("early", None)]
    late = room.begin("late")
    await wait_all_tasks_blocked()
    room.go["late"].set()  # it has ended, and does not know it yet
    late.scope.cancel()
    await wait_all_tasks_blocked()
    assert [name for name, _ in room.settled] == ["warm", "early", "late"]
    room.begin("next")
    await room.end("next")
    assert room.settled[3:] == [("next", ENDING)]
    assert len({*room.tasks.values()}) == 3


async def test_a_stop_while_tasks_wait_for_work_ends_them(autojump_clock: object) -> None:
    room = Room()
    async with trio.open_nursery() as inner:
        room.carriers.open(inner)
        room.begin("a")
        await room.end("a")
        inner.cancel_scope.cancel()
        room.begin("b")  # between the cancel and the end of the nursery
        room.carriers.close()
    assert room.settled == [("a", ENDING)]
    room.begin("kept")
    async with trio.open_nursery() as inner:
        room.carriers.open(inner)
        await room.end("kept")
        assert room.settled == [("a", ENDING), ("kept", ENDING)]
        inner.cancel_scope.cancel()
