"""Commands that stay: serve, dev, worker."""

import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from jqd.cli.common import duration, worded
from jqd.cli.exits import Exit, Usage
from jqd.client import URL_DEFAULT, daemon_urls
from jqd.client.environ import daemon_token
from jqd.config import Config, load, store_flags
from jqd.daemon import serve as serve_daemon
from jqd.words import log
from jqd.words.errors import ConfigError
from jqd.worker.current import log_by_job
from jqd.worker.load import import_app
from jqd.worker.serve import serve as serve_worker

PR_SET_PDEATHSIG = 1  # prctl(2): a signal for this process when its parent dies
WORKER_STOP_S = 35.0  # a worker drains for 30 s by default
NOT_OURS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)  # an address that cannot be bound


async def serve(
    *,
    config: Path | None = None,
    bind: str | None = None,
    data_dir: Path | None = None,
    store: Annotated[list[str] | None, Parameter(negative="")] = None,
    drain: str | None = None,
    log_level: str | None = None,
    insecure: Annotated[bool | None, Parameter(negative="")] = None,
    i_accept_loss: Annotated[bool | None, Parameter(negative="")] = None,
) -> int:
    """Run one daemon. Without --store it keeps its own Valkey in the data directory.

    Every setting can also stand in the TOML file or in the environment as JQD_SECTION__KEY.

    Parameters
    ----------
    config
        TOML file with settings; else JQD_CONFIG.
    bind
        HOST:PORT to listen on; port 0 takes any free one. Default 127.0.0.1:7420.
    data_dir
        Where the journal (and the own store) lie. Default ./.jqd
    store
        redis://, rediss:// or unix:// URL of a server that exists; may be given several times, always in one order.
    drain
        Time a stop may take: 25, 30s, 2m.
    log_level
        debug, info, warning or error.
    insecure
        Listen on another address than loopback although nobody is asked who they are.
    i_accept_loss
        Use a store although its settings would lose jobs (`jqd doctor` says which).
    """
    flags = {"http.bind": bind, "data_dir": data_dir, "drain_s": drain, "log.level": log_level, "insecure": insecure}
    settings = _load(config, flags | store_flags(store) | {"store.i_accept_loss": i_accept_loss})
    with _usable(settings.data_dir):
        await serve_daemon(
            settings,
            ready=lambda url: print(f"jqd is ready at {url}", flush=True),
            interrupted=lambda in_hand: _say_stopping(in_hand, settings),
        )
    return Exit.DONE


async def dev(
    *,
    config: Path | None = None,
    bind: str | None = None,
    data_dir: Path | None = None,
    log_level: str | None = None,
) -> int:
    """Run a whole queue on this machine: a daemon, its own store and an example worker. Ctrl-C stops everything.

    Parameters
    ----------
    config
        TOML file with settings; else JQD_CONFIG.
    bind
        HOST:PORT to listen on. Default 127.0.0.1:7420.
    data_dir
        Where everything is kept. Default ./.jqd
    log_level
        debug, info, warning or error. Default warning: this is a terminal to read.
    """
    settings = _load(config, {"http.bind": bind, "data_dir": data_dir, "log.level": log_level}, level="warning")
    if not settings.store.is_own:
        raise Usage("jqd dev keeps its own store; for a store that exists use: jqd serve --store URL")
    with _usable(settings.data_dir), _example_worker() as start:

        def ready(url: str) -> None:
            start(url)
            print(_welcome(url, settings), flush=True)

        await serve_daemon(settings, ready=ready, interrupted=lambda in_hand: _say_stopping(in_hand, settings))
    return Exit.DONE


async def worker(
    target: Annotated[str, Parameter(name="MODULE[:APP]")],
    /,
    *,
    bind: str = "127.0.0.1:0",
    daemon: Annotated[list[str] | None, Parameter(negative="")] = None,
    concurrency: int = 16,
    processes: int = 0,
    name: str | None = None,
    advertise: str | None = None,
    priority_min: Annotated[int | None, Parameter(env_var="JQD_WORKER_PRIORITY_MIN")] = None,
    priority_max: Annotated[int | None, Parameter(env_var="JQD_WORKER_PRIORITY_MAX")] = None,
    drain: str = "30s",
    log_level: str = "info",
) -> int:
    """Serve the jobs of a Python module over HTTP, registered at one daemon or several.

    Parameters
    ----------
    target
        Where the app is, for example mail.jobs:app (`:app` may be left out).
    bind
        HOST:PORT to listen on; port 0 takes any free one.
    daemon
        URL of a daemon to register at; may be given several times. Else JQD_URL, else http://127.0.0.1:7420.
    concurrency
        Jobs at work at once: plain functions in as many threads, and as many async ones.
    processes
        Run the jobs in so many processes instead: each plain function alone in one of them, killed at its timeout.
        SIGHUP then loads the code anew without dropping a job.
    name
        What the daemons call this worker.
    advertise
        URL under which the daemons reach it, when that is not the one it binds to.
    priority_min
        Take only jobs of this priority number or larger.
    priority_max
        Take only jobs of this priority number or smaller.
    drain
        Time that jobs in hand may take to end after SIGTERM: 90, 30s, 5m.
    log_level
        debug, info, warning or error.
    """
    _log(log_level, "auto")
    drain_s = duration(drain, "--drain")
    if not processes:
        log_by_job(log_level)
    app = target if processes else import_app(target)
    with _bindable(bind), worded():
        await serve_worker(
            app,
            bind=bind,
            daemons=daemon or daemon_urls(),
            concurrency=concurrency,
            processes=processes,
            name=name,
            advertise=advertise,
            priority_min=priority_min,
            priority_max=priority_max,
            token=daemon_token(),
            drain_s=drain_s,
            log_level=log_level,
        )
    return Exit.DONE


def _load(config: Path | None, flags: dict[str, Any], **defaults: str) -> Config:
    with worded():
        settings = load(file=config, flags=flags, defaults={f"log.{key}": value for key, value in defaults.items()})
    _log(settings.log.level, settings.log.form)
    return settings


def _log(level: str, form: Any) -> None:
    try:
        log.configure(level=level, form=form)
    except ValueError as error:
        raise Usage(str(error)) from error


@contextmanager
def _usable(data_dir: Path) -> Iterator[None]:
    """Have the data directory, or say in one line why not."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the data directory {data_dir} cannot be made: {error.strerror}; choose another with --data-dir"
        ) from error
    yield


@contextmanager
def _bindable(bind: str) -> Iterator[None]:
    """Say in one line that a worker cannot listen where it was told to."""
    try:
        yield
    except OSError as error:
        if error.errno not in NOT_OURS and not isinstance(error, socket.gaierror):
            raise
        raise ConfigError(
            f"a worker cannot listen on {bind}: {os.strerror(error.errno) if error.errno in NOT_OURS else error}; "
            "choose another address with --bind HOST:PORT, port 0 for any free one"
        ) from error


@contextmanager
def _example_worker() -> Iterator[Callable[[str], None]]:
    """Yields what starts the example worker for a URL; ends it with the block, and with us if we are killed."""
    children: list[subprocess.Popen[bytes]] = []
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None  # found before the fork, called after it

    def die_with_parent() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)  # it died before it could be noticed

    def start(url: str) -> None:
        # Its warnings would be about this daemon stopping before it; what jobs raise stands in the jobs.
        args = [sys.executable, "-m", "jqd", "worker", "jqd.worker.demo:app", "--daemon", url, "--log-level", "error"]
        # In a session of its own: Ctrl-C ends the daemon, and the daemon's end ends the worker, in that order.
        child = subprocess.Popen(args, preexec_fn=die_with_parent, start_new_session=True)
        children.append(child)

    try:
        yield start
    finally:
        for child in children:
            child.terminate()
            try:
                child.wait(timeout=WORKER_STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _say_stopping(in_hand: int, settings: Config) -> None:
    """Say to whoever pressed Ctrl-C what is waited for. Not between JSON lines: programs read those."""
    if settings.log.form == "json" or not sys.stderr.isatty():
        return
    jobs = f"{in_hand} job{'' if in_hand == 1 else 's'} in hand, up to {settings.drain_s:g} s"
    print(f"jqd: stopping; waits for {jobs}. A second Ctrl-C ends it at once", file=sys.stderr, flush=True)


def _welcome(url: str, settings: Config) -> str:
    flag = "" if url == URL_DEFAULT else f" --url {url}"
    json_type = "-H 'content-type: application/json'"
    return (
        f"jqd is ready at {url}\n"
        f"  data in {settings.data_dir.resolve()}; an example worker runs echo, add, sleep, fail and flaky\n"
        f'  push a job:   curl {url}/v1/jobs {json_type} -d \'{{"name": "add", "argument": [1, 2, 39], '
        '"keep_result": true}\'\n'
        f"  or:           .venv/bin/jqd push add '[1, 2, 39]' --wait{flag}\n"
        "  stop:         Ctrl-C"
    )
