"""The command that serves the jobs of a Python module. It needs nothing of the daemon, which need not be installed."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

from cyclopts import Parameter

from jqd.cli.common import duration, set_log, worded
from jqd.cli.exits import Exit, Usage
from jqd.client import daemon_urls
from jqd.client.environ import daemon_token
from jqd.domain.errors import ConfigError
from jqd.domain.lossy_stream import only_tells, writer_of
from jqd.worker.app import App
from jqd.worker.job_output import hear_jobs
from jqd.worker.load import import_app
from jqd.worker.reload import Watch
from jqd.worker.serve import serve as serve_worker
from jqd.worker.signed import MAKE_SECRET

RELOAD_DRAIN_S = 5.0  # with --reload somebody waits for the new code; what has not ended is handed back untried
NOT_OURS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)  # an address that cannot be bound


Flag = Annotated[bool, Parameter(negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True)
class Loud:
    """Options of verbosity."""

    log_level: str | None = None
    """debug, info, warning or error. Default info."""
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", show_default=False)] = False
    """The same as --log-level debug: a line for each job, however many they are."""
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", show_default=False)] = False
    """The same as --log-level warning: only what fails."""

    @property
    def level(self) -> str:
        return self.log_level or ("debug" if self.verbose else "warning" if self.quiet else "info")


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
    secret_file: Annotated[str | None, Parameter(env_var="JQD_WORKER_SECRET_FILE")] = None,
    insecure: Flag = False,
    priority_min: Annotated[int | None, Parameter(env_var="JQD_WORKER_PRIORITY_MIN")] = None,
    priority_max: Annotated[int | None, Parameter(env_var="JQD_WORKER_PRIORITY_MAX")] = None,
    drain: str = "30s",
    jobs: Annotated[list[str] | None, Parameter(name=["--jobs", "--queues"], negative="")] = None,
    reload: Flag = False,
    loud: Loud = Loud(),
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
    secret_file
        File with the secret, whsec_…, that the daemons sign with, one a line while two are exchanged; what is not
        signed is refused. Needed when --bind is an address of the network.
    insecure
        Bind to the network without a secret: whoever reaches this worker can run its jobs.
    priority_min
        Take only jobs of this priority number or larger.
    priority_max
        Take only jobs of this priority number or smaller.
    drain
        Time that jobs in hand may take to end after SIGTERM: 90, 30s, 5m.
    jobs
        Serve only these jobs of the app: names with commas between them, or the option several times.
    reload
        Load the code anew when a Python file below the working directory has changed. For development.
    """
    level = loud.level
    only_tells("stdout", "stderr")
    set_log(level, "auto")
    drain_s = duration(drain, "--drain")
    if not processes:
        hear_jobs(level)
    watch = Watch(Path.cwd()) if reload else None
    app = target if processes else _loaded(target, watch)
    if watch is not None:
        watch.start()
        drain_s = drain_s if processes else min(drain_s, RELOAD_DRAIN_S)
    with _bindable(bind), worded():
        await serve_worker(
            app,
            bind=bind,
            daemons=daemon or daemon_urls(),
            only=[name for given in jobs or () for name in given.split(",") if name],
            concurrency=concurrency,
            processes=processes,
            name=name,
            advertise=advertise,
            priority_min=priority_min,
            priority_max=priority_max,
            token=daemon_token(),
            secrets=None if insecure and secret_file is None else _secrets(secret_file),
            drain_s=drain_s,
            log_level=level,
        )
    if watch is not None and watch.has_signalled and not processes:
        _begin_anew()
    return Exit.DONE


def _secrets(path: str | None) -> list[str]:
    """Return the secrets in a file. Raises Usage for one that cannot be read or holds none."""
    if path is None:
        return []
    try:
        found = Path(path).read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"--secret-file {path} cannot be read: {error}") from error
    if not found:
        raise Usage(f"--secret-file {path} is empty; {MAKE_SECRET} >{path}")
    return found


def _loaded(target: str, watch: Watch | None) -> App:
    """Return the app. With `--reload` wait until one that cannot be loaded changes."""
    try:
        return import_app(target)
    except ConfigError as error:
        if watch is None:
            raise
        print(f"jqd: {error}; it is tried again when a file has changed", file=sys.stderr)
        watch.wait()
        _begin_anew()


def _begin_anew() -> NoReturn:
    """Replace this process by a new one: a process cannot unload its modules."""
    for stream in (sys.stdout, sys.stderr):
        if (writer := writer_of(stream)) is not None:
            writer.drain()
    os.execv(sys.executable, [sys.executable, "-m", "jqd", *sys.argv[1:]])  # noqa: S606 - our own command line


@contextmanager
def _bindable(bind: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in NOT_OURS and not isinstance(error, socket.gaierror):
            raise
        raise ConfigError(
            f"a worker cannot listen on {bind}: {os.strerror(error.errno) if error.errno in NOT_OURS else error}; "
            "choose another address with --bind HOST:PORT, port 0 for any free one"
        ) from error
