"""Commands that stay: serve, dev, worker."""

import ctypes
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from jqd import log
from jqd.cli.exits import Exit
from jqd.client import URL_DEFAULT
from jqd.config import Config, child_environment, environment, load
from jqd.daemon import serve as serve_daemon
from jqd.errors import ConfigError
from jqd.worker import load_app
from jqd.worker import serve as serve_worker

PR_SET_PDEATHSIG = 1  # prctl(2): a signal for this process when its parent dies
WORKER_STOP_S = 35.0  # a worker drains for 30 s by default


async def serve(
    *,
    config: Path | None = None,
    bind: str | None = None,
    data_dir: Path | None = None,
    store: str | None = None,
    drain: float | None = None,
    log_level: str | None = None,
    insecure: Annotated[bool | None, Parameter(negative="")] = None,
) -> int:
    """Run one daemon. Without --store it keeps its own Valkey in the data directory.

    Every setting can also stand in the TOML file or in the environment as JQD_SECTION__KEY.

    Parameters
    ----------
    config
        TOML file with settings.
    bind
        HOST:PORT to listen on; port 0 takes any free one. Default 127.0.0.1:7420.
    data_dir
        Where the journal (and the own store) lie. Default ./.jqd
    store
        redis://, rediss:// or unix:// URL of a server that exists.
    drain
        Seconds a stop may take.
    log_level
        debug, info, warning or error.
    insecure
        Listen on another address than loopback although nobody is asked who they are.
    """
    settings = _load(config, bind, data_dir, store, drain, log_level, insecure)
    await serve_daemon(settings, ready=lambda url: print(f"jqd is ready at {url}", flush=True))
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
        TOML file with settings.
    bind
        HOST:PORT to listen on. Default 127.0.0.1:7420.
    data_dir
        Where everything is kept. Default ./.jqd
    log_level
        debug, info, warning or error. Default warning: this is a terminal to read.
    """
    settings = _load(config, bind, data_dir, None, None, log_level or "warning", None)
    if settings.store.url:
        raise ConfigError("jqd dev keeps its own store; for a store that exists use: jqd serve --store URL")
    workers: list[subprocess.Popen[bytes]] = []

    def ready(url: str) -> None:
        workers.append(_start_example_worker(url))
        print(_welcome(url, settings), flush=True)

    try:
        await serve_daemon(settings, ready=ready)
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait(timeout=WORKER_STOP_S)
    return Exit.DONE


async def worker(
    target: Annotated[str, Parameter(name="MODULE[:APP]")],
    /,
    *,
    bind: str = "127.0.0.1:0",
    daemon: Annotated[list[str] | None, Parameter(negative="")] = None,
    concurrency: int = 16,
    name: str | None = None,
    advertise: str | None = None,
    priority_min: Annotated[int | None, Parameter(env_var="JQD_WORKER_PRIORITY_MIN")] = None,
    priority_max: Annotated[int | None, Parameter(env_var="JQD_WORKER_PRIORITY_MAX")] = None,
    drain: float = 30.0,
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
        URL of a daemon to register at; may be given several times.
    concurrency
        Jobs at work at once.
    name
        What the daemons call this worker.
    advertise
        URL under which the daemons reach it, when that is not the one it binds to.
    priority_min
        Take only jobs of this priority number or larger.
    priority_max
        Take only jobs of this priority number or smaller.
    drain
        Seconds that jobs in hand may take to end after SIGTERM.
    log_level
        debug, info, warning or error.
    """
    _log(log_level, "auto")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the module is looked for where the user stands
    await serve_worker(
        load_app(target),
        bind=bind,
        daemons=daemon or [environment("JQD_URL") or URL_DEFAULT],
        concurrency=concurrency,
        name=name,
        advertise=advertise,
        priority_min=priority_min,
        priority_max=priority_max,
        token=environment("JQD_TOKEN"),
        drain_s=drain,
    )
    return Exit.DONE


def _load(
    config: Path | None,
    bind: str | None,
    data_dir: Path | None,
    store: str | None,
    drain: float | None,
    log_level: str | None,
    insecure: bool | None,
) -> Config:
    flags: dict[str, Any] = {
        "http.bind": bind,
        "data_dir": data_dir,
        "store.url": store,
        "drain_s": drain,
        "log.level": log_level,
        "insecure": insecure,
    }
    settings = load(file=config, flags=flags)
    _log(settings.log.level, settings.log.form)
    return settings


def _log(level: str, form: Any) -> None:
    try:
        log.configure(level=level, form=form)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _start_example_worker(url: str) -> subprocess.Popen[bytes]:
    libc = ctypes.CDLL(None, use_errno=True)

    def die_with_parent() -> None:
        # The example must not outlive a daemon that was killed.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    args = [sys.executable, "-m", "jqd", "worker", "jqd.worker.demo:app", "--daemon", url, "--log-level", "warning"]
    # In a session of its own: Ctrl-C ends the daemon, and the daemon's end ends the worker, in that order.
    return subprocess.Popen(args, preexec_fn=die_with_parent, env=child_environment(), start_new_session=True)


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
