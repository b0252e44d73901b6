"""Looks names up, in threads of their own.

A look-up that was given up keeps its thread until the resolver gives up, too, some seconds later: so names whose server
never answers take no thread of anything else, and those of one owner no more than its share of these.
"""

import socket
from functools import partial
from typing import Any

import trio
from trio.lowlevel import RunVar

LOOK_UPS_MAX = 64  # at once: each has a thread
SHARE_MAX = 16  # of one tenant with a name, and of all registrations
ADDRESSES_MAX = 16  # of one name; what more there are is not tried
REGISTERING = "*"  # whose look-ups those of registrations are: no tenant is called so


class Threads:
    """The threads of all look-ups of a run."""

    def __init__(self) -> None:
        self._all = trio.CapacityLimiter(LOOK_UPS_MAX)
        self._of: dict[str, trio.CapacityLimiter] = {}

    def of(self, owner: str) -> "Share":
        """Return the threads of one owner."""
        self._of = {name: each for name, each in self._of.items() if each.statistics().borrowed_tokens}
        most = SHARE_MAX if owner else LOOK_UPS_MAX
        return Share(self._of.setdefault(owner, trio.CapacityLimiter(most)), self._all)


class Share:
    """A limiter for `trio.to_thread.run_sync`: a place in each of two limiters, until the thread has ended."""

    def __init__(self, own: trio.CapacityLimiter, all_: trio.CapacityLimiter) -> None:
        self._own, self._all = own, all_

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self._own.acquire_on_behalf_of(borrower)
        try:
            await self._all.acquire_on_behalf_of(borrower)
        except BaseException:
            self._own.release_on_behalf_of(borrower)
            raise

    def release_on_behalf_of(self, borrower: object) -> None:
        self._all.release_on_behalf_of(borrower)
        self._own.release_on_behalf_of(borrower)


_threads = RunVar[Threads]("threads of look-ups")


async def look_up(host: str, port: int, owner: str) -> list[str]:
    """Return the addresses of a name, each once, in the order to try them. `owner`: a tenant, or REGISTERING. Raises
    OSError."""
    rows = await resolve(host, port, owner)
    return list(dict.fromkeys(str(row[4][0]) for row in rows))[:ADDRESSES_MAX]


async def resolve(host: str, port: int, owner: str) -> list[Any]:
    """Return the rows that the resolver has for a name."""
    try:
        threads = _threads.get()
    except LookupError:
        threads = Threads()
        _threads.set(threads)
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    limiter: Any = threads.of(owner)
    return await trio.to_thread.run_sync(ask, abandon_on_cancel=True, limiter=limiter)
