"""Signals that stop a worker or make it reload its code; and a forced exit when a job blocks the stop."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from jqd.domain.log import get_logger

HARD_EXIT_S = 3.0  # how long the end waits for a job that cannot be cancelled


class ShutdownSignals:
    """Turns a worker's signals into events: first, second, reload."""

    def __init__(self, first: trio.Event | None, *, reloads: bool, owns: bool) -> None:
        """`first`: set by the first signal, or by the caller. `reloads`: SIGHUP reloads the code; else it stops, too.
        `owns`: all child processes of this one were started by jobs, and are killed at the end.
        """
        self.first, self.owns = trio.Event() if first is None else first, owns
        self.now = trio.Event()
        """Set when the worker must end without waiting for jobs in flight."""
        self.close = trio.Event()
        """Set once no job is in flight: the server may close."""
        self.is_refused = False
        """Whether the worker ends because no daemon takes it, without a signal."""
        self._reloads = reloads
        self._reload = trio.Event()

    def end(self, force: Callable[[], None] | None) -> None:
        """Let the server close, as no job is in flight. `force`: called first; it ends the process if that hangs."""
        if force is not None:
            force()
        self.close.set()

    async def wait_reload(self) -> None:
        """Return at the next SIGHUP; several that came meanwhile count as one."""
        await self._reload.wait()
        self._reload = trio.Event()

    async def listen(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as arriving:
            task_status.started()
            async for number in arriving:
                if number == signal.SIGHUP and self._reloads:
                    self._reload.set()
                elif self.first.is_set():
                    self.now.set()
                    return  # restores the default handlers: a third signal kills
                else:
                    self.first.set()


@contextmanager
def forced() -> Iterator[Callable[[], None]]:
    """Yield a call that ends the process after HARD_EXIT_S, unless the block ends before.

    A job that shields itself from cancellation, or blocks the loop, would keep a stopping worker alive for ever.
    """
    timer = threading.Timer(HARD_EXIT_S, _exit)
    timer.daemon = True
    try:
        yield timer.start
    finally:
        timer.cancel()


def _exit() -> None:
    get_logger("worker").warning("worker.left", why="a job in flight does not let itself be stopped")
    os._exit(0)
