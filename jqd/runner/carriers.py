"""Tasks that send deliveries: each task sends many, one after the other, in one cancel scope.

A delivery is one request with jobs. A new task and cancel scope for each would cost a twentieth of the daemon's time. A
cancelled scope cannot be used again, so its task ends with the delivery that was cancelled.
"""

from collections.abc import Awaitable, Callable

import trio

from jqd.runner.delivery import Delivery
from jqd.runner.transport import Ending

IDLE_MAX = 256  # tasks that wait for a delivery, some KB each: as many as begin in one iteration of the event loop

Carry = Callable[[Delivery], Awaitable[Ending | None]]
"""Sends a delivery and returns how its request ended; None: nothing was sent."""
Settle = Callable[[Delivery, Ending | None], None]
"""Decides what becomes of the jobs left in a delivery. The ending is None if it was cancelled, or nothing was sent."""


class Carrier:
    """A task that sends deliveries, with its cancel scope and the delivery that it sends now. While idle it has no
    `delivery` attribute, which frees memory."""

    __slots__ = ("delivery", "scope", "task")

    def __init__(self, delivery: Delivery, scope: trio.CancelScope) -> None:
        self.delivery, self.scope, self.task = delivery, scope, trio.lowlevel.current_task()


class Carriers:
    """A pool of tasks that send deliveries. It works between `open` and `close`; deliveries begun earlier wait for
    `open`."""

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
        """Start no more deliveries. Those under way are cancelled with the nursery."""
        self.nursery = None

    def begin(self, delivery: Delivery) -> None:
        """Have a delivery sent by an idle task, or by a new one. Never waits."""
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
