"""One daemon of the world: its directory, its clock, and its lives, one after the other, each the real `Daemon`."""

import contextlib
import errno
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

from jqd import daemon as daemon_module
from jqd.chaining import flows as flows_module
from jqd.config import Config, HttpConfig
from jqd.cron import decide as decide_module
from jqd.cron import firing as firing_module
from jqd.cron import loop as dates_module
from jqd.daemon import Daemon
from jqd.domain.backoff import Backoff
from jqd.domain.errors import JournalError, JournalRefused
from jqd.domain.job import Outcome
from jqd.http import Urgency
from jqd.journal import JournalConfig, open_journal
from jqd.journal import tail as tail_module
from jqd.loops import lane_records as chunks_module
from jqd.loops import reap as reap_module
from jqd.loops import settings as rules_module
from jqd.recovery import recovery as barrier_module
from jqd.runner import RunnerConfig, WorkerSpec
from jqd.runner.in_flight import InFlightJob
from jqd.runner.registry import KIND, body_of
from jqd.scheduler import SchedulerConfig
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFiles
from tests.simulation.aged import PERIOD_S
from tests.simulation.link import Link
from tests.simulation.loop import EPOCH_MS, PROCESS, SLOW
from tests.simulation.plan import LEASE, OLD_S, PULLED, PULLERS, STORE, TRIM, UNREADABLE
from tests.simulation.spent import spend
from tests.simulation.worker import HOSTS, SLOTS

MONO_S = 1_000.0  # a monotonic clock's zero means nothing
SHORT: dict[str, Any] = {"segment_bytes": 512, "segment_age_s": 1.0, "retention_s": 0.0}  # keeps what it must, no more
CHUNKS = (chunks_module.CHUNK_RECORDS, 2)  # jobs are few here: with every other seed a lane has several calls under way
REAPS = (reap_module.REAP_JOBS, 2, 1)  # so are hands: with two seeds of three a dead daemon's is emptied in steps
RESIGN_S = 6.0  # three leases of the world's, as 60 s are six of the real ones: time is what runs cost
NOTE_S = 3.0  # between two notes that dates wait
GIVEN_S, TAKEN_S, CURRENT_S, LATE_S = 2.0, 18.0, 1.0, 6.0  # what firing dates waits for, shorter as leases are
TIDY_S = 4.0  # so often it is looked what nobody needs any more
AGAIN_S = 1.0  # what ended by itself is started again after that, as a service manager does


class WorldClock(ManualClock):
    """The world's time, with a wall clock that can be set wrong."""

    def __init__(self) -> None:
        super().__init__(wall_ms=EPOCH_MS)
        self.wrong_ms = 0
        self.slept_s = 0.0  # of the time that passed the machine was suspended

    def wall_ms(self) -> int:
        """See Clock."""
        return EPOCH_MS + self.wrong_ms + round(trio.current_time() * 1000)

    def mono_s(self) -> float:
        """See Clock."""
        return self.boot_s() - self.slept_s

    def boot_s(self) -> float:
        """See Clock."""
        return MONO_S + trio.current_time()


class Life:
    """One process of a daemon: from its start until it stops, or is killed."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.dead = False
        self.daemon: Daemon | None = None
        self.links: list[Link] = []
        """Its ways to the store: one to each partition."""
        self.requests: trio.Nursery | None = None
        """Where requests of clients are served; None while nobody listens."""
        self.stop = trio.Event()
        self.scope = trio.CancelScope()


class _Edge:
    """In place of the HTTP application: requests come as calls."""

    def __init__(self, parts: Any, routes: Any) -> None:
        self.parts = parts

    def whose(self, asked: Any) -> str:
        """Nobody waits for a turn here."""
        return ""

    def urgent(self, asked: Any) -> Urgency:
        """Nor is anybody let go first."""
        return Urgency.NOT

    async def watch(self, partition: int, *, task_status: Any) -> None:
        """Nobody polls here."""
        task_status.started()


class _Door:
    """Nobody knocks."""

    certificate = None

    def __init__(self, app: Any, listener: Any, config: Any, **_: Any) -> None:
        self.config = config

    async def serve(self, stopped: Callable[..., Any], *, task_status: Any) -> None:
        task_status.started()
        await stopped()


@contextlib.contextmanager
def without_edge(seed: int, kinds: Collection[str] = ()) -> Iterator[None]:
    """Daemons are built without sockets, and do as much at a time as with that seed, for the time of the block. Where a
    disk is to be unreadable, nothing is read from memory instead."""
    daemon: Any = daemon_module
    exchanged: list[tuple[Any, str, Any]] = [
        (daemon, "Api", _Edge),
        (daemon, "Listener", _Door),
        (daemon, "url_of", lambda listener, scheme: "http://sim"),
        (chunks_module, "CHUNK_RECORDS", CHUNKS[seed % len(CHUNKS)]),
        (firing_module, "GIVEN_S", GIVEN_S),
        (firing_module, "TAKEN_S", TAKEN_S),
        (dates_module, "CURRENT_S", CURRENT_S),
        (rules_module, "TIDY_S", TIDY_S),
        (flows_module, "OLD_MS", round(OLD_S * 1000)),
        (decide_module, "LATE_MS", round(LATE_S * 1000)),
        (decide_module, "NOTE_MS", round(NOTE_S * 1000)),
        (reap_module, "REAP_JOBS", REAPS[seed % len(REAPS)]),
        (barrier_module, "RESIGN_S", RESIGN_S),
        (barrier_module, "PROBATION_S", RESIGN_S),
        (tail_module, "TAIL_BYTES", 0 if UNREADABLE in kinds else tail_module.TAIL_BYTES),
    ]
    real = [(module, name, getattr(module, name)) for module, name, _ in exchanged]
    try:
        for module, name, value in exchanged:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in real:
            setattr(module, name, value)


class Node:
    """A daemon's place: what outlives its processes."""

    def __init__(self, index: int, seed: int, world: Any) -> None:
        self.name = f"d{index}"
        self.clock = WorldClock()
        self.disk = MemoryFiles()
        self.life: Life | None = None
        self.slow_disk_s = 0.0
        self.disk_back_s = 0.0
        """When a disk that stands still answers again."""
        self.unreadable = False
        self.lags_s = [0.0] * world.plan.partitions
        self.backlogs_s = [0.0] * world.plan.partitions
        self.failing_syncs = 0.0
        self.full = False
        self.sysid = ""
        """What its daemon is called; empty before its first life."""
        self._source = random.Random(f"{self.name} {seed}")
        self._lives = 0
        self._world = world
        self.config = Config(
            data_dir=Path("/") / self.name,
            drain_s=12.0,
            http=HttpConfig(),
            journal=JournalConfig(Path("/") / self.name / "journal", **(SHORT if TRIM in world.plan.kinds else {})),
            store=STORE,
            scheduler=SchedulerConfig(ageing_s=PERIOD_S if world.plan.ages else 0.0),
            runner=RunnerConfig(tick_s=0.25, backoff_cap_s=4.0),
            lease=LEASE,
            retry=Backoff(first_s=0.5, cap_s=4.0),
        )

    # ------------------------------------------------------------ its lives

    def begin(self) -> Life:
        """Its next process is there from now on, whenever its task comes to `live`."""
        self._lives += 1
        self.life = Life(f"{self.name}.{self._lives}")
        return self.life

    async def live(self, life: Life) -> None:
        """One process, until it stops by itself, is told to, or is killed."""
        world = self._world
        PROCESS.set(life.label)
        disk = self.disk
        SLOW.set(lambda: self._slow(life))
        disk.fail = lambda call, number: self._fail(life, call)
        disk.free = 0 if self.full else 1 << 40
        world.history.booted(life.label)
        try:
            with life.scope:
                await self._run(life, disk)
        except* JournalError as group:
            if not life.dead:
                world.history.note("cannot open", life.label, str(group.exceptions[0]))
        except* Exception as group:  # noqa: BLE001  whatever breaks a daemon is a finding, or the end of a dead one
            if not life.dead:
                world.broke(life, group)
        life.requests = None
        world.life_ended(self, life)

    async def _run(self, life: Life, disk: MemoryFiles) -> None:
        world = self._world
        source = random.Random(f"{life.label} {world.plan.seed}")
        async with open_journal(
            self.config.journal, clock=self.clock, files=disk, random_bytes=source.randbytes
        ) as journal:
            life.links = world.links(self, life)
            stores: Any = life.links  # each before its store, and passes on what it does not know
            daemon = life.daemon = Daemon(self.config, journal, stores, self.clock, source)
            if world.plan.quotas:
                spend(daemon)
            self.sysid = daemon.control.sysid
            pool = world.workers.pool(
                started=lambda job_id, number: world.started(life, job_id, number),
                asked=lambda *request: world.asked(life, *request),
                dead=lambda: life.dead,
                murder=lambda: world.nemesis.murder(self, life),
                stopped=lambda job_id: world.history.stopped(life.label, job_id),
            )
            for partition in daemon.partitions:
                runner: Any = partition.runner
                runner._pool = pool
                _tell_endings(runner._in_flight, lambda outcome: world.ended(life, outcome))
                _tell_silence(partition.worker_timeouts, lambda outcome: world.silent(life, outcome))
                _tell_known(runner, lambda claims: world.history.knows(life.label, claims))
            for host in HOSTS:
                card = WorkerSpec(name=host, url=f"http://{host}/run", max_jobs=SLOTS, id=host, ttl_s=86_400.0)
                _register(daemon, card)
            for name in PULLERS if world.plan.lends else ():
                daemon.workers.register(WorkerSpec(name=name, max_jobs=PULLED, id=name, ttl_s=86_400.0))
            async with trio.open_nursery() as requests:
                life.requests = requests
                try:
                    await daemon.run(stop=life.stop, listener=None, ready=lambda url: None)
                finally:  # whoever asks in the very step in which a daemon breaks finds nobody, and not a closed door
                    life.requests = None
                requests.cancel_scope.cancel()

    def kill(self) -> None:
        """As by SIGKILL and a power cut at once: the process is gone, the disk keeps what it must, and perhaps more."""
        life = self.life
        assert life is not None
        assert not life.dead
        life.dead = True
        for link in life.links:
            link.dead = True
        self.disk = self.disk.crash(self._source)
        self._world.thaw(life)
        life.scope.cancel()

    def in_flight(self, partition: int, job_id: str) -> InFlightJob | None:
        """The job in the hand of its living process that rightly trusts its lease there, if it has it."""
        daemon = self.life.daemon if self.life is not None and not self.life.dead else None
        if daemon is None or not daemon.partitions[partition].membership.trusts():
            return None
        runner: Any = daemon.partitions[partition].runner
        entry: InFlightJob | None = runner._in_flight.find(job_id)
        return entry

    def lag_s(self, partition: int, call: str) -> float:
        """What that call may take longer, at most."""
        backlog_s = self.backlogs_s[partition] if call in ("apply_jobs", "apply_changes") else 0.0
        return max(backlog_s, self.lags_s[partition] if call.startswith("apply_") else 0.0)

    def _slow(self, life: Life) -> float:
        if life.dead:
            raise JournalRefused("this process is gone", full=False)  # so that whoever waits shielded ends, too
        back_s = max(0.0, self.disk_back_s - trio.current_time())
        return back_s + (self._source.uniform(0.0, self.slow_disk_s) if self.slow_disk_s else 0.0)

    def _fail(self, life: Life, call: str) -> int | None:
        """What the disk does at a call: see `MemoryFiles.fail`."""
        if life.dead:
            return None
        self._world.moment(self, f"disk {call}")
        if call == "read" and self.unreadable:
            return errno.EIO
        if call == "sync" and self.failing_syncs and self._source.random() < self.failing_syncs:
            return errno.EIO
        return None


def _register(daemon: Daemon, card: WorkerSpec) -> None:
    """The same registration at all daemons, and in all their lives."""
    worker = msgspec.structs.replace(daemon.workers.check(card), registered_at_ms=EPOCH_MS)
    said = {(KIND, worker.id): body_of(worker)}
    daemon.workers.settings.take(daemon.workers.settings.make(said, now_ms=EPOCH_MS, origin=0))


def _tell_silence(silence: Any, tell: Callable[[Outcome], None]) -> None:
    """Let this loop tell of each attempt that it ends."""
    end = silence._end

    def told(lease: Any) -> Iterator[Outcome]:
        for outcome in end(lease):
            tell(outcome)
            yield outcome

    silence._end = told


def _tell_known(runner: Any, tell: Callable[[Sequence[tuple[str, int]]], None]) -> None:
    """Let this runner tell of each success that its daemon knows the store to know."""
    spare = runner.skip_succeeded

    def told(claims: Iterable[tuple[str, int]]) -> None:
        known = [*claims]
        tell(known)
        spare(known)

    runner.skip_succeeded = told


def _tell_endings(in_flight: Any, tell: Callable[[Outcome], None]) -> None:
    """Let the ledger of this runner tell of each attempt that ended."""
    stop = in_flight.stop

    def told(ended: Iterable[tuple[InFlightJob, Outcome]]) -> None:
        pairs = [*ended]
        stop(pairs)
        for _, outcome in pairs:
            tell(outcome)

    in_flight.stop = told
