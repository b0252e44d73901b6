"""What befell whom and when, and what that explains: nothing is ever excused in general.

A job that ran to its end may run again when the daemon that knew of it was away (dead, standing still, cut off, its
lease not renewed in time) before the store knew. And what was asked of a job lies in the journal of the daemon that
took it: a store that loses data while that daemon is away does without it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from jqd.domain.job import Fate
from tests.simulation.plan import LEASE, OLD_S, TRIM

RECOVERS_S = 4.0  # a loop waits 3 s at most until it asks the store again

HINDER = {
    **dict.fromkeys(("wipe", "rollback", "restart"), (0, 1.0, True)),
    **dict.fromkeys(("lost", "late", "slow"), (2, 6.0, True)),
    **dict.fromkeys(("lag", "backlog"), (3, 0.0, False)),
    **dict.fromkeys(("disk", "full"), (1, 0.0, False)),
    "stop": (0, 14.0, False),
}
"""Kinds that keep rules from being told or heard, though no daemon is away: in so many of their spans, for so long
after them; at all daemons."""


@dataclass(slots=True)
class Attempt:
    """One time a worker got a job."""

    life: str
    node: str
    fence: int
    at_s: float
    fate: Fate | None = None
    """What its daemon heard."""
    fate_at_s: float = math.inf
    told: int = 0
    """From which moment on the store knew of the success of a worker that held the job by itself; 0: it does not."""
    number: int = 0
    """Which attempt its worker was told this is, from 1; 0: it was not told."""
    is_counted: bool = True
    """It was not interrupted by the end of its daemon: the next has its number."""
    found_silent: bool = False
    """Another daemon said so, although a success was in a journal that the store had not been told."""

    def gave_way(self, claimed: float) -> bool:
        """Whether the store gave the job at that moment, before it heard of that success."""
        return claimed < (self.told or (math.inf if self.found_silent else 0))


def may_be_over(attempts: Iterable[Attempt], max_retry: int) -> bool:
    """Whether the last was an error too many: its worker was told that it is taken, and not how the job stands.

    One that was found silent was an error until its success was told (seed 41776)."""
    return sum(attempt.fate is Fate.RETRY or attempt.found_silent for attempt in attempts) > max_retry


@dataclass(slots=True)
class Away:
    """A time in which a node was not there for others: `node` "*" is all of them."""

    node: str
    why: str
    from_s: float
    to_s: float = math.inf
    partition: int | None = None
    """Of the store, where it was there for the others."""


class Loss(NamedTuple):
    """A partition of the store forgot something."""

    at_s: float
    partition: int


class Slow(NamedTuple):
    """A time in which a partition took so long that a daemon may notice a loss only after the lease others wait."""

    from_s: float
    to_s: float
    partition: int


@dataclass
class Causes:
    """All that befell. `home` is the partition a job lives in: what befalls another explains nothing."""

    partitions: int
    aways: list[Away] = field(default_factory=list)
    lapses: list[Away] = field(default_factory=list)
    """Times in which a lease was not renewed although its daemon was there: answers were lost, or late."""
    losses: list[Loss] = field(default_factory=list)
    slows: list[Slow] = field(default_factory=list)
    hindrances: list[Away] = field(default_factory=list)
    """Times in which what a node wrote came late to the store, or what is there to the node, though it was not away."""
    jumps: list[tuple[float, float]] = field(default_factory=list)
    """When clocks were set wrong, and by how many seconds, either way."""
    _renewals: dict[tuple[str, int], float] = field(default_factory=dict)
    _came_s: dict[tuple[str, int], float] = field(default_factory=dict)
    """When a node first came to a partition."""

    @property
    def clock_jumps(self) -> bool:
        """Whether one of the clocks was set wrong."""
        return bool(self.jumps)

    def wrong_s(self, at_s: float) -> float:
        """How much too early or too late a date may come then: as much as all clocks together were set wrong."""
        return sum(jump_s for jumped_s, jump_s in self.jumps if jumped_s <= at_s)

    @property
    def fences_go_back(self) -> bool:
        """Whether they may: a store that lost what it knew, under a clock that was set back, goes by that."""
        return self.clock_jumps and bool(self.losses)

    def renewed(self, node: str, partition: int) -> None:
        """The store took its renewal. When the one before is longer ago than a lease, others took the node for dead."""
        now_s = trio.current_time()
        before_s = self._renewals.get((node, partition), now_s)
        if now_s - before_s >= LEASE.lease_s:
            self.lapses.append(Away(node, "lapsed", before_s, now_s, partition))
        self._renewals[node, partition] = now_s
        self._came_s.setdefault((node, partition), now_s)

    def gone(self, node: str, why: str, partition: int | None = None) -> Away:
        """A node is away from now on, for all or for one partition; the caller sets `to_s` when it is back."""
        away = Away(node, why, trio.current_time(), partition=partition)
        self.aways.append(away)
        return away

    def losses_of(self, home: int) -> list[Loss]:
        """Those of that partition."""
        return [loss for loss in self.losses if loss.partition == home]

    def is_untold(self, home: int, kinds: frozenset[str], ends_s: Iterable[float]) -> bool:
        """Whether nobody need know of a job that ended so: journals that keep nothing gave it up, the store lost it."""
        lost_s = max((loss.at_s for loss in self.losses_of(home)), default=-math.inf)
        return TRIM in kinds and any(end_s <= lost_s for end_s in ends_s)

    def was_lapsed(self, home: int, node: str, from_s: float, to_s: float) -> bool:
        """Whether its renewals did not come in time, at some time between."""
        renewed_s = self._renewals.get((node, home), math.inf)
        now = renewed_s <= to_s and trio.current_time() - renewed_s >= LEASE.lease_s
        lapses = (lapse for lapse in self.lapses if (lapse.node, lapse.partition) == (node, home))
        return now or any(lapse.from_s <= to_s and lapse.to_s >= from_s for lapse in lapses)

    def was_away(self, home: int, node: str, from_s: float, to_s: float) -> bool:
        """Whether that node was, for that partition, at some time between."""
        return any(
            away.node in (node, "*") and away.partition in (None, home) and away.from_s <= to_s and away.to_s >= from_s
            for away in self.aways
        )

    def hinders(self, kind: str, node: str, at_s: float, span_s: float) -> None:
        """A fault begins."""
        if kind in HINDER:
            spans, for_s, at_all = HINDER[kind]
            self.hindrances.append(Away("*" if at_all else node, kind, at_s, at_s + spans * span_s + for_s))

    def hindered_to(self, from_s: float, to_s: float, *nodes: str) -> float:
        """Until when one of those nodes may not have told the store of a rule, or heard of it; 0: both could."""
        spans = [(away.from_s, away.to_s) for away in self.aways if away.node in (*nodes, "*")]
        spans += [(slow.from_s, slow.to_s) for slow in self.slows]
        spans += [
            (hindrance.from_s, hindrance.to_s) for hindrance in self.hindrances if hindrance.node in (*nodes, "*")
        ]
        ends_s = (end_s + RECOVERS_S for begin_s, end_s in spans if begin_s <= to_s and end_s + RECOVERS_S >= from_s)
        return max(ends_s, default=0.0)

    def was_slow(self, home: int, from_s: float, to_s: float) -> bool:
        """Whether its partition was, at some time between."""
        return any(slow.partition == home and slow.from_s <= to_s and slow.to_s >= from_s for slow in self.slows)

    def again(self, home: int, attempt: Attempt, now_s: float) -> bool:
        """Whether a job may run again after that attempt: its daemon was away since; or the store was so slow that this
        daemon takes its new seat only after the lease that others wait for it."""
        losses = [loss for loss in self.losses_of(home) if attempt.at_s <= loss.at_s]
        late = any(self.was_slow(home, loss.at_s, now_s) for loss in losses if loss.at_s <= now_s)
        span = (home, attempt.node, attempt.at_s, now_s)
        return late or self.was_away(*span) or self.was_lapsed(*span)

    def forgotten(self, home: int, at_s: float, node: str, now_s: float) -> bool:
        """Whether what that node took at `at_s` may be unknown to the store: it lost it, the node was away since."""
        return any(
            self.was_away(home, node, loss.at_s, now_s) or self._noticed_late(home, node, loss, now_s)
            for loss in self.losses_of(home)
            if at_s <= loss.at_s <= now_s
        )

    def came_late(self, home: int, at_s: float, node: str, now_s: float) -> bool:
        """Whether nobody waits any more for what that node took at `at_s`: it had never come to the partition, and did
        not within OLD_S after others."""
        came_s = self._came_s.get((node, home), math.inf)
        others_s = min((first_s for (_, its), first_s in self._came_s.items() if its == home), default=math.inf)
        return at_s < came_s and min(came_s, now_s) >= others_s + OLD_S

    def unheard(self, home: int, node: str) -> bool:
        """Whether the store may not know of that node's journal: it lost data, and the node noticed nothing yet."""
        renewed_s = self._renewals.get((node, home), -math.inf)
        losses = (loss for loss in self.losses_of(home) if renewed_s <= loss.at_s)
        return any(self._noticed_late(home, node, loss, trio.current_time()) for loss in losses)

    def _noticed_late(self, home: int, node: str, loss: Loss, now_s: float) -> bool:
        """Whether it renewed nothing for a whole lease after the loss: the others wait no longer than that."""
        until_s = loss.at_s + LEASE.lease_s
        lapses = (lapse for lapse in self.lapses if (lapse.node, lapse.partition) == (node, home))
        return (until_s <= now_s and self._renewals.get((node, home), -math.inf) <= loss.at_s) or any(
            lapse.from_s <= loss.at_s and until_s <= lapse.to_s for lapse in lapses
        )
