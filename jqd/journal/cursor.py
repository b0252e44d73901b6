"""Read points: one per lane, with the range that is reserved at the moment. Pure.

read_point ──reserve──▶ reserved ──finish──▶ read_point moves to its end
    ▲                      │
    └──── cancel, seek, deadline: given back, whether or not it was read
"""

from dataclasses import dataclass, field

import msgspec

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


class Slice(msgspec.Struct, gc=False):
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
    reserved: Reservation | None = field(default=None)

    def is_empty(self, last_end: int, durable: int) -> bool:
        """Whether nothing of the lane is unread. Passes over what then belongs to other lanes, without a look.

        `last_end`: the end of the lane's last durable frame, or a bound for it. `durable`: the end of all.
        """
        if last_end > self.read_point:
            return False
        self.read_point = max(self.read_point, durable)
        return True

    def reserve(
        self, last_end: int, durable: int, *, records_max: int, bytes_max: int, now_s: float, timeout_s: float
    ) -> Reservation | None:
        """The next range, or None when nothing is left. A reservation past its deadline is given back first."""
        if self.reserved is not None and now_s < self.reserved.deadline_s:
            raise RuntimeError(f"lane {self.lane.name} is reserved already; rsync or read_cancel comes first")
        self.reserved = None
        if self.is_empty(last_end, durable):
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
