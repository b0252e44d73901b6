"""Runs a worker: bind, register at the daemons, serve, and leave in good order.

On the first SIGTERM or SIGINT: unregister, refuse new batches, let the jobs in hand end, stop. On the second, or when
`drain_s` is over, jobs still in hand are handed back untried: async functions are stopped, threads left behind.
"""

import os
import random
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx2
import trio

from jqd import __version__
from jqd.client import daemon_url
from jqd.client.trust import trusted
from jqd.doors import DoorConfig, Guard, from_asgi, listen, serve_http, url_of
from jqd.words import address
from jqd.words.address import Address
from jqd.words.clock import Clock
from jqd.words.errors import ConfigError
from jqd.words.log import get_logger
from jqd.worker.app import App
from jqd.worker.register import TTL_S_DEFAULT, Registration, Slots
from jqd.worker.service import BODY_TIMEOUT_S, CONCURRENCY_DEFAULT, Service, ServiceConfig

DRAIN_S_DEFAULT = 30.0  # as long as a job may take by default
BATCH_JOBS = 500  # one POST brings so many jobs at most: past that the cost per job no longer falls
CLOSE_S = 1.0  # for connections to close: work in hand has ended before that, or is being handed back
HANDED_BACK = "their jobs go to other workers, or wait for this one; no attempt is counted"
HARD_EXIT_S = 3.0  # after that a job that cannot be cancelled is left behind
KEEP_ALIVE_S = 75.0  # longer than the daemon keeps an idle connection, so that it is the one to close


async def serve(
    app: App,
    *,
    bind: str = "127.0.0.1:0",
    daemons: Sequence[str] = (),
    concurrency: int = CONCURRENCY_DEFAULT,
    name: str | None = None,
    priority_min: int | None = None,
    priority_max: int | None = None,
    advertise: str | None = None,
    token: str | None = None,
    batch: int = BATCH_JOBS,
    ttl_s: float = TTL_S_DEFAULT,
    drain_s: float = DRAIN_S_DEFAULT,
    signals: bool = True,
    stop: trio.Event | None = None,
    clock: Clock | None = None,
    source: random.Random | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the jobs of `app` until told to stop; `task_status.started` gets the worker's URL.

    `bind`: HOST:PORT, port 0 for any free one. `daemons`: where to register (none: where `JQD_URL` says, else on this
    machine); one that is away is tried until it is there. Jobs that push jobs push them there. `advertise`: the URL
    daemons reach this worker under, needed when `bind` is a wildcard. `priority_min` and `priority_max`: take only jobs
    within, both included. `concurrency`: jobs at once, divided among the daemons that answer. `signals`: handle SIGTERM
    and SIGINT (main thread only) and own the process: leave it by force when a job holds up the end. `stop`: set it to
    stop as the first signal does. Raises ConfigError for a setting that cannot work, OSError when `bind` is taken.
    """
    daemons = daemons or [daemon_url()]
    at = _check(bind, daemons, advertise, concurrency, priority_min, priority_max)
    # Each daemon sends up to two batches of its share ahead; that makes two whole batches in all.
    limits = ServiceConfig(concurrency=concurrency, queue_jobs=2 * batch)
    service = Service(app.jobs, limits, clock=clock, guard=_guard(at, advertise))
    stopping = _Stopping(trio.Event() if stop is None else stop)
    log = get_logger("worker")
    card: dict[str, Any] = {"name": name or f"{socket.gethostname()}-{os.getpid()}", "jobs": list(app.jobs)}
    card |= _given(ttl=ttl_s, priority_min=priority_min, priority_max=priority_max)
    chance = source or random.Random()
    with _force(enabled=signals) as force, listen(*at) as listener:
        async with _client(token) as http, trio.open_nursery() as listening:
            if signals:
                await listening.start(_listen, stopping)
            async with trio.open_nursery() as nursery:
                url = await nursery.start(_serve_http, service, listener, stopping.close.wait)
                card["url"] = advertise or url
                slots = Slots(concurrency, batch)
                places = [Registration(url, card, slots, http=http, source=chance, ttl_s=ttl_s) for url in daemons]
                log.info("worker.serving", url=card["url"], name=card["name"], jobs=card["jobs"])
                task_status.started(str(card["url"]))
                with app.serving(lambda: (_answering(places).daemon, token)):
                    await _stay_registered(places, until=stopping.first.wait)
                    await _drain(service, stopping.now.wait, drain_s)
                force()
                stopping.close.set()
            listening.cancel_scope.cancel()
    log.info("worker.stopped", url=card["url"])


def _client(token: str | None) -> httpx2.AsyncClient:
    headers = {"user-agent": f"jqd-worker/{__version__}"} | _given(authorization=f"Bearer {token}" if token else None)
    return httpx2.AsyncClient(headers=headers, trust_env=False, verify=trusted())


def _answering(places: Sequence[Registration]) -> Registration:
    """The first daemon that answers, else the first."""
    return next((place for place in places if not place.is_away), places[0])


def _guard(bind: Address, advertise: str | None) -> Guard:
    """The guard for daemons, which ask for the worker by the address it is bound to, or by the name in its URL."""
    name = urlsplit(advertise).hostname if advertise else None
    if name is None or not address.is_loopback(bind.host):
        return Guard(address.is_loopback(bind.host))
    return Guard(hosts=(f"[{name}]" if ":" in name else name,))


class _Stopping:
    """How far the end has come."""

    def __init__(self, first: trio.Event) -> None:
        self.first = first
        self.now = trio.Event()
        """Do not wait for jobs in hand."""
        self.close = trio.Event()
        """Nothing is in hand: the server may close."""


async def _listen(stopping: _Stopping, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as arriving:
        task_status.started()
        async for _ in arriving:
            if stopping.first.is_set():
                stopping.now.set()
                return  # from here on the default holds: a third signal kills
            stopping.first.set()


async def _serve_http(
    service: Service,
    listener: socket.socket,
    until: Callable[[], Awaitable[None]],
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    url = url_of(listener)
    config = DoorConfig(idle_s=KEEP_ALIVE_S, request_s=BODY_TIMEOUT_S, grace_s=CLOSE_S)
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
    """Keep the worker registered everywhere; unregister when `until` returns, and when cancelled too."""
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


async def _drain(service: Service, now: Callable[[], Awaitable[None]], drain_s: float) -> None:
    """Refuse new batches and wait for those in hand, until they end, `now` returns or `drain_s` is over.

    What is left then is handed back, which costs no job an attempt.
    """
    log = get_logger("worker")
    service.refuse("this worker is stopping")
    if service.batches:
        log.info("worker.draining", batches=service.batches, drain_s=drain_s)
    with trio.move_on_after(drain_s):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_then_cancel, service.wait_idle, nursery)
            nursery.start_soon(_then_cancel, now, nursery)
    if service.batches:
        running_on = service.hand_back("this worker is stopping")
        log.warning("worker.handed_back", batches=service.batches, running_on=running_on, next=HANDED_BACK)
        with trio.move_on_after(CLOSE_S):
            await service.wait_idle()


async def _then_cancel(wait: Callable[[], Awaitable[None]], nursery: trio.Nursery) -> None:
    await wait()
    nursery.cancel_scope.cancel()


@contextmanager
def _force(*, enabled: bool) -> Iterator[Callable[[], None]]:
    """A call that ends the process in HARD_EXIT_S, unless the block is left before.

    A job that shields itself from being cancelled, or blocks the loop, would hold a stopping worker for ever.
    """
    timer = threading.Timer(HARD_EXIT_S, _exit)
    timer.daemon = True
    try:
        yield timer.start if enabled else _never
    finally:
        timer.cancel()


def _exit() -> None:
    get_logger("worker").warning("worker.left", why="a job in hand does not let itself be stopped")
    os._exit(0)


def _never() -> None:
    """Nothing to force: the caller owns the process."""


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _check(
    bind: str,
    daemons: Sequence[str],
    advertise: str | None,
    concurrency: int,
    priority_min: int | None,
    priority_max: int | None,
) -> Address:
    """Where to listen. Raises ConfigError for what cannot work."""
    if concurrency < 1:
        raise ConfigError(f"concurrency {concurrency} would run nothing; it is 1 or more")
    try:
        at = address.parse(bind)
    except ValueError as error:
        raise ConfigError(f"bind {error}; port 0 is any free one") from error
    if at.host in address.WILDCARDS and advertise is None:
        raise ConfigError(
            f"bind {bind!r} is no address others can use; add advertise, the worker's URL for its daemons"
        )
    for what, url in [("daemon", daemon) for daemon in daemons] + ([("advertise", advertise)] if advertise else []):
        if not address.is_http(url):
            raise ConfigError(f"{what} {url!r} is no http URL; write one like http://127.0.0.1:7420")
    for daemon in filter(address.names_version, daemons):
        raise ConfigError(f"daemon {daemon!r} has a path; write its URL without /v1, like http://127.0.0.1:7420")
    if priority_min is not None and priority_max is not None and priority_min > priority_max:
        raise ConfigError(
            f"priority_min {priority_min} is above priority_max {priority_max}, so no job would fit; smaller runs first"
        )
    return at
