"""A clock that stands still until a test advances it."""


class ManualClock:
    """A clock that stands still until it is advanced, for tests and simulation."""

    def __init__(self, *, wall_ms: int = 1_800_000_000_000, mono_s: float = 1_000.0) -> None:
        self._wall_ms = wall_ms
        self._mono_s = mono_s
        self._suspended_s = 0.0

    def wall_ms(self) -> int:
        """Return the wall clock: milliseconds since 1970, UTC."""
        return self._wall_ms

    def mono_s(self) -> float:
        """Return the monotonic clock, in seconds. It stands still while the machine is suspended."""
        return self._mono_s

    def boot_s(self) -> float:
        """Return the clock since boot, in seconds. It goes on while the machine is suspended."""
        return self.mono_s() + self._suspended_s

    def suspend(self, seconds: float) -> None:
        """Suspend the machine for some seconds: the wall clock and the clock since boot go on, the monotonic clock does
        not."""
        self._suspended_s += seconds
        self._wall_ms += round(seconds * 1000)

    def advance(self, seconds: float) -> None:
        """Let time pass on all clocks. Raises ValueError for a negative time."""
        if seconds < 0:
            raise ValueError(f"time cannot pass backwards ({seconds} s); use set_wall_ms to step the wall clock")
        self._mono_s += seconds
        self._wall_ms += round(seconds * 1000)

    def set_wall_ms(self, wall_ms: int) -> None:
        """Set the wall clock, as an operator or NTP would. The other clocks do not change."""
        self._wall_ms = wall_ms
