"""What a daemon does when it gets a signal: stop, or reload its configuration."""

import os
import signal
import threading
from collections.abc import Awaitable, Callable

import trio

from jqd.domain.log import get_logger

EXIT_GRACE_S = 3.0  # so long after the drain time the process ends, whatever it waits for

log = get_logger("daemon")


async def watch_signals(
    stop: trio.Event,
    drain_s: Callable[[], float],
    interrupted: Callable[[], None],
    reload: Callable[[], Awaitable[None]] | None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """At the first signal set `stop`, and give the daemon `drain_s` (seconds) to stop in order; at the second end the
    process at once, which is safe because of the journal.

    `interrupted` is called if the first signal is SIGINT. `reload` is called at SIGHUP. If it is None, SIGHUP also
    stops the daemon, as when a terminal is closed.
    """
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP and reload is not None:
                    if not stop.is_set():
                        nursery.start_soon(reload)  # in a task of its own: it reads files, and a stop must not wait
                    continue
                if stop.is_set():
                    log.warning("daemon.ended_by_second_signal", signal=signal.Signals(number).name)
                    os._exit(0)
                log.info("daemon.signal", signal=signal.Signals(number).name)
                _end_by(drain_s())
                stop.set()
                if number == signal.SIGINT:
                    interrupted()


def _end_by(drain_s: float) -> None:
    """Start a timer that ends the process some seconds after the drain time, whatever the process waits for then."""
    deadline = threading.Timer(drain_s + EXIT_GRACE_S, _end_overdue, [drain_s])
    deadline.daemon = True
    deadline.start()


def _end_overdue(drain_s: float) -> None:
    """End the process, because a disk or a store that hangs could block it for ever. All accepted jobs are on disk."""
    log.error("daemon.ended_overdue", drain_s=drain_s)
    os._exit(0)
