"""What must hold of jobs that wait for others, besides all that must hold of any job.

parent   one was started, and of no end of a parent of it the store had been told
ill      it ran, and a parent of it had failed for which it is to be cancelled, or to fail
stuck, lost   as of any job (`check.py`): once all its parents have ended it does not wait for ever

A parent that no store and no journal knows any more has ended. The store forgets one with its data, until its daemon is
back; journals that keep nothing, and a store that deletes what ended, forget it for good. Who says that a child is to
run now does not ask for its parents.
"""

from collections.abc import Iterable
from typing import Any

import trio

from jqd.domain.job import Fate, Outcome, State
from jqd.domain.jobid import partition_of
from tests.simulation.causes import may_be_over
from tests.simulation.notes import Notes
from tests.simulation.plan import PURGE

OVER = frozenset({Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD})


class Awaiting:
    """All of them, with what is known of any plain job."""

    def __init__(self, history: Notes, stories: dict[int, Any]) -> None:
        self._history, self._stories = history, stories
        works = history.plan.works
        self.parents: dict[int, list[Any]] = {}
        """Number of a child → what is known of its parents, once it is pushed."""
        self._told: set[str] = set()
        """Ids of those of whose ends the store was told out of a journal."""
        self._policies = {number: works[number].on_parent_failure for number in stories if works[number].after}

    def pushed(self, number: int, parents: list[int]) -> None:
        """It is to wait for these."""
        if parents:
            self.parents[number] = [self._stories[parent] for parent in parents]

    def settled(self, outcomes: Iterable[Outcome]) -> None:
        """A journal told the store how attempts ended."""
        self._told.update(outcome.job_id for outcome in outcomes if outcome.fate in OVER)

    def started(self, story: Any, life: str) -> None:
        """A worker has one."""
        for parent in self.parents.get(story.number, ()):
            if not story.hurried and not self._has_ended(parent) and not self._is_forgotten(parent):
                self._history.wrong(
                    f"parent: job {story.number} started by {life}, and job {parent.number} has not ended"
                )

    def _has_ended(self, parent: Any) -> bool:
        attempts = [*parent.attempts, *self._history.unheard_of(parent.job_id, parent.attempts)]
        is_over = may_be_over(attempts, self._history.plan.works[parent.number].max_retry)
        has_expired = trio.current_time() >= parent.expires_s - self._history.wrong_s(trio.current_time())
        poisonous = self._history.is_poison("crash")
        return (
            parent.job_id in self._told
            or bool(parent.cancels)
            or is_over
            or has_expired
            or poisonous
            or self._may_be_void(parent)
        )

    def _may_be_void(self, child: Any) -> bool:
        """Whether it may have ended for a parent of its own."""
        parents = self.parents.get(child.number, ()) if self._policies.get(child.number, "run") != "run" else ()
        return any(self._has_ended(parent) or self._is_forgotten(parent) for parent in parents)

    def _is_forgotten(self, parent: Any) -> bool:
        history, home = self._history, partition_of(parent.job_id, self._history.plan.partitions)
        at_s, now_s = parent.acked_at_s, trio.current_time()
        return history.is_untold(home, history.plan.kinds, [at_s]) or history.forgotten(home, at_s, parent.taker, now_s)

    def excuses(self, number: int, state: State) -> bool:
        """Whether it may have ended so for a parent."""
        wanted = {"cancel": State.CANCELLED, "fail": State.FAILED}.get(self._policies.get(number, ""))
        return state is wanted and any(self._may_have_failed(parent) for parent in self.parents.get(number, ()))

    def _may_have_failed(self, parent: Any) -> bool:
        return bool(parent.cancels) or parent.state in (State.FAILED, State.CANCELLED, None)

    def check(self) -> None:
        """At the end, once the states of all are known."""
        for number, parents in self.parents.items():
            child = self._stories[number]
            if self._policies[number] == "run" or child.hurried or not child.attempts:
                continue
            for parent in parents:
                gone = PURGE in self._history.plan.kinds or self._is_forgotten(parent)
                succeeded = any(attempt.fate is Fate.SUCCEEDED for attempt in parent.attempts)
                if parent.state in (State.FAILED, State.CANCELLED) and not succeeded and not gone:
                    self._history.wrong(f"ill: job {number} ran, and job {parent.number} is {parent.state.value}")
