"""Looks up the addresses of host names (DNS), in threads.

A thread stays busy until the resolver gives up, some seconds after its caller did. So look-ups have a thread limit of
their own, and each tenant may use only a part of it: a name server that never answers blocks no other tenant.
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
    """The limits on threads for look-ups: one for all, and one for each owner."""

    def __init__(self) -> None:
        self._all = trio.CapacityLimiter(LOOK_UPS_MAX)
        self._of: dict[str, trio.CapacityLimiter] = {}

    def of(self, owner: str) -> "Share":
        self._of = {name: each for name, each in self._of.items() if each.statistics().borrowed_tokens}
        most = SHARE_MAX if owner else LOOK_UPS_MAX
        return Share(self._of.setdefault(owner, trio.CapacityLimiter(most)), self._all)


class Share:
    """A limiter for `trio.to_thread.run_sync`. It takes a token from the limiter of one owner, and one from the limiter
    of all look-ups."""

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
    """Return the addresses of a host name, without duplicates, in the order to try them. `owner`: the tenant whose
    thread limit counts, or REGISTERING. Raises OSError."""
    rows = await resolve(host, port, owner)
    return list(dict.fromkeys(str(row[4][0]) for row in rows))[:ADDRESSES_MAX]


async def resolve(host: str, port: int, owner: str) -> list[Any]:
    """Look up a host name in a thread, and return what `socket.getaddrinfo` returns: an entry for each address.
    `owner`: on whose limit of threads the look-up counts. Raises OSError."""
    try:
        threads = _threads.get()
    except LookupError:
        threads = Threads()
        _threads.set(threads)
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    limiter: Any = threads.of(owner)
    return await trio.to_thread.run_sync(ask, abandon_on_cancel=True, limiter=limiter)
