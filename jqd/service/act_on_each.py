"""Runs one action on many items, several at a time. An error is raised by itself, not wrapped in an exception group."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

from jqd.domain.errors import JqdError

AT_ONCE = 64  # items acted on at a time: concurrent changes share the journal's syncs; a look-up is two store calls

T = TypeVar("T")


async def act_on_each(items: Iterable[T], act: Callable[[T], Awaitable[None]], at_once: int = AT_ONCE) -> None:
    """Run `act` on each item, at most `at_once` at a time.

    After the first error no further action is started. That error is raised when the running actions have ended.
    """
    limiter = trio.CapacityLimiter(at_once)
    failed: list[JqdError] = []

    async def act_unless_failed(item: T) -> None:
        async with limiter:
            if failed:
                return
            try:
                await act(item)
            except JqdError as error:
                failed.append(error)

    async with trio.open_nursery() as nursery:
        for item in items:
            nursery.start_soon(act_unless_failed, item)
    if failed:
        raise failed[0]
