"""What goes wrong, kind by kind, and how it is mended in the end.

kill      a process is killed, and its machine loses power: at once, or at a chosen point of its work
pause     a process stands still for 0.5 … 20 leases: at once, or at a chosen point
stop      an orderly stop, and a start after it
lost      requests to the store and its answers are lost
late      calls are done by the store after their caller gave up
rollback  the store is started anew with an older image
wipe      the store loses everything, with or without a new start
restart   the store is started anew with all it had
away      nobody reaches the store
cut       one daemon does not reach the store
slow      the store takes long to answer
lag       what one daemon's journal holds takes long to come to the store
backlog   the jobs of one daemon's journal and their changes take long to come to the store, all else does not
disk      a disk takes long, and some of its syncs fail
full      a disk is full
clock     the wall clock of the store, of a daemon, or of the machine of both, jumps by a second, 15 of them or an hour
workers   a worker cannot be reached; others die, say nothing, or refuse (see `plan.py`)

Kinds in which something stands still for long:

stall       a disk answers nothing for up to a minute
suspend     a machine is suspended: its process and its monotonic clock stand still, all other clocks go on
unreadable  a disk cannot be read for up to a minute, and takes what is written

Kinds that come only where they are asked for:

swap      the store is exchanged for an empty one, in the same run of it, and after a while for what it was before

What is kept, in some runs:

trim      journals keep nothing that all partitions have
purge     the store keeps nothing that ended

With several partitions a fault of the store befalls one of them or all. Kinds that only they have:

absent    one partition is away from its first moment, or a few seconds on, until all is mended
poison    one or two jobs kill whatever daemon has them run
"""

import random
from typing import Any

import trio

from jqd.testing.keyspace import Keyspace
from tests.simulation.causes import Away, Loss
from tests.simulation.loop import hold_timers
from tests.simulation.network_faults import NetworkFaults
from tests.simulation.node import AGAIN_S, Life, Node, WorldClock
from tests.simulation.plan import FAULTY_S, Fault
from tests.simulation.stage import Stage
from tests.simulation.worker import HOSTS

IMAGE_S = 2.0  # an image of the store is taken so often, where roll-backs are planned
JUMP_MS = 3_600_000
JUMPS_MS = tuple(sign * size for size in (1_000, 15_000, JUMP_MS) for sign in (-1, 1))
MURDER_S = 0.5  # until what a job killed is started again
SWAPPED_S = 5.0  # at least: a lease, and what recovers takes
POINTS = (
    "before renew_sysid",
    "after renew_sysid",
    *("after get_waiting_jobs",) * 8,  # nothing tells more than to be caught with fresh jobs in flight
    "before apply_outcomes",
    "after apply_outcomes",
    "before apply_jobs",
    "after apply_jobs",
    "before apply_cancels",
    "after apply_cancels",
    "before reserve_sysid",
    "after reserve_sysid",
    "before reassert",
    "after reassert",
    "before release_jobs",
    "before reap",
    "disk write",
    "disk sync",
    "disk rename",
    "disk sync_directory",
)
"""Where a kill or a pause may be laid in wait."""


class Nemesis(NetworkFaults):
    """Does what the plan says."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._source = random.Random(f"nemesis {stage.plan.seed}")
        self._images: list[list[Any]] = [[] for _ in stage.stores]
        self._ambush: dict[str, tuple[str, Fault]] = {}  # by node
        self._aways: dict[str, Away] = {}  # by node
        self._stalls: list[Away] = []  # of disks
        self._hours_ms = 0

    async def run(self, nursery: trio.Nursery) -> None:
        """Every fault at its time; returns when the last has begun."""
        if "rollback" in self._stage.plan.kinds:
            nursery.start_soon(self._take_images)
        for fault in self._stage.plan.faults:
            await trio.sleep_until(fault.at_s)
            where = () if fault.partition is None else (f"partition {fault.partition}",)
            span_s, part = round(fault.span_s, 3), round(fault.part, 3)
            self._stage.history.note("fault", fault.kind, fault.node, span_s, part, *where)
            self._stage.history.hinders(fault.kind, self._stage.nodes[fault.node].name, fault.at_s, fault.span_s)
            nursery.start_soon(getattr(self, f"_{fault.kind}"), fault)

    async def heal(self) -> None:
        """Nothing is broken from now on; who is down starts."""
        stage = self._stage
        stage.history.note("heal")
        self._ambush.clear()
        for weather in stage.weathers:
            weather.away, weather.lost, weather.late, weather.slow_s = False, 0.0, 0.0, 0.0
        stage.workers.down.clear()
        stage.clock.wrong_ms = self._hours_ms
        if self._hours_ms:
            stage.history.jumps.append((trio.current_time(), self._hours_ms / 1000))
        for node in stage.nodes:
            node.slow_disk_s, node.failing_syncs, node.full, node.disk.free = 0.0, 0.0, False, 1 << 40
            node.unreadable = False
            node.lags_s = node.backlogs_s = [0.0] * len(node.lags_s)
            life = node.life
            for link in life.links if life is not None else ():
                link.cut = False
            if (life is None or life.dead) and node.name in self._aways:
                self._start(node)
        for away in stage.history.aways:
            if away not in (*self._aways.values(), *self._stalls):  # who stands still does so to the end, or its disk
                away.to_s = min(away.to_s, trio.current_time())

    # ------------------------------------------------------------ processes

    def moment(self, node: Node, name: str) -> bool:
        """Whether the node was caught at this point."""
        waiting = self._ambush.get(node.name)
        if waiting is None or waiting[0] != name:
            return False
        del self._ambush[node.name]
        fault = waiting[1]
        self._stage.history.note("caught", node.name, name, fault.kind)
        if fault.kind == "kill":
            self._kill_now(node, fault)
        else:
            self._pause_now(node, fault)
        return True

    def life_ended(self, node: Node, life: Life) -> None:
        """A process that ended without being killed is started again, as a service manager would."""
        if node.life is life:
            node.life = None
            if not life.dead:
                self._stage.spawn(self._start_after, node, AGAIN_S)

    def _is_up(self, node: Node) -> bool:
        life = node.life
        return life is not None and not life.dead and not self._stage.is_frozen(life) and not life.stop.is_set()

    async def _kill(self, fault: Fault) -> None:
        node = self._stage.nodes[fault.node]
        if fault.part < 0.5:
            self._ambush[node.name] = (self._source.choice(POINTS), fault)
        elif self._is_up(node):
            self._kill_now(node, fault)

    def _kill_now(self, node: Node, fault: Fault) -> None:
        self._begin_away(node, "killed")
        self._stage.history.note("kill", node.name)
        node.kill()
        self._stage.spawn(self._start_after, node, fault.span_s * (3 if fault.part > 0.85 else 1))

    def murder(self, node: Node, life: Life) -> None:
        """A job kills the daemon that had it run."""
        if node.life is life and not life.dead:
            self._kill_now(node, Fault(trio.current_time(), "kill", self._stage.nodes.index(node), MURDER_S, 0.0))

    async def _start_after(self, node: Node, after_s: float) -> None:
        now_s = trio.current_time()
        await trio.sleep_until(min(now_s + after_s, max(FAULTY_S, now_s + AGAIN_S)))
        self._start(node)

    def _start(self, node: Node) -> None:
        if node.life is None or node.life.dead:
            self._end_away(node)
            self._stage.start(node)

    async def _pause(self, fault: Fault) -> None:
        node = self._stage.nodes[fault.node]
        if fault.part < 0.5:
            self._ambush[node.name] = (self._source.choice(POINTS), fault)
        elif self._is_up(node):
            self._pause_now(node, fault)

    def _pause_now(self, node: Node, fault: Fault) -> None:
        life = node.life
        assert life is not None
        self._begin_away(node, "paused")
        self._stage.history.note("pause", life.label)
        self._stage.freeze(life)
        self._stage.spawn(self._thaw_after, node, life, fault.span_s)

    async def _thaw_after(self, node: Node, life: Life, after_s: float) -> None:
        await trio.sleep(after_s)
        if not life.dead and self._stage.is_frozen(life):
            self._stage.history.note("thaw", life.label)
            self._stage.thaw(life)
            self._end_away(node)

    async def _suspend(self, fault: Fault) -> None:
        node = self._stage.nodes[fault.node]
        life = node.life
        if self._is_up(node) and life is not None:
            self._begin_away(node, "suspended")
            self._stage.history.note("suspend", life.label)
            self._stage.freeze(life)
            hold_timers(life.label, fault.span_s)
            self._stage.spawn(self._wake_after, node, life, fault.span_s)

    async def _wake_after(self, node: Node, life: Life, after_s: float) -> None:
        began_s = trio.current_time()
        await trio.sleep(after_s)
        node.clock.slept_s += trio.current_time() - began_s
        if not life.dead and self._stage.is_frozen(life):
            self._stage.history.note("wake", life.label)
            self._stage.thaw(life)
            self._end_away(node)

    async def _stop(self, fault: Fault) -> None:
        node = self._stage.nodes[fault.node]
        life = node.life
        if self._is_up(node) and life is not None:
            self._stage.history.note("stop", life.label)
            life.stop.set()

    def _begin_away(self, node: Node, why: str) -> None:
        if node.name not in self._aways:
            self._aways[node.name] = self._stage.history.gone(node.name, why)

    def _end_away(self, node: Node) -> None:
        away = self._aways.pop(node.name, None)
        if away is not None:
            away.to_s = trio.current_time()

    # ------------------------------------------------------------ the store

    def _lose(self, number: int) -> None:
        self._stage.history.losses.append(Loss(trio.current_time(), number))

    async def _take_images(self) -> None:
        while True:
            for store, images in zip(self._stage.stores, self._images, strict=True):
                images.append(store.image())
            await trio.sleep(IMAGE_S)

    async def _rollback(self, fault: Fault) -> None:
        for number in self._partitions(fault):
            images = self._images[number]
            if images:
                self._lose(number)
                chosen = int(fault.part * len(images))
                self._stage.stores[number].restart(images[chosen])
                del images[chosen + 1 :]

    async def _wipe(self, fault: Fault) -> None:
        for number in self._partitions(fault):
            self._lose(number)
            self._images[number].clear()
            self._stage.stores[number].wipe()
            if fault.part < 0.5:
                self._stage.stores[number].restart()

    async def _swap(self, fault: Fault) -> None:
        servers = [(number, self._stage.stores[number].server) for number in self._partitions(fault)]
        first = [server.keyspace for _, server in servers]
        for number, server in servers:
            self._lose(number)
            server.keyspace = Keyspace()
        await trio.sleep(SWAPPED_S + fault.span_s)
        for (number, server), keyspace in zip(servers, first, strict=True):
            self._lose(number)
            server.keyspace = keyspace

    async def _restart(self, fault: Fault) -> None:
        for number in self._partitions(fault):
            self._stage.stores[number].restart()

    async def _clock(self, fault: Fault) -> None:
        stage = self._stage
        clocks, jump_ms = self._jumps()[int(fault.part * len(self._jumps()))]
        # A daemon that the store has answered goes by the store's time: what is pushed in seconds comes as meant.
        is_felt = stage.clock in clocks or stage.plan.kinds != {"clock"}
        stage.history.jumps.append((trio.current_time(), abs(jump_ms) / 1000 if is_felt else 0.0))
        for clock in clocks:
            clock.wrong_ms += jump_ms
        self._hours_ms = 2 * JUMP_MS  # after which all that was dated by wrong clocks is due
        await trio.sleep(fault.span_s * 2)
        for clock in clocks:
            clock.wrong_ms = 0

    def _jumps(self) -> list[tuple[list[WorldClock], int]]:
        """Whose clocks are set wrong by how much: the store's, a daemon's, or of the machine that both are on."""
        store, daemons = self._stage.clock, [node.clock for node in self._stage.nodes]
        groups = [[store], *([daemon] for daemon in daemons), [store, daemons[0]]]
        return [(group, jump_ms) for group in groups for jump_ms in JUMPS_MS]

    # ------------------------------------------------------------ disks and workers

    async def _disk(self, fault: Fault) -> None:
        node = self._stage.nodes[fault.node]
        node.slow_disk_s = 3.0 * fault.part
        node.failing_syncs = 0.5 if fault.part < 0.4 else 0.0
        await trio.sleep(fault.span_s)
        node.slow_disk_s = node.failing_syncs = 0.0

    async def _stall(self, fault: Fault) -> None:
        node = self._stage.nodes[fault.node]
        node.disk_back_s = max(node.disk_back_s, trio.current_time() + fault.span_s)
        away = self._stage.history.gone(node.name, "its disk stands still")
        self._stalls.append(away)
        self._stage.spawn(self._answers_after, away, fault.span_s)

    async def _answers_after(self, away: Away, after_s: float) -> None:
        await trio.sleep(after_s)
        away.to_s = trio.current_time()

    async def _unreadable(self, fault: Fault) -> None:
        node = self._stage.nodes[fault.node]
        node.unreadable = True
        away = self._stage.history.gone(node.name, "its disk cannot be read")
        await trio.sleep(fault.span_s)
        node.unreadable = False
        away.to_s = trio.current_time()

    async def _full(self, fault: Fault) -> None:
        node = self._stage.nodes[fault.node]
        node.full, node.disk.free = True, int(fault.part * 20_000)
        await trio.sleep(fault.span_s)
        node.full, node.disk.free = False, 1 << 40

    async def _workers(self, fault: Fault) -> None:
        host = HOSTS[int(fault.part * len(HOSTS))]
        self._stage.workers.down.add(host)
        await trio.sleep(fault.span_s)
        self._stage.workers.down.discard(host)
