"""The clocks, and the only import of `time` in the package.

Wall time labels things for people (ids, log lines, dates of jobs). Monotonic time measures: others' leases, timeouts,
rates. It stands still while the machine is suspended, and others' clocks do not: so whether we still own what we hold
is judged by the time since boot, which goes on. Who watches others counts the monotonic one, for it may only be late.
No wall clock ever judges a lock. Components take a `Clock`; tests hand them a `ManualClock`.
"""

import time
from typing import Protocol

# Where there is no such clock, the monotonic one counts sleep.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Where a component reads the time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC. May jump in either direction."""
        ...

    def mono_s(self) -> float:
        """Seconds on a clock that only grows; its zero means nothing."""
        ...

    def boot_s(self) -> float:
        """As `mono_s`, and it grows while the machine is suspended, too. The two have not the same zero."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def mono_s(self) -> float:
        """Seconds on the machine's monotonic clock."""
        return time.monotonic()

    def boot_s(self) -> float:
        """Seconds since the machine was booted."""
        return time.clock_gettime(_SINCE_BOOT)


def processor_s() -> float:
    """Seconds of the processor that all threads of this process have had."""
    return time.process_time()


def thread_s() -> float:
    """Seconds of the processor that the calling thread has had."""
    return time.thread_time()


class ManualClock:
    """A clock that stands still until told otherwise, for tests and simulation."""

    def __init__(self, *, wall_ms: int = 1_800_000_000_000, mono_s: float = 1_000.0) -> None:
        self._wall_ms = wall_ms
        self._mono_s = mono_s
        self._suspended_s = 0.0

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return self._wall_ms

    def mono_s(self) -> float:
        """Seconds, growing only by `advance`."""
        return self._mono_s

    def boot_s(self) -> float:
        """Seconds, growing by `advance` and by `suspend`."""
        return self.mono_s() + self._suspended_s

    def suspend(self, seconds: float) -> None:
        """Let the machine be suspended for so long: the monotonic clock does not notice."""
        self._suspended_s += seconds
        self._wall_ms += round(seconds * 1000)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks."""
        if seconds < 0:
            raise ValueError(f"time cannot pass backwards ({seconds} s); use set_wall_ms to step the wall clock")
        self._mono_s += seconds
        self._wall_ms += round(seconds * 1000)

    def set_wall_ms(self, wall_ms: int) -> None:
        """Step the wall clock, as an operator or NTP would; the monotonic clock does not notice."""
        self._wall_ms = wall_ms
