"""Runs `jqd serve --processes N`: N daemons on one port, each in its own process. A process that dies is started again.

    supervisor   holds the port (SO_REUSEPORT), a store server if no store is configured, and the root token
      ├─ process 0   the journal that a single daemon has     ◀─ stdin: what it is, then which others are away
      ├─ process 1   a journal of its own                     ─▶ sd_notify: ready, its state, that it is alive
      └─ process 2   surplus if N is 2 now: its journal may still be needed; it takes no pushes

Each process sends the supervisor the messages that a daemon sends systemd (loops/systemd.py). When the supervisor dies,
the stdin of each process ends, and the process stops. A process is *away* from its death until it is ready again.
"""

import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import trio

from jqd.config import Config, load
from jqd.domain import root_token
from jqd.domain.backoff import Backoff
from jqd.domain.clock import SystemClock
from jqd.domain.dates import iso
from jqd.domain.log import get_logger
from jqd.domain.process import Process
from jqd.http import address_of, bind, reserve, tls_context, url_of
from jqd.loops.systemd import Manager, SystemdNotifier
from jqd.processes import Fit, Start, surplus
from jqd.reload import Reload
from jqd.signals import EXIT_GRACE_S
from jqd.store import open_embedded
from jqd.worker.programs import children_of, ending, wait_dead

FAILED = 1  # the exit code if a process ended with an error
CALM_S = 60.0  # when a process has lived so long, its deaths are counted from 1 again
BACKOFF = Backoff(first_s=0.5, factor=2.0, cap_s=30.0)  # a process that dies at once must not use up a core
KILL_S = 5.0  # processes end by themselves soon after the drain time; so long after that they are killed
LOOK_S = 1.0  # between two checks for processes that are silent, and for orphans that pid 1 has to reap
# A ready process that has sent no sign of life for so long hangs: it sends one every 5 s, busy or not, and waits for
# its disk in threads. The same as WatchdogSec in deploy/jqd.service; a service manager's own time has precedence.
WATCHDOG_S = 30.0
NOTICE_BYTES = 16 << 10  # the most that one message has: a state is one line

log = get_logger("supervisor")


async def supervise(
    config: Config, file: Path | None, flags: Mapping[str, Any], *, ready: Callable[[str], None]
) -> int:
    """Run the processes until SIGTERM or SIGINT; a second signal ends them at once. Returns the exit code.

    `ready` is called with the URL once all processes accept jobs. `file` and `flags` are the sources from which the
    configuration was read. If a process fails before all have been ready once, it has printed the reason; then all are
    stopped, and its exit code is returned. Raises ConfigError, StoreRefused.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is handled below: the files were read a moment ago
    async with AsyncExitStack() as stack:
        port = stack.enter_context(reserve(config.http.bind))
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jqd-")))
        own = config.store.is_own
        store_url = await stack.enter_async_context(open_embedded(config.data_dir / "store")) if own else ""
        members = [stack.enter_context(_Member(each, base)) for each in [*range(config.processes), *surplus(config)]]
        reload = Reload(config, lambda: load(file=file, flags=flags))
        reload.change = _read_certificate
        supervisor = _Supervisor(members, reload, file, flags, address_of(port), store_url)
        arriving = stack.enter_context(trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        return await supervisor.run(arriving, lambda: ready(url_of(port, config.http.scheme)))


def _read_certificate(config: Config) -> None:
    """Read the TLS certificate once. Raises ConfigError if it is one that the processes would refuse.

    In this case the supervisor keeps its old configuration, as the processes do, so that a process started later has
    the same settings.
    """
    if config.http.certificate:
        tls_context(*config.http.certificate, config.http.tls_clients)


class _Member(ExitStack):
    """What the supervisor keeps for one process number: sockets, state, and the process. When the process dies, a new
    one is started under the same number."""

    def __init__(self, number: int, base: Path) -> None:
        super().__init__()
        self.number, self.address = number, str(base / str(number))
        self.own = self.enter_context(bind("127.0.0.1:0"))
        self.notices = self.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
        self.notices.bind(self.address)
        self.process: subprocess.Popen[bytes] | None = None
        self.config: Config | None = None
        """The configuration that the process was started with or has reloaded."""
        self.is_ready, self.was_ready = False, trio.Event()
        self.state = "starts"
        self.silent_s = 0.0
        """For how many seconds the process has sent no sign of life. Only checks are counted, so time in which the
        supervisor itself hung does not count."""
        self.is_informed = True
        """Whether the process has been sent the complete list of the processes that are away."""
        self.deaths = 0
        """How many times in a row it has died. After a life of CALM_S or more, deaths are counted from 1 again."""
        self.away = ""
        """Why the process is away (dead, or not ready again); empty if it is not."""

    def start(self, start: Start) -> "subprocess.Popen[bytes]":
        """Start a process under this number, and send it its configuration. Raises OSError."""
        self.is_ready, self.state, self.config = False, "starts", start.config
        command = [sys.executable, "-m", "jqd.cli.process", str(self.number)]
        # In a session of its own, so that Ctrl-C reaches the supervisor only, which stops the processes.
        process = self.process = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, pass_fds=(start.own_fd,), start_new_session=True
        )
        assert process.stdin is not None
        data = pickle.dumps(start)
        try:
            process.stdin.write(len(data).to_bytes(4, "big") + data)  # a pipe has room for some ten of these
        except BrokenPipeError:  # it was killed before it read; the caller notices its end as usual
            log.warning("supervisor.not_read", process=self.number)
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def notice(self) -> str:
        """Return the next message from the process; "" if there is none."""
        try:
            return self.notices.recv(NOTICE_BYTES).decode("utf-8", "replace")
        except BlockingIOError:
            return ""

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def send(self, away: Mapping[int, str]) -> None:
        """Write to the process's stdin one line that names all processes that are away, and why.

        It begins with a line break, which ends an earlier line that was written only in part.
        """
        if self.process is not None and self.process.stdin is not None and self.process.poll() is None:
            line = b"\n%b\n" % msgspec.json.encode(away)
            try:
                self.is_informed = self.process.stdin.write(line) == len(line)  # None: the pipe is full
            except OSError as error:  # the process is just ending
                log.warning("supervisor.not_told", process=self.number, error=str(error))


class _Supervisor:
    def __init__(
        self,
        members: list[_Member],
        reload: Reload,
        file: Path | None,
        flags: Mapping[str, Any],
        address: str,
        store_url: str,
    ) -> None:
        self._members, self._reload, self._file, self._flags = members, reload, file, flags
        self._address, self._store_url, self._root = address, store_url, root_token.draw()
        self._stopping, self._code = trio.Event(), 0
        self._source, self._clock = random.Random(), SystemClock()
        rounds = count()
        self._notify = SystemdNotifier(reload.config.manager, lambda: next(rounds), self._status)

    async def run(self, arriving: AsyncIterator[int], ready: Callable[[], None]) -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._forward, arriving, nursery)
            nursery.start_soon(self._notify.run)
            nursery.start_soon(self._look)
            nursery.start_soon(self._announce, ready)
            for member in self._members:
                nursery.start_soon(self._listen, member)
            async with trio.open_nursery() as keeping:
                for member in self._members:
                    keeping.start_soon(self._keep, member)
                nursery.start_soon(self._end_overdue)
            nursery.cancel_scope.cancel()
        log.info("supervisor.stopped", code=self._code)
        return self._code

    # ------------------------------------------------------------ one process

    async def _keep(self, member: _Member) -> None:
        """Start a process, and start it again whenever it dies, after longer and longer pauses. Returns when all
        processes are to stop."""
        while not self._stopping.is_set():
            began_s = trio.current_time()
            how, code = await self._live(member)
            member.is_ready, was_ready = False, member.is_ready
            if self._stopping.is_set():
                if code and (was_ready or code != -signal.SIGTERM):  # SIGTERM kills a process that is still starting
                    log.error("supervisor.process_failed", process=member.number, how=how)
                    self._code = self._code or FAILED
                return
            if code > 0 and not all(each.was_ready.is_set() for each in self._members):
                log.error("supervisor.not_started", process=member.number, code=code)
                self._code = code
                self._stop(signal.SIGTERM)
                return
            member.deaths = member.deaths + 1 if trio.current_time() - began_s < CALM_S else 1
            wait_s = BACKOFF.delay_s(member.deaths - 1, self._source) if member.deaths > 1 else 0.0
            again = iso(self._clock.wall_ms() + round(wait_s * 1000))
            member.away = f"{how}, death {member.deaths} in a row; it is started again at {again}"
            log.error("supervisor.process_died", process=member.number, how=how, again_in_s=round(wait_s, 1))
            self._send_away()
            with trio.move_on_after(wait_s):
                await self._stopping.wait()

    async def _live(self, member: _Member) -> tuple[str, int]:
        """Start a process, and wait until it ends. Returns how it ended, as text, and its exit code."""
        number, sharing = member.number, self._reload.config.processes
        urls = dict.fromkeys(range(1 + max(each.number for each in self._members)), "")
        urls |= {each.number: url_of(each.own) for each in self._members}
        process = Process(number, sharing, tuple(urls.values()))
        fit = Fit(process, self._address, self._store_url, Manager(member.address, self._watchdog_s))
        start = Start(self._reload.config, self._file, self._flags, fit, member.own.fileno(), self._root)
        try:
            child = member.start(start)
        except OSError as error:  # no memory, process or descriptor is left
            return f"it cannot be started: {error}", FAILED
        log.info("supervisor.process_started", process=number, pid=child.pid)
        self._send_away()
        await wait_dead(child)
        while member.notice():
            log.debug("supervisor.notice_dropped", process=number)  # it is of the process that has just ended
        assert child.stdin is not None
        child.stdin.close()
        return ending(child.returncode), child.returncode

    async def _listen(self, member: _Member) -> None:
        """Receive the messages of a process, and note what they say: its state, that it is ready, and that it is alive.
        Tell all processes when it becomes ready."""
        while True:
            await trio.lowlevel.wait_readable(member.notices)
            for line in member.notice().splitlines():
                name, _, value = line.partition("=")
                if name == "STATUS":
                    member.state = value
                elif name == "WATCHDOG":
                    member.silent_s = 0.0
                elif name == "READY" and not member.is_ready:  # it is repeated with each sign of life
                    member.is_ready, member.away, member.silent_s = True, "", 0.0
                    member.was_ready.set()
                    self._send_away()
                    if member.config is not self._reload.config:  # it was starting when the others were told to reload
                        member.signal(signal.SIGHUP)

    def _send_away(self) -> None:
        for member in self._members:
            member.send(self._away())

    def _away(self) -> Mapping[int, str]:
        return {member.number: member.away for member in self._members if member.away}

    # ------------------------------------------------------------ all of them

    async def _announce(self, ready: Callable[[], None]) -> None:
        for member in self._members:
            await member.was_ready.wait()
        ready()
        self._notify.ready()

    async def _forward(self, arriving: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in arriving:
            log.info("supervisor.signal", signal=signal.Signals(number).name)
            if number == signal.SIGHUP:
                nursery.start_soon(self._reload_all)
            else:
                self._stop(number)

    async def _reload_all(self) -> None:
        """Reload the configuration here, for processes that are started later, and tell each process to reload it."""
        await self._reload.now()
        for member in self._members:
            if member.is_ready:  # the signal would end a process that is not
                member.config = self._reload.config
                member.signal(signal.SIGHUP)

    def _stop(self, number: int) -> None:
        if not self._stopping.is_set():
            self._notify.stop(self._reload.config.drain_s)
            self._stopping.set()
        for member in self._members:
            member.signal(number)

    async def _end_overdue(self) -> None:
        """Kill the processes that still run when the time for stopping is over."""
        await self._stopping.wait()
        await trio.sleep(self._reload.config.drain_s + EXIT_GRACE_S + KILL_S)
        for member in self._members:
            member.signal(signal.SIGKILL)

    async def _look(self) -> None:
        """Each second: kill processes that hang, complete the lists of processes that are away if sending one was cut
        off, and reap orphans if this process has pid 1."""
        dead = frozenset[int]()
        while True:
            await trio.sleep(LOOK_S)
            for member in self._members:
                if not member.is_informed:
                    member.send(self._away())
                member.silent_s += LOOK_S
                # A process that is not ready may load for long, and one that is stopping has the drain time.
                if member.is_ready and member.silent_s > self._watchdog_s and not self._stopping.is_set():
                    log.error("supervisor.process_hangs", process=member.number, silent_s=member.silent_s)
                    member.signal(signal.SIGKILL)
            if os.getpid() == 1:
                dead = reap(dead)

    @property
    def _watchdog_s(self) -> float:
        return self._reload.config.manager.watchdog_s or WATCHDOG_S

    def _status(self) -> str:
        return "; ".join(f"process {each.number}: {each.away or each.state}" for each in self._members)


def reap(before: frozenset[int]) -> frozenset[int]:
    """Reap the dead children in `before`, which were already dead at the last check. Returns the other children that
    are dead now.

    A child that this process started itself is reaped by other code between two checks. So a child that is still dead
    at the second check is an orphan.
    """
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    dead = frozenset(pid for pid in children_of(os.getpid()) if os.waitid(os.P_PID, pid, flags) is not None)
    for pid in dead & before:
        os.waitpid(pid, os.WNOHANG)
    return dead - before
