"""Leases of daemons: how long a daemon may assume that its jobs are still its own.

    sent renewal          trusts itself            others may take over
    ────┬─────────────────────────────┬──────────────┬────────────▶
        │◀──── lease − margin ───────▶│◀── margin ──▶│
        │◀──────────────── lease ───────────────────▶│ (from when *they* saw the counter, which is later)

The owner measures from the moment at which it *sent* its last good renewal. A watcher measures from the moment at which
it *saw* the heartbeat change, which is later, on its own monotonic clock. So a job never has two owners, whatever wall
clocks do. If a machine is suspended in between, the owner counts that time (`Clock.boot_s`); a watcher need not.
Sources: River's leader election notes (trust window), the DynamoDB lock client (counters on a monotonic clock).
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from jqd.domain.units import Seconds

SILENCE_S_MAX = 60 * 86_400.0  # twice the longest timeout of a job, for a batch of two such jobs
SILENCE_S_MIN = 1.0  # with less, a worker that is merely busy would lose its jobs
# A longer silence is rounded to two digits, so that there are at most some 500 different lengths.
EXACT_SILENCE_S = 100
MARKS = 512  # values kept at each distance. Of two values a second, each is kept for 4 minutes, each second one for 8 …
DISTANCES = 16  # distances: 1, 2, 4 … values. The oldest are of 96 days ago, beyond SILENCE_S_MAX


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Lengths of leases, which must be the same for all daemons of a store."""

    lease_s: Seconds = 10.0
    """Jobs of a dead daemon run elsewhere after a lease and a renewal. Raise it if the store fails over slowly.
    Allowed: more than `lease.renew_s` and `lease.margin_s` together"""
    renew_s: float = 3.0
    """How often a daemon renews its lease. Three renewals fit into a lease, so one may be lost.
    Allowed: above 0"""
    margin_s: float = 2.0
    """A daemon that cannot renew stops its jobs so long before others may start them.
    Allowed: above 0"""

    def __post_init__(self) -> None:
        if not (self.renew_s > 0 and self.margin_s > 0 and self.renew_s + self.margin_s < self.lease_s):
            raise ValueError(
                f"lease_s = {self.lease_s:g} must be more than renew_s = {self.renew_s:g} and "
                f"margin_s = {self.margin_s:g} together, and all of them above 0: raise it, or lower these"
            )


class Trust:
    """Knows until when this daemon may rely on its lease, which it renews in the store."""

    def __init__(self, config: LeaseConfig) -> None:
        self._span_s = config.lease_s - config.margin_s
        self._until_s = float("-inf")

    def renewed(self, sent_at_s: float) -> None:
        """Note that the store confirmed a renewal that was sent at `sent_at_s`. Late confirmations never shorten the
        lease."""
        self._until_s = max(self._until_s, sent_at_s + self._span_s)

    def lost(self) -> None:
        """End the lease at once, because others ended this daemon's membership, or the daemon gave it up."""
        self._until_s = float("-inf")

    def holds(self, now_s: float) -> bool:
        return now_s < self._until_s

    @property
    def until_s(self) -> float:
        """Return until when the lease can be relied on, by `Clock.boot_s`; minus infinity if there is no lease."""
        return self._until_s


class Peer(NamedTuple):
    """Another daemon of this store, or this one, as last seen in the store."""

    sysid: str
    epoch: int
    """The number of its membership; 0: others ended it, because they took the daemon for dead."""
    is_this: bool
    living: bool | None
    """Whether its heartbeat changed within a lease; None: unknown, because the store has not answered since."""
    through: bool
    """Whether it has completed recovery since the store last lost its data."""
    last_seen_s: float
    """Seconds since its heartbeat was last seen to change."""


class WatchedTime:
    """Measures for how long something was observed. Of the time between two observations at most `gap_s` counts.

    So time in which nothing could be observed, such as while the store was away, does not count as silence.
    """

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._watched_s = 0.0
        self._looked_at_s: float | None = None

    def look(self, now_s: float) -> float:
        """Note an observation at `now_s`, and return the seconds counted until then."""
        self._watched_s, self._looked_at_s = self.at(now_s), now_s
        return self._watched_s

    def at(self, now_s: float) -> float:
        """Return the seconds that `look` would return for an observation at `now_s`, without noting one."""
        return self._watched_s + (0.0 if self._looked_at_s is None else min(now_s - self._looked_at_s, self._gap_s))


class BeatAge(NamedTuple):
    """For how long a member's heartbeat has not changed; infinite if it was never seen."""

    watched_s: float
    """The seconds without the time in which the store did not answer; `all_s` includes that time."""
    all_s: float


class Heartbeats:
    """Finds dead members: members whose heartbeat has not changed for the length of a lease, by this daemon's clock,
    while the store answered.

    Of the time between two answers of the store at most one renewal period counts. So after the store was away, the
    members have more than one renewal period to renew their leases, before a daemon that is quicker takes them for
    dead.
    """

    def __init__(self, config: LeaseConfig) -> None:
        self._lease_s = config.lease_s
        self._watched = WatchedTime(config.renew_s)
        self._seen: dict[str, tuple[object, float, float]] = {}

    def observe(self, members: Mapping[str, object], now_s: float) -> list[str]:
        """Note the members' heartbeats, and return the names of dead members. Members that left are forgotten."""
        dead, watched_s = [], self._watched.look(now_s)
        for sysid, beat in members.items():
            seen = self._seen.get(sysid)
            if seen is None or seen[0] != beat:
                self._seen[sysid] = (beat, watched_s, now_s)
            elif watched_s - seen[1] > self._lease_s:
                dead.append(sysid)
        for sysid in self._seen.keys() - members.keys():
            del self._seen[sysid]
        return dead

    def age(self, name: str, now_s: float) -> BeatAge:
        if name not in self._seen:
            return BeatAge(math.inf, math.inf)
        _, watched_s, seen_at_s = self._seen[name]
        return BeatAge(self._watched.at(now_s) - watched_s, now_s - seen_at_s)

    def forget(self) -> None:
        """Forget all heartbeats, because the store is another one, or was away."""
        self._seen.clear()


def allowed_silence_s(seconds: float) -> int:
    """Return for how many seconds a worker that holds jobs itself may send no heartbeat, given the wanted `seconds`.
    The value is rounded up: to whole seconds, and above 100 s to two digits, because leases of equal length are checked
    together."""
    whole = math.ceil(max(SILENCE_S_MIN, min(seconds, SILENCE_S_MAX)))
    step = 1
    while whole > EXACT_SILENCE_S * step:
        step *= 10
    return math.ceil(whole / step) * step


class Marks:
    """Remembers which value a growing sequence of numbers had at which time. It keeps all recent values, and fewer of
    older ones.

    A number of the sequence is older than a time if it is not above the value that the sequence had then, whatever
    other clocks say. Only time in which the sequence was observed counts, because a worker whose heartbeats could not
    arrive is not silent.
    """

    def __init__(self, gap_s: float) -> None:
        """`gap_s`: the most time between two observations that counts."""
        self._gap_s = gap_s
        self.forget()

    def forget(self) -> None:
        self._watched = WatchedTime(self._gap_s)
        self._count = 0
        self._rows: list[deque[tuple[float, int]]] = [deque(maxlen=MARKS) for _ in range(DISTANCES)]

    def note(self, number: int, now_s: float) -> None:
        if self._rows[0] and number < self._rows[0][-1][1]:
            self.forget()  # it went back, so it is another sequence
        watched_s = self._watched.look(now_s)
        for distance, row in enumerate(self._rows):
            if self._count % (1 << distance):
                break
            row.append((watched_s, number))
        self._count += 1

    def find(self, age_s: float, now_s: float) -> int | None:
        """Return the value that the sequence had `age_s` before `now_s`, or a bit earlier; None if it was not observed
        for so long."""
        at_s = self._watched.at(now_s) - age_s
        for row in self._rows:
            if row and row[0][0] <= at_s:
                return row[bisect_right(row, at_s, key=lambda mark: mark[0]) - 1][1]
        return None
