"""The writer thread of a journal. A call in one of trio's threads costs three times as much, a fifth of a push's time:
the thread is renamed for each call, and waits for the next call in two steps."""

import socket
import threading
from collections.abc import Callable
from queue import SimpleQueue

import trio


class WriterThread:
    """Makes one call after another in a thread, during its block. A daemon thread: a disk that hangs keeps no process
    alive.

    It signals the end of a call by a socket on which the caller waits. With Trio's queue for threads, a call would cost
    another pass of the event loop, and take half as long again."""

    _done_receiver: socket.socket
    _done_sender: socket.socket

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._error: BaseException | None = None

    def __enter__(self) -> None:
        self._done_receiver, self._done_sender = socket.socketpair()
        threading.Thread(target=self._serve, name="jqd-journal", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._work.put(None)
        self._done_receiver.close()
        self._done_sender.close()

    async def run(self, call: Callable[[], object]) -> None:
        """Make a call in the thread, one at a time; return when it ends, even if cancelled. Raises the call's error."""
        self._work.put(call)
        with trio.CancelScope(shield=True):
            await trio.lowlevel.wait_readable(self._done_receiver)
        self._done_receiver.recv(1)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _serve(self) -> None:
        while (call := self._work.get()) is not None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - `run` raises it
                self._error = error
            del call  # else its frames stay in memory until the next commit
            self._done_sender.send(b".")


def stay(_: Callable[[], None]) -> trio.lowlevel.Abort:
    """Refuse to cancel a waiting task: trio's abort function for `wait_task_rescheduled`."""
    return trio.lowlevel.Abort.FAILED
