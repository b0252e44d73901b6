"""The clocks, what is measured by them, and the only import of `time` in the package.

Wall time labels things for people (ids, log lines, dates of jobs). Monotonic time measures others' leases, timeouts,
rates; it stops while the machine is suspended. Whether we still own our jobs is judged by the time since boot, which
goes on; a watcher of others counts monotonic time, for it may only be late. No wall clock ever judges a lock.
Components take a `Clock`; tests hand them a `ManualClock` (jqd.testing.clock).
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

SAMPLE_S = 0.05  # of busy time make one measurement of speed: shorter is noise, longer finds the top late
# Where there is no such clock, the monotonic one counts sleep.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Return milliseconds since 1970, UTC. May jump in either direction."""
        ...

    def mono_s(self) -> float:
        """Return seconds on a clock that only grows; its zero means nothing."""
        ...

    def boot_s(self) -> float:
        """As `mono_s`, but it goes on while the machine is suspended. The two have different zeros."""
        ...


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def mono_s(self) -> float:
        return time.monotonic()

    def boot_s(self) -> float:
        return time.clock_gettime(_SINCE_BOOT)


class StoreClock:
    """Our clock with the wall time of the store, of several of the one furthest behind; before any answered, ours.

    For all dates that leave a daemon, or that another one made: they do not depend on the daemons' own clocks."""

    def __init__(self, ahead_ms: Mapping[object, int], clock: Clock) -> None:
        """`ahead_ms`: how far each store's clock is ahead of ours since boot, in ms."""
        self._ahead_ms, self._clock = ahead_ms, clock
        self.mono_s, self.boot_s = clock.mono_s, clock.boot_s

    def wall_ms(self) -> int:
        ahead_ms = min(self._ahead_ms.values(), default=None)
        return self._clock.wall_ms() if ahead_ms is None else round(self.boot_s() * 1000) + ahead_ms

    @property
    def apart_s(self) -> float:
        """Return how far that time is from our own: nobody knows which of both is right."""
        return abs(self.wall_ms() - self._clock.wall_ms()) / 1000


def processor_s() -> float:
    """Return the seconds of processor time of all threads of this process."""
    return time.process_time()


def thread_s() -> float:
    """Return the seconds of processor time of the calling thread."""
    return time.thread_time()


@dataclass(slots=True)
class Speed:
    """Measures how many jobs of one jobtype a worker ends in a second while it has any."""

    in_flight: int = 0
    rate: float = 0.0
    """Jobs a second, measured; 0 until known."""
    busy_since_s: float = 0.0
    busy_s: float = 0.0
    ended: int = 0

    def take(self, count: int, now_s: float) -> None:
        if not self.in_flight:
            self.busy_since_s = now_s
        self.in_flight += count

    def give(self, count: int, now_s: float, *, ended: bool) -> None:
        """Take `count` jobs out of the measurement. Only busy time counts: a worker without such jobs is not slow."""
        self.in_flight -= count
        self.ended += count if ended else 0
        self.busy_s += now_s - self.busy_since_s
        self.busy_since_s = now_s
        if self.busy_s < SAMPLE_S:
            return
        sample = self.ended / self.busy_s
        # The longer the sample, the less the earlier rate counts.
        weight = self.busy_s / (self.busy_s + SAMPLE_S) if self.rate else 1.0
        self.rate += (sample - self.rate) * weight
        self.busy_s, self.ended = 0.0, 0


@dataclass(slots=True)
class Inactivity:
    """How long somebody has said nothing. It stands still while we do not listen."""

    since_s: float = 0.0
    paused_at_s: float = math.inf

    def lasts_s(self, now_s: float) -> float:
        """Return the seconds since then, those of pauses left out."""
        return min(now_s, max(self.paused_at_s, self.since_s)) - self.since_s

    @contextmanager
    def pause(self, mono_s: Callable[[], float]) -> Iterator[None]:
        """Stand still within."""
        paused_at_s = self.paused_at_s = mono_s()
        try:
            yield
        finally:
            self.paused_at_s = math.inf
            self.since_s += mono_s() - max(self.since_s, paused_at_s)
