"""Read points: one per lane, with the range that is reserved at the moment. Pure but for the clock."""

from dataclasses import dataclass, field

from jqd.clock import Clock
from jqd.record import Lane


@dataclass(slots=True)
class Reservation:
    """A range of positions that one reader has in hand until `deadline_s` on the monotonic clock."""

    lane: Lane
    start: int
    end: int
    """What is durable now; `read` lowers it to what it gave."""
    records_max: int
    bytes_max: int
    deadline_s: float


@dataclass(slots=True)
class Slice:
    """Part of a frame: records `first` … `stop` - 1 of `body` fall into the range that was read."""

    lane: Lane
    start: int
    """Position of the frame; record k has position start + k."""
    body: bytes
    first: int
    stop: int
    end: int
    """Position after the last record of this slice."""


@dataclass(slots=True)
class Cursor:
    """Where a lane is read from."""

    lane: Lane
    read_point: int
    last_end: int
    """End of the lane's last frame, as far as known: beyond it there is nothing to walk over."""
    reserved: Reservation | None = field(default=None)

    def reserve(
        self, durable: int, records_max: int, bytes_max: int, timeout_s: float, clock: Clock
    ) -> Reservation | None:
        """The next range, or None when nothing is left. A reservation past its deadline is given back first."""
        now_s = clock.mono_s()
        if self.reserved is not None:
            if now_s < self.reserved.deadline_s:
                raise RuntimeError(f"lane {self.lane.name} is reserved already; rsync or read_cancel comes first")
            self.reserved = None
        if min(self.last_end, durable) <= self.read_point:
            # Other lanes' frames only: pass over them without a look.
            self.read_point = max(self.read_point, durable)
            return None
        self.reserved = Reservation(self.lane, self.read_point, durable, records_max, bytes_max, now_s + timeout_s)
        return self.reserved

    def finish(self, token: Reservation) -> None:
        """What was read is in the store."""
        if self.reserved is not token:
            raise RuntimeError(
                f"the reservation of lane {self.lane.name} from {token.start} was given back before its rsync"
            )
        self.reserved = None
        self.read_point = token.end

    def cancel(self, token: Reservation) -> None:
        """Give the range back, whether or not it was read."""
        if self.reserved is token:
            self.reserved = None

    def seek(self, position: int) -> None:
        """Read from there on."""
        self.reserved = None
        self.read_point = position
