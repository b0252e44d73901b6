"""The thread that writes: one, for as long as its journal is at work. A call in one of trio's threads, which is named
anew and waits for its next call in two steps, costs three times as much, a fifth of what one push takes."""

import socket
import threading
from collections.abc import Callable
from queue import SimpleQueue

import trio


class WriterThread:
    """Makes one call after the other while its block runs. It is a daemon: a disk that hangs keeps no process alive.

    The end of a call comes by a socket for which the caller itself waits: by way of trio's queue for threads it takes a
    turn of the loop more, and half as much time again."""

    _rung: socket.socket
    _bell: socket.socket
    """Its other end."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._error: BaseException | None = None

    def __enter__(self) -> None:
        self._rung, self._bell = socket.socketpair()
        threading.Thread(target=self._serve, name="jqd-journal", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._work.put(None)
        self._rung.close()
        self._bell.close()

    async def run(self, call: Callable[[], object]) -> None:
        """Make a call, and return at its end, whatever is cancelled meanwhile. One at a time. Raises what it raises."""
        self._work.put(call)
        with trio.CancelScope(shield=True):
            await trio.lowlevel.wait_readable(self._rung)
        self._rung.recv(1)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _serve(self) -> None:
        while (call := self._work.get()) is not None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                self._error = error
            del call  # with the frames, until the next commit
            self._bell.send(b".")


def stay(_: Callable[[], None]) -> trio.lowlevel.Abort:
    """Return that a waiting task is not cancelled."""
    return trio.lowlevel.Abort.FAILED
