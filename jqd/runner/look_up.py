"""Looks up the addresses of host names, in threads of their own.

A look-up that was given up keeps its thread until the resolver gives up, too, some seconds later. So look-ups have
their own threads, and each owner has a share of them: a name server that never answers blocks nobody else.
"""

import socket
from functools import partial
from typing import Any

import trio
from trio.lowlevel import RunVar

LOOK_UPS_MAX = 64  # at once: each has a thread
SHARE_MAX = 16  # threads of one named tenant, and of all registrations together
ADDRESSES_MAX = 16  # of one name; more are not tried
REGISTERING = "*"  # the owner of look-ups for registrations: no tenant is called so


class Threads:
    """The thread limits of all look-ups of one trio run."""

    def __init__(self) -> None:
        self._all = trio.CapacityLimiter(LOOK_UPS_MAX)
        self._of: dict[str, trio.CapacityLimiter] = {}

    def of(self, owner: str) -> "Share":
        self._of = {name: each for name, each in self._of.items() if each.statistics().borrowed_tokens}
        most = SHARE_MAX if owner else LOOK_UPS_MAX
        return Share(self._of.setdefault(owner, trio.CapacityLimiter(most)), self._all)


class Share:
    """A limiter for `trio.to_thread.run_sync` that holds a token of two limiters, until the thread has ended."""

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
    """Return the rows of `socket.getaddrinfo` for a name. Raises OSError."""
    try:
        threads = _threads.get()
    except LookupError:
        threads = Threads()
        _threads.set(threads)
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    limiter: Any = threads.of(owner)
    return await trio.to_thread.run_sync(ask, abandon_on_cancel=True, limiter=limiter)
