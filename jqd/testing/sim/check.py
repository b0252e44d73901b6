"""What must hold, checked against what really happened: every push, start, end and cancel on the world's one clock.

At each start     the job was pushed, as it is; no daemon that rightly trusts its lease is at work on it; no cancel of
                  it was answered 204; it had not finished, unless a fault explains it; its date had come; its fence
                  grew
At the end        nothing acknowledged is lost or stuck, all hands are empty, counts balance, states match what ran

Two things are not demanded, each recognised by its cause. A job that ran to its end may run again when the daemon that
knew of it was away (dead, standing still, cut off) before the store knew. And a cancel lies in the journal of the
daemon that took it: a store that loses data while that daemon is away forgets it.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio

from jqd.job import Fate, State
from jqd.jobid import partition_of
from jqd.testing.sim.plan import POISON, STORE, Plan

DATE_S = 0.05  # a job may start so much before its date: clocks are read in whole milliseconds, here and there


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


@dataclass(slots=True)
class Story:
    """All about one job."""

    number: int
    job_id: str = ""
    acked_at_s: float = math.inf
    taker: str = ""
    """The node that acknowledged it."""
    tried: bool = False
    """Somebody tried to push it, whatever was answered."""
    due_s: float = 0.0
    """It must not start before."""
    attempts: list[Attempt] = field(default_factory=list)
    cancels: list[tuple[float, str]] = field(default_factory=list)
    """Asked for: when, of which node."""
    cancelled: list[tuple[float, str]] = field(default_factory=list)
    """Answered 204: when, by which node."""


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
    clock_ms: int
    """By the store's own clock, which may be set wrong."""


class Slow(NamedTuple):
    """A time in which a partition took so long that a daemon may notice a loss only after the lease others wait."""

    from_s: float
    to_s: float
    partition: int


class History:
    """Everything noted, and what is wrong with it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stories = {number: Story(number) for number in range(len(plan.works))}
        self.violations: list[str] = []
        self.events: list[tuple[Any, ...]] = []
        self.aways: list[Away] = []
        self.losses: list[Loss] = []
        self.slows: list[Slow] = []
        self.crashed: set[int] = set()
        """Jobs of which the store says that they were in hand at too many deaths."""
        self.clock_jumps = False
        self.starts = 0
        self._runs: Callable[[str, str], Iterator[str]] = lambda job_id, life: iter(())

    def watch(self, runs: Callable[[str, str], Iterator[str]]) -> None:
        """`runs`: given a job and a life, names of other lives at work on it that trust their lease now."""
        self._runs = runs

    # ------------------------------------------------------------ what happened

    def note(self, *what: Any) -> None:
        """Something for the event log."""
        self.events.append((round(trio.current_time(), 6), *what))

    def digest(self) -> str:
        """Of all events: two runs that agree in it did the same."""
        return hashlib.sha256("\n".join(map(repr, self.events)).encode()).hexdigest()

    def wrong(self, what: str) -> None:
        """A promise was broken."""
        self.note("VIOLATION", what)
        self.violations.append(f"{trio.current_time():.3f} s: {what}")

    def booted(self, life: str) -> None:
        """A process of a node begins."""
        self.note("boot", life)

    def gone(self, node: str, why: str, partition: int | None = None) -> Away:
        """A node is away from now on, for all or for one partition; the caller sets `to_s` when it is back."""
        away = Away(node, why, trio.current_time(), partition=partition)
        self.aways.append(away)
        return away

    def acked(self, number: int, job_id: str, node: str) -> None:
        """A push was answered 201."""
        story = self.stories[number]
        if story.job_id not in ("", job_id):
            self.wrong(f"ghost: job {number} was acknowledged as {job_id}, but ran as {story.job_id}")
        story.job_id, story.acked_at_s, story.taker = job_id, trio.current_time(), node

    def started(self, life: str, fence: int, job_id: str, number: int) -> None:
        """A worker has the job."""
        now_s = trio.current_time()
        self.note("start", life, number, job_id, fence)
        self.starts += 1
        story = self.stories.get(number)
        if story is None or not story.tried or story.job_id not in ("", job_id):
            self.wrong(f"ghost: {job_id} (job {number}) started by {life} was never pushed")
            return
        story.job_id = job_id
        self._check_start(story, life, fence, now_s)
        story.attempts.append(Attempt(life, life.partition(".")[0], fence, now_s))

    def cancelled(self, number: int, node: str) -> None:
        """A cancel was answered 204."""
        story = self.stories[number]
        story.cancelled.append((trio.current_time(), node))
        for life in self._runs(story.job_id, ""):
            self.wrong(f"cancel: job {number} was answered 204 by {node} while {life} runs it")

    def ended(self, life: str, number: int, fence: int, fate: Fate) -> None:
        """A daemon heard how an attempt ended, and will say so."""
        self.note("end", life, number, fence, fate.name)
        for attempt in reversed(self.stories[number].attempts):
            if attempt.life == life and attempt.fence == fence:
                attempt.fate, attempt.fate_at_s = fate, trio.current_time()
                return

    # ------------------------------------------------------------ what must hold

    def _check_start(self, story: Story, life: str, fence: int, now_s: float) -> None:
        name = f"job {story.number}"
        for other in self._runs(story.job_id, life):
            self.wrong(f"overlap: {name} started by {life} while {other} runs it and rightly trusts its lease")
        for at_s, node in story.cancelled:
            takers = {node, *(each for _, each in story.cancels)}
            if not any(self._cancel_forgotten(story, at_s, taker, now_s) for taker in takers):
                self.wrong(f"cancel: {name} started by {life} after a 204 given by {node} at {at_s:.3f} s")
        for attempt in story.attempts:
            if attempt.fate not in (None, Fate.RETRY) and not self._explained(story, attempt, now_s):
                assert attempt.fate is not None
                self.wrong(
                    f"again: {name} had ended ({attempt.fate.name} at {attempt.life}, {attempt.fate_at_s:.3f} s), "
                    f"started again by {life}"
                )
        if story.attempts and fence < max(each.fence for each in story.attempts) and not self.clock_jumps:
            self.wrong(f"fence: {name} started by {life} under {fence}, which is older than one before")
        if now_s < story.due_s - DATE_S and not self.clock_jumps:
            self.wrong(f"date: {name} started by {life} {story.due_s - now_s:.3f} s too early")

    def _losses_of(self, story: Story) -> list[Loss]:
        """Those of the partition that it lives in: what befalls another explains nothing."""
        home = partition_of(story.job_id, self.plan.partitions)
        return [loss for loss in self.losses if loss.partition == home]

    def _away(self, story: Story, node: str, from_s: float, to_s: float) -> bool:
        home = partition_of(story.job_id, self.plan.partitions)
        return any(
            away.node in (node, "*") and away.partition in (None, home) and away.from_s <= to_s and away.to_s >= from_s
            for away in self.aways
        )

    def _slow(self, story: Story, from_s: float, to_s: float) -> bool:
        home = partition_of(story.job_id, self.plan.partitions)
        return any(slow.partition == home and slow.from_s <= to_s and slow.to_s >= from_s for slow in self.slows)

    def _explained(self, story: Story, attempt: Attempt, now_s: float) -> bool:
        """Its daemon was away at some time between the start and now; or the store cannot know better.

        One that lost all it knew while its clock was set back cannot know that it gave such a fence. And one may be so
        slow that this daemon takes its new seat only after the lease that others wait for it.
        """
        losses = [loss for loss in self._losses_of(story) if attempt.at_s <= loss.at_s]
        wrong = any(attempt.fence > loss.clock_ms * 1000 for loss in losses)
        late = any(self._slow(story, loss.at_s, now_s) for loss in losses if loss.at_s <= now_s)
        return wrong or late or self._away(story, attempt.node, attempt.at_s, now_s)

    def _cancel_forgotten(self, story: Story, at_s: float, node: str, now_s: float) -> bool:
        return any(
            self._away(story, node, loss.at_s, now_s) or self._slow(story, loss.at_s, now_s)
            for loss in self._losses_of(story)
            if at_s <= loss.at_s <= now_s
        )

    def check_states(self, states: dict[int, State | None]) -> None:
        """At the end. `states`: of each acknowledged job in the store; None: the store does not know it."""
        for number, state in states.items():
            story = self.stories[number]
            fates = {attempt.fate for attempt in story.attempts}
            if state is None:
                self.wrong(f"lost: job {number} was acknowledged, and the store does not know it")
            elif not state.is_final:
                self.wrong(f"stuck: job {number} is still {state.value}")
            elif state is State.CANCELLED and not story.cancels:
                self.wrong(f"lost: job {number} is cancelled, and nobody asked for that")
            elif state is State.CANCELLED and self._surely_succeeded(story):
                self.wrong(f"lost: job {number} had succeeded, and counts as cancelled")
            elif state is State.SUCCEEDED and Fate.SUCCEEDED not in fates:
                self.wrong(f"lost: job {number} counts as succeeded, but no attempt of it did")
            elif state is State.FAILED and not fates & {Fate.FAILED, Fate.DEAD} and not self._is_poison(story):
                self.wrong(f"lost: job {number} counts as failed, but no attempt of it did")
        if not self.plan.kinds:
            self._check_calm()
        if self.plan.kinds == {POISON}:
            for number in sorted(self.crashed):
                if not self.plan.works[number].is_poison:
                    self.wrong(f"innocent: job {number} is in the dead set for deaths that another job caused")

    def _is_poison(self, story: Story) -> bool:
        """Whether it is not tried any more for having been in hand at deaths, of which there were enough."""
        deaths = sum(away.why in ("killed", "paused", "cut off") for away in self.aways)
        return story.number in self.crashed and deaths >= STORE.crash_limit

    def _surely_succeeded(self, story: Story) -> bool:
        """Whether a daemon heard so that was never away: its success was there before any end of another kind.

        A store that lost data is told again lane by lane, and a cancel may come to it before the success.
        """
        return any(
            attempt.fate is Fate.SUCCEEDED
            and not self._explained(story, attempt, math.inf)
            and not any(loss.at_s >= attempt.at_s for loss in self._losses_of(story))
            for attempt in story.attempts
        )

    def _check_calm(self) -> None:
        """Without a fault every start but the first follows a retry."""
        for story in self.stories.values():
            retries = sum(attempt.fate is Fate.RETRY for attempt in story.attempts)
            if len(story.attempts) > retries + 1:
                self.wrong(f"again: job {story.number} was started {len(story.attempts)} times after {retries} retries")
