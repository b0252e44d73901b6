"""The two clocks, and the only import of `time` in the package.

Wall time labels things for people (ids, log lines, dates of jobs). Monotonic time measures: leases, timeouts, rates.
No wall clock ever judges a lock. Components take a `Clock`; tests hand them a `ManualClock`.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Where a component reads the time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC. May jump in either direction."""
        ...

    def mono_s(self) -> float:
        """Seconds on a clock that only grows; its zero means nothing."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def mono_s(self) -> float:
        """Seconds on the machine's monotonic clock."""
        return time.monotonic()


class ManualClock:
    """A clock that stands still until told otherwise, for tests and simulation."""

    def __init__(self, *, wall_ms: int = 1_800_000_000_000, mono_s: float = 1_000.0) -> None:
        self._wall_ms = wall_ms
        self._mono_s = mono_s

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return self._wall_ms

    def mono_s(self) -> float:
        """Seconds, growing only by `advance`."""
        return self._mono_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks."""
        if seconds < 0:
            raise ValueError(f"time cannot pass backwards ({seconds} s); use set_wall_ms to step the wall clock")
        self._mono_s += seconds
        self._wall_ms += round(seconds * 1000)

    def set_wall_ms(self, wall_ms: int) -> None:
        """Step the wall clock, as an operator or NTP would; the monotonic clock does not notice."""
        self._wall_ms = wall_ms
