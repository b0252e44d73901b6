"""Builds every part, opens the long-lived nursery, walks the stages of start and shutdown.

    start     lock and recover the journal → open the store (it may be away) → listen → join → run the loops
    shutdown  refuse pushes → stop dispatching → drain the runner → settle → hand back the rest → leave → close

SIGTERM and kill -9 lead to the same recovery at the next start; SIGTERM only makes it quick and quiet.
"""

import dataclasses
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from jqd.api import Api, ApiContext, Authenticator
from jqd.chaining.follow import follow
from jqd.chaining.release import release
from jqd.config import Config
from jqd.control import Control
from jqd.cron.loop import CronLoop
from jqd.cron.schedules import Schedules
from jqd.domain import root_token
from jqd.domain.clock import Clock, SystemClock
from jqd.domain.descriptors import open_files_max, share_out
from jqd.domain.errors import ConfigError, JournalForked, JqdError, StoreError
from jqd.domain.joblog import JobLog
from jqd.domain.log import configure, get_logger
from jqd.domain.settings import SettingTable
from jqd.features import HOOKS
from jqd.http import Listener, ListenerConfig, address_of, bind, tls_context, url_of
from jqd.journal import Journal, open_journal
from jqd.loops.dispatch import Dispatch
from jqd.loops.poison import PoisonGuard
from jqd.loops.retention.retention import Retention
from jqd.loops.settings import SettingsUpkeep
from jqd.loops.systemd import SystemdNotifier
from jqd.loops.watch import Watch, watch_nothing, watch_over
from jqd.metrics.meter import Meter
from jqd.partition import Partition, Shared
from jqd.rate_limits.constraints import Constraints
from jqd.recovery.recovery import hand_down
from jqd.reload import Reload
from jqd.routes import ROUTES
from jqd.runner import Capacity, Runners, SsrfGuard, WorkerRegistry, WorkerViews, make_pool
from jqd.scheduler import Scheduler, make_policy
from jqd.service import Services
from jqd.service.outcome_checks import wrong
from jqd.service.settings import save
from jqd.service.workers import unneeded_options
from jqd.signals import watch_signals
from jqd.store import PartitionedStore, Store, StoreConfig, open_embedded, open_store
from jqd.tenants.quotas import Quotas

FLUSH_S = 2.0  # for the job log at the end: it is no promise, and the process must end
FORK_RETRY_S = 1.0  # between looks at a partition that is away while the journal gets a new id

log = get_logger("daemon")

SETTINGS_S = (
    2.0  # the door opens without what the others said: a store that is there tells it in less than half a second
)

E = TypeVar("E", bound=Exception)


class Daemon:
    """All parts of one daemon, built but not yet running."""

    door: Listener | None = None  # where it listens, once it does

    def __init__(
        self,
        config: Config,
        journal: Journal,
        stores: Sequence[Store],
        clock: Clock,
        source: random.Random,
        watches: Sequence[Watch] | None = None,
    ) -> None:
        """`stores`: one for each partition; `watches`: over their servers, None for stores that have none."""
        self.config, self.journal, self.clock = config, journal, clock
        sysid = journal.journal_id[:10]
        ssrf = SsrfGuard(config.runner.worker_networks, config.runner.callback_networks)
        table, secret = SettingTable(loading=True), config.runner.callback_secret
        self.meter, path = Meter(table, clock, config.metrics), Path(config.log.job_log) if config.log.job_log else None
        self.joblog = JobLog(path, daemon=sysid, clock=clock, tally=self.meter.tally)
        self.workers = WorkerRegistry(table, clock=clock, ssrf=ssrf, callback_secret=secret)
        self.constraints = Constraints(self.workers.settings)
        self.scheduler = Scheduler(make_policy(config.scheduler, source), period_ms=config.scheduler.period_ms)
        self._shares = share_out(open_files_max(), partitions=len(stores))
        self.capacity = Capacity(config.runner, self.workers, source, clock, self._shares.workers)
        self.pool = make_pool(config.runner, self.capacity.connections.most)
        self.worker_views = WorkerViews(sysid, self.workers, self.capacity, clock, config.runner.retry_after_max_s)
        shared = Shared(
            config=config,
            journal=journal,
            clock=clock,
            source=source,
            scheduler=self.scheduler,
            workers=self.workers,
            capacity=self.capacity,
            worker_views=self.worker_views,
            pool=self.pool,
            joblog=self.joblog,
            meter=self.meter,
            constraints=self.constraints,
            partitions=len(stores),
            stores=stores,
            wrong=lambda follows, scopes: wrong(self.config.api, follows, scopes),  # it may be loaded anew
            push=lambda entries, **how: follow(self.parts.services, entries, **how),
            release=lambda *ends: release(self.parts.services, *ends),
            settled=lambda where: self.control.settled(where),
            wake=lambda job_ids: self.parts.services.waiters.ring(job_ids),
        )
        each = zip(stores, watches or [watch_nothing() for _ in stores], strict=True)
        self.partitions = [Partition(shared, number, *its) for number, its in enumerate(each)]
        poison = PoisonGuard(clock, config.store.alone_s)
        self.dispatch = Dispatch([each.claims for each in self.partitions], self.scheduler, clock, poison)
        self.retention = self._retention(source)
        self.runners = Runners([partition.runner for partition in self.partitions])
        self.control = Control(shared, self.partitions, self.runners, self.retention.backoff)
        self.workers.place = self.control.place
        self.parts: ApiContext = self._parts(self._services(stores))
        self.settings_upkeep, self.cron = self._upkeep(self.parts.services, source), self._dates(self.parts.services)
        self.api = Api(self.parts, ROUTES)

    async def run(self, *, stop: trio.Event, listener: Any, ready: Callable[[str], None]) -> None:
        api, config = self.api, self._listener_config()
        door = self.door = Listener(api, listener, config, whose=api.whose, urgent=api.urgent, clock=self.clock)
        self.control.certificate = door.certificate
        url = url_of(listener, door.config.scheme)
        self.worker_views.url = self.config.http.advertised(url)
        http_closed = trio.Event()
        notify = SystemdNotifier(self.config.manager, lambda: self.dispatch.rounds, self.control.in_a_line)
        async with trio.open_nursery() as listening:
            async with trio.open_nursery() as working:
                background = (self.retention.run, self.joblog.run, self.settings_upkeep.run, notify.run)
                for loop in (*background, *self.control.loops(self.parts.services)):
                    await working.start(loop)
                for partition in self.partitions:
                    await partition.start(working, partition.loops())
                    await working.start(self.api.watch, partition.number)
                async with trio.open_nursery() as dispatching:
                    with trio.move_on_after(SETTINGS_S):  # connections are accepted by the kernel meanwhile
                        await self.workers.settings.synced.wait()
                    await dispatching.start(self.dispatch.run)
                    await dispatching.start(self.cron.run)
                    await listening.start(door.serve, http_closed.wait)
                    log.info("daemon.ready", url=url, sysid=self.control.sysid, data_dir=str(self.config.data_dir))
                    ready(url)
                    notify.ready()
                    await stop.wait()
                    self.control.draining = True
                    notify.stop(self.config.drain_s)
                    self.capacity.pulls.close()
                    dispatching.cancel_scope.cancel()
                await self._shut_down()
                working.cancel_scope.cancel()
            http_closed.set()

    def _retention(self, source: random.Random) -> Retention:
        return Retention(
            journal=self.journal,
            partitions=[partition.retention for partition in self.partitions],
            settings=self.workers.settings,
            clock=self.clock,
            source=source,
        )

    def _upkeep(self, services: Services, source: random.Random) -> SettingsUpkeep:
        return SettingsUpkeep(
            journal=self.journal,
            workers=self.workers,
            follows=[partition.settings_sync for partition in self.partitions],
            views=self.worker_views,
            save=partial(save, services, bounded=False),
            unneeded=partial(unneeded_options, services),
            clock=self.clock,
            source=source,
        )

    def _dates(self, services: Services) -> CronLoop:
        follows = [partition.settings_sync for partition in self.partitions]
        return CronLoop(services, follows=follows, place=self.control.place)

    def _parts(self, services: Services) -> ApiContext:
        config = self.config
        auth = Authenticator(services.tokens, config.needs_tokens, root_token.draw())
        return ApiContext(config.api, services, auth, config.http.guard)

    def _services(self, stores: Sequence[Store]) -> Services:
        services = Services(
            config=self.config.api,
            journal=self.journal,
            store=stores[0] if len(stores) == 1 else PartitionedStore(stores, servers=len(self.config.store.urls) or 1),
            runner=self.runners,
            pulls=self.capacity.pulls,
            workers=self.workers,
            control=self.control,
            clock=self.clock,
            hooks=HOOKS,
            features={Constraints: self.constraints, Meter: self.meter},
            partitions=len(stores),
            ageing_ms=self.scheduler.period_ms,
            allow_code=self.config.runner.allow_code,
            sandbox=self.config.runner.sandbox,
        )
        services.options.take_usual(self.config.job.usual)
        self.control.schedules, self.control.quotas = services.feature(Schedules), services.feature(Quotas)
        return services

    def change(self, config: Config) -> None:
        """Use another configuration, as far as possible now. Raises ConfigError for its certificate, first."""
        self.config, before = config, self.config
        try:
            if self.door is not None:
                self.door.change(self._listener_config())
        except ConfigError:
            self.config = before
            raise
        self.api.change(config.api, config.http.guard)
        self.journal.keep(config.journal)
        self.control.pressure.config = config.pressure
        configure(level=config.log.level, form=config.log.form)

    def _listener_config(self) -> ListenerConfig:
        http, most = self.config.http, self._shares.incoming
        return ListenerConfig(
            connections_max=min(http.connections_max or most, most),
            address_connections_max=http.address_connections_max,
            request_s=self.config.api.request_s,
            certificate=http.certificate,
            clients=http.tls_clients,
        )

    async def _shut_down(self) -> None:
        """Drain, settle, hand back, leave; each stage has its time, and none of them can lose a job.

        Partitions walk the stages side by side: one that is away takes nobody else's time.
        """
        log.info("daemon.draining", in_flight=self.runners.in_flight, drain_s=self.config.drain_s)
        async with trio.open_nursery() as nursery:
            for partition in self.partitions:
                nursery.start_soon(partition.shut_down, self.config.drain_s)
        with trio.move_on_after(FLUSH_S):
            await self.joblog.flush()
        log.info("daemon.stopped", in_flight=self.runners.in_flight)


async def serve(
    config: Config,
    *,
    ready: Callable[[str], None] = lambda url: None,
    interrupted: Callable[[int], None] = lambda in_flight: None,
    load: Callable[[], Config] | None = None,
) -> None:
    """Run one daemon until SIGTERM or SIGINT; a second signal, or the end of the drain time, ends it at once.

    `ready` is called with the URL once jobs are accepted, `interrupted` at the first Ctrl-C with how many jobs are
    waited for. `load`: the configuration again, from the same places, for SIGHUP. Raises ConfigError, JournalLocked,
    JournalVersion and StoreUnsafe before anything is accepted.
    """
    if load is not None:  # until the daemon listens for it: a start reads the files anyhow
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    share_out(open_files_max(), partitions=len(config.store.parts()))
    if config.http.certificate:
        tls_context(*config.http.certificate, config.http.tls_clients)
    config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    watches = [] if config.store.is_own else await _look_at_all(config.store.parts())
    listener = bind(config.http.bind)
    address = address_of(listener)
    journal_id: bytes | None = None
    reload = Reload(config, load)
    rows: list[str] = []

    def ready_once(url: str) -> None:
        if not rows:  # a life may end before it was ready, and the next one is the first to say so
            rows.append(url)
            ready(url)

    while True:
        with closing(listener):
            forked = await _serve_once(reload, listener, ready_once, interrupted, journal_id, watches)
        if forked is None:
            return
        journal_id, listener = forked, bind(address)


async def _look_at_all(parts: Sequence[StoreConfig]) -> list[Watch]:
    """Examine all servers concurrently. Returns their watches, which have reported their findings. Raises ConfigError,
    StoreUnsafe."""
    watches = [watch_over(part) for part in parts]
    refused: dict[int, JqdError] = {}

    async def look(number: int) -> None:
        try:
            await watches[number].start()
        except JqdError as error:
            refused[number] = error  # raised below, outside the nursery, as what it is

    async with trio.open_nursery() as nursery:
        for number in range(len(parts)):
            nursery.start_soon(look, number)
    if refused:
        raise refused[min(refused)]
    return watches


async def _serve_once(
    reload: Reload,
    listener: Any,
    ready: Callable[[str], None],
    interrupted: Callable[[int], None],
    journal_id: bytes | None,
    watches: Sequence[Watch],
) -> bytes | None:
    """Run one life of the daemon. Returns the journal id to begin another with, or None when it was told to stop."""
    clock, source, config = SystemClock(), random.Random(), reload.config
    forked: bytes | None = None
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(open_journal(config.journal, clock=clock, journal_id=journal_id))
        settings, watches = await stack.enter_async_context(_store_settings(config, watches))
        parts = settings.parts()
        stores = [await stack.enter_async_context(open_store(part)) for part in parts]
        daemon = Daemon(config, journal, stores, clock, source, watches)
        stack.callback(daemon.pool.close)
        reload.change, daemon.control.reload = daemon.change, reload
        left = root_token.RootToken(url_of(listener, config.http.scheme), daemon.parts.auth.root)
        root_file = stack.enter_context(root_token.RootTokenFile(config.data_dir, left))
        daemon.control.watch_disk(config.journal.directory, root_file.examine)
        stop = trio.Event()
        nursery = await stack.enter_async_context(trio.open_nursery())

        def on_interrupt() -> None:
            interrupted(daemon.runners.in_flight)

        await nursery.start(watch_signals, stop, lambda: daemon.config.drain_s, on_interrupt, reload.on_signal)
        try:
            await daemon.run(stop=stop, listener=listener, ready=ready)
        except* JournalForked as group:
            log.error("daemon.journal_forked", error=str(_leaf(group)), journal=journal.journal_id)
            listener.close()  # whoever pushes tries elsewhere, instead of waiting here
            forked = await _fork(daemon, stop)
        nursery.cancel_scope.cancel()
    return forked


def _leaf(group: ExceptionGroup[E]) -> E:
    first = group.exceptions[0]
    return _leaf(first) if isinstance(first, ExceptionGroup) else first


async def _fork(daemon: Daemon, stop: trio.Event) -> bytes | None:
    """Return a new id for this journal directory. What was applied under the old one is marked as applied for the new
    one.

    Partitions that are away are waited for, and nothing is taken meanwhile: the next life could not tell what this one
    took apart from what the other copy had applied. None when it was told to stop.
    """
    journal, new = daemon.journal, os.urandom(16)
    for number, partition in enumerate(daemon.partitions):
        handed_down = False
        while not handed_down:
            try:
                await hand_down(journal, partition.store, partition.lanes, new.hex())
                handed_down = True
            except StoreError as error:
                log.error("daemon.not_forked", partition=number, error=str(error))
                with trio.move_on_after(FORK_RETRY_S):
                    await stop.wait()
                if stop.is_set():
                    return None
    log.warning("daemon.forked", journal=new.hex(), before=journal.journal_id)
    return new


@asynccontextmanager
async def _store_settings(
    config: Config, watches: Sequence[Watch]
) -> AsyncIterator[tuple[StoreConfig, Sequence[Watch]]]:
    """Give settings and watches of the named store, or of our own, examined once it runs. Raises StoreUnsafe."""
    if not config.store.is_own:
        yield config.store, watches
        return
    refused: JqdError | None = None
    async with open_embedded(config.data_dir / "store") as url:
        own = dataclasses.replace(config.store, url=url)
        try:
            watches = await _look_at_all(own.parts())
        except JqdError as error:
            refused = error  # raised below, outside the server's nursery, as what it is
        else:
            yield own, watches
    if refused is not None:
        raise refused
