"""Passes on what jobs' programs print to where the worker's own log goes.

In a thread, for whoever reads there may stand still: a full pipe must not hold up timeouts, heartbeats and all jobs.
What does not fit into the queue is dropped, and that is said as soon as somebody reads again.
"""

import atexit
import os
import threading

WAITING_BYTES_MAX = 1 << 20  # of all jobs: some thousand lines, for who looks away for a moment
FLUSH_S = 1.0  # at the end of the worker, which must end


class Onward:
    """Bytes on their way to one descriptor. `add` may be called from any thread, and never waits for the reader."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = bytearray()
        self._writing_bytes = self._dropped = 0
        self._moved = threading.Condition()
        self._is_running = False

    def add(self, data: bytes) -> None:
        """Queue it, or drop all of it."""
        with self._moved:
            if len(self._waiting) + self._writing_bytes + len(data) > WAITING_BYTES_MAX:
                self._dropped += len(data)
                return
            self._waiting += data
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="jqd-onward", daemon=True).start()
                atexit.register(self.flush, FLUSH_S)
            self._moved.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until all is written, for so long at most. Whether it is."""
        with self._moved:
            return self._moved.wait_for(lambda: not self._waiting and not self._writing_bytes, seconds)

    def _run(self) -> None:
        while True:
            with self._moved:
                self._moved.wait_for(lambda: self._waiting)
                data, dropped = bytes(self._waiting), self._dropped
                self._waiting.clear()
                self._writing_bytes, self._dropped = len(data), 0
            if dropped:
                data += b"jqd worker: %d bytes that jobs printed were dropped: nobody read here\n" % dropped
            self._write(data)
            with self._moved:
                self._writing_bytes = 0
                self._moved.notify_all()

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except OSError:
                return  # nobody will read the worker's log any more: that must not end the worker
