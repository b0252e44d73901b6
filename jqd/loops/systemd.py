"""Tells the service manager that the daemon takes jobs, how it does, and that it goes on (sd_notify(3)).

    READY=1     once jobs are taken
    WATCHDOG=1  at every beat; once jobs are taken, as long as the dispatcher came round since the last one
    STOPPING=1  at the first signal, with the time that the drain may take

The dispatcher comes round twenty times a second, whatever store, workers and disk do. If it stands still that is a
mistake of ours, which a new start mends. A disk or a store that hangs is none, and no new start would mend it.
Without a service manager nothing is said.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass

import trio

from jqd.domain.log import get_logger

BEAT_S = 5.0  # between two lines of status, where no watchdog asks for more
BEATS_A_WATCH = 3  # as sd_watchdog_enabled(3) has it, two at least: one may come late
ENDING_S = 10.0  # past the drain, for what follows it


@dataclass(frozen=True, slots=True)
class Manager:
    """What a service manager told us of itself."""

    address: str = ""
    """Of its socket: a path, or @ and an abstract name. Empty: there is none."""
    watchdog_s: float | None = None
    """We are killed when nothing was said for so long. None: no watch is kept."""


class SystemdNotifier:
    """What the manager is told."""

    def __init__(self, manager: Manager, rounds: Callable[[], int], status: Callable[[], str]) -> None:
        """`rounds`: how often the dispatcher came round; `status`: how the daemon does, in a line."""
        self._manager = manager
        self._rounds = rounds
        self._status = status
        self._ready = False
        self._stopping = False
        self._failing = False
        self._log = get_logger("systemd")

    def ready(self) -> None:
        """Jobs are taken. From here on the dispatcher is judged: before, it may not have begun."""
        self._ready = True
        self._say("READY=1", f"STATUS={self._status()}")

    def stop(self, drain_s: float) -> None:
        """The end has begun; from here on the loop alone shows that something goes on."""
        self._stopping = True
        self._say("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int((drain_s + ENDING_S) * 1e6)}", f"STATUS={self._status()}")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        if not self._manager.address:
            return
        watchdog_s = self._manager.watchdog_s
        beat_s = BEAT_S if watchdog_s is None else min(BEAT_S, watchdog_s / BEATS_A_WATCH)
        before, stands = -1, False
        while True:
            rounds = self._rounds()
            stood, stands = stands, rounds == before and not self._stopping
            if stands and not stood:
                self._log.error("systemd.dispatch_stands", rounds=rounds, watchdog_s=watchdog_s)
            self._say(f"STATUS={self._status()}", *([] if stands else ["WATCHDOG=1"]))
            before = rounds if self._ready else -1
            await trio.sleep(beat_s)

    def _say(self, *lines: str) -> None:
        if not self._manager.address:
            return
        address = (
            self._manager.address.replace("@", "\0", 1) if self._manager.address[0] == "@" else self._manager.address
        )
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
                manager.setblocking(False)
                manager.sendto("\n".join(lines).encode(), address)
            self._failing = False
        except OSError as error:  # the manager is busy or gone; the next beat says it again
            if not self._failing:
                self._log.warning("systemd.not_reached", error=str(error))
            self._failing = True
