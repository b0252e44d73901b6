"""The connections to all workers: one pool for all partitions, and counts of those in use.

Connections are a share of the process's open files (`jqd/domain/descriptors.py`). When all are taken nothing more is
claimed. A claimed job that gets no connection in time goes back untried, without a back-off of its worker.
"""

import errno
from collections import Counter
from collections.abc import Callable, Mapping

import trio

from jqd.domain.errors import JqdError
from jqd.runner.config import RunnerConfig
from jqd.runner.ssrf import SsrfGuard
from jqd.runner.transport.http1 import Origin, Wire
from jqd.runner.transport.network import Network
from jqd.runner.worker import Worker

KEPT = 8  # an endpoint with more than its share leaves an eighth of its tenant's connections to the others
LEFT = 4  # where most of a tenant's endpoints are idle, one has a quarter of the connections that they leave
PAUSE_S = 0.5  # nothing is claimed for so long after a request got no connection: time for some to end
# Errors of the kernel when this process or machine has no more sockets: no worker is to blame.
OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Place = tuple[str, str]
"""A tenant, and host and port of its workers."""


class CrowdedError(JqdError):
    """All connections are taken. The jobs go back, and no worker is to blame."""


class Connections:
    """Counts requests under way of all runners, in all and by tenant and endpoint, against limits."""

    def __init__(self, most: int, mono_s: Callable[[], float], freed: Callable[[], None]) -> None:
        """`most`: the limit. `freed`: called when a connection is free again that was missing."""
        self.most = most
        self.taken = 0
        self._taken_by: Counter[str] = Counter()  # by tenant
        self._taken_at: Counter[Place] = Counter()
        self.unanswered: Counter[Place] = Counter()
        """Requests begun since the last answer there."""
        self._mono_s, self._freed = mono_s, freed
        self._pause_until_s = float("-inf")
        self._is_awaited = False  # `free_for` has returned 0

    @property
    def free(self) -> int:
        return 0 if self._mono_s() < self._pause_until_s else max(0, self.most - self.taken)

    def free_for(self, worker: Worker, workers: Mapping[str, int]) -> int:
        """Return how many more requests may begin to a worker's host and port. `workers`: how many each tenant has.

        A tenant has its equal share, or half of what the others leave. Of that an endpoint has its equal share, and
        more if it answers: one that hangs takes no more than its share from the others.
        """
        tenant, place = worker.tenant, (worker.tenant, worker.endpoint)
        part = max(1, self.most // len(workers), (self.free + self._taken_by[tenant]) // 2)
        free = min(self.free, part - self._taken_by[tenant])
        share = max(1, part // workers[tenant], (free + self._taken_at[place]) // LEFT)
        beyond = min(free - part // KEPT, share - self.unanswered[place])
        room = max(0, min(free, max(share - self._taken_at[place], beyond)))
        self._is_awaited |= not room
        return room

    def begin(self, place: Place) -> None:
        """Count one request until its `end`: while it is under way, or waits for its connection."""
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
        """Claim nothing for a moment: no connection was to be had, although one was counted as free."""
        self._pause_until_s = self._mono_s() + PAUSE_S


class Pool:
    """Connections to all workers: those in use, and those kept for the next request to the same origin."""

    def __init__(self, network: Network, most: int, keepalive_s: float) -> None:
        """`most`: connections in all. `keepalive_s`: how long an unused one is kept."""
        self._network = network
        self._most, self._keepalive_s = most, keepalive_s
        self._room = trio.Semaphore(most, max_value=most)
        self._kept: dict[Origin, list[Wire]] = {}
        self._ages: dict[Wire, None] = {}  # all that are kept, the longest unused first

    async def take(self, origin: Origin, within_s: float) -> Wire:
        """Return a connection, to be given back.

        Raises CrowdedError when none is free `within_s`, UnreachedError when none can be made.
        """
        try:
            self._room.acquire_nowait()
        except trio.WouldBlock:
            with trio.move_on_after(within_s) as waiting:
                await self._room.acquire()
            if waiting.cancelled_caught:
                raise CrowdedError(f"all {self._most} connections are taken") from None
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
        """Take a connection back. It is kept if it can be used again."""
        self._room.release()
        if not wire.is_lasting or len(self._ages) >= self._most // 2:
            wire.close()
            return
        wire.idle_since_s = trio.current_time()
        self._kept.setdefault(wire.origin, []).append(wire)
        self._ages[wire] = None

    async def _connect(self, origin: Origin, within_s: float) -> Wire:
        """Open a new connection. If too many idle ones are kept, close those unused for longest."""
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
