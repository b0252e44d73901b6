"""Notices from a thread of its own that an event loop is blocked, and logs which job blocks it, and where.

An async function that blocks trio's loop stops the whole worker: no batch is taken, no timeout noticed, no registration
repeated. An async function that blocks the asyncio loop stops all asyncio jobs. Nothing in a blocked loop can report
that. A process of `--processes` is then killed at the timeout of one of its jobs.
"""

import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

import trio

from jqd.domain.clock import Clock
from jqd.domain.log import get_logger
from jqd.worker.batch import Item

SILENT_S = 1.0  # without a beat for so long a loop is blocked: many times a healthy turn on a loaded machine
BEAT_SHARE = 0.25  # of SILENT_S between two beats, and between two checks
AGAIN_TIMES = 5  # times SILENT_S until a loop that is still blocked is logged again
RUNNERS = ("run_async", "_attempt")  # functions that await a job's function, in `Attempts` and `AsyncioLoop`
FRAMES_SHOWN = 4  # innermost frames that are logged
NEXT = "an async function must not block: use the async call, or a plain function, or --processes"


class Watchdog:
    """Watches the trio loop in which `beat` runs, or another loop that calls `beaten` every `beat_s`."""

    def __init__(self, at_work: Callable[[], str], clock: Clock, silent_s: float = SILENT_S) -> None:
        """`at_work`: returns the names of the async jobs that have begun; logged if the blocking job is unknown."""
        self._at_work, self._clock, self._silent_s = at_work, clock, silent_s
        self._beaten_s = clock.mono_s()
        self._over = threading.Event()
        self._log = get_logger("worker")

    async def beat(self) -> None:
        self.listen()
        try:
            while True:
                self.beaten()
                await trio.sleep(self.beat_s)
        finally:
            self.close()

    @property
    def beat_s(self) -> float:
        return self._silent_s * BEAT_SHARE

    def listen(self) -> None:
        """Start the thread that watches the event loop of the calling thread."""
        self.beaten()
        loop = threading.get_ident()
        threading.Thread(target=self._listen, args=(loop,), name="jqd-pulse", daemon=True).start()

    @property
    def is_silent(self) -> bool:
        """Return whether the loop is blocked: it has not called `beaten` for `silent_s`."""
        return self._clock.mono_s() - self._beaten_s >= self._silent_s

    def beaten(self) -> None:
        self._beaten_s = self._clock.mono_s()

    def close(self) -> None:
        self._over.set()

    def _listen(self, loop: int) -> None:
        logged_s = 0.0  # length of the silence when it was last logged
        while not self._over.wait(self.beat_s):
            silent_s = self._clock.mono_s() - self._beaten_s
            if silent_s < logged_s:
                logged_s = 0.0
            again_s = logged_s + self._silent_s * (AGAIN_TIMES if logged_s else 1)
            if silent_s >= again_s and (frame := sys._current_frames().get(loop)) is not None:
                item = item_in(frame)
                jobs = self._at_work() if item is None else f"{item.job_id} ({item.job.name})"
                if not jobs and silent_s < self._silent_s * AGAIN_TIMES:
                    continue  # no async job runs: perhaps only the machine is slow
                logged_s = silent_s
                where = "".join(traceback.format_stack(frame)[-FRAMES_SHOWN:])
                self._log.error("worker.loop_blocked", for_s=round(silent_s, 1), jobs=jobs, exception=where, next=NEXT)


def item_in(frame: FrameType | None) -> Item | None:
    """Return the job whose function runs in a frame; None: there is none, or it is a task that a job started."""
    while frame is not None:
        item = frame.f_locals.get("item") if frame.f_code.co_name in RUNNERS else None
        if isinstance(item, Item):
            return item
        frame = frame.f_back
    return None
