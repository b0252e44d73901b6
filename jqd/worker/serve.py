"""Runs a worker: listens, registers at the daemons, serves requests, and shuts down.

With `processes`, separate processes load the app (`process_pool.py`), and SIGHUP loads it again. At the first SIGTERM
or SIGINT: unregister, refuse new batches, wait until the jobs in flight have ended, stop. At the second, or after
`drain_s`, jobs still in flight are handed back without counting an attempt: async functions are stopped, threads run on
until the process ends.
"""

import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import httpx2
import trio

from jqd import __version__
from jqd.client import daemon_urls
from jqd.client.trust import trusted
from jqd.domain import address
from jqd.domain.address import Address
from jqd.domain.clock import Clock, SystemClock
from jqd.domain.errors import ConfigError
from jqd.domain.log import get_logger
from jqd.domain.signature import MAKE_SECRET, why_no_secrets
from jqd.http import Guard, ListenerConfig, from_asgi, listen, serve_http, url_of
from jqd.worker.app import App
from jqd.worker.frames import Begin
from jqd.worker.job import Declared
from jqd.worker.lease import SILENCE_S_MIN
from jqd.worker.load import chosen, load_app
from jqd.worker.process_pool import ProcessPool, Where, open_process_pool
from jqd.worker.programs import kill_descendants
from jqd.worker.pull import LEFT_S, SILENCE_S_DEFAULT, Puller, then_cancel
from jqd.worker.register import TTL_PULL_S, TTL_S_DEFAULT, Registration, Slots, Spec, advice_on
from jqd.worker.service import BODY_TIMEOUT_S, CONCURRENCY_DEFAULT, Service, ServiceConfig
from jqd.worker.shutdown import ShutdownSignals, forced
from jqd.worker.watchdog import Watchdog
from jqd.worker.worker_status import ProgressReporter, WorkerStatus, slots_of

DRAIN_S_DEFAULT = 30.0  # as long as a job may take by default
BATCH_JOBS = 500  # jobs in one POST at most: beyond that the cost per job no longer falls
CLOSE_S = 1.0  # for connections to close, after jobs in flight have ended or are being handed back
DRAINING_EVERY_S = 10.0  # between two log lines that say what a stop waits for
DRAINING = "a second signal, or Ctrl-C, hands these jobs back at once"
HANDED_BACK = "their jobs go to other workers, or wait for this one; no attempt is counted"
KILLED = "a job that was handed back had started it; that job runs again elsewhere"
KEEP_ALIVE_S = 75.0  # longer than a daemon keeps an idle connection, so that the daemon closes it

_Jobs = Mapping[str, Declared]
_Opened = tuple[socket.socket | None, Callable[[], None], _Jobs, ProcessPool | None, httpx2.AsyncClient, trio.Nursery]


async def serve(
    app: App | str,
    *,
    bind: str = "127.0.0.1:0",
    daemons: Sequence[str] = (),
    only: Sequence[str] = (),
    concurrency: int = CONCURRENCY_DEFAULT,
    processes: int = 0,
    name: str | None = None,
    priority_min: int | None = None,
    priority_max: int | None = None,
    advertise: str | None = None,
    token: str | None = None,
    secrets: Sequence[str] | None = (),
    pull: bool = False,
    silence_s: float = SILENCE_S_DEFAULT,
    batch: int = BATCH_JOBS,
    ttl_s: float | None = None,
    drain_s: float = DRAIN_S_DEFAULT,
    log_level: str = "info",
    signals: bool = True,
    stop: trio.Event | None = None,
    clock: Clock | None = None,
    source: random.Random | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the jobs of `app` until stopped; `task_status.started` gets the worker's URL.

    `app`: an App, or its address, MODULE[:APP]. `bind`: HOST:PORT, port 0 for any free one. `daemons`: URLs to register
    at (none: those of `JQD_URL`, else the one on this machine), tried until they answer; jobs push to them.
    `advertise`: the URL at which daemons reach this worker, required if `bind` is a wildcard. `only`: names of the jobs
    to serve. `priority_min`, `priority_max`: take only jobs within, both included. `secrets`: requests must be signed
    with one of them; may be empty on loopback; None: unsigned requests from anywhere. `pull`: do not listen, but ask
    the daemons for jobs; `bind`, `advertise` and `secrets` are then ignored, and `silence_s` after this worker has died
    its jobs run again elsewhere. `concurrency`: jobs at once. `processes`: number of processes to run them in; `app` is
    then text. `signals`: handle SIGTERM, SIGINT and SIGHUP, and exit by force when a job holds up the end. `stop`: set
    it to stop as the first signal does. Raises ConfigError for a setting or token that cannot work, OSError for a
    `bind` in use.
    """
    daemons, ttl_s = daemons or daemon_urls(), ttl_s or (TTL_PULL_S if pull else TTL_S_DEFAULT)
    _check(app, processes, daemons, concurrency, priority_min, priority_max, silence_s)
    at, advertise, secrets = (None, None, ()) if pull else (_listen_at(bind, advertise, secrets), advertise, secrets)
    signalled = ShutdownSignals(stop, reloads=processes > 0, owns=signals and not processes)
    name = name or f"{socket.gethostname()}-{os.getpid()}"
    way: dict[str, Any] = {"heartbeat": silence_s} if pull else {"secrets": list(secrets)} if secrets else {}
    spec = way | _given(name=name, ttl=ttl_s, priority_min=priority_min, priority_max=priority_max)
    begin, places = Begin(str(app), -(-concurrency // max(1, processes)), log_level, list(only)), list[Registration]()
    async with _opened(at, app, begin, processes, places, token) as (listener, force, jobs, process_pool, http, beside):
        if signals:
            await beside.start(signalled.listen)
        reporter = ProgressReporter(places, http)
        if process_pool is not None:
            process_pool.on_output = reporter.note_output
        limits = ServiceConfig(concurrency=max(concurrency, processes), queue_jobs=batch)
        more: dict[str, Any] = {"clock": clock, "secrets": secrets or (), "guard": _guard(at, advertise, secrets)}
        service = Service(jobs, limits, executor=process_pool, on_output=reporter.note_output, **more)
        async with trio.open_nursery() as nursery:
            own_url: str = await nursery.start(_serve_http, service, listener, signalled.close.wait)
            spec |= _given(url=(url := advertise or own_url) or None)
            get_logger("worker").info("worker.serving", url=url or "none: it pulls", name=name, jobs=list(jobs))
            slots = Slots(partial(slots_of, jobs, concurrency, processes), batch)
            status = WorkerStatus(service, jobs, spec)
            places += _places(daemons, status.spec, slots, http=http, ttl_s=ttl_s, source=source or random.Random())
            task_status.started(url)
            reload, beat = partial(_reload, process_pool, signalled, slots.changed), _beat(service)
            watch, ended = partial(status.watch, slots.changed), partial(_end_if_refused, slots, signalled)
            for task in (beat, service.attempts.lines.run, reporter.run, watch, reload, ended):
                beside.start_soon(task)
            puller = Puller(service, places, http, process_pool=process_pool, silence_s=silence_s) if pull else None
            await _stay(places, puller, service, signalled, drain_s)
            signalled.end(force if signals else None)
        beside.cancel_scope.cancel()
    _end(url, places, signalled)


def _beat(service: Service) -> Callable[[], Awaitable[None]]:
    return Watchdog(service.tasks, SystemClock()).beat


@asynccontextmanager
async def _opened(
    at: Address | None, app: App | str, begin: Begin, processes: int, places: Sequence[Registration], token: str | None
) -> AsyncIterator[_Opened]:
    """Open what a worker closes last when it ends, and yield it: its socket (None: it does not listen), a function that
    ends the process soon even if a job hangs, the jobs, the process pool (None: there is none), an HTTP client and a
    nursery. An error while opening is raised as it is, not in an exception group."""

    def where() -> tuple[str, str | None]:
        """Return URL and token of the first daemon that is available; if none is, of the first."""
        return next((place for place in places if not place.is_away), places[0]).daemon, token

    executor = _executor(app, begin, processes, where)
    with forced() as force, nullcontext() if at is None else listen(*at) as listener:
        async with executor as (jobs, process_pool), _client(token) as http, trio.open_nursery() as beside:
            yield listener, force, jobs, process_pool, http, beside


@asynccontextmanager
async def _executor(
    app: App | str, begin: Begin, processes: int, where: Where
) -> AsyncIterator[tuple[_Jobs, ProcessPool | None]]:
    """Yield the jobs, and the process pool that runs them; None: this process does. `where`: returns the daemon that
    jobs push to."""
    if processes:
        async with open_process_pool(begin, processes, where) as process_pool:
            yield process_pool.jobs, process_pool
    else:
        app = load_app(app) if isinstance(app, str) else app
        with app.serving(where):
            yield chosen(app.jobs, begin.only), None


async def _reload(process_pool: ProcessPool | None, signalled: ShutdownSignals, changed: Callable[[], None]) -> None:
    while process_pool is not None:
        await signalled.wait_reload()
        if await process_pool.reload():
            changed()


def _client(token: str | None) -> httpx2.AsyncClient:
    headers = {"user-agent": f"jqd-worker/{__version__}"} | _given(authorization=f"Bearer {token}" if token else None)
    return httpx2.AsyncClient(headers=headers, trust_env=False, verify=trusted())


def _places(daemons: Sequence[str], spec: Spec, slots: Slots, **more: Any) -> list[Registration]:
    worker_id = token_hex(8)
    return [Registration(daemon, spec, slots, worker_id=worker_id, **more) for daemon in daemons]


def _guard(bind: Address | None, advertise: str | None, secrets: Sequence[str] | None) -> Guard:
    """Return the guard that checks the Host header of requests, against the bound address or the host in the worker's
    URL."""
    if bind is None:
        return Guard(loopback=False)
    is_loopback = address.is_loopback(bind.host)
    name = urlsplit(advertise).hostname if advertise else None if is_loopback else bind.host.lower()
    hosts = (f"[{name}]" if ":" in name else name,) if name and (is_loopback or not secrets) else ()
    return Guard(is_loopback, hosts, is_open=not secrets)


async def _serve_http(
    service: Service,
    listener: socket.socket | None,
    until: Callable[[], Awaitable[None]],
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    if listener is None:
        task_status.started("")
        return
    url = url_of(listener)
    config = ListenerConfig(idle_s=KEEP_ALIVE_S, request_s=BODY_TIMEOUT_S, grace_s=CLOSE_S)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(
                partial(
                    serve_http, from_asgi(service), listener, stopped=until, config=config, log=get_logger("worker")
                )
            )
            task_status.started(f"{url}/")
    finally:
        service.close()


async def _stay_registered(places: Sequence[Registration], *, until: Callable[[], Awaitable[None]]) -> None:
    """Keep the worker registered at all daemons. Unregister it when `until` returns, or when cancelled."""
    try:
        async with trio.open_nursery() as nursery:
            for place in places:
                nursery.start_soon(place.run)
            await until()
            nursery.cancel_scope.cancel()
    finally:
        # Shielded, and bounded by the timeout of each call: daemons should not post to a worker that has gone.
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for place in places:
                    nursery.start_soon(place.leave)


async def _end_if_refused(slots: Slots, signalled: ShutdownSignals) -> None:
    """Wait until all daemons refuse the worker's token for good, and then stop the worker."""
    await slots.refused.wait()
    signalled.is_refused = not signalled.first.is_set()
    signalled.first.set()


def _end(url: str, places: Sequence[Registration], signalled: ShutdownSignals) -> None:
    """Log that the worker has stopped. Raises ConfigError if it did because no daemon accepts it."""
    get_logger("worker").info("worker.stopped", url=url)
    if signalled.is_refused:
        daemon, refusal = places[0].daemon, places[0].refusal
        advice = f"; {status}" if (status := advice_on(refusal)) else ""
        raise ConfigError(f"no daemon takes this worker: {daemon} {refusal}{advice}")


async def _wait_stop(signalled: ShutdownSignals, service: Service) -> None:
    await signalled.first.wait()
    service.attempts.stopping.set()


async def _stay(
    places: Sequence[Registration], puller: Puller | None, service: Service, signalled: ShutdownSignals, drain_s: float
) -> None:
    """Stay registered until the worker is stopped, then drain. A worker that pulls stays registered until daemons have
    taken its last outcomes."""
    if puller is None:
        await _stay_registered(places, until=partial(_wait_stop, signalled, service))
        await _drain(service, signalled, drain_s)
        return

    async def end() -> None:
        await _wait_stop(signalled, service)
        puller.stopping.set()
        await _drain(service, signalled, drain_s)
        with trio.move_on_after(LEFT_S):
            await puller.ended.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(puller.run)
        await _stay_registered(places, until=end)
        nursery.cancel_scope.cancel()


async def _drain(service: Service, signalled: ShutdownSignals, drain_s: float) -> None:
    """Refuse new batches. Wait until the jobs in flight have ended, a second signal comes, or `drain_s` is over.

    Then hand back the jobs that are left, without counting an attempt, and kill the programs that they started.
    """
    log = get_logger("worker")
    service.refuse("this worker is stopping")
    if service.batches:
        log.info(
            "worker.draining", jobs=service.jobs_in_flight, waits_for=service.at_work(), drain_s=drain_s, next=DRAINING
        )
    with trio.move_on_after(drain_s):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(then_cancel, service.wait_idle, nursery)
            nursery.start_soon(then_cancel, signalled.now.wait, nursery)
            while True:
                await trio.sleep(DRAINING_EVERY_S)
                log.info("worker.draining", jobs=service.jobs_in_flight, waits_for=service.at_work(), next=DRAINING)
    if service.batches:
        jobs, running_on = service.jobs_in_flight, service.hand_back("this worker is stopping")
        log.warning("worker.handed_back", jobs=jobs, running_on=running_on, next=HANDED_BACK)
        with trio.move_on_after(CLOSE_S):
            await service.wait_idle()
        for program in kill_descendants() if running_on and signalled.owns else ():
            log.warning("worker.killed_program", pid=program.pid, command=program.command, why=KILLED)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _check(
    app: App | str,
    processes: int,
    daemons: Sequence[str],
    concurrency: int,
    priority_min: int | None,
    priority_max: int | None,
    silence_s: float,
) -> None:
    if processes < 0 or (processes and not isinstance(app, str)):
        raise ConfigError(f"processes {processes}: it is 1 or more, and the app is then told as MODULE:APP")
    if concurrency < 1:
        raise ConfigError(f"concurrency {concurrency} would run nothing; it is 1 or more")
    for daemon in daemons:
        _expect_http("daemon", daemon)
    for daemon in filter(address.names_version, daemons):
        raise ConfigError(f"daemon {daemon!r} has a path; write its URL without /v1, like http://127.0.0.1:7420")
    if priority_min is not None and priority_max is not None and priority_min > priority_max:
        raise ConfigError(
            f"priority_min {priority_min} is above priority_max {priority_max}, so no job would fit; smaller runs first"
        )
    if silence_s < SILENCE_S_MIN:
        raise ConfigError(f"silence of {silence_s:g} s: a worker that is merely busy would lose its jobs")


def _listen_at(bind: str, advertise: str | None, secrets: Sequence[str] | None) -> Address:
    """Return the address to listen at. Raises ConfigError if daemons could not reach it, or if anybody on the network
    could run jobs by it."""
    try:
        at = address.parse(bind)
    except ValueError as error:
        raise ConfigError(f"bind {error}; port 0 is any free one") from error
    if at.host in address.WILDCARDS and advertise is None:
        raise ConfigError(
            f"bind {bind!r} is no address others can use; add advertise, the worker's URL for its daemons"
        )
    if advertise:
        _expect_http("advertise", advertise)
    _expect_secrets(at, secrets)
    return at


def _expect_http(what: str, url: str) -> None:
    if not address.is_http(url):
        raise ConfigError(f"{what} {url!r} is no http URL; write one like http://127.0.0.1:7420")


def _expect_secrets(at: Address, secrets: Sequence[str] | None) -> None:
    """Raise ConfigError if anybody on the network could run jobs here, or if a secret is malformed."""
    if not secrets and secrets is not None and not address.is_loopback(at.host):
        raise ConfigError(
            f"bind {at.host!r} is reached by other machines, and whoever reaches this worker can run its jobs: give "
            f"--secret-file FILE with a secret that the daemons sign with ({MAKE_SECRET}), or --insecure where only "
            "daemons reach it, or --pull, which listens nowhere"
        )
    if (why := why_no_secrets(secrets or ())) is not None:
        raise ConfigError(why)
