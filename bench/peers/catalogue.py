"""The queues of the race: each as its own documentation advises, and what is on disk when a push is acknowledged."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.peers import servers
from bench.processes import serve

CACHE = Path(".bench-peers")  # environments; git ignores it
NODE = "node"  # the environment with packages of npm
PROGRAMS = "bench.peers.programs"
WITHIN_1_S = "nothing; within a second"


@dataclass(frozen=True)
class Peer:
    """One queue with one durability."""

    name: str
    synced: bool
    on_disk: str
    """When a push is acknowledged."""
    settings: str
    server: Callable[[Path], AbstractContextManager[str]]
    program: str
    """Below `bench/peers/programs`, without its ending."""
    worker: tuple[str, ...] = ()
    """A command of its environment; else the program itself works."""
    environment: str = ""
    """Of `bench/peers/requirements`; none means this interpreter's."""
    debian: tuple[tuple[str, str], ...] = ()
    """A file that is there when a package of Debian is installed, and that package."""
    prepares: bool = False
    """Whether the program makes queues or tables first."""

    @property
    def bin(self) -> Path:
        """Where the programs of its environment are."""
        return CACHE.absolute() / self.environment / "bin" if self.environment else Path(sys.executable).parent

    def command(self, what: str) -> list[str]:
        """What pushes, works or prepares."""
        if self.program.endswith(".js"):
            return ["node", str(Path(__file__).parent / "programs" / self.program), what]
        return [str(self.bin / "python"), "-m", PROGRAMS, self.program, what]

    def work(self, url: str) -> list[str]:
        """What runs the worker."""
        first, *rest = self.worker or ("",)
        return [str(self.bin / first), *(word.format(url=url) for word in rest)] if first else self.command("work")

    def env(self, url: str) -> dict[str, str]:
        """For program and worker."""
        packages = {"NODE_PATH": str(CACHE.absolute() / self.environment / "node_modules")}
        own = packages if self.program.endswith(".js") else {"PYTHONPATH": str(Path.cwd())}
        return {"PEER_URL": url, "JQD_LOG__LEVEL": "warning", **own}


@contextmanager
def _daemon(directory: Path) -> Iterator[str]:
    with serve(directory / "data") as (url, _):
        yield url


def _nats(interval: str) -> Callable[[Path], AbstractContextManager[str]]:
    return partial(servers.nats, binary=CACHE.absolute() / "nats" / "bin" / "nats-server", sync_interval=interval)


def _on_valkey(name: str, settings: str, *worker: str, program: str = "", environment: str = "") -> Peer:
    where = servers.valkey
    return Peer(name, False, WITHIN_1_S, settings, where, program or name, worker, environment or name)


PEERS = (
    Peer(
        "jqd",
        True,
        "the job, synced; a sync is shared",
        "arrays of 500; a worker of eight threads",
        _daemon,
        "jqd",
        worker=("jqd", "worker", "bench.noop:app", "--daemon", "{url}", "--concurrency", "8", "--quiet"),
    ),
    _on_valkey(
        "rq",
        "enqueue_many of 500; a pool of two SimpleWorkers",
        *("rq", "worker-pool", "-u", "{url}", "-n", "2", "-w", "rq.worker.SimpleWorker", "-q"),
    ),
    _on_valkey(
        "celery",
        "acks_late, prefetch 128; two processes",
        *("celery", "-q", "-A", f"{PROGRAMS}.celery", "worker", "-P", "prefork", "-c", "2", "-l", "ERROR"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    ),
    _on_valkey("dramatiq", "two processes of eight threads", "dramatiq", f"{PROGRAMS}.dramatiq", "-p", "2", "-t", "8"),
    _on_valkey(
        "huey", "no results; two processes", "huey_consumer", f"{PROGRAMS}.huey.huey", "-k", "process", "-w", "2", "-q"
    ),
    _on_valkey("arq", "100 jobs at once, a poll every 10 ms", "arq", f"{PROGRAMS}.arq.WorkerSettings"),
    _on_valkey("saq", "100 jobs at once", "saq", f"{PROGRAMS}.saq.settings", "-q"),
    _on_valkey(
        "taskiq",
        "streams, acknowledged; two processes of 100 jobs",
        *("taskiq", "worker", f"{PROGRAMS}.taskiq:broker", "--workers", "2", "--log-level", "ERROR"),
    ),
    _on_valkey("bullmq", "addBulk of 500; 50 jobs at once", program="bullmq.js", environment=NODE),
    Peer(
        "procrastinate",
        True,
        "the row, synced by PostgreSQL",
        "batches of 500; 20 jobs at once",
        servers.postgres,
        "procrastinate",
        environment="procrastinate",
        debian=(("/usr/lib/postgresql", "postgresql"),),
        prepares=True,
    ),
    *(
        Peer(
            f"beanstalkd-f{fsync_ms}",
            not fsync_ms,
            WITHIN_1_S if fsync_ms else "the job, synced by itself",
            "two processes of eight connections",
            partial(servers.beanstalkd, fsync_ms=fsync_ms),
            "beanstalkd",
            environment="beanstalkd",
            debian=(("/usr/bin/beanstalkd", "beanstalkd"),),
        )
        for fsync_ms in (0, 1000)
    ),
    *(
        Peer(
            name,
            synced,
            on_disk,
            "500 acknowledgements under way; 1,000 delivered at once",
            _nats(interval),
            "nats",
            environment="nats",
            prepares=True,
        )
        for name, interval, synced, on_disk in (
            ("nats", "2m", False, "nothing; within two minutes"),
            ("nats-always", "always", True, "the message, synced by itself"),
        )
    ),
    Peer(
        "rabbitmq",
        True,
        "the message, synced; a sync is shared",
        "a quorum queue; 500 confirms under way, prefetch 300",
        servers.rabbitmq,
        "rabbitmq",
        environment="rabbitmq",
        debian=(("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"),),
        prepares=True,
    ),
)

ABSENT = {"faktory": "its server is in no registry that this installs from (Debian, PyPI, npm)"}
