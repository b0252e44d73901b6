"""The connections to all workers: a pool shared by all partitions, and counts of those in use.

The limit of connections is a share of the process's open files (`jqd/domain/descriptors.py`). When all are in use, no
more jobs are claimed for workers with a URL. A claimed job that gets no connection in time is handed back, and its
worker is not backed off.
"""

from collections import Counter
from collections.abc import Callable, Mapping

import trio

from jqd.runner.config import RunnerConfig
from jqd.runner.ssrf import SsrfGuard
from jqd.runner.transport.http1 import Origin, Wire
from jqd.runner.transport.network import CrowdedError, Network
from jqd.runner.worker import Worker

KEPT = 8  # an endpoint above its share leaves an eighth of its tenant's connections to other endpoints
LEFT = 4  # an endpoint may use a quarter of the connections that idle endpoints of its tenant leave
PAUSE_S = 0.5  # how long nothing is claimed after a request got no connection, so that some can end
Place = tuple[str, str]
"""A tenant, and the host and port of its workers."""


class Connections:
    """Counts the requests under way of all runners: in total, by tenant and by endpoint. Says how many more requests
    may begin."""

    def __init__(self, most: int, mono_s: Callable[[], float], freed: Callable[[], None]) -> None:
        """`most`: limit of requests under way. `freed`: called when another request may begin after none could."""
        self.most = most
        self.taken = 0
        self._taken_by: Counter[str] = Counter()  # by tenant
        self._taken_at: Counter[Place] = Counter()
        self.unanswered: Counter[Place] = Counter()
        """(Tenant, host and port) → number of requests begun since the last answer from there."""
        self._mono_s, self._freed = mono_s, freed
        self._pause_until_s = float("-inf")
        self._is_awaited = False  # `free_for` has returned 0

    @property
    def free(self) -> int:
        return 0 if self._mono_s() < self._pause_until_s else max(0, self.most - self.taken)

    def free_for(self, worker: Worker, workers: Mapping[str, int]) -> int:
        """Return how many more requests may begin to the host and port of a worker. `workers`: tenant → number of its
        workers.

        A tenant may use an equal share of all connections, or half of what others leave free. Each of its endpoints may
        use an equal share of the tenant's, and more if it answers. So an endpoint that hangs takes no connections from
        others."""
        tenant, place = worker.tenant, (worker.tenant, worker.endpoint)
        part = max(1, self.most // len(workers), (self.free + self._taken_by[tenant]) // 2)
        free = min(self.free, part - self._taken_by[tenant])
        share = max(1, part // workers[tenant], (free + self._taken_at[place]) // LEFT)
        beyond = min(free - part // KEPT, share - self.unanswered[place])
        room = max(0, min(free, max(share - self._taken_at[place], beyond)))
        self._is_awaited |= not room
        return room

    def begin(self, place: Place) -> None:
        """Count a request to a tenant's host and port until `end`, even while it waits for its connection."""
        self.taken += 1
        self._taken_by[place[0]] += 1
        self._taken_at[place] += 1
        self.unanswered[place] += 1

    def end(self, place: Place) -> None:
        self.taken -= 1
        self._taken_by[place[0]] -= 1
        self._taken_at[place] -= 1
        if not self._taken_at[place]:
            del self._taken_at[place]
            self.unanswered.pop(place, None)
        if not self._taken_by[place[0]]:
            del self._taken_by[place[0]]
        if self._is_awaited or self.taken == self.most - 1:
            self._is_awaited = False
            self._freed()

    def pause(self) -> None:
        """Have no jobs claimed for a moment, as no connection could be had, although one was counted as free."""
        self._pause_until_s = self._mono_s() + PAUSE_S


class Pool:
    """Connections to all workers: those in use, and those kept for the next request to the same origin."""

    def __init__(self, network: Network, most: int, keepalive_s: float) -> None:
        """`most`: limit of connections in use. `keepalive_s`: how long (s) an unused connection is kept open."""
        self._network = network
        self._most, self._keepalive_s = most, keepalive_s
        self._room = trio.Semaphore(most, max_value=most)
        self._kept: dict[Origin, list[Wire]] = {}
        self._ages: dict[Wire, None] = {}  # all that are kept, the longest unused first

    async def take(self, origin: Origin, within_s: float) -> Wire:
        """Return an open connection, which the caller must give back with `give`.

        Raises CrowdedError if none is free `within_s`, UnreachedError if none can be opened.
        """
        try:
            self._room.acquire_nowait()
        except trio.WouldBlock:
            with trio.move_on_after(within_s) as waiting:
                await self._room.acquire()
            if waiting.cancelled_caught:
                raise CrowdedError(f"all {self._most} connections are taken", "all taken") from None
        while self._ages and (oldest := next(iter(self._ages))).idle_since_s < trio.current_time() - self._keepalive_s:
            self._drop(oldest)
        while kept := self._kept.get(origin):
            wire = kept.pop()  # the one used last is most likely still open
            if not kept:
                del self._kept[origin]
            del self._ages[wire]
            if wire.is_quiet():
                return wire
            wire.close()
        try:
            return await self._connect(origin, within_s)
        except BaseException:
            self._room.release()
            raise

    def give(self, wire: Wire) -> None:
        """Take back a connection. It is kept open if it can be used again."""
        self._room.release()
        if not wire.is_lasting or len(self._ages) >= self._most // 2:
            wire.close()
            return
        wire.idle_since_s = trio.current_time()
        self._kept.setdefault(wire.origin, []).append(wire)
        self._ages[wire] = None

    async def _connect(self, origin: Origin, within_s: float) -> Wire:
        """Open a new connection. If too many idle ones are open, first close those unused for longest."""
        while self._ages and self._most - self._room.value + len(self._ages) > self._most:
            self._drop(next(iter(self._ages)))
        return Wire(await self._network.connect(origin, within_s), origin)

    def _drop(self, wire: Wire) -> None:
        del self._ages[wire]
        kept = self._kept[wire.origin]
        kept.remove(wire)
        if not kept:
            del self._kept[wire.origin]
        wire.close()

    def close(self) -> None:
        for wire in [*self._ages]:
            self._drop(wire)


def make_pool(config: RunnerConfig, connections_max: int) -> Pool:
    return Pool(
        Network(SsrfGuard(config.worker_networks, config.callback_networks)), connections_max, config.keepalive_s
    )
