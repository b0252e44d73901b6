"""The thread that writes: one, for as long as its journal is at work. A call in one of trio's threads, which is named
anew and waits for its next call in two steps, costs three times as much, a fifth of what one push takes."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

import trio

Work = tuple[Callable[[], object], trio.lowlevel.Task]


class WriterThread:
    """Makes one call after the other while its block runs. It is a daemon: a disk that hangs keeps no process alive."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._error: BaseException | None = None

    def __enter__(self) -> None:
        token = trio.lowlevel.current_trio_token()
        threading.Thread(target=self._serve, args=[token], name="jqd-journal", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._work.put(None)

    async def run(self, call: Callable[[], object]) -> None:
        """Make a call, and return at its end, whatever is cancelled meanwhile. One at a time. Raises what it raises."""
        self._work.put((call, trio.lowlevel.current_task()))
        await trio.lowlevel.wait_task_rescheduled(stay)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _serve(self, token: trio.lowlevel.TrioToken) -> None:
        while (work := self._work.get()) is not None:
            call, task = work
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                self._error = error
            del work, call  # with the frames, until the next commit
            token.run_sync_soon(trio.lowlevel.reschedule, task)


def stay(_: Callable[[], None]) -> trio.lowlevel.Abort:
    """Return that a waiting task is not cancelled."""
    return trio.lowlevel.Abort.FAILED
