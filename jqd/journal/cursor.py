"""Read points: one per lane and reader, with the ranges that are reserved at the moment. Pure.

read_point ──reserve──▶ reserved ──finish──▶ read_point moves to its end
    ▲                      │
    └──── cancel, seek, deadline: given back, whether or not it was read

A reader that has read its range may reserve the next one before it finishes the first: so it reads on while the first
is brought into the store. Ranges are finished in order, and given back together.
"""

from dataclasses import dataclass, field

import msgspec

from jqd.words.record import Lane


@dataclass(slots=True)
class Reservation:
    """A range of positions that one reader has in hand until `deadline_s` on the monotonic clock."""

    lane: Lane
    start: int
    end: int
    """The end of what is durable now; `read` lowers it to the end of what it gave."""
    records_max: int
    bytes_max: int
    deadline_s: float
    reader: int = 0


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
    """Where a reader stands in a lane."""

    lane: Lane
    read_point: int
    reader: int = 0
    reserved: list[Reservation] = field(default_factory=list)
    """The reserved ranges, oldest first, one after the other without a gap."""

    def is_empty(self, last_end: int, durable: int) -> bool:
        """Whether nothing of the lane is unread. If so, moves the read point over frames of other lanes, unread.

        `last_end`: the end of the lane's last durable frame, or a bound for it. `durable`: the end of all.
        """
        if last_end > self.read_point:
            return False
        self.read_point = max(self.read_point, durable)
        return True

    def reserve(
        self, last_end: int, durable: int, *, records_max: int, bytes_max: int, now_s: float, timeout_s: float
    ) -> Reservation | None:
        """The next range, or None when all is reserved. Ranges past their deadline are given back first.

        A range that was not read yet reaches to the end of what is durable: there is nothing to reserve behind it.
        """
        if self.reserved and now_s >= self.reserved[0].deadline_s:
            self.reserved.clear()
        if self.is_empty(last_end, durable):
            return None
        start = self.reserved[-1].end if self.reserved else self.read_point
        if start >= last_end:
            return None
        token = Reservation(self.lane, start, durable, records_max, bytes_max, now_s + timeout_s, self.reader)
        self.reserved.append(token)
        return token

    def finish(self, token: Reservation) -> None:
        """The range that was read is in the store: the read point moves to its end."""
        if not self.reserved or self.reserved[0] is not token:
            raise RuntimeError(
                f"the reservation of lane {self.lane.name} from {token.start} was given back before its rsync, "
                "or an earlier one is not rsync'd yet"
            )
        del self.reserved[0]
        self.read_point = token.end

    def cancel(self, token: Reservation) -> None:
        """Give the range back, whether or not it was read, and all behind it."""
        for index, reserved in enumerate(self.reserved):
            if reserved is token:
                del self.reserved[index:]
                return

    def seek(self, position: int) -> None:
        """Read from there on."""
        self.reserved.clear()
        self.read_point = position
