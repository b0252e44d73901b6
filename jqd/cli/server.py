"""`jqd serve` and `jqd dev`, which run a daemon."""

import ctypes
import gc
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from jqd.cli.children import children
from jqd.cli.common import ConfigFile, set_log, worded
from jqd.cli.exits import Exit, Usage
from jqd.cli.printing import counted, print_note
from jqd.client import URL_DEFAULT
from jqd.config import Config, load, store_flags
from jqd.domain.errors import ConfigError
from jqd.domain.lossy_stream import make_lossy
from jqd.processes import journals, surplus
from jqd.serve import serve as serve_daemon
from jqd.supervisor import supervise

UI_BIND, UI_BIND_FREE = "127.0.0.1:7422", "127.0.0.1:0"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3) of glibc
MMAP_BYTES = 128 * 1024  # glibc's default; larger allocations get their own pages
TRIM_BYTES = 1 << 20  # give the end of the heap back to the system when so much of it is free


async def serve(
    *,
    config: ConfigFile = None,
    bind: str | None = None,
    data_dir: Path | None = None,
    store: Annotated[list[str] | None, Parameter(negative="")] = None,
    drain: str | None = None,
    processes: int | None = None,
    log_level: str | None = None,
    insecure: Annotated[bool | None, Parameter(negative="")] = None,
    i_accept_loss: Annotated[bool | None, Parameter(negative="")] = None,
) -> int:
    """Run one daemon, or several on one port. Without --store it keeps its own Valkey in the data directory.

    Every setting can also be set in the TOML file, or in the environment as JQD_SECTION__KEY: `jqd config show` lists
    all. SIGHUP loads them again.

    Parameters
    ----------
    bind
        HOST:PORT to listen on; port 0 takes any free one. Default 127.0.0.1:7420.
    data_dir
        Directory of the journal, and of the daemon's own store. Default ./.jqd
    store
        redis://, rediss:// or unix:// URL of a running server; may be given several times, always in the same order.
    drain
        How long a stop may take: 25, 30s, 2m.
    processes
        Daemons to run on that port, each in a process and with a journal of its own. Default 1.
    log_level
        debug, info, warning or error.
    insecure
        Listen on another address than loopback although no token is required.
    i_accept_loss
        Use a store although its settings would lose jobs (`jqd doctor` says which).
    """
    flags = {"http.bind": bind, "data_dir": data_dir, "drain_s": drain, "log.level": log_level, "insecure": insecure}
    flags |= {"processes": processes} | store_flags(store) | {"store.i_accept_loss": i_accept_loss}
    settings = _load(config, flags)

    def ready(url: str) -> None:
        settle_memory()
        print(f"jqd is ready at {url}", flush=True)

    with _usable(settings.data_dir):
        if settings.processes > 1 or surplus(settings):
            return await supervise(settings, config, flags, ready=ready)
        return_memory()
        await serve_daemon(
            settings,
            ready=ready,
            interrupted=lambda in_flight: print_stopping(in_flight, settings),
            load=lambda: load(file=config, flags=flags),
        )
    return Exit.DONE


async def dev(
    *,
    config: ConfigFile = None,
    bind: str | None = None,
    ui_bind: str | None = None,
    data_dir: Path | None = None,
    log_level: str | None = None,
) -> int:
    """Run a whole queue here: a daemon, its own store, an example worker and the web UI. Ctrl-C stops everything.

    With the setting runner.allow_code it also runs handlers that are code.

    Parameters
    ----------
    bind
        HOST:PORT on which the daemon listens. Default 127.0.0.1:7420.
    ui_bind
        HOST:PORT on which the web UI listens. Default 127.0.0.1:7422, or any free port if --bind is not the default.
    data_dir
        Directory for all data. Default ./.jqd
    log_level
        debug, info, warning or error. Default warning: this is a terminal to read.
    """
    settings = _load(config, {"http.bind": bind, "data_dir": data_dir, "log.level": log_level}, level="warning")
    if not settings.store.is_own:
        raise Usage("jqd dev keeps its own store; for a store that exists use: jqd serve --store URL")
    if settings.processes > 1 or journals(settings.journal.directory):
        raise Usage("jqd dev runs one daemon, and there are, or were, several: use jqd serve --processes")
    return_memory()
    with _usable(settings.data_dir), children() as start:

        def ready(url: str) -> None:
            # Workers log only errors: warnings would be about this daemon stopping first, and jobs keep their errors.
            start("worker", "jqd.worker.demo:app", "--daemon", url, "--log-level", "error")
            if settings.runner.allow_code:
                flags = ["--sandbox", settings.runner.sandbox, "--drain", "1s"]
                if os.geteuid() == 0:
                    flags += ["--user", "root"]  # on a developer's machine the code is his own
                    print_note("code runs as root here: no limit of processes holds")
                start("worker", "--code", "--daemon", url, "--log-level", "error", *flags)
            print(_welcome(url, settings), flush=True)
            if find_spec("quart_trio") is not None:  # the extra `ui` is installed
                start("ui", "--url", url, "--bind", ui_bind or _beside(url), again=True)

        await serve_daemon(settings, ready=ready, interrupted=lambda in_flight: print_stopping(in_flight, settings))
    return Exit.DONE


def return_memory() -> None:
    """Make the allocator (glibc) return the memory of large bodies and frames to the system when they are freed.

    By default glibc stops doing so when the first large block is freed. From then on it takes blocks of up to that size
    (at most 32 MiB) from its heap, where small blocks that stay lie between them. After several 16 MiB arrays at once,
    240 MiB stayed unused. Other C libraries do not do this, and have no such call.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)  # setting it stops glibc from raising it
        mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)


def settle_memory() -> None:
    """Exempt all objects that exist now from garbage collection: modules, settings and parts of the daemon, which are
    never freed.

    Otherwise the collector would check these 90,000 objects every few thousand pushes, and block the event loop for 15
    to 40 ms.
    """
    gc.collect()
    gc.freeze()


def _load(config: Path | None, flags: dict[str, Any], **defaults: str) -> Config:
    with worded():
        settings = load(file=config, flags=flags, defaults={f"log.{key}": value for key, value in defaults.items()})
    make_lossy("stdout", "stderr")
    set_log(settings.log.level, settings.log.form)
    return settings


@contextmanager
def _usable(data_dir: Path) -> Iterator[None]:
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the data directory {data_dir} cannot be made: {error.strerror}; choose another with --data-dir"
        ) from error
    yield


def print_stopping(in_flight: int, settings: Config) -> None:
    """Print after Ctrl-C how many jobs the stop waits for. Prints nothing if stderr is no terminal, or the log is in
    JSON, which programs read."""
    if settings.log.form == "json" or not sys.stderr.isatty():
        return
    jobs = f"{counted(in_flight, 'job')} in flight, up to {settings.drain_s:g} s"
    print_note(f"stopping; waits for {jobs}. A second Ctrl-C ends it at once")


def _beside(url: str) -> str:
    """Return the address at which `jqd dev` serves the web UI: the default one, or any free port if the daemon is not
    at its default address."""
    return UI_BIND if url == URL_DEFAULT else UI_BIND_FREE


def _welcome(url: str, settings: Config) -> str:
    flag = "" if url == URL_DEFAULT else f" --url {shlex.quote(url)}"
    jobs, json_type = shlex.quote(f"{url}/v1/jobs"), "-H 'content-type: application/json'"
    return (
        f"jqd is ready at {url}\n"
        f"  data in {settings.data_dir.resolve()}; an example worker runs echo, add, sleep, fail and flaky\n"
        f'  push a job:   curl {jobs} {json_type} -d \'{{"name": "add", "argument": [1, 2, 39], '
        '"keep_result": true}\'\n'
        f"  or:           .venv/bin/jqd push add '[1, 2, 39]' --wait{flag}\n"
        "  stop:         Ctrl-C"
    )
