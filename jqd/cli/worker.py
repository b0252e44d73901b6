"""`jqd worker`: serves the jobs of a Python module. It imports nothing of the daemon, which need not be installed."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from cyclopts import Parameter

from jqd.cli.common import Flag, duration, set_log, worded
from jqd.cli.exits import Exit, Usage
from jqd.cli.printing import print_note
from jqd.client import daemon_urls
from jqd.client.environ import checked_urls, daemon_token
from jqd.code import CodeConfig, supervise
from jqd.code.config import Limits
from jqd.domain.errors import ConfigError
from jqd.domain.lossy_stream import make_lossy, writer_of
from jqd.domain.signature import MAKE_SECRET
from jqd.worker.app import App
from jqd.worker.job_log import collect_logs
from jqd.worker.load import import_app, trace_attempts
from jqd.worker.reload import Watch
from jqd.worker.serve import serve as serve_worker
from jqd.worker.service import CONCURRENCY_DEFAULT

BIND = "127.0.0.1:0"
RELOAD_DRAIN_S = 5.0  # with --reload somebody waits for the new code: other jobs are handed back
NOT_OURS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)  # an address that cannot be bound


FOR_PORT = ("bind", "advertise", "secret_file", "insecure")
VARIABLES = {
    "secret_file": "JQD_WORKER_SECRET_FILE",
    "priority_min": "JQD_WORKER_PRIORITY_MIN",
    "priority_max": "JQD_WORKER_PRIORITY_MAX",
}
"""Option → environment variable that can set it."""


@Parameter(name="*")
@dataclass(frozen=True)
class Loud:
    """Options for how much is logged."""

    log_level: str | None = None
    """debug, info, warning or error. Default info."""
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", show_default=False)] = False
    """The same as --log-level debug: log each job, however many there are."""
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", show_default=False)] = False
    """The same as --log-level warning: log only failures."""

    @property
    def level(self) -> str:
        return self.log_level or ("debug" if self.verbose else "warning" if self.quiet else "info")


@Parameter(name="*")
@dataclass(frozen=True)
class ListenFlags:
    """Options for how jobs reach the worker: it listens, or asks for them."""

    bind: str | None = None
    """HOST:PORT to listen on; port 0 takes any free one. Default 127.0.0.1:0."""
    advertise: str | None = None
    """URL under which the daemons reach this worker, if it is not the address of --bind."""
    secret_file: Annotated[str | None, Parameter(env_var="JQD_WORKER_SECRET_FILE")] = None
    """File with the secret (whsec_…) with which the daemons sign requests; other requests are refused. While it is
    being replaced: both secrets, one a line. Needed if --bind is not a loopback address."""
    insecure: Flag = False
    """Bind to the network without a secret: whoever reaches this worker can run its jobs."""
    pull: Flag = False
    """Listen nowhere: ask the daemons for jobs."""
    silence: str = "10s"
    """With --pull or --code: time after which the jobs of this worker run again elsewhere if it has died."""

    def options(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `jqd.worker.serve.serve`. Raises Usage."""
        silence_s = duration(self.silence, "--silence")
        if not self.pull:
            _expect_unsaid(self, "this worker has a port", "silence")
            secrets = None if self.insecure and self.secret_file is None else _secrets(self.secret_file)
            return {"bind": self.bind or BIND, "advertise": self.advertise, "secrets": secrets, "silence_s": silence_s}
        _expect_unsaid(self, "--pull listens nowhere", *FOR_PORT)
        return {"pull": True, "silence_s": silence_s}


@Parameter(name="*")
@dataclass(frozen=True)
class Module:
    """Options for serving the jobs of a Python module."""

    processes: int = 0
    """Number of processes that run the jobs. Each plain function then has a process to itself, which is killed at its
    timeout. SIGHUP then loads the code anew without dropping a job."""
    priority_min: Annotated[int | None, Parameter(env_var="JQD_WORKER_PRIORITY_MIN")] = None
    """Take only jobs of this priority number or larger."""
    priority_max: Annotated[int | None, Parameter(env_var="JQD_WORKER_PRIORITY_MAX")] = None
    """Take only jobs of this priority number or smaller."""
    jobs: Annotated[list[str] | None, Parameter(name=["--jobs", "--queues"], negative="")] = None
    """Serve only these jobtypes of the app: names with commas between; may be given several times."""
    reload: Flag = False
    """Load the code anew when a Python file below the working directory has changed. For development."""


@Parameter(name="*")
@dataclass(frozen=True)
class Code:
    """Options for running handlers that are code (docs/use/WORKERS.md)."""

    code: Flag = False
    """Run handlers that are code, instead of a module: as this user, unless there is a --sandbox."""
    sandbox: Literal["none", "bwrap"] = "none"
    """With --code: isolate the code by bubblewrap; without that, code of tenants is refused."""
    network: Flag = False
    """With --sandbox: let the code reach the network."""
    user: str = ""
    """With --code: user that the code runs as. Root's worker needs one; other workers cannot choose one."""
    env: Annotated[list[str] | None, Parameter(negative="")] = None
    """With --code: environment variable to pass on to the code; may be given several times."""
    memory_mib: int = Limits().memory_mib
    """With --code: most memory of a process with all that it starts; it is ended above that."""
    output_mib: int = Limits().output_mib
    """With --code: most output of one attempt; it is ended above that."""
    file_mib: int = Limits().file_mib
    """With --code: size of the largest file that the code may write."""
    children: int = Limits().processes
    """With --code: most processes that the code may run at the same time, its own one included."""


async def worker(
    target: Annotated[str | None, Parameter(name="MODULE[:APP]")] = None,
    /,
    *,
    daemon: Annotated[list[str] | None, Parameter(negative="")] = None,
    concurrency: int | None = None,
    name: str | None = None,
    drain: str = "30s",
    module: Module = Module(),
    listen: ListenFlags = ListenFlags(),
    code: Code = Code(),
    loud: Loud = Loud(),
) -> int:
    """Serve the jobs of a Python module over HTTP, or with --code handlers that are code, for one daemon or several.

    Parameters
    ----------
    target
        Where the app is, for example mail.jobs:app (`:app` may be left out).
    daemon
        URL of a daemon to register at; may be given several times. Else JQD_URL, else http://127.0.0.1:7420.
    concurrency
        Jobs to run at once: so many plain functions, in threads, and as many async ones. Default 16. With --code:
        batches to run at once, each in a process of its own; default 4.
    name
        Name of this worker in the lists of the daemons.
    drain
        How long to wait for jobs in flight after SIGTERM: 90, 30s, 5m.
    """
    level = loud.level
    make_lossy("stdout", "stderr")
    set_log(level, "auto")
    drain_s = duration(drain, "--drain")
    if code.code or target is None:
        silence_s = duration(listen.silence, "--silence")
        if code.code:
            _expect_unsaid(listen, "--code listens nowhere, and asks for jobs", "pull", *FOR_PORT)
            _expect_unsaid(module, "--code runs the handlers that are code", *(each.name for each in fields(module)))
        return await _run_code(code, target, daemon or daemon_urls(), concurrency, name, drain_s, silence_s, level)
    _expect_unsaid(code, "without --code there is a module", *(each.name for each in fields(code)))
    options, processes = listen.options(), module.processes
    if not processes:
        collect_logs(level)
    watch = Watch(Path.cwd()) if module.reload else None
    app = target if processes else _loaded(target, watch)
    if not processes:
        trace_attempts()
    if watch is not None:
        watch.start()
        drain_s = drain_s if processes else min(drain_s, RELOAD_DRAIN_S)
    with _bindable(listen.bind or BIND), worded():
        await serve_worker(
            app,
            daemons=daemon or daemon_urls(),
            only=[name for given in module.jobs or () for name in given.split(",") if name],
            concurrency=CONCURRENCY_DEFAULT if concurrency is None else concurrency,
            processes=processes,
            name=name,
            priority_min=module.priority_min,
            priority_max=module.priority_max,
            token=daemon_token(),
            drain_s=drain_s,
            log_level=level,
            **options,
        )
    if watch is not None and watch.has_signalled and not processes:
        _begin_anew()
    return Exit.DONE


async def _run_code(
    code: Code,
    target: str | None,
    daemons: list[str],
    concurrency: int | None,
    name: str | None,
    drain_s: float,
    silence_s: float,
    level: str,
) -> int:
    if target is not None or not code.code:
        raise Usage(
            "a worker serves a module, MODULE[:APP], or with --code the handlers that are code: give one of these"
        )
    limits = Limits(
        memory_mib=code.memory_mib, output_mib=code.output_mib, file_mib=code.file_mib, processes=code.children
    )
    with worded():
        config = CodeConfig(
            daemons=checked_urls(daemons),
            concurrency=CodeConfig(daemons=[]).concurrency if concurrency is None else concurrency,
            name=name,
            drain_s=drain_s,
            silence_s=silence_s,
            log_level=level,
            limits=limits,
            sandbox=code.sandbox,
            network=code.network,
            user=code.user,
            environment=code.env or [],
        )
        return await supervise(config)


def _expect_unsaid(options: Any, why: str, *names: str) -> None:
    """Check that none of the named options was given, as it would have no effect. Raises Usage. `why`: beginning of its
    message."""
    unsaid = type(options)()
    for name in names:
        if getattr(options, name) != getattr(unsaid, name):
            variable = f" (or {VARIABLES[name]})" if name in VARIABLES else ""
            raise Usage(f"{why}, so --{name.replace('_', '-')}{variable} says nothing: leave it out")


def _secrets(path: str | None) -> list[str]:
    """Read the secrets in a file; none if `path` is None. Raises Usage if the file cannot be read, or holds none."""
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
    """Load the app. If that fails with `--reload`, wait until its code changes, then restart this process."""
    try:
        return import_app(target)
    except ConfigError as error:
        if watch is None:
            raise
        print_note(f"{error}; it is tried again when a file has changed")
        watch.wait()
        _begin_anew()


def _begin_anew() -> NoReturn:
    """Replace this process by a new one with the same command line, as Python cannot unload modules."""
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
