"""Does the same with many things side by side; what fails is raised as what it is, not as a group."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

from jqd.domain.errors import JqdError

AT_ONCE = 64  # changes share the syncs of the journal; a look is two calls of the store

T = TypeVar("T")


async def act_on_each(items: Iterable[T], act: Callable[[T], Awaitable[None]], at_once: int = AT_ONCE) -> None:
    """Run `act` on several items at a time. Raises the first error once all that had begun have ended."""
    limiter = trio.CapacityLimiter(at_once)
    failed: list[JqdError] = []

    async def one(item: T) -> None:
        async with limiter:
            if failed:
                return
            try:
                await act(item)
            except JqdError as error:
                failed.append(error)

    async with trio.open_nursery() as nursery:
        for item in items:
            nursery.start_soon(one, item)
    if failed:
        raise failed[0]
