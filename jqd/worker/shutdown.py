"""The signals that stop a worker or make it load its code again. Also ends the process by force if a job prevents the
stop."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from jqd.domain.log import get_logger

HARD_EXIT_S = 3.0  # how long the end waits for a job that cannot be cancelled


class ShutdownSignals:
    """Turns the signals that a worker gets into events: for the first signal to stop, for the second, and for a
    reload."""

    def __init__(self, first: trio.Event | None, *, reloads: bool, owns: bool) -> None:
        """`first`: the event that stops the worker, set by the first signal or by the caller; None: make one.
        `reloads`: whether SIGHUP loads the code again; else it stops the worker. `owns`: whether all child processes of
        this one were started by jobs, so that they are killed at the end."""
        self.first, self.owns = trio.Event() if first is None else first, owns
        self.now = trio.Event()
        """Set when the worker must end without waiting for its jobs."""
        self.close = trio.Event()
        """Set when no job is in flight any more, so that the server may close."""
        self.is_refused = False
        """Whether the worker ends because no daemon accepts it, not because of a signal."""
        self._reloads = reloads
        self._reload = trio.Event()

    def end(self, force: Callable[[], None] | None) -> None:
        """Let the server close. `force`: called first; it makes the process exit if closing hangs."""
        if force is not None:
            force()
        self.close.set()

    async def wait_reload(self) -> None:
        """Wait until SIGHUP comes, or has come since the last call. Several signals count as one."""
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
    """Yield a function that starts a timer. After HARD_EXIT_S the timer ends the process, unless the block has ended
    before.

    Without it, a job that ignores cancellation or blocks the loop would keep a stopping worker alive for ever.
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
