"""What must hold of jobs that wait for others, besides all that must hold of any job.

parent   one was started, and of no end of a parent of it the store had been told
ill      it ran, and a parent of it had failed for which it is to be cancelled, or to fail
stuck, lost   as of any job (`check.py`): once all its parents have ended it does not wait for ever

A parent that no store and no journal knows any more has ended. The store forgets one with its data, until its daemon is
back; a new one, of which that daemon knows nothing yet, has not heard of it; journals that keep nothing, and a store
that deletes what ended, forget it for good. Who says that a child is to run now does not ask for its parents.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import trio

from jqd.domain.job import Fate, Outcome, State
from jqd.domain.jobid import partition_of
from tests.simulation.causes import may_be_over
from tests.simulation.plan import PURGE

DROPPING = frozenset({PURGE, "clock"})
"""With these a result may be dropped before a child wants it: early, or when the store's clock is set forward."""
OVER = frozenset({Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD})
TELL_S = 0.1  # until a child in another partition is told that a parent is tried anew: docs/adr/0047-flows.md


class Awaiting:
    """All of them, with what is known of any plain job."""

    def __init__(self, history: Any, stories: dict[int, Any]) -> None:
        self._history, self._stories = history, stories
        works = history.plan.works
        self.parents: dict[int, list[Any]] = {}
        """Number of a child → what is known of its parents, once it is pushed."""
        self._told: dict[str, set[int]] = {}
        """Ids of those of whose ends the store was told out of a journal, and the fences of these."""
        self.anew: dict[tuple[int, int], tuple[float, str, int]] = {}
        """Child and parent, of one that was tried anew in time → when, through whom, and the last fence before."""
        self._policies = {number: works[number].on_parent_failure for number in stories}

    def pushed(self, number: int, parents: list[int]) -> None:
        """It is to wait for these."""
        if parents:
            self.parents[number] = [self._stories[parent] for parent in parents]

    def settled(self, outcomes: Iterable[Outcome]) -> None:
        """A journal told the store how attempts ended."""
        for outcome in outcomes:
            if outcome.fate in OVER:
                self._told.setdefault(outcome.job_id, set()).add(outcome.fence)

    def closing(self, number: int, members: list[int]) -> None:
        """What is to wait for these, at least."""
        self.parents.setdefault(number, [self._stories[member] for member in members])

    def retried(self, parent: Any, node: str, last: int) -> None:
        """It was answered that a parent is tried anew; `last`: its fence when that was asked.

        Who waits for others, too, or comes later, waits for it."""
        for number, work in enumerate(self._history.plan.works):
            if parent.number not in work.after:
                continue
            others = [each for each in self.parents.get(number, ()) if each is not parent]
            if number not in self.parents or not all(map(self._may_count, others)):
                self.anew[number, parent.number] = trio.current_time(), node, last

    def _may_count(self, parent: Any) -> bool:
        return self._has_ended(parent) or self.is_forgotten(parent)

    def started(self, story: Any, life: str) -> None:
        """A worker has one."""
        for parent in self.parents.get(story.number, ()):
            anew = self.anew.get((story.number, parent.number))
            if anew is not None and (self._is_untold(parent, anew) or self._is_in_that_moment(story, parent, anew[0])):
                anew = None
            since = 0 if anew is None or self._history.fences_go_back else anew[2]
            if not (story.hurried or self._has_ended(parent, since) or self.is_forgotten(parent)):
                what = self._history.kin.said(story.number, "parent")
                self._history.wrong(
                    f"{what}: job {story.number} started by {life}, and job {parent.number} has not ended"
                )

    def _is_untold(self, parent: Any, anew: tuple[float, str, int]) -> bool:
        return bool(self._history.forgotten(self._home(parent), *anew[:2], trio.current_time()))

    def _is_in_that_moment(self, child: Any, parent: Any, anew_s: float) -> bool:
        """Whether the child's other parents may all have ended before it was told that this one is tried anew."""
        others = [each for each in self.parents[child.number] if each is not parent]
        return bool(others) and all(self._may_count_by(each, anew_s + TELL_S) for each in others)

    def _may_count_by(self, parent: Any, at_s: float) -> bool:
        ends_s = [attempt.fate_at_s for attempt in parent.attempts if attempt.fate in OVER]
        return min(ends_s) <= at_s if ends_s else self._may_count(parent)

    def _home(self, parent: Any) -> int:
        return partition_of(parent.job_id, self._history.plan.partitions)

    def _has_ended(self, parent: Any, since: int = 0) -> bool:
        """Whether it may have; `since`: by an attempt under a later fence."""
        attempts = [*parent.attempts, *self._history.unheard_of(parent.job_id, parent.attempts)]
        attempts = [attempt for attempt in attempts if attempt.fence > since]
        is_over = may_be_over(attempts, self._history.plan.works[parent.number].max_retry)
        has_expired = trio.current_time() >= parent.expires_s - self._history.wrong_s(trio.current_time())
        poisonous = self._history.is_poison("crash")
        return (
            any(fence > since for fence in self._told.get(parent.job_id, ()))
            or bool(parent.cancels)
            or is_over
            or has_expired
            or poisonous
            or self._may_be_void(parent)
        )

    def _may_be_void(self, child: Any) -> bool:
        """Whether it may have ended for a parent of its own."""
        parents = self.parents.get(child.number, ()) if self._policies.get(child.number, "run") != "run" else ()
        return any(self._has_ended(parent) or self.is_forgotten(parent) for parent in parents)

    def is_forgotten(self, parent: Any) -> bool:
        """Whether the store may know nothing of it."""
        history, home = self._history, self._home(parent)
        at_s, now_s = parent.acked_at_s, trio.current_time()
        is_untold = history.is_untold(home, history.plan.kinds, [at_s])
        taken = home, at_s, parent.taker, now_s
        return bool(is_untold or history.forgotten(*taken) or history.came_late(*taken))

    def excuses(self, number: int, state: State) -> bool:
        """Whether it may have ended so for a parent."""
        wanted = {"cancel": State.CANCELLED, "fail": State.FAILED}.get(self._policies.get(number, ""))
        parents = [*self.parents.get(number, ()), *self._members(number)]
        if state is State.FAILED and self.wants_what_is_gone(self._stories[number]):
            return True
        return state is wanted and any(self._may_have_failed(parent) for parent in parents)

    def ends_s(self, number: int) -> Iterator[float]:
        """When it may have been cancelled for a parent: no sooner than that one failed."""
        if self._policies.get(number) != "cancel":
            return
        for parent in (*self.parents.get(number, ()), *self._members(number)):
            yield from (each.fate_at_s for each in parent.attempts if each.fate is not Fate.SUCCEEDED)
            yield from (at_s for at_s, _ in parent.cancels)
            yield from self.ends_s(parent.number)

    def wants_what_is_gone(self, child: Any) -> bool:
        """Whether it may have failed because the result of a parent had been dropped, or was forgotten with it."""
        is_gone = self._history.plan.kinds & DROPPING or any(map(self.is_forgotten, self.parents.get(child.number, ())))
        return bool(child.results_gone and is_gone)

    def _members(self, number: int) -> list[Any]:
        """Of the group that it waits for: whoever was pushed into it, acknowledged or not."""
        plan = self._history.plan
        names = [group.name for group in plan.groups if group.then == number]
        return [story for of, story in self._stories.items() if names and plan.works[of].group == names[0]]

    def _may_have_failed(self, parent: Any) -> bool:
        """Also once, and another attempt succeeded after a store had forgotten that while its daemon was away."""
        once = bool({attempt.fate for attempt in parent.attempts} & {Fate.FAILED, Fate.DEAD})
        once = once or may_be_over(parent.attempts, self._history.plan.works[parent.number].max_retry)
        return once or bool(parent.cancels or parent.retries) or parent.state in (State.FAILED, State.CANCELLED, None)

    def check(self) -> None:
        """At the end, once the states of all are known."""
        for number, parents in self.parents.items():
            child = self._stories[number]
            if self._policies[number] == "run" or child.hurried or not child.attempts:
                continue
            for parent in parents:
                gone = PURGE in self._history.plan.kinds or parent.deletes or self.is_forgotten(parent)
                succeeded = any(attempt.fate is Fate.SUCCEEDED for attempt in parent.attempts)
                if parent.state in (State.FAILED, State.CANCELLED) and not succeeded and not gone:
                    self._history.wrong(f"ill: job {number} ran, and job {parent.number} is {parent.state.value}")
