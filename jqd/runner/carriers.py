"""The tasks that carry deliveries: each carries one after the other, in one cancel scope.

A task and a cancel scope of its own would cost the delivery of a single job a twentieth of the daemon's time. A scope
that was cancelled is used up: its task ends with the delivery that was cancelled.
"""

from collections.abc import Awaitable, Callable

import trio

from jqd.runner.delivery import Delivery
from jqd.runner.transport import Ending

IDLE_MAX = 256  # tasks that wait for a delivery, of some KB each: as many as begin at once in one turn of the loop

Carry = Callable[[Delivery], Awaitable[Ending | None]]
"""Sends a delivery, and returns how that ended."""
Settle = Callable[[Delivery, Ending | None], None]
"""Takes it from its task, and decides about what is left of it. None: it was cancelled, or nothing was to be sent."""


class Carrier:
    """A task with its scope, and what it carries; while it waits, nothing, for the jobs of a delivery may be large."""

    __slots__ = ("delivery", "scope", "task")

    def __init__(self, delivery: Delivery, scope: trio.CancelScope) -> None:
        self.delivery, self.scope, self.task = delivery, scope, trio.lowlevel.current_task()


class Carriers:
    """Sees deliveries through, from `open` to `close`; what is begun before waits for `open`."""

    def __init__(self, carry: Carry, settle: Settle) -> None:
        self._carry, self._settle = carry, settle
        self._early: list[Delivery] = []
        self._idle: list[Carrier] = []
        self.nursery: trio.Nursery | None = None

    def open(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        for delivery in self._early:
            nursery.start_soon(self._run, delivery)
        self._early.clear()

    def close(self) -> None:
        """Begin no more. Those under way end with the nursery."""
        self.nursery = None

    def begin(self, delivery: Delivery) -> None:
        """Let a delivery begin. Never waits."""
        if self._idle and self.nursery is not None:
            carrier = self._idle.pop()
            carrier.delivery, delivery.scope = delivery, carrier.scope
            trio.lowlevel.reschedule(carrier.task)
            return
        delivery.scope = trio.CancelScope()
        if self.nursery is None:
            self._early.append(delivery)
        else:
            self.nursery.start_soon(self._run, delivery)

    async def _run(self, delivery: Delivery) -> None:
        assert delivery.scope is not None
        me, ending = Carrier(delivery, delivery.scope), None
        del delivery

        def leave(_: object) -> trio.lowlevel.Abort:
            self._idle.remove(me)
            return trio.lowlevel.Abort.SUCCEEDED

        with me.scope:
            while True:
                ending = await self._carry(me.delivery)
                if me.scope.cancel_called or len(self._idle) >= IDLE_MAX:
                    break
                self._settle(me.delivery, ending)
                del me.delivery
                ending = None
                self._idle.append(me)
                await trio.lowlevel.wait_task_rescheduled(leave)
        self._settle(me.delivery, ending)
