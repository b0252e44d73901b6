"""What must hold of flows, besides what `awaiting.py` and `following.py` say of any jobs that wait or follow.

argument      one began with other results than those of whom it waits for, or follows, or than it was released with
void          one failed, or was cancelled, for parents that were tried anew in time, and all succeeded
refused       a push was told that nobody knows a parent, which was acknowledged
group early   what waits for a group began, and a member had not ended that was acknowledged before the group was closed
group twice   it began anew after its end, or as another job
group never   the close of a group was answered, and what waits for it never came, or never to an end
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import trio

from jqd.domain.job import Fate, Job, State
from jqd.domain.jobid import partition_of
from tests.simulation.causes import may_be_over
from tests.simulation.plan import PURGE
from tests.simulation.work import TAKEN, number_of, result_of

BAD = frozenset({Fate.FAILED, Fate.DEAD})


class Kin:
    """All of them."""

    def __init__(self, history: Any) -> None:
        self._history: Any = history
        self._plan = history.plan
        self._thens = {group.then for group in history.plan.groups}
        self._released: dict[int, tuple[float, str, Any]] = {}
        """Number of a job → when it was first released with results, by whose journal, and with which."""
        self.ids: dict[str, str] = {}
        """Id that a pusher chose → the one that the store gave it."""

    def said(self, number: int, what: str) -> str:
        """The name of what is wrong with a job, as its group would have it."""
        of_group = {"again": "twice", "ghost": "twice", "stuck": "never", "lost": "never", "parent": "early"}
        return f"group {of_group[what]}" if number in self._thens else what

    # ------------------------------------------------------------ what happened

    def named(self, wanted: Iterable[Any], given: Iterable[Any]) -> None:
        """The store gave ids to those that their pushers named."""
        self.ids.update((one.name, its.job_id) for one, its in zip(wanted, given, strict=True))

    def applied(self, node: str, job: Job) -> None:
        """A journal brought a job to the store."""
        argument = msgspec.msgpack.decode(job.argument)
        if isinstance(argument, dict) and TAKEN in argument:
            self._released.setdefault(number_of(argument), (trio.current_time(), node, argument[TAKEN]))

    def refused(self, number: int, status: int, node: str) -> None:
        """A push of a job with parents that were acknowledged was answered so, by that node."""
        parents = self._history.awaiting.parents.get(number, ())
        excused = any(self._is_gone(each) or self._is_unheard(each) or self._is_ahead(each, node) for each in parents)
        if status == 422 and parents and not excused:
            self._history.wrong(f"refused: job {number}, whose parents were acknowledged, was answered {status}")

    def took(self, job_id: str, argument: Any) -> None:
        """A worker has a job with that argument."""
        if not isinstance(argument, dict):
            return
        number, taken = number_of(argument), argument.get(TAKEN)
        if (follower := self._history.following.of.get(number)) is not None:
            if taken != result_of(self._plan.works, follower.parent):
                self._wrong(number, f"follows job {follower.parent}", taken)
            return
        if self._history.stories[number].hurried:
            return
        parents = self._history.awaiting.parents.get(number, ())
        if number in self._thens:
            self._check_members(number, taken, parents)
        elif parents:
            self._check_results(number, taken, parents)
        if number in self._released:
            at_s, node, first = self._released[number]
            home = partition_of(job_id, self._plan.partitions)
            if taken != first and not self._history.forgotten(home, at_s, node, trio.current_time()):
                self._wrong(number, f"was released otherwise by {node} at {at_s:.3f} s", taken)

    # ------------------------------------------------------------ what must hold

    def _check_results(self, number: int, taken: Any, parents: Sequence[Any]) -> None:
        if not isinstance(taken, list) or len(taken) != len(parents):
            self._wrong(number, f"waits for {len(parents)}", taken)
            return
        for parent, value in zip(parents, taken, strict=True):
            result = result_of(self._plan.works, parent.number)
            if value != result and (value is not None or self._surely_succeeded(parent)):
                self._wrong(number, f"waits for job {parent.number}", value)

    def _check_members(self, number: int, taken: Any, members: Sequence[Any]) -> None:
        """Those are in the order of their ids, and some may be members that were not acknowledged."""
        values = [value for value in taken if value is not None] if isinstance(taken, list) else []
        (group,) = [group.name for group in self._plan.groups if group.then == number]
        its = [place for place, work in enumerate(self._plan.works) if work.group == group]
        wanted = {each.number for each in members if self._surely_succeeded(each)}
        known = [value[0] for value in values]
        if any(value != result_of(self._plan.works, value[0]) or value[0] not in its for value in values):
            self._wrong(number, f"waits for group {group}", taken)
        elif len(set(known)) < len(known) or not wanted.issubset(known):
            self._wrong(number, f"waits for jobs {sorted(wanted)} of group {group}", taken)

    def _wrong(self, number: int, what: str, taken: Any) -> None:
        self._history.wrong(f"argument: job {number} {what}, and began with {str(taken)[:80]}")

    def _surely_succeeded(self, parent: Any) -> bool:
        """Whether it has a result that nothing took: it ended once, and well."""
        fates = {attempt.fate for attempt in parent.attempts}
        wanted = result_of(self._plan.works, parent.number) is not None and Fate.SUCCEEDED in fates
        over = may_be_over(parent.attempts, self._plan.works[parent.number].max_retry)
        doubt = parent.cancels or parent.retries or parent.deletes or fates & BAD or over
        doubt = doubt or self._history.is_poison("crash") or self._is_gone(parent)
        doubt = doubt or self._history.clock_jumps or "full" in self._plan.kinds  # its result was dropped, or not taken
        return wanted and not doubt

    def _is_gone(self, parent: Any) -> bool:
        kinds = self._plan.kinds
        return PURGE in kinds or bool(parent.deletes) or self._history.awaiting.is_forgotten(parent)

    def _is_unheard(self, parent: Any) -> bool:
        """Whether its daemon has been away since the store forgot that there is such a journal (seed 42381)."""
        home, now_s = partition_of(parent.job_id, self._plan.partitions), trio.current_time()
        return bool(self._history.forgotten(home, 0.0, parent.taker, now_s))

    def _is_ahead(self, parent: Any, node: str) -> bool:
        """Whether its id may be of an hour that has not come at that node, while the store has no such job yet."""
        return self._history.clock_jumps and parent.taker != node and not parent.is_stored

    def check(self) -> None:
        """At the end, once the states of all are known: what failed for parents that it was not to fail for."""
        awaiting = self._history.awaiting
        for number, parents in awaiting.parents.items():
            child = self._history.stories[number]
            untouched = not (child.attempts or child.cancels or child.hurried or child.reason == "crash")
            is_void = child.state in (State.FAILED, State.CANCELLED) and untouched
            if not is_void or awaiting.wants_what_is_gone(child):
                continue
            anew = {parent for of, parent in awaiting.anew if of == number}
            fine = all(
                each.state is State.SUCCEEDED and (each.number in anew or self._never_failed(each)) for each in parents
            )
            if anew and fine and not any(awaiting.is_forgotten(each) for each in parents):
                self._history.wrong(f"void: job {number} is {child.state.value}, and jobs {sorted(anew)} were retried")

    def _never_failed(self, parent: Any) -> bool:
        fates = {attempt.fate for attempt in parent.attempts}
        over = may_be_over(parent.attempts, self._plan.works[parent.number].max_retry)
        return not (fates & BAD or over or parent.retries or self._history.is_poison("crash"))
