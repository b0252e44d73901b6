"""Sends the jobs in buffers when a process ends, and reports those that could not be sent. Empties the buffers in
forked children.

A program whose jobs were lost ends with exit code 1. A Python exit handler cannot set the exit code, so the handler in
this file runs all other exit handlers and then calls `os._exit`.
"""

import atexit
import os
import sys
from contextlib import suppress
from threading import RLock
from typing import Protocol

from jqd.client.pending import Pending
from jqd.domain.lossy_stream import LossyStream

CODE = 1  # exit code when some jobs could not be pushed
SHOWN_MAX = 20  # lost jobs named in the message


class Leaves(Protocol):
    def leave(self) -> list[Pending]: ...
    def forget(self) -> None: ...


class AtExit:
    def __init__(self) -> None:
        self._buffers: list[Leaves] = []
        self._expected_in = 0  # id of the process in which the exit handler is registered
        self._lock = RLock()

    def add(self, buffer: Leaves) -> None:
        with self._lock:
            self._buffers.append(buffer)

    def discard(self, buffer: Leaves) -> None:
        with self._lock, suppress(ValueError):
            self._buffers.remove(buffer)

    def expect(self) -> None:
        """Register the exit handler, unless this process has it already."""
        if self._expected_in == os.getpid():
            return
        self._expected_in = os.getpid()
        processes = sys.modules.get("multiprocessing.process")
        if processes is None or processes.parent_process() is None:
            atexit.register(self._leave)
            return
        # A process that multiprocessing has started ends without atexit handlers, but calls its own finalizers.
        from multiprocessing.util import Finalize

        Finalize(self, self._leave, kwargs={"is_main": False}, exitpriority=0)

    def _leave(self, *, is_main: bool = True) -> None:
        buffers, self._buffers = self._buffers, []  # only once: run_others() below calls this handler again
        lost = [one for buffer in buffers for one in buffer.leave()]
        if not lost:
            return
        shown = ", ".join(f"{one.job_id} ({one.job['name']})" for one in lost[:SHOWN_MAX])
        more = f" and {len(lost) - SHOWN_MAX} more" if len(lost) > SHOWN_MAX else ""
        why = next((one.error for one in lost if one.error is not None), "there was no time left")
        LossyStream(sys.stderr).write(
            f"jqd: {len(lost)} buffered jobs are not known to be pushed: {shown}{more}; {why}\n"
        )
        # os._exit would skip other exit handlers, and no public call runs them.
        run_others = getattr(atexit, "_run_exitfuncs", None)
        if is_main and run_others is not None:
            run_others()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(CODE)

    def after_in_child(self) -> None:
        """Empty the buffers in a forked child, and replace locks that a thread of the parent may hold."""
        self._lock = RLock()
        for buffer in self._buffers:
            buffer.forget()


LEAVING = AtExit()
os.register_at_fork(after_in_child=LEAVING.after_in_child)
