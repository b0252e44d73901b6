"""Decides which reports of one request count. A report tells how an attempt of a job ended.

A report names the job and its lease, or, as in LightJQ, the worker.

    the job is in that lease, or held by that worker      counts
    a success in a lease of this daemon that still lasts  counts, without asking the store
    the same outcome as the first report                  accepted as a repeat: perhaps the answer was lost
    a late success, and the job has not ended             counts: the job did run
    a failure, or a return, after the lease was over      refused: the job is being tried again already
    another outcome than the first report                 refused: the first one wins, even if the store has it not yet
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from jqd.domain.errors import (
    Conflict,
    JournalRefused,
    JqdError,
    NotFound,
    NotYet,
    StoreAway,
    StoreRefused,
    StoreUnsettled,
    TooLarge,
)
from jqd.domain.job import Fate, Held, Outcome, State
from jqd.domain.msgpack_depth import NESTING_MAX
from jqd.domain.record import Lane, encode_outcomes
from jqd.domain.tenant import bare
from jqd.runner import Report, Runner, is_repeat
from jqd.service.find import Coming, find
from jqd.service.recent_outcomes import RecentOutcome, frames
from jqd.service.services import Services
from jqd.store import CALL_JOBS_MAX, Entrusted, Hold, JobView

HANDED_S = 1.0  # wait for the store to learn, after a worker's 202, that it holds the job: a sync and a call
HANDED_POLL_S = 0.02
SUCCEEDED = Fate.SUCCEEDED  # a module's name: reading an attribute of an enum costs as much as a call
SAME_REQUEST = 0  # the position of an earlier report of the same request; no record has it


class OutcomeAnswer(NamedTuple):
    """A worker's report about one job."""

    job_id: str
    report: Report | None
    """None: the worker returns the job without having begun it."""
    fence: int = 0
    """The fence of the lease that the report names. 0: none; the lease under which `worker` holds the job is meant."""
    worker: str = ""

    @property
    def is_success(self) -> bool:
        return self.report is not None and 200 <= self.report.status < 300


Reports = dict[int, OutcomeAnswer]
"""Index in the request → the report."""


@dataclass(slots=True)
class OutcomeBatch:
    """The reports of one request, sorted into those that count, are refused, or repeat an earlier report."""

    services: Services
    answers: dict[int, JqdError | None] = field(default_factory=dict)
    """Index in the request → the report's error; None: it was accepted."""
    fresh: dict[int, Outcome] = field(default_factory=dict)
    """Index in the request → outcome that counts and is to be journaled."""
    frames: list[tuple[int, dict[int, Outcome]]] = field(default_factory=list)
    """Frames written to the journal: the position after each, and its outcomes by their index in the request."""
    claims: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    """Claim (job id, fence) → the outcome that this request reported for it."""
    refused: dict[tuple[str, int], JournalRefused] = field(default_factory=dict)
    """Claim → the error with which the journal refused its outcome; other reports of that claim get it, too."""
    returned: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Index in the request → claim (job id, fence) whose job the worker returns."""
    awaited: dict[int, RecentOutcome] = field(default_factory=dict)
    """Index in the request → the earlier report that this one repeats. That must be on disk before the answer."""
    workers: set[str] = field(default_factory=set)
    """Ids of the workers that hold the reported jobs, and so are alive."""
    points: dict[int, int] = field(default_factory=dict)
    """Partition → journal position up to which the store had this daemon's outcomes when it was last asked."""
    ended: dict[str, Outcome] = field(default_factory=dict)
    """Job → outcome known here when the store was last asked; the runner forgets an outcome once the store has it."""
    is_last: bool = False
    """Whether the store is being asked for the last time, so that every report must be decided now."""

    async def sort(self, reports: Reports) -> None:
        """Decide which reports count, by asking the store who holds the jobs. If a job may still be on its way to its
        worker, the store is asked again for up to HANDED_S. Successes in a lease of this daemon that still lasts are
        accepted without asking."""
        reports = await self._take_given(reports)
        deadline_s = trio.current_time() + HANDED_S
        while reports:
            coming: Reports = {}
            self.is_last = trio.current_time() >= deadline_s

            async def sort_part(part: Reports, coming: Reports = coming) -> None:
                places = list(part)
                for at in range(0, len(places), CALL_JOBS_MAX):
                    piece = {place: part[place] for place in places[at : at + CALL_JOBS_MAX]}
                    coming.update(await self._sort_piece(piece))

            async with trio.open_nursery() as nursery:
                for part in _by_partition(self.services, reports):
                    nursery.start_soon(sort_part, part)
            reports = coming
            if reports:
                await trio.sleep(HANDED_POLL_S)

    async def _take_given(self, reports: Reports) -> Reports:
        """Accept the successes in leases of this daemon that still last, unless their job was reported before. Returns
        the reports that are not decided yet."""
        others: Reports = {}
        now_s, find = self.services.clock.boot_s(), self.services.recent_outcomes.find
        met: set[tuple[str, int]] = set()
        for place, each in reports.items():
            claim, runner, outcome = (each.job_id, each.fence), self.services.runner.of(each.job_id), None
            given = runner.given.get(claim) if each.is_success and not each.worker else None
            if given and given.until_s > now_s and each.report and claim not in met and find(*claim) is None:
                outcome = runner.end(given.held, each.report, given.worker_id)
            met.add(claim)
            if given is None or outcome is None or outcome.fate is not SUCCEEDED:  # such as a too large result
                others[place] = each
                continue
            self.workers.add(given.worker_id)
            self.fresh[place] = self.claims[claim] = outcome
            if len(self.fresh) == CALL_JOBS_MAX:
                self._journal()  # before other tasks run, which may report the same jobs
                await trio.lowlevel.checkpoint()
        self._journal()
        return others

    async def _sort_piece(self, reports: Reports) -> Reports:
        """Decide which of these reports of jobs in one partition count. Returns those that cannot be decided yet."""
        for place, each in reports.items():
            if not each.fence and (lease := self._lease_of(each)):
                reports[place] = each._replace(fence=lease)
        job_ids = [each.job_id for each in reports.values()]
        claims = [(each.job_id, each.fence) for each in reports.values()]
        runner = self.services.runner.of(job_ids[0])  # one for all, as they are of one partition
        self._begin_question(runner, job_ids)
        given = [runner.given.get(claim) for claim in claims]
        try:
            seen = await self.services.store.touch(claims, rows=not all(given))
        except (StoreAway, StoreRefused) as error:
            if isinstance(error, StoreUnsettled) and len(reports) > 1:
                # One of the jobs may be still in a journal: halve the reports until it is alone.
                places = list(reports)
                halves = places[: len(places) // 2], places[len(places) // 2 :]
                first, second = [await self._sort_piece({place: reports[place] for place in half}) for half in halves]
                return first | second
            # Without the store, this daemon knows only what was reported to it before.
            self.answers |= {p: error for p, each in reports.items() if self._before(runner, each, each.fence) is None}
            late = {place: each.fence for place, each in reports.items() if place not in self.answers}
        else:
            late = {}
            for (place, each), hold, known in zip(reports.items(), seen, given, strict=True):
                held = hold.held or (known.held if known else None)
                fence = each.fence or (held.fence if held else 0)
                if not self._judge(runner, place, each if each.fence else each._replace(fence=fence), hold, held):
                    late[place] = fence
        self._journal()  # at once, so that the next report that is judged sees these
        coming: Reports = {}
        for place, fence in late.items():
            try:
                if not await self._judge_late(place, reports[place], fence):
                    coming[place] = reports[place]
            except (StoreAway, StoreRefused) as error:
                self.answers[place] = error
            self._journal()
        return coming

    def _begin_question(self, runner: Runner, job_ids: Sequence[str]) -> None:
        """Before the store is asked about these jobs, remember which outcomes of this daemon it may not have yet."""
        (partition,) = self.services.where(job_ids[0])
        self.points[partition] = self.services.journal.read_point(Lane.OUTCOMES, partition)
        for job_id in job_ids:
            if (ended := runner.ended(job_id)) is not None:
                self.ended[job_id] = ended

    def _lease_of(self, each: OutcomeAnswer) -> int:
        """Return the fence of the lease under which this daemon gave the job to the reporting worker; 0: there is none.
        The store may not know the lease yet: the question to it names this fence."""
        here = self.services.runner.of(each.job_id).running(each.job_id)
        return here.lease if here is not None and here.worker == each.worker else 0

    def _judge(self, runner: Runner, place: int, each: OutcomeAnswer, seen: Entrusted, held: Held | None) -> bool:
        """Decide whether a report counts, if its sender holds the job and the report repeats no earlier one. Return
        whether that was decided. `place`: the report's index in the request. `seen`: the store's answer about the job.
        `held`: the leased job, if known."""
        # A worker that names its lease has the job, even if for the store a daemon still holds it.
        holds = seen.hold is Hold.STANDS and (not each.worker or seen.worker in ("", each.worker))
        if holds and held is None:
            # The store was emptied. It has learned again which workers hold jobs, but not all jobs.
            self.answers[place] = StoreUnsettled("the store is not told of this job again yet; send it again")
            return True
        if held is None or not holds or self._before(runner, each, each.fence) is not None:
            return False
        self.workers.add(seen.worker)
        if each.report is not None:
            # Also if another daemon waits for this outcome as the answer to its request.
            outcome = runner.end(held, each.report, seen.worker or each.worker)
            self.fresh[place] = self.claims[outcome.job_id, outcome.fence] = outcome
        elif seen.worker:
            self.returned[place] = each.job_id, each.fence
        else:
            why = f"job {each.job_id} is not given back: its daemon waits for its worker's answer"
            self.answers[place] = NotYet(why)
        return True

    async def _judge_late(self, place: int, each: OutcomeAnswer, fence: int) -> bool:
        """Decide, by earlier reports, whether a report counts whose sender does not hold the job. Return whether that
        was decided: always if `is_last` is set. `place`: the report's index in the request. `fence`: the report's, or
        else that of the job's present lease."""
        if (refused := self.refused.get((each.job_id, fence))) is not None:
            self.answers[place] = refused
            return True
        before = self._before(self.services.runner.of(each.job_id), each, fence)
        if before is not None and each.report is not None and is_repeat(before.outcome, each.report):
            self.awaited[place] = before
            return True
        if before is not None and not each.is_success:
            self.answers[place] = _stale(each, f"what stands of it is: {_text_of(before.outcome)}")
            return True
        if each.report is None:
            self.answers[place] = _stale(each, "it is not in that lease any more")
            return True
        recent = before.outcome if before else None
        try:
            view = await find(self.services, each.job_id)
        except NotFound as error:
            self.answers[place] = error
            return True
        coming = recent is None and not each.fence and self._may_come(view, each.worker)
        if coming and not self.is_last:
            return False
        attempt = _newest(view, each, recent)
        if coming and not (attempt is not None and each.is_success):
            worker = bare(each.worker)[:64]
            why = f"whether worker {worker!r} has job {each.job_id} is not known yet; say it again"
            self.answers[place] = NotYet(why)
        elif attempt is None:
            self.answers[place] = _stale(each, "no attempt of it is known there")
        elif is_repeat(attempt, each.report):
            self.answers[place] = None
        elif not each.is_success:
            self.answers[place] = _stale(each, f"what stands of it is: {_text_of(attempt)}")
        elif _has_ended(view, recent):
            self.answers[place] = _stale(each, f"it has ended before this report: {_text_of(attempt)}")
        elif isinstance(view, Coming):
            why = f"the store is not told of job {each.job_id} again yet, nor of what is to follow it; send it again"
            self.answers[place] = StoreUnsettled(why)
        elif (outcome := self._succeed_late(attempt, each.report, view)) is None:
            detail = f"the result nests deeper than {NESTING_MAX} levels, or is required, or given to what follows, and"
            detail += " too large for that; store it elsewhere"
            self.answers[place] = TooLarge(detail)
        else:
            self.fresh[place] = self.claims[outcome.job_id, outcome.fence] = outcome
        return True

    def _may_come(self, view: JobView | Coming, worker_id: str) -> bool:
        """Return whether a job may be on its way to a worker that reports it without naming its lease.

        A worker that answered 202 may report before that answer was read, journaled and applied (docs/adr/0027). Until
        then the store knows which daemon holds the job, and only that daemon knows the worker. Meanwhile the report
        must not be answered by the outcome of an earlier attempt. `view`: the job, read after the report came.
        """
        if isinstance(view, Coming):
            return True  # an emptied store may learn which worker holds a job before it learns of the job
        if view.state is not State.RUNNING:
            return False
        if not view.daemon:
            return view.worker == worker_id  # the worker got the job between the two calls of the store
        is_here = view.daemon == self.services.control.sharers()[0]
        here = self.services.runner.of(view.id).running(view.id) if is_here else None
        return here is None or here.worker == worker_id

    def _before(self, runner: Runner, each: OutcomeAnswer, fence: int) -> RecentOutcome | None:
        """Return an earlier outcome of the reported claim that the store may not have had when it was asked."""
        same = self.claims.get((each.job_id, fence))
        if same is not None:
            return RecentOutcome(same, SAME_REQUEST)
        known = self.services.recent_outcomes.find(each.job_id, fence)
        if known is not None:
            (partition,) = self.services.where(each.job_id)
            if (known.position or 0) > self.points[partition]:
                return known
        for ended in (runner.ended(each.job_id), self.ended.get(each.job_id)):
            if ended is None or ended.fate is Fate.ENTRUSTED:
                continue
            if ended.fence == fence if fence else ended.worker == each.worker:
                return RecentOutcome(ended, None)
        return None

    def _succeed_late(self, attempt: Outcome, report: Report, view: JobView) -> Outcome | None:
        then = view.flow.then if view.flow is not None else b""
        return self.services.runner.of(attempt.job_id).succeed_late(attempt, report, then, view.traceparent)

    def _journal(self) -> None:
        """Write the outcomes in `fresh` to the journal, and remember each as the first outcome of its claim."""
        for some in frames(self.fresh):
            outcomes = [*some.values()]
            try:
                position = self.services.journal.write(Lane.OUTCOMES, len(outcomes), encode_outcomes(outcomes))
            except JournalRefused as error:
                self.answers |= dict.fromkeys(some, error)
                for one in outcomes:
                    del self.claims[one.job_id, one.fence]
                    self.refused[one.job_id, one.fence] = error
            else:
                self.services.recent_outcomes.note(outcomes, position)
                self.frames.append((position, some))
        self.fresh.clear()

    async def sync(self) -> None:
        """Wait until the reports that count are on disk, and also the earlier reports that others repeat."""
        for position, some in self.frames:  # one by one: the journal may refuse one and go on
            try:
                await self.services.journal.wsync(position, shielded=True)
                self.answers |= dict.fromkeys(some)
            except JournalRefused as error:
                self.services.recent_outcomes.forget(some.values())
                self.answers |= dict.fromkeys(some, error)
        for place, before in self.awaited.items():
            try:
                if before.position is None:
                    await self.services.runner.of(before.outcome.job_id).wait_durable(
                        before.outcome.job_id, before.outcome.fence
                    )
                else:
                    ours = (at for at, some in self.frames if any(one is before.outcome for one in some.values()))
                    await self.services.journal.wsync(before.position or next(ours), shielded=True)
            except JournalRefused as error:
                self.answers[place] = error
            else:
                self.answers[place] = None

    async def give_back(self, reports: Sequence[OutcomeAnswer]) -> None:
        """Make ready again the jobs that workers return with these reports, and set the answers to the reports."""
        for part in _by_partition(self.services, {place: reports[place] for place in self.returned}):
            try:
                given = frozenset(await self.services.store.release_entrusted([self.returned[place] for place in part]))
            except (StoreAway, StoreRefused) as error:
                self.answers |= dict.fromkeys(part, error)
                continue
            for place, each in part.items():
                is_back = each.job_id in given
                self.services.runner.of(each.job_id).given.pop(self.returned[place], None)
                self.answers[place] = None if is_back else _stale(each, "it is not in that lease any more")


def _by_partition(services: Services, reports: Mapping[int, OutcomeAnswer]) -> list[Reports]:
    """Split reports by partition, so that a partition that is away holds up no reports of others."""
    parts: dict[frozenset[int], Reports] = {}
    for place, each in reports.items():
        parts.setdefault(services.where(each.job_id), {})[place] = each
    return list(parts.values())


def _has_ended(view: JobView | Coming, recent: Outcome | None) -> bool:
    """Return whether a job has ended so that a late success cannot change it, even if the store does not know that yet.

    A success counts more than a cancel, whichever comes first.
    """
    if view.state.is_final:
        return view.state is not State.CANCELLED
    cancelled = isinstance(view, JobView) and view.cancel_asked
    return recent is not None and recent.fate in (Fate.FAILED, Fate.DEAD) and not cancelled


def _newest(view: JobView | Coming, each: OutcomeAnswer, recent: Outcome | None) -> Outcome | None:
    """Return the newest known outcome in the lease that the report names, or without a lease, by its worker. Outcomes
    of an older content of the job do not count. An attempt that was given up may have succeeded since: then it has two
    outcomes, and the success is returned."""
    known = [recent] if recent else []
    if isinstance(view, JobView):
        ends = [*view.history, *([view.outcome] if view.outcome else [])]
        known += (one for one in ends if one.for_generation >= view.generation)
    mine = [one for one in known if (one.fence == each.fence if each.fence else one.worker == each.worker)]
    return max(reversed(mine), key=lambda one: one.fence, default=None)


def _stale(each: OutcomeAnswer, why: str) -> JqdError:
    """Return the error for a report that comes too late: NotFound for LightJQ's, which name a worker and no lease; else
    Conflict."""
    if each.worker:
        return NotFound(f"job {each.job_id} is not in flight at worker {bare(each.worker)[:64]!r}: {why}")
    return Conflict(f"job {each.job_id} is not in lease {each.fence} any more, or was ended in it: {why}")


def _text_of(attempt: Outcome) -> str:
    fate = attempt.fate.name.lower()
    return f"{fate}, {attempt.message[:200]}" if attempt.message else fate
