"""What must hold of jobs that follow others: with the success of the job that names it each comes once, and runs.

over     as `spent.py` says
early    one came to the store before a success that names it, told out of a journal
twice    two jobs run for one, or it begins anew after it had ended, without a cause
overlap  as of any job (`check.py`)
unfollowed  what names it has succeeded, and it never came, or never came to an end

Whether a success counted is not asked: after a loss of the store followers of one that never did may come, rather one
too many than one lost. One may come twice if the store loses data while the daemon that pushed it is away, after
journals that keep nothing gave it up, or if what names it succeeded twice, or an answer of the store was lost, and all
was deleted between (docs/adr/0047).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import trio

from jqd.domain.job import Fate, Job, Outcome, State
from jqd.domain.jobid import partition_of, partition_of_name
from jqd.store import JobView
from jqd.testing.store import FakeStore
from tests.simulation.causes import Attempt, may_be_over
from tests.simulation.notes import Notes
from tests.simulation.plan import PURGE, TRIM
from tests.simulation.spent import is_spent
from tests.simulation.word import ENDS, Run, end
from tests.simulation.work import number_of

_follows_decoder = msgspec.msgpack.Decoder(tuple[Any, list[dict[str, msgspec.Raw]]])


@dataclass
class Follower:
    """One of them."""

    number: int
    parent: int
    jobs: dict[str, tuple[float, str, str]] = field(default_factory=dict)
    """Ids of jobs that came for it → when, in whose journal, under which name."""
    runs: list[Run] = field(default_factory=list)


class Following:
    """All of them."""

    def __init__(self, history: Notes) -> None:
        self._history = history
        pairs = [(number, parent) for parent, work in enumerate(history.plan.works) for number in work.follows]
        self.of = {number: Follower(number, parent) for number, parent in pairs}
        """By the numbers of their works."""
        self._named: dict[int, set[tuple[str, int]]] = {}
        """Those that successes name of which the store was told, and these: id and fence."""
        self._by_id: dict[str, Follower] = {}

    # ------------------------------------------------------------ what happened

    def settled(self, outcomes: Iterable[Outcome]) -> None:
        """A journal told the store how attempts ended."""
        for outcome in outcomes:
            if outcome.follows and outcome.fate is Fate.SUCCEEDED:
                _, items = _follows_decoder.decode(outcome.follows)
                for item in items:
                    number = number_of(msgspec.msgpack.decode(item["argument"]))
                    self._named.setdefault(number, set()).add((outcome.job_id, outcome.fence))

    def applied(self, node: str, job: Job) -> None:
        """A journal brought a job to the store."""
        one = self.of.get(number_of(msgspec.msgpack.decode(job.argument)))
        if one is None or job.id in one.jobs:
            return
        if one.number not in self._named:
            self._history.wrong(f"early: job {one.number} came from {node}, and no success of job {one.parent} before")
        if self._history.plan.quotas and is_spent():
            self._history.wrong(f"over: job {one.number} came from {node}, and the quota has no room")
        one.jobs[job.id] = trio.current_time(), node, job.name
        self._by_id[job.id] = one

    def started(self, life: str, fence: int, job_id: str, number: int) -> None:
        """A worker has one."""
        history, now_s, one = self._history, trio.current_time(), self.of[number]
        home = partition_of(job_id, history.plan.partitions)
        run = Run(
            life, life.partition(".")[0], fence, now_s, job_id=job_id, claimed=history.claims.get((home, fence), 0)
        )
        for other in history.runs(job_id, life):
            history.wrong(f"overlap: job {number} started by {life} while {other} runs it and rightly trusts its lease")
        for past in one.runs:
            self._check_again(one, past, run, home)
        one.runs.append(run)

    def _check_again(self, one: Follower, past: Run, run: Run, home: int) -> None:
        history, anew = self._history, past.job_id != run.job_id
        over = past.fate not in (None, Fate.RETRY) and not past.gave_way(run.claimed)
        if (anew and not self._may_come_again(one)) or (not anew and over and not history.again(home, past, run.at_s)):
            history.wrong(
                f"twice: job {one.number} ran as {past.job_id} at {past.life}, {run.job_id} starts at {run.life}"
            )

    def _may_come_again(self, one: Follower) -> bool:
        history, now_s = self._history, trio.current_time()
        if PURGE in history.plan.kinds and len(self._named.get(one.number, ())) > 1:
            return True
        # What it follows follows something itself, and came twice: that was judged there.
        if (parent := self.of.get(one.parent)) is not None and len(parent.jobs) > 1:
            return True
        # An answer was lost: before the outbox tried once more it ran, ended and was purged (docs/adr/0047).
        if PURGE in history.plan.kinds and any(run.fate not in (None, Fate.RETRY) for run in one.runs):
            return True
        for at_s, node, name in one.jobs.values():
            home = partition_of_name(name, history.plan.partitions)
            untold = history.is_untold(home, history.plan.kinds, [at_s])
            if untold or history.forgotten(home, at_s, node, now_s):
                return True
        return False

    def ended(self, life: str, job_id: str, fence: int, fate: Fate) -> None:
        """A daemon heard how an attempt ended."""
        if (one := self._by_id.get(job_id)) is not None:
            end(one.runs, life, job_id, fence, fate)

    def runs(self) -> Iterator[tuple[str, Attempt]]:
        """All, each with the id of its job."""
        return ((run.job_id, run) for one in self.of.values() for run in one.runs)

    # ------------------------------------------------------------ at the end

    async def check(self, states: Mapping[int, State | None], stores: list[FakeStore]) -> None:
        """Once all is quiet. `states`: of plain jobs, by their numbers."""
        known = dict(states)
        for one in self.of.values():  # who names others stands before them
            known[one.number], reason = await self._state(one, stores)
            its = one, known[one.number], reason
            if known.get(one.parent) is State.SUCCEEDED and (why := self._missing(*its)) is not None:
                self._history.wrong(
                    f"unfollowed: job {one.parent} succeeded, and job {one.number} that follows it {why}"
                )

    async def _state(self, one: Follower, stores: list[FakeStore]) -> tuple[State | None, str]:
        """How it stands, and why, as its outcome says.

        One whose name lapsed on its way is cancelled by its daemon, and another has come.
        """
        places = [(job_id, stores[partition_of(job_id, len(stores))].another_client()) for job_id in one.jobs]
        views: list[Any] = [await store.get_job(job_id) for job_id, store in places]
        found = [view for view in views if isinstance(view, JobView)]
        found.sort(key=lambda view: view.state is State.CANCELLED)
        return (found[0].state, found[0].outcome.reason if found[0].outcome else "") if found else (None, "")

    def _missing(self, one: Follower, state: State | None, reason: str) -> str | None:
        kinds, is_over = self._history.plan.kinds, any(run.fate in ENDS for run in one.runs)
        if not one.jobs:
            return "never came"
        if state is None:
            return None if is_over and (PURGE in kinds or TRIM in kinds) else "is not known any more"
        if not state.is_final or state is State.CANCELLED:
            return f"is {state.value}"
        unheard = (attempt for job_id in one.jobs for attempt in self._history.unheard_of(job_id, one.runs))
        may_be = is_over or may_be_over([*one.runs, *unheard], self._history.plan.works[one.number].max_retry)
        if not may_be and not self._history.is_poison(reason):
            return f"counts as {state.value}, but no attempt of it did"
        return None
