"""Builds all parts of a daemon, runs them, and shuts them down in stages.

    start     lock and recover the journal → open the store (it may be away) → join, run the loops → read the own
              settings → listen
    shutdown  refuse pushes → stop dispatching → drain the runner → settle → give back jobs not started → leave → close

The next start recovers after a SIGTERM as well as after a kill -9; a shutdown by SIGTERM only makes the recovery
quicker.
"""

import random
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from jqd.api import Api, ApiContext, Authenticator
from jqd.api.sibling_api import SiblingApi
from jqd.chaining.follow import follow, options_of
from jqd.chaining.release import release
from jqd.config import Config
from jqd.control import Control
from jqd.cron.loop import CronLoop
from jqd.cron.schedules import Schedules
from jqd.domain import root_token
from jqd.domain.clock import Clock, StoreClock
from jqd.domain.descriptors import open_files_max, share_out
from jqd.domain.errors import ConfigError
from jqd.domain.joblog import JobLog
from jqd.domain.log import configure, get_logger
from jqd.domain.settings import SettingTable
from jqd.features import HOOKS
from jqd.http import Listener, ListenerConfig, url_of
from jqd.journal import Journal
from jqd.loops.dispatch import Dispatch
from jqd.loops.poison import PoisonGuard
from jqd.loops.retention.retention import Retention
from jqd.loops.settings import SettingsUpkeep
from jqd.loops.sibling_settings import SiblingSettings
from jqd.loops.systemd import SystemdNotifier
from jqd.loops.watch import Watch, watch_nothing
from jqd.metrics.meter import Meter
from jqd.partition import Partition
from jqd.rate_limits.constraints import Constraints
from jqd.routes import ROUTES
from jqd.runner import Capacity, Runners, SsrfGuard, WorkerRegistry, WorkerViews, make_pool
from jqd.scheduler import Scheduler, make_policy
from jqd.service import Services
from jqd.service.outcome_checks import wrong
from jqd.service.settings import save
from jqd.service.workers import unneeded_options
from jqd.shared_parts import SharedParts
from jqd.store import PartitionedStore, Store
from jqd.tenants.quotas import Quotas

OWN_CONNECTIONS_MAX = 64  # from sibling processes, which keep one or two each
FLUSH_S = 2.0  # wait at the end for the job log to be written; lines that are late are lost

log = get_logger("daemon")

# How long a start waits for the settings that other daemons changed, which a store that answers sends in half a second.
# If reading the settings in its own journal takes longer, that is logged: of 4 GiB it takes 16 s.
SETTINGS_S = 2.0


class Daemon:
    """All parts of one daemon, built but not yet running."""

    server: Listener | None = None  # the listener, once the daemon runs
    own: socket.socket | None = None  # the socket for sibling processes; set by the caller if there are any

    def __init__(
        self,
        config: Config,
        journal: Journal,
        stores: Sequence[Store],
        clock: Clock,
        source: random.Random,
        watches: Sequence[Watch] | None = None,
    ) -> None:
        """`stores`: one for each partition. `watches`: the watch of each store's server; None: no server is watched."""
        self.config, self.journal, self.clock = config, journal, clock
        sysid = journal.journal_id[:10]
        ssrf = SsrfGuard(config.runner.worker_networks, config.runner.callback_networks)
        table, secret = SettingTable(loading=True), config.runner.callback_secret
        clock = self.store_clock = StoreClock(table.ahead_ms, clock)
        self.meter, path = Meter(table, clock, config.metrics), Path(config.log.job_log) if config.log.job_log else None
        self.joblog = JobLog(path, daemon=sysid, clock=clock, tally=self.meter.tally)
        self.workers = WorkerRegistry(table, clock=clock, ssrf=ssrf, callback_secret=secret)
        self.constraints = Constraints(self.workers.settings)
        self.scheduler = Scheduler(make_policy(config.scheduler, source), period_ms=config.scheduler.period_ms)
        self._shares = share_out(open_files_max(), partitions=len(stores))
        self.capacity = Capacity(config.runner, self.workers, source, clock, self._shares.workers)
        self.pool = make_pool(config.runner, self.capacity.connections.most)
        self.worker_views = WorkerViews(sysid, self.workers, self.capacity, clock, config.runner.retry_after_max_s)
        shared = SharedParts(
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
            # Functions, as the attributes that they use are set later, or change.
            wrong=lambda follows, scopes: wrong(self.config.api, self.workers.why_no_callback, follows, scopes),
            options=lambda *follows: options_of(self.parts.services, *follows),
            push=lambda entries, **how: follow(self.parts.services, entries, **how),
            release=lambda *ends: release(self.parts.services, *ends),
            followed=lambda jobs: self.control.followed(jobs),
            settled=lambda where: self.control.settled(where),
            wake=lambda job_ids: self.parts.services.waiters.ring(job_ids),
        )
        watched = zip(stores, watches or [watch_nothing() for _ in stores], strict=True)
        self.partitions = [Partition(shared, number, store, watch) for number, (store, watch) in enumerate(watched)]
        self.worker_views.is_drained = lambda: all(partition.rests for partition in self.partitions)
        self.worker_views.may_start = lambda: any(partition.starts_jobs for partition in self.partitions)
        poison = PoisonGuard(clock, config.store.alone_s)
        self.dispatch = Dispatch([each.claims for each in self.partitions], self.scheduler, clock, poison)
        self.retention = self._retention(source)
        self.runners = Runners([partition.runner for partition in self.partitions])
        self.control = Control(shared, self.partitions, self.runners, self.retention)
        self.workers.place = self.control.place
        self.parts: ApiContext = self._parts(self._services(stores))
        self.settings_upkeep, self.cron = self._upkeep(self.parts.services, source), self._dates(self.parts.services)
        self.api = Api(self.parts, ROUTES)

    async def run(self, *, stop: trio.Event, listener: Any, ready: Callable[[str], None]) -> None:
        """Run the daemon until `stop` is set, then shut down. `ready` is called with the URL once it listens."""
        api, config = self.api, self._listener_config()
        server = self.server = Listener(api, listener, config, whose=api.whose, urgent=api.urgent, clock=self.clock)
        self.control.certificate = server.certificate
        url = url_of(listener, server.config.scheme)
        self.worker_views.idle = bool(self.config.process.surplus)
        self.worker_views.url = "" if self.worker_views.idle else self.config.http.advertised(url)
        http_closed = trio.Event()
        notify = SystemdNotifier(self.config.manager, lambda: self.dispatch.rounds, self.control.in_a_line)
        async with trio.open_nursery() as listening:
            async with trio.open_nursery() as working:
                background = (self.retention.run, self.joblog.run, self.settings_upkeep.run, notify.run)
                for loop in (*background, *self._sibling_loops(), *self.control.loops(self.parts.services)):
                    await working.start(loop)
                for partition in self.partitions:
                    await partition.start(working, partition.loops())
                    await working.start(self.api.watch, partition.number)
                    await working.start(self.parts.services.key_returns.run, partition.store, partition.number)
                async with trio.open_nursery() as dispatching:
                    if await self._know_settings(stop):
                        await dispatching.start(self.dispatch.run)
                        if not self.config.process.surplus:  # a surplus process only empties its journal
                            await dispatching.start(self.cron.run)
                            await listening.start(server.serve, http_closed.wait)
                            for partition in self.partitions:  # a worker to whom nobody listens is not silent
                                await partition.start(dispatching, [partition.worker_timeouts.run])
                        if self.own is not None:
                            few = ListenerConfig(connections_max=OWN_CONNECTIONS_MAX)
                            own = Listener(SiblingApi(api, self.parts), self.own, few)
                            await listening.start(own.serve, http_closed.wait)
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
        for partition in self.partitions:
            partition.log_left()
        log.info("daemon.stopped", in_flight=self.runners.in_flight)

    async def _know_settings(self, stop: trio.Event) -> bool:
        """Wait until the settings in this daemon's journal are known, then up to SETTINGS_S more for those of other
        daemons.

        Without the own settings, a revoked token would be accepted and a valid one refused. So if the disk does not
        deliver them, this waits until it does, or until a store in which all daemons came through recovery has sent
        settings. Returns False if the daemon is to stop before that.
        """
        settings = self.workers.settings

        async def wait_all() -> None:
            with trio.move_on_after(SETTINGS_S):
                await settings.loaded.wait()
            if not settings.loaded.is_set():
                log.info("daemon.reads_settings", journal_bytes=self.journal.stats().bytes)
                await settings.loaded.wait()
            with trio.move_on_after(SETTINGS_S):
                await settings.synced.wait()
            waiting.cancel_scope.cancel()

        async with trio.open_nursery() as waiting:
            waiting.start_soon(wait_all)
            await stop.wait()
            waiting.cancel_scope.cancel()
        return settings.loaded.is_set()

    def _sibling_loops(self) -> Sequence[Callable[..., Any]]:
        """Return the loop that sends settings to the other processes of this port; empty if there are none."""
        siblings = self.parts.siblings
        loop = SiblingSettings(
            journal=self.journal,
            settings=self.workers.settings,
            partitions=len(self.partitions),
            siblings=siblings.others,
            send=siblings.send_settings,
        )
        return [loop.run] if siblings.others else []

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
            clock=self.store_clock,
            source=source,
        )

    def _dates(self, services: Services) -> CronLoop:
        follows = [partition.settings_sync for partition in self.partitions]
        return CronLoop(services, follows=follows, place=self.control.place)

    def _parts(self, services: Services) -> ApiContext:
        config = self.config
        auth = Authenticator(services.tokens, config.needs_tokens, root_token.draw())
        return ApiContext(config.api, services, auth, config.guard)

    def _services(self, stores: Sequence[Store]) -> Services:
        services = Services(
            config=self.config.api,
            journal=self.journal,
            store=stores[0] if len(stores) == 1 else PartitionedStore(stores, servers=len(self.config.store.urls) or 1),
            runner=self.runners,
            pulls=self.capacity.pulls,
            workers=self.workers,
            control=self.control,
            clock=self.store_clock,
            hooks=HOOKS,
            features={Constraints: self.constraints, Meter: self.meter},
            partitions=len(stores),
            ages=self.scheduler.period_ms > 0,
            allow_code=self.config.runner.allow_code,
            sandbox=self.config.runner.sandbox,
        )
        services.options.set_configured(self.config.job.usual)
        self.control.schedules, self.control.quotas = services.feature(Schedules), services.feature(Quotas)
        return services

    def change(self, config: Config) -> None:
        """Put those settings of another configuration into force that can change while the daemon runs.

        Raises ConfigError for a bad certificate, before anything changes.
        """
        self.config, before = config, self.config
        try:
            if self.server is not None:
                self.server.change(self._listener_config())
        except ConfigError:
            self.config = before
            raise
        self.api.change(config.api, config.guard)
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
        """Shut down all partitions at the same time, so that a partition that is away does not delay the others. Each
        stage of the shutdown has a time limit. No job is lost if one is exceeded."""
        log.info("daemon.draining", in_flight=self.runners.in_flight, drain_s=self.config.drain_s)
        async with trio.open_nursery() as nursery:
            for partition in self.partitions:
                nursery.start_soon(partition.shut_down, self.config.drain_s)
        with trio.move_on_after(FLUSH_S):
            await self.joblog.flush()
