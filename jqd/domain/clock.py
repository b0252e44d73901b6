"""The clocks, and the only import of `time` in the package.

Wall time labels things for people (ids, log lines, dates of jobs). Monotonic time measures others' leases, timeouts,
rates; it stops while the machine is suspended. Whether we still own our jobs is judged by the time since boot, which
goes on; a watcher of others counts monotonic time, for it may only be late. No wall clock ever judges a lock.
Components take a `Clock`; tests hand them a `ManualClock` (jqd.testing.clock).
"""

import time
from typing import Protocol

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


def processor_s() -> float:
    """Return the seconds of processor time of all threads of this process."""
    return time.process_time()


def thread_s() -> float:
    """Return the seconds of processor time of the calling thread."""
    return time.thread_time()
