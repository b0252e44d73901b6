"""Real servers that stand in for one another, on loopback: a Cluster, and a master with its copy and Sentinels.

Everything is fast, so that a failover takes a second; and everything gone when the block ends.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import redis
from redis.crc import key_slot

from tests.directories import short_directory
from tests.valkey import Valkey

SLOT = key_slot(b"{jqd:0}:jobs")
SLOTS = 16_384
DOWN_MS = 500  # after which a server that is silent counts as gone; a pause of this loaded machine must be shorter
WAIT_S = 60.0
STEP_S = 0.02

N = TypeVar("N", bound="Node")


class Node(Valkey):
    """A server with a TCP port of its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.port, bus = free_ports(2)
        directory.mkdir()
        super().__init__(
            directory,
            *("--port", str(self.port), "--cluster-port", str(bus), "--bind", "127.0.0.1"),
            *("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"),
            *options,
        )
        self.bus = bus

    def __str__(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(self, *command: object) -> object:
        """One command."""
        with self.client() as client:
            execute: Callable[..., object] = client.execute_command
            return execute(*command)

    def role(self) -> bytes:
        """What it takes itself for."""
        answer = self.ask("ROLE")
        assert isinstance(answer, list)
        return bytes(answer[0])

    def pause(self) -> None:
        """It stands still, and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """It wakes up, and knows of nothing."""
        os.kill(self.pid, signal.SIGCONT)

    def client(self) -> "redis.Redis":
        """A bare client."""
        return redis.Redis.from_url(self.url, socket_timeout=WAIT_S)


class Cluster:
    """Three masters, and a copy of the one that has the store's slot."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        *self.masters, self.copy = nodes
        per = SLOTS // len(self.masters) + 1
        self.owner = self.masters[SLOT // per]
        for index, node in enumerate(self.masters):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", index + 1)  # else they come to blows over it: a second
            node.ask("CLUSTER", "ADDSLOTSRANGE", index * per, min((index + 1) * per, SLOTS) - 1)
        for node in nodes[1:]:
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus)
        owner_id = self.id_of(self.owner)
        wait_until(lambda: owner_id in str(self.copy.ask("CLUSTER", "NODES")))
        self.copy.ask("CLUSTER", "REPLICATE", owner_id)
        wait_until(lambda: all(self.is_ok(node) for node in nodes) and linked(self.copy))

    @property
    def url(self) -> str:
        """For a daemon. It names two of four, the first of which has not our slot."""
        others = [node for node in self.masters if node is not self.owner]
        return f"redis+cluster://{others[0]},{self.owner}"

    def id_of(self, node: Node) -> str:
        """Its name in the cluster."""
        name = node.ask("CLUSTER", "MYID")
        return bytes(name).decode() if isinstance(name, bytes) else str(name)

    def is_ok(self, node: Node) -> bool:
        """Whether it serves."""
        with node.client() as client:
            info = client.cluster("INFO")
        return bool(info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == len(self.nodes))

    def move_slot(self, source: Node, target: Node) -> None:
        """Give the store's slot and all in it to another node, as operators do."""
        target.ask("CLUSTER", "SETSLOT", SLOT, "IMPORTING", self.id_of(source))
        source.ask("CLUSTER", "SETSLOT", SLOT, "MIGRATING", self.id_of(target))
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", SLOT, 3):
            assert isinstance(keys, list)
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, int(WAIT_S * 1000), "KEYS", *keys)
        for node in (target, source, *(node for node in self.masters if node.running)):
            node.ask("CLUSTER", "SETSLOT", SLOT, "NODE", self.id_of(target))
        self.owner = target


class Watched:
    """A master, its copy, and three Sentinels that agree by two."""

    def __init__(self, stack: ExitStack, base: Path) -> None:
        self.master = start(stack, Node(base / "master"))
        self.copy = start(stack, Node(base / "copy", "--replicaof", f"127.0.0.1 {self.master.port}"))
        wait_until(lambda: linked(self.copy))
        self.sentinels = [self._sentinel(stack, base / f"sentinel{n}") for n in range(3)]
        wait_until(lambda: all(self._knows_all(sentinel) for sentinel in self.sentinels))

    @property
    def url(self) -> str:
        """For a daemon. Database 1, to show that it is used."""
        return f"redis+sentinel://{','.join(map(str, self.sentinels))}/jobs/1"

    def _sentinel(self, stack: ExitStack, directory: Path) -> Node:
        sentinel = Sentinel(directory)
        sentinel.configure(
            f"sentinel monitor jobs 127.0.0.1 {self.master.port} 2",
            f"sentinel down-after-milliseconds jobs {DOWN_MS}",
            "sentinel failover-timeout jobs 3000",
        )
        return start(stack, sentinel)

    def _knows_all(self, sentinel: Node) -> bool:
        with sentinel.client() as client:
            facts = client.sentinel_master("jobs")
        return bool(facts["num-other-sentinels"] == 2 and facts["num-slaves"] == 1)


class Sentinel(Node):
    """A server that watches others. It keeps what it knows in its configuration."""

    def configure(self, *lines: str) -> None:
        """Write what it begins with."""
        (self.directory / "sentinel.conf").write_text("\n".join((*lines, "")))

    def argv(self) -> list[str]:
        """It takes none of a store's settings."""
        own = ["--port", str(self.port), "--unixsocket", str(self.socket), "--dir", str(self.directory)]
        return [self._binary, str(self.directory / "sentinel.conf"), "--sentinel", *own, "--bind", "127.0.0.1"]


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A running Cluster."""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(2 * DOWN_MS))
    with ExitStack() as stack:
        base = stack.enter_context(short_directory())
        yield Cluster([start(stack, Node(base / f"node{n}", *options)) for n in range(4)])


@contextmanager
def watched() -> Iterator[Watched]:
    """A running master with all that watches it."""
    with ExitStack() as stack:
        yield Watched(stack, stack.enter_context(short_directory()))


def start(stack: ExitStack, node: N) -> N:
    """Start it; it ends with the stack."""
    stack.callback(node.kill)
    node.start()
    return node


def linked(copy: Node) -> bool:
    """Whether it has all that its master has."""
    with copy.client() as client:
        return bool(client.info("replication").get("master_link_status") == "up")


def wait_until(true: Callable[[], bool]) -> None:
    """Servers of their own tell nobody when they are ready: they are asked."""
    deadline = time.monotonic() + WAIT_S
    while not _is(true):
        assert time.monotonic() < deadline, f"still not so after {WAIT_S:g} s"
        time.sleep(STEP_S)


def _is(true: Callable[[], bool]) -> bool:
    try:
        return true()
    except redis.ConnectionError:
        return False  # a sentinel cuts all connections to a server that it gives another role


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]
