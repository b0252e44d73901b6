"""What must hold, checked against what really happened: every push, start, end and cancel on the world's one clock.

At each start     the job was pushed, as it is; no daemon that rightly trusts its lease is at work on it; no cancel of
                  it was answered 204; it had not finished, unless a fault explains it; its date had come; it had not
                  expired before it was given to anybody; its fence grew; a worker that asked for it has it by a
                  hand-over that the store took (`holder.py`)
At the end        nothing acknowledged is lost or stuck, all hands are empty, counts balance, states match what ran

What is not demanded is known by its cause (`causes.py`). Jobs whose contents change are checked in `word.py`.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import trio

from jqd.domain.job import Fate, State
from jqd.domain.jobid import partition_of
from tests.simulation.almanac import Almanac
from tests.simulation.awaiting import Awaiting
from tests.simulation.causes import Attempt, may_be_over
from tests.simulation.following import Following
from tests.simulation.kin import Kin
from tests.simulation.limited import CLOCK_S
from tests.simulation.loop import EPOCH_MS
from tests.simulation.notes import Notes
from tests.simulation.plan import POISON, PURGE, Plan
from tests.simulation.word import DATE_S, Tale


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
    expires_s: float = math.inf
    """It must have been claimed by then once, or never."""
    expiring: int = 0
    """The greatest revision whose content says so."""
    is_stored: bool = False
    """A journal brought it to the store."""
    is_unbound: bool = False
    """A later content may begin whenever it likes."""
    reason: str = ""
    """Why it is dead, says the store."""
    results_gone: bool = False
    """It failed for a parent whose result had been dropped."""
    state: State | None = None
    """At the end, as the store says; None also of what nobody was told of."""
    hurried: bool = False
    """Somebody said that it is to run now, whatever it waits for."""
    attempts: list[Attempt] = field(default_factory=list)
    taken_s: list[float] = field(default_factory=list)
    """When workers that held it by themselves were told that their success is taken."""
    retries: list[float] = field(default_factory=list)
    """When somebody asked for it to be tried anew."""
    deletes: list[float] = field(default_factory=list)
    """When somebody asked for it to be deleted."""
    cancels: list[tuple[float, str]] = field(default_factory=list)
    """Asked for: when, of which node."""
    cancelled: list[tuple[float, str]] = field(default_factory=list)
    """Answered 204: when, by which node."""

    @property
    def ends_s(self) -> list[float]:
        """When it may have ended for good. A dead job is promised until somebody deals with it."""
        ends = [each.fate_at_s for each in self.attempts if each.fate is Fate.SUCCEEDED]
        return ends + [at_s for at_s, _ in self.cancels] + self.deletes


class History(Notes):
    """Everything noted, and what is wrong with it."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        plain = [*(number for push in plan.pushes for number in push.numbers), *(group.then for group in plan.groups)]
        self.stories = {number: Story(number) for number in plain}
        self.kin = Kin(self)
        """Jobs of flows."""
        self.starts = 0
        self.tales = {matter.number: Tale(self, matter) for matter in plan.matters}
        """Of the jobs whose content changes, by their number."""
        self.tell_start: Callable[[str, str, str, int], None] = lambda life, jobtype, job_id, fence: None
        """Told of each, by the life, the jobtype, the id and the fence."""
        self.almanac = Almanac(self)
        """Of the jobs that schedules push."""
        self.awaiting = Awaiting(self, self.stories)
        """Jobs that wait for others."""
        self.following = Following(self)
        """Jobs that follow others."""
        self._claims_s: dict[str, list[float]] = {}
        """When the store gave a job to somebody."""
        self._known: set[tuple[str, str, int]] = set()
        """Lives, and the successes (id, fence) of which they know that the store knows them."""
        self.of_content = {number: tale for tale in self.tales.values() for number in tale.matter.contents}

    # ------------------------------------------------------------ what happened

    def acked(self, number: int, job_id: str, node: str) -> None:
        """A push was answered 201."""
        story = self.stories[number]
        if story.job_id not in ("", job_id):
            self.wrong(f"ghost: job {number} was acknowledged as {job_id}, but ran as {story.job_id}")
        story.job_id, story.acked_at_s, story.taker = job_id, trio.current_time(), node

    def applied(self, content: int, expires_at_ms: int, revision: int = 0) -> None:
        """The store has that content of a job, which must begin by then; 0: whenever it likes."""
        if content in self.of_content:
            self.of_content[content].applied(content)
        story = self.stories.get(content)
        if story is not None:
            story.is_stored = True
        if story is not None and revision >= story.expiring:
            story.is_unbound = not expires_at_ms
        if story is not None and expires_at_ms:
            story.expires_s, story.expiring = (expires_at_ms - EPOCH_MS) / 1000, max(revision, story.expiring)

    def in_flight(self, job_ids: Iterable[str]) -> None:
        """The store gave these to somebody."""
        for job_id in job_ids:
            self._claims_s.setdefault(job_id, []).append(trio.current_time())

    def started(self, life: str, fence: int, job_id: str, number: int, priority: int) -> None:
        """A worker has the job."""
        now_s = trio.current_time()
        self.note("start", life, number, job_id, fence)
        self.starts += 1
        self.tell_start(life, self.plan.works[number].jobtype, job_id, fence)
        if number in self.of_content:
            self.of_content[number].started(life, fence, job_id, number, priority)
            return
        if number in self.almanac.numbers:
            self.almanac.started(life, fence, job_id)
            return
        if number in self.following.of:
            self.following.started(life, fence, job_id, number)
            return
        story = self.stories.get(number)
        if story is None or not story.tried or story.job_id not in ("", job_id):
            what = self.kin.said(number, "ghost")
            self.wrong(f"{what}: {job_id} (job {number}) started by {life} was never pushed")
            return
        story.job_id = job_id
        self._check_start(story, life, fence, now_s)
        self.awaiting.started(story, life)
        story.attempts.append(Attempt(life, life.partition(".")[0], fence, now_s))

    def numbered(self, number: int, fence: int, attempt: int) -> None:
        """The worker that started it was told which attempt it is."""
        story = self.stories.get(number)
        if story is None or story.retries or not story.attempts or story.attempts[-1].fence != fence:
            return
        *before, this = story.attempts
        this.number, home, now_s = attempt, self._home(story), trio.current_time()
        if attempt > len(before) + 1:
            self.wrong(f"number: job {number} began as attempt {attempt}, and was begun {len(before)} times before")
        for other in before:
            is_next = attempt > other.number - (not other.is_counted)
            if other.fate is Fate.RETRY and not is_next and not self.again(home, other, now_s):
                self.wrong(
                    f"number: job {number} began as attempt {attempt}, and {other.number} had failed at {other.life}"
                )

    def stopped(self, life: str, job_id: str) -> None:
        """A worker was told to stop with a job."""
        self.note("stopped", life, job_id)
        for story in self.stories.values():
            # Who says that a job is to run now may say so while it is cancelled for a parent.
            is_for_parent = story.hurried and self.awaiting.excuses(story.number, State.CANCELLED)
            if story.job_id == job_id and not story.cancels and not is_for_parent:
                self.wrong(f"stopped: {life} has job {story.number} stopped, and nobody cancelled it")
        for tale in self.tales.values():
            tale.stopped(life, job_id)

    def cancelled(self, number: int, node: str) -> None:
        """A cancel was answered 204."""
        story = self.stories[number]
        story.cancelled.append((trio.current_time(), node))
        for life in self.runs(story.job_id, ""):
            self.wrong(f"cancel: job {number} was answered 204 by {node} while {life} runs it")

    def ended(self, life: str, number: int, fence: int, fate: Fate, *, is_counted: bool = True) -> None:
        """A daemon heard how an attempt ended, and will say so."""
        self.note("end", life, number, fence, fate.name)
        for attempt in reversed(self.stories[number].attempts):
            if attempt.life == life and attempt.fence == fence:
                attempt.fate, attempt.fate_at_s, attempt.is_counted = fate, trio.current_time(), is_counted
                return

    def given(self, job_id: str, fence: int) -> None:
        """The store has a hand-over of the process that is to answer the poll: its worker may have the job now."""
        self.claims_given.add((job_id, fence))

    def untried(self, claims: Iterable[tuple[str, int]]) -> None:
        """The store took these back from a worker that did not know of them, or did not want them."""
        for job_id, fence in claims:
            self.note("untried", job_id, fence)
            self.claims_untried.add((job_id, fence))
            for story in self.stories.values():
                for attempt in story.attempts if story.job_id == job_id else ():
                    if attempt.fence == fence and attempt.fate is not Fate.SUCCEEDED:
                        attempt.fate = None  # whoever found its worker silent says so too late

    def silent(self, job_id: str, fence: int, fate: Fate, node: str) -> None:
        """That node found a worker silent, and says how its attempt ended."""
        if (job_id, fence) not in self.claims_untried:
            self.reported(job_id, fence, fate, node)

    def reported(self, job_id: str, fence: int, fate: Fate, node: str, *, heard: bool = False) -> None:
        """That node says how an attempt ended of a job that a worker held by itself. `heard`: the worker said so."""
        self.note("reported", node, job_id, fence, fate.name)
        for story in self.stories.values() if (job_id, fence) in self.claims_given else ():
            if story.job_id == job_id and not any(e.fence == fence for e in story.attempts):
                # Its daemon died before it answered, or the answer was lost: nobody can tell that from a worker that
                # began and died.
                story.attempts.append(Attempt(node, node, fence, trio.current_time()))
            if story.job_id == job_id and heard and fate is Fate.SUCCEEDED:
                story.taken_s.append(trio.current_time())
        for its_id, attempt in self._runs():
            if (its_id, attempt.fence) != (job_id, fence):
                continue
            if attempt.fate is Fate.SUCCEEDED and fate is not Fate.SUCCEEDED:
                attempt.found_silent = True
            elif not (heard and attempt.fate):
                if attempt.fate is not fate:  # else it is told again, to a store that forgot
                    attempt.fate_at_s = trio.current_time()
                attempt.fate, attempt.node = fate, node
                if fate is Fate.SUCCEEDED and not heard:
                    attempt.told = attempt.told or self.moment()

    def has_succeeded(self, job_id: str) -> bool:
        """Whether an attempt of it did: who runs it again, rightly or not, has a job that has ended."""
        return any(its_id == job_id and attempt.fate is Fate.SUCCEEDED for its_id, attempt in self._runs())

    def knows(self, life: str, claims: Iterable[tuple[str, int]]) -> None:
        """That life knows that the store knows of these successes."""
        self._known.update((life, *claim) for claim in claims)

    def _runs(self) -> Iterator[tuple[str, Attempt]]:
        """All attempts that are known, with the ids of their jobs."""
        yield from ((story.job_id, each) for story in self.stories.values() for each in story.attempts)
        yield from ((run.job_id, run) for tale in self.tales.values() for run in tale.runs)
        yield from self.almanac.runs()
        yield from self.following.runs()

    # ------------------------------------------------------------ what must hold

    def _check_start(self, story: Story, life: str, fence: int, now_s: float) -> None:
        name = f"job {story.number}"
        for other in self.runs(story.job_id, life):
            self.wrong(f"overlap: {name} started by {life} while {other} runs it and rightly trusts its lease")
        for at_s, node in story.cancelled:
            takers = {node, *(each for _, each in story.cancels)}
            if not any(self.forgotten(self._home(story), at_s, taker, now_s) for taker in takers):
                self.wrong(f"cancel: {name} started by {life} after a 204 given by {node} at {at_s:.3f} s")
        for attempt in story.attempts:
            is_anew = attempt.fate is not Fate.SUCCEEDED and bool(story.retries)
            if attempt.fate in (None, Fate.RETRY) or is_anew or self._raced(story, attempt, life, fence):
                continue
            if not self.again(self._home(story), attempt, now_s):
                assert attempt.fate is not None
                self.wrong(
                    f"{self.kin.said(story.number, 'again')}: {name} had ended ({attempt.fate.name} at {attempt.life}, "
                    f"{attempt.fate_at_s:.3f} s), started again by {life}"
                )
        if story.attempts and fence < max(each.fence for each in story.attempts) and not self.fences_go_back:
            self.wrong(f"fence: {name} started by {life} under {fence}, which is older than one before")
        if now_s < story.due_s - DATE_S - self.wrong_s(now_s):
            self.wrong(f"date: {name} started by {life} {story.due_s - now_s:.3f} s too early")
        claimed_s = self.claimed_s.get((self._home(story), fence), -math.inf)
        first_s = min(self._claims_s.get(story.job_id, ()), default=claimed_s)
        if not story.is_unbound and first_s > story.expires_s + CLOCK_S + self.wrong_s(now_s):
            self.wrong(f"expired: {name} claimed at {claimed_s:.3f} s by {life}, no good since {story.expires_s:.3f} s")

    def _raced(self, story: Story, attempt: Attempt, life: str, fence: int) -> bool:
        """Whether the store gave the job before it heard of that success, and this daemon has not heard of it since."""
        claimed = self.claims.get((self._home(story), fence), math.inf)
        return attempt.gave_way(claimed) and (life, story.job_id, attempt.fence) not in self._known

    def _home(self, story: Story) -> int:
        return partition_of(story.job_id, self.plan.partitions)

    def check_states(self, states: dict[int, State | None]) -> None:
        """At the end. `states`: of each acknowledged job in the store; None: the store does not know it."""
        for number, state in states.items():
            self.stories[number].state = state
        self.awaiting.check()
        self.kin.check()
        for number, state in states.items():
            story = self.stories[number]
            fates = {attempt.fate for attempt in story.attempts}
            excused = self.awaiting.excuses(number, State.CANCELLED)
            if state is None and PURGE in self.plan.kinds and (story.cancels or Fate.SUCCEEDED in fates or excused):
                continue
            ends_s = (*story.ends_s, *self.awaiting.ends_s(number))
            if state is None and (story.deletes or self.is_untold(self._home(story), self.plan.kinds, ends_s)):
                continue
            if state is None:
                self.wrong(
                    f"{self.kin.said(number, 'lost')}: job {number} was acknowledged, and the store does not know it"
                )
            elif not state.is_final:
                self.wrong(f"{self.kin.said(number, 'stuck')}: job {number} is still {state.value}")
            elif self._gave_way(story, state):
                self.wrong(f"lost: job {number} counts as {state.value}, and the success of a worker was taken")
            elif self.awaiting.excuses(number, state):
                continue
            elif state is State.CANCELLED and not story.cancels:
                self.wrong(f"lost: job {number} is cancelled, and nobody asked for that")
            elif state is not State.SUCCEEDED and self._surely_succeeded(story):
                self.wrong(f"lost: job {number} had succeeded, and counts as {state.value}")
            elif state is State.SUCCEEDED and Fate.SUCCEEDED not in fates:
                self.wrong(f"lost: job {number} counts as succeeded, but no attempt of it did")
            elif state is State.FAILED and story.reason == "expired":
                self._check_expired(story)
            elif state is State.FAILED and not self._may_have_failed(story, fates):
                self.wrong(f"lost: job {number} counts as failed, but no attempt of it did")
        if not self.plan.kinds:
            self._check_calm()
        if self.plan.kinds == {POISON}:
            for number, story in self.stories.items():
                if story.reason == "crash" and not self.plan.works[number].is_poison:
                    self.wrong(f"innocent: job {number} is in the dead set for deaths that another job caused")

    def _gave_way(self, story: Story, state: State) -> bool:
        """Whether something else stands in the place of a success that is in a journal: it beats all."""
        taken_s = story.taken_s if state is not State.SUCCEEDED else []
        return bool(taken_s) and not self.is_untold(self._home(story), self.plan.kinds, taken_s)

    def _check_expired(self, story: Story) -> None:
        """Not what never expires, nor what was begun in time, as a daemon that was never away told the store."""
        home, began = self._home(story), [each for each in story.attempts if each.fate is Fate.RETRY]
        if story.expires_s == math.inf:
            self.wrong(f"expired: job {story.number} counts as expired, and never is")
        elif any(not self.was_away(home, each.node, each.at_s, math.inf) for each in began) and not self.clock_jumps:
            self.wrong(f"expired: job {story.number} counts as expired, and was begun in time")

    def _may_have_failed(self, story: Story, fates: set[Fate | None]) -> bool:
        over = may_be_over(story.attempts, self.plan.works[story.number].max_retry)
        return over or bool(fates & {Fate.FAILED, Fate.DEAD}) or self.is_poison(story.reason)

    def _surely_succeeded(self, story: Story) -> bool:
        """Whether a daemon heard so that was never away: its success beats all else, in whatever order they come."""
        home = self._home(story)
        return any(
            attempt.fate is Fate.SUCCEEDED and not self.was_away(home, attempt.node, attempt.at_s, math.inf)
            for attempt in story.attempts
        )

    def _check_calm(self) -> None:
        """Without a fault every start but the first follows a retry."""
        for story in self.stories.values():
            retries = sum(attempt.fate is Fate.RETRY for attempt in story.attempts)
            if len(story.attempts) > retries + 1 + len(story.retries):
                self.wrong(f"again: job {story.number} was started {len(story.attempts)} times after {retries} retries")
