"""The command that serves the jobs of a Python module. It needs nothing of the daemon, which need not be installed."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import Parameter

from jqd.cli.common import duration, worded
from jqd.cli.exits import Exit
from jqd.cli.logs import set_log
from jqd.client import daemon_urls
from jqd.client.environ import daemon_token
from jqd.words.errors import ConfigError
from jqd.worker.current import hear_jobs
from jqd.worker.load import import_app
from jqd.worker.serve import serve as serve_worker

NOT_OURS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)  # an address that cannot be bound


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
    set_log(log_level, "auto")
    drain_s = duration(drain, "--drain")
    if not processes:
        hear_jobs(log_level)
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
