"""Signals that end a worker or have it reload its code, and how it ends although a job blocks it."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from jqd.domain.log import get_logger

HARD_EXIT_S = 3.0  # after that a job that cannot be cancelled is left behind


class ShutdownSignals:
    """The signals so far: first, second, reload."""

    def __init__(self, first: trio.Event | None, *, reloads: bool, owns: bool) -> None:
        """`first`: set by the first signal, or by the caller.

        `reloads`: SIGHUP loads the code anew; else it stops, too. `owns`: programs that this process has started were
        started by jobs, and are killed at the end.
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
        """Note that no job is in flight. `force`: ends the process if the caller cannot; None: the caller does."""
        if force is not None:
            force()
        self.close.set()

    async def wait_reload(self) -> None:
        """Return at the next SIGHUP; several that come meanwhile are one."""
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
                    return  # from here on the default holds: a third signal kills
                else:
                    self.first.set()


@contextmanager
def forced() -> Iterator[Callable[[], None]]:
    """Give a call that ends the process in HARD_EXIT_S, unless the block is left before.

    A job that shields itself from being cancelled, or blocks the loop, would hold a stopping worker for ever.
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
