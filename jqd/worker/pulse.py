"""Notices from a thread beside it that trio's loop stands still, and says which jobs may hold it up, and where.

An async function that blocks stops the whole worker: no batch is taken, no timeout noticed, no registration repeated.
Nothing in the loop can say so. With `--processes` it does not come to this: the process is killed.
"""

import sys
import threading
import traceback
from collections.abc import Callable

import trio

from jqd.words.clock import Clock
from jqd.words.log import get_logger

SILENT_S = 5.0  # for a loop to come round: far above any turn of a healthy one on a loaded machine
BEAT_SHARE = 0.2  # of that time between two beats
FRAMES_SHOWN = 4  # the innermost: where it is held up
NEXT = "an async function must not block: use the async call, or a plain function, or --processes"


class Pulse:
    """The heartbeat of the trio loop that runs `beat`."""

    def __init__(self, at_work: Callable[[], str], clock: Clock, silent_s: float = SILENT_S) -> None:
        """`at_work`: names the async jobs that have begun."""
        self._at_work, self._clock, self._silent_s = at_work, clock, silent_s
        self._beaten_s = clock.mono_s()
        self._over = threading.Event()
        self._log = get_logger("worker")

    async def beat(self) -> None:
        """Until cancelled."""
        loop = threading.get_ident()
        threading.Thread(target=self._listen, args=(loop,), name="jqd-pulse", daemon=True).start()
        try:
            while True:
                self._beaten_s = self._clock.mono_s()
                await trio.sleep(self._silent_s * BEAT_SHARE)
        finally:
            self._over.set()

    def _listen(self, loop: int) -> None:
        while not self._over.wait(self._silent_s):
            silent_s = self._clock.mono_s() - self._beaten_s
            if silent_s >= self._silent_s and (frame := sys._current_frames().get(loop)) is not None:
                where = "".join(traceback.format_stack(frame)[-FRAMES_SHOWN:])
                self._log.error(
                    "worker.loop_blocked", for_s=round(silent_s, 1), jobs=self._at_work(), exception=where, next=NEXT
                )
