"""The clocks, and measurements by them. Only this file imports `time`.

    wall time        ids, log lines, dates of jobs; it may jump, so it never decides whether a lock holds
    monotonic time   timeouts, rates, leases of others; it stops while the machine is suspended, which can only make
                     this daemon late in taking over the jobs of another one
    time since boot  whether this daemon still owns its jobs; it goes on while the machine is suspended

Components take a `Clock`; tests give them a `ManualClock` (jqd.testing.clock).
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

SAMPLE_S = 0.05  # busy time of one measurement of `Speed`: shorter is noise, longer finds the maximum late
# On systems without this clock, the monotonic one goes on while the machine is suspended.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Return milliseconds since 1970, UTC. May jump in either direction."""
        ...

    def mono_s(self) -> float:
        """Return seconds on a clock that never goes back. Only differences are meaningful."""
        ...

    def boot_s(self) -> float:
        """Return seconds on a clock that never goes back and also runs while the machine is suspended. Its zero differs
        from that of `mono_s`."""
        ...


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def mono_s(self) -> float:
        return time.monotonic()

    def boot_s(self) -> float:
        return time.clock_gettime(_SINCE_BOOT)


class StoreClock:
    """A clock that shows the store's wall time. With several partitions it shows the time of the partition that is
    furthest behind. Before any partition has answered, it shows the daemon's own wall time.

    It is for all dates that a daemon shows, or compares with dates from other daemons, because the daemons' own clocks
    may differ.
    """

    def __init__(self, ahead_ms: Mapping[object, int], clock: Clock) -> None:
        """`ahead_ms`: partition → the store's wall time minus `clock.boot_s`, in ms. It is read anew at each call, so
        it may change."""
        self._ahead_ms, self._clock = ahead_ms, clock
        self.mono_s, self.boot_s = clock.mono_s, clock.boot_s

    def wall_ms(self) -> int:
        ahead_ms = min(self._ahead_ms.values(), default=None)
        return self._clock.wall_ms() if ahead_ms is None else round(self.boot_s() * 1000) + ahead_ms

    @property
    def apart_s(self) -> float:
        """Return by how many seconds the store's wall time and the daemon's own differ. Either of the two may be the
        wrong one."""
        return abs(self.wall_ms() - self._clock.wall_ms()) / 1000


def processor_s() -> float:
    """Return the processor time of all threads of this process, in seconds."""
    return time.process_time()


def thread_s() -> float:
    """Return the processor time of the calling thread, in seconds."""
    return time.thread_time()


@dataclass(slots=True)
class Speed:
    """Measures how many jobs of one jobtype a worker finishes per second, counting only the time in which it has such
    jobs."""

    in_flight: int = 0
    rate: float = 0.0
    """Jobs a second, measured; 0 until known."""
    busy_since_s: float = 0.0
    busy_s: float = 0.0
    ended: int = 0

    def add_jobs(self, count: int, now_s: float) -> None:
        if not self.in_flight:
            self.busy_since_s = now_s
        self.in_flight += count

    def remove_jobs(self, count: int, now_s: float, *, ended: bool) -> None:
        """Count jobs that left the worker at the time `now_s`. `ended`: True if the worker ran them, False if it
        returned them unstarted."""
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
    """Measures for how long a peer has sent nothing. The time in which this daemon does not listen does not count
    (`pause`)."""

    since_s: float = 0.0
    paused_at_s: float = math.inf

    def lasts_s(self, now_s: float) -> float:
        """Return for how many seconds until `now_s` the peer has sent nothing, without the pauses."""
        return min(now_s, max(self.paused_at_s, self.since_s)) - self.since_s

    @contextmanager
    def pause(self, mono_s: Callable[[], float]) -> Iterator[None]:
        """Do not count the time of the `with` block as silence."""
        paused_at_s = self.paused_at_s = mono_s()
        try:
            yield
        finally:
            self.paused_at_s = math.inf
            self.since_s += mono_s() - max(self.since_s, paused_at_s)
