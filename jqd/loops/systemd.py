"""Notifies the service manager (sd_notify(3)) that the daemon accepts jobs, of its state, and that it is alive.

    EXTEND_TIMEOUT_USEC=…  at every beat before jobs are accepted: a long journal is read first
    READY=1                once jobs are accepted, at every beat: a message may be lost
    WATCHDOG=1             at every beat; once jobs are accepted, only if the dispatcher made a round since the last
                           beat
    STOPPING=1             at the first signal, with the time that the drain may take

The dispatcher makes rounds whatever store, workers and disk do. If it stops, that is an internal error, which a restart
mends. A disk or store that hangs stops no WATCHDOG message: no restart would mend it.
"""

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass

import trio

from jqd.domain.log import get_logger

BEAT_S = 5.0  # between status lines, where no watchdog requires more
NOTICES_PER_WATCH = 3  # messages in a watchdog period: sd_watchdog_enabled(3) recommends two, and one may be late
ENDING_S = 10.0  # for the stages of shutdown after the drain
STARTING_S = 30.0  # more for the start, at each beat: some may be lost


@dataclass(frozen=True, slots=True)
class Manager:
    """How to reach the service manager."""

    address: str = ""
    """The address of its socket: a path, or @ and an abstract name. Empty: there is no manager, and nothing is sent."""
    watchdog_s: float | None = None
    """A daemon that sends nothing for so many seconds is killed; None: there is no watchdog."""


class SystemdNotifier:
    def __init__(self, manager: Manager, rounds: Callable[[], int], status: Callable[[], str]) -> None:
        """`rounds`: returns how many rounds the dispatcher has made; `status`: returns the daemon's state in a line."""
        self._manager, self._rounds, self._status = manager, rounds, status
        self._ready = False
        self._stopping = False
        self._failing = False
        self._log = get_logger("systemd")

    def ready(self) -> None:
        """Report that jobs are accepted. The dispatcher is watched from here on."""
        self._ready = True
        self._send("READY=1", f"STATUS={self._status()}")

    def stop(self, drain_s: float) -> None:
        """Report that shutdown has begun, and may take `drain_s` seconds. The dispatcher is no longer watched."""
        self._stopping = True
        self._send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int((drain_s + ENDING_S) * 1e6)}", f"STATUS={self._status()}")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        if not self._manager.address:
            return
        watchdog_s = self._manager.watchdog_s
        beat_s = BEAT_S if watchdog_s is None else min(BEAT_S, watchdog_s / NOTICES_PER_WATCH)
        before, hangs = -1, False
        while True:
            rounds = self._rounds()
            hung, hangs = hangs, rounds == before and not self._stopping
            if hangs and not hung:
                self._log.error("systemd.dispatch_stands", rounds=rounds, watchdog_s=watchdog_s)
            first = "READY=1" if self._ready else f"EXTEND_TIMEOUT_USEC={int(STARTING_S * 1e6)}"
            started = [] if self._stopping else [first]
            self._send(*started, f"STATUS={self._status()}", *([] if hangs else ["WATCHDOG=1"]))
            before = rounds if self._ready else -1
            await trio.sleep(beat_s)

    def _send(self, *lines: str) -> None:
        if not self._manager.address:
            return
        address = re.sub("^@", "\0", self._manager.address)  # an abstract name
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
                manager.setblocking(False)
                manager.sendto("\n".join(lines).encode(), address)
            self._failing = False
        except OSError as error:  # the manager is busy or gone; the next beat repeats it
            if not self._failing:
                self._log.warning("systemd.not_reached", error=str(error))
            self._failing = True
