"""Runs a daemon until it is stopped, in one or more *lives*. Each life opens the journal and the stores anew.

check the servers ─▶ a life: journal, stores, Daemon.run ─▶ stopped; or the journal was forked: another life

A journal is *forked* if its directory was copied and two daemons use the copies under the same id. Then one of them
begins another life with a new id.
"""

import dataclasses
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

import trio

from jqd.api.siblings import Siblings
from jqd.config import Config
from jqd.daemon import Daemon
from jqd.domain import root_token
from jqd.domain.clock import SystemClock
from jqd.domain.descriptors import open_files_max, share_out
from jqd.domain.errors import JournalForked, JqdError, StoreError
from jqd.domain.log import get_logger
from jqd.http import address_of, tls_context, url_of
from jqd.http import bind as listen_at
from jqd.journal import open_journal
from jqd.loops.systemd import SystemdNotifier
from jqd.loops.watch import Watch, watch_over
from jqd.recovery.recovery import pass_on_positions
from jqd.reload import Reload
from jqd.signals import watch_signals
from jqd.store import StoreConfig, open_embedded, open_store

FORK_RETRY_S = 1.0  # between two tries to reach a partition while the journal gets a new id

log = get_logger("daemon")

E = TypeVar("E", bound=Exception)


class ProcessParts(NamedTuple):
    """What a daemon needs in addition if it is one of several processes that share a port (supervisor.py)."""

    siblings: Siblings
    own: socket.socket
    """A listening socket, at which the other processes reach this process alone."""
    root: str
    """The root token, which is the same in all processes."""


async def serve(
    config: Config,
    *,
    ready: Callable[[str], None] = lambda url: None,
    interrupted: Callable[[int], None] = lambda in_flight: None,
    load: Callable[[], Config] | None = None,
    process: ProcessParts | None = None,
) -> None:
    """Run one daemon until SIGTERM or SIGINT. A second signal, or the end of the drain time, ends it at once.

    `ready` is called with the URL once jobs are accepted. `interrupted` is called at the first Ctrl-C with the number
    of running jobs for which the daemon waits. `load` reads the configuration again from the same sources, after a
    SIGHUP. `process` is given if this is one of several processes. Raises ConfigError, JournalLocked, JournalVersion
    and StoreUnsafe before anything is accepted.
    """
    if load is not None:  # until the daemon handles the signal: a start reads the files anyway
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    share_out(open_files_max(), partitions=len(config.store.parts()))
    if config.http.certificate:
        tls_context(*config.http.certificate, config.http.tls_clients)
    config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    watches = [] if config.store.is_own else await _look_at_all(config.store.parts())
    bind = partial(listen_at, shared=process is not None)
    listener = bind(config.http.bind)
    address = address_of(listener)
    journal_id: bytes | None = None
    reload = Reload(config, load)
    rows: list[str] = []

    def ready_once(url: str) -> None:
        if not rows:  # a life may end before it was ready; then the next one is the first to call this
            rows.append(url)
            ready(url)

    while True:
        with closing(listener):
            forked = await _serve_once(reload, listener, ready_once, interrupted, journal_id, watches, process)
        if forked is None:
            return
        journal_id, listener = forked, bind(address)


async def _look_at_all(parts: Sequence[StoreConfig]) -> list[Watch]:
    """Examine all servers of the store at the same time. Returns a watch for each server; findings have been logged.

    Raises ConfigError, StoreUnsafe.
    """
    watches = [watch_over(part) for part in parts]
    refused: dict[int, JqdError] = {}

    async def look(number: int) -> None:
        try:
            await watches[number].start()
        except JqdError as error:
            refused[number] = error  # raised below: inside the nursery it would become an ExceptionGroup

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
    process: ProcessParts | None,
) -> bytes | None:
    """Run one life of the daemon, from opening its journal and stores until it stops. Returns the journal's id for the
    next life; None if a signal stopped the daemon.

    `journal_id`: a new id for this journal; None: it keeps its own. `watches`: the watches of the store servers, from
    the check of these. `process`: given if the daemon is one of several processes."""
    clock, source, config = SystemClock(), random.Random(), reload.config
    forked: bytes | None = None
    async with AsyncExitStack() as stack:
        if journal_id is not None:  # it has reported that it is ready, so the service manager expects signs of life
            loading = await stack.enter_async_context(_going_on(config, "it opens its journal under a new id"))
        journal = await stack.enter_async_context(open_journal(config.journal, clock=clock, journal_id=journal_id))
        settings, watches = await stack.enter_async_context(_store_settings(config, watches))
        parts = settings.parts()
        stores = [await stack.enter_async_context(open_store(part)) for part in parts]
        daemon = Daemon(config, journal, stores, clock, source, watches)
        stack.callback(daemon.pool.close)
        if process is not None:
            daemon.own, daemon.parts.siblings = process.own.dup(), process.siblings
            daemon.parts.auth = daemon.parts.auth._replace(root=process.root)
        reload.change, daemon.control.reload = daemon.change, reload
        left = root_token.RootToken(url_of(listener, config.http.scheme), daemon.parts.auth.root)
        root_file = stack.enter_context(root_token.RootTokenFile(config.data_dir, left))
        daemon.control.watch_disk(config.journal.directory, root_file.examine)
        stop = trio.Event()
        nursery = await stack.enter_async_context(trio.open_nursery())

        def on_interrupt() -> None:
            interrupted(daemon.runners.in_flight)

        await nursery.start(watch_signals, stop, lambda: daemon.config.drain_s, on_interrupt, reload.on_signal)
        if journal_id is not None:
            loading.cancel()
        try:
            await daemon.run(stop=stop, listener=listener, ready=ready)
        except* JournalForked as group:
            log.error("daemon.journal_forked", error=str(_leaf(group)), journal=journal.journal_id)
            listener.close()  # so that clients try another daemon instead of waiting for this one
            forked = await _fork(daemon, stop)
        nursery.cancel_scope.cancel()
    return forked


def _leaf(group: ExceptionGroup[E]) -> E:
    first = group.exceptions[0]
    return _leaf(first) if isinstance(first, ExceptionGroup) else first


async def _fork(daemon: Daemon, stop: trio.Event) -> bytes | None:
    """Give this journal directory a new id, and return the id. Before that, wait until each partition has noted which
    records were applied under the old id.

    Partitions that cannot be reached are waited for, and no jobs are accepted meanwhile. Otherwise the next life could
    not tell the jobs of this life from what the daemon with the other copy had applied. Returns None if `stop` was set
    meanwhile.
    """
    async with _going_on(daemon.config, "its journal gets a new id"):
        return await _pass_on_all_positions(daemon, stop)


@asynccontextmanager
async def _going_on(config: Config, state: str) -> AsyncIterator[trio.CancelScope]:
    """Tell the service manager regularly that the daemon is alive, until the yielded scope is cancelled.

    So the service manager does not kill the daemon while it waits for a partition or reads a long journal.
    """
    rounds, scope = count(), trio.CancelScope()
    notifier = SystemdNotifier(config.manager, lambda: next(rounds), lambda: state)

    async def say() -> None:
        with scope:
            await notifier.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(say)
        yield scope
        scope.cancel()


async def _pass_on_all_positions(daemon: Daemon, stop: trio.Event) -> bytes | None:
    journal, new = daemon.journal, os.urandom(16)
    for number, partition in enumerate(daemon.partitions):
        handed_down = False
        while not handed_down:
            try:
                await pass_on_positions(journal, partition.store, partition.lanes, new.hex())
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
    """Yield the settings of the store and the watches of its servers.

    If no store is configured, start the daemon's own store server, and examine it. Raises StoreUnsafe.
    """
    if not config.store.is_own:
        yield config.store, watches
        return
    refused: JqdError | None = None
    async with open_embedded(config.data_dir / "store") as url:
        own = dataclasses.replace(config.store, url=url)
        try:
            watches = await _look_at_all(own.parts())
        except JqdError as error:
            refused = error  # raised below: inside the server's nursery it would become an ExceptionGroup
        else:
            yield own, watches
    if refused is not None:
        raise refused
