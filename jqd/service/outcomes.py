"""What workers report of jobs, at whichever daemon: of those they hold, of those a daemon holds, or late, or once more.

Whatever is taken is on disk before it is said to be taken. A report names the job and its lease, or, as LightJQ has it,
the worker.

the job is in that lease, or in that worker's hand    it counts
the same verdict as the one that stands               taken: the answer to it was lost, perhaps
a success, and the job has not ended                  counts, as it does wherever it comes from: it did run
a failure, or a return, after the lease was over      refused: the job is tried again already
another verdict than the one that stands              refused: the first one wins, known to the store or not
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import trio

from jqd.domain.errors import (
    Conflict,
    Invalid,
    JournalRefused,
    JqdError,
    NotFound,
    NotYet,
    StoreAway,
    StoreRefused,
    StoreUnsettled,
    TooLarge,
)
from jqd.domain.job import Exit, Fate, Outcome, State
from jqd.domain.jobid import is_id
from jqd.domain.record import Lane, encode_outcomes
from jqd.domain.tenant import bare
from jqd.runner import Report, is_repeat
from jqd.service.early_outcomes import lease_of, may_come
from jqd.service.find import Coming, find, not_found
from jqd.service.outcome_checks import OutcomeBatch, wrong
from jqd.service.recent_outcomes import RecentOutcome, frames
from jqd.service.services import Services
from jqd.store import CALL_JOBS_MAX, Entrusted, Hold, JobView

HANDED_S = 1.0  # from a worker's 202 until the store knows that it holds the job: a sync and a call, some milliseconds
HANDED_POLL_S = 0.02
SHOWN_S = 0.5  # from the sync until the store shows what was said: a call, some milliseconds; it is on disk in any case
LOOKS_MAX = 8  # at once, for whom must not know of others' jobs: each is a call of the store; 64 held the loop 10 ms
PIECE = 100  # reports that are looked at before others have their turn
WITH_THIS = 0  # a position that no record has: of what another report of the same request said


class OutcomeAnswer(NamedTuple):
    """What a worker says of one job."""

    job_id: str
    report: Report | None
    """None: it has not begun, and gives the job back."""
    fence: int = 0
    """Of its lease. 0: whatever lease that worker has it in."""
    worker: str = ""


async def report(services: Services, told: Sequence[OutcomeAnswer]) -> list[JqdError | None]:
    """Take what can be taken; what each is answered with, in order, None where it was taken.

    Of each: NotFound, Conflict, TooLarge for a late result that is required and cannot be kept; JournalRefused when
    it is taken and not on disk; StoreAway and StoreRefused when nobody can say whether it counts. Then it may be sent
    again.
    """
    sorts = OutcomeBatch()
    if services.principal.is_bound:
        sorts.answers |= await _strangers(services, told)
    for place, each in enumerate(told):
        follows = each.report.follows if each.report is not None else b""
        if follows and (why := wrong(services.config, follows, services.principal.scopes)):
            sorts.answers.setdefault(place, Invalid(f"jobs: {why}; nothing of this outcome was taken"))
    mine = [
        place
        for place, each in enumerate(told)
        if each.report is not None and place not in sorts.answers and _at_work(services, each, each.report)
    ]
    for place in mine:
        sorts.answers[place] = await _noted(services, told[place])
    others = {place: each for place, each in enumerate(told) if place not in sorts.answers}
    unknown = {place: each for place, each in others.items() if is_id(each.job_id)}
    sorts.answers |= {place: not_found(each.job_id) for place, each in others.items() if place not in unknown}
    await _sort(services, unknown, sorts)
    await _sync(services, sorts)
    await _return(services, sorts, told)
    await _show(services, told, sorts)
    for worker_id in sorts.workers:
        services.workers.reached(worker_id)
    return [sorts.answers[place] for place in range(len(told))]


async def _strangers(services: Services, told: Sequence[OutcomeAnswer]) -> dict[int, JqdError | None]:
    """Those that are no jobs of whom the service acts for, or not known to be: nothing of them is touched, nor told."""
    answers: dict[int, JqdError | None] = {}
    places, deadline_s = iter(range(len(told))), trio.current_time() + services.config.find_s

    async def look() -> None:
        for place in places:
            if place % PIECE == 0:
                await trio.lowlevel.checkpoint()
            job_id = told[place].job_id
            running = services.runner.running(job_id)
            if running is not None and services.principal.can_access(running.jobtype):
                continue
            try:
                await find(services, job_id, deadline_s=deadline_s)
            except (NotFound, NotYet, StoreAway, StoreRefused) as error:
                answers[place] = error

    async with trio.open_nursery() as nursery:
        for _ in range(min(LOOKS_MAX, len(told))):
            nursery.start_soon(look)
    return answers


def _at_work(services: Services, each: OutcomeAnswer, what: Report) -> bool:
    """Whether this daemon waits for that very report."""
    return services.runner.done(each.job_id, what, fence=each.fence, worker_id=each.worker)


async def _noted(services: Services, each: OutcomeAnswer) -> JqdError | None:
    try:
        await services.runner.wait_durable(each.job_id)
    except JournalRefused as error:
        return error
    return None


async def _sort(services: Services, told: dict[int, OutcomeAnswer], sorts: OutcomeBatch) -> None:
    """Ask the store who holds them. What is on its way into its worker's hand is asked for again until HANDED_S."""
    deadline_s = trio.current_time() + HANDED_S
    while told:
        coming: dict[int, OutcomeAnswer] = {}
        sorts.is_last = trio.current_time() >= deadline_s

        async def sort(its: dict[int, OutcomeAnswer], coming: dict[int, OutcomeAnswer] = coming) -> None:
            places = list(its)
            for at in range(0, len(places), CALL_JOBS_MAX):
                piece = {place: its[place] for place in places[at : at + CALL_JOBS_MAX]}
                coming.update(await _sort_piece(services, piece, sorts))

        async with trio.open_nursery() as nursery:
            for its in _by_partition(services, told):
                nursery.start_soon(sort, its)
        told = coming
        if told:
            await trio.sleep(HANDED_POLL_S)


def _by_partition(services: Services, told: Mapping[int, OutcomeAnswer]) -> list[dict[int, OutcomeAnswer]]:
    """One that is away holds up what is said of its own jobs, and of no others."""
    parts: dict[frozenset[int], dict[int, OutcomeAnswer]] = {}
    for place, each in told.items():
        parts.setdefault(services.where(each.job_id), {})[place] = each
    return list(parts.values())


async def _sort_piece(
    services: Services, told: dict[int, OutcomeAnswer], sorts: OutcomeBatch
) -> dict[int, OutcomeAnswer]:
    """Returns those that cannot be decided yet. All are of one partition."""
    leases = {place: each.fence or lease_of(services, each.job_id, each.worker) for place, each in told.items()}
    told = {place: each._replace(fence=leases[place]) for place, each in told.items()}
    sorts.ask(services, [each.job_id for each in told.values()])
    try:
        seen = await services.store.touch([(each.job_id, each.fence) for each in told.values()])
    except (StoreAway, StoreRefused) as error:
        if isinstance(error, StoreUnsettled) and len(told) > 1:
            # Of one of them a journal may know better: halves, until it stands alone.
            places = list(told)
            halves = places[: len(places) // 2], places[len(places) // 2 :]
            first, second = [
                await _sort_piece(services, {place: told[place] for place in its}, sorts) for its in halves
            ]
            return first | second
        # What this daemon has heard before it knows without the store.
        sorts.answers |= {p: error for p, each in told.items() if _before(services, each, each.fence, sorts) is None}
        late = {place: each.fence for place, each in told.items() if place not in sorts.answers}
    else:
        late = {}
        for (place, each), hold in zip(told.items(), seen, strict=True):
            fence = each.fence or (hold.held.fence if hold.held else 0)
            if not _judge(services, place, each if each.fence else each._replace(fence=fence), hold, sorts):
                late[place] = fence
    _journal(services, sorts)  # at once: whoever is judged next sees it
    coming: dict[int, OutcomeAnswer] = {}
    for place, fence in late.items():
        try:
            if not await _judge_late(services, place, told[place], fence, sorts):
                coming[place] = told[place]
        except (StoreAway, StoreRefused) as error:
            sorts.answers[place] = error
        _journal(services, sorts)
    return coming


def _judge(services: Services, place: int, each: OutcomeAnswer, seen: Entrusted, sorts: OutcomeBatch) -> bool:
    """Decide about one report by who holds the job. False: it is late, or said again."""
    # Whoever names the lease has it before the store knows so: then a daemon holds the job under it.
    stands = seen.hold is Hold.STANDS and (not each.worker or seen.worker in ("", each.worker))
    if stands and seen.held is None:
        # The store was emptied. Hand-overs are told again before anything counts, but the jobs of a backlog are not.
        sorts.answers[place] = StoreUnsettled("the store is not told of this job again yet; send it again")
        return True
    if seen.held is None or not stands or _before(services, each, each.fence, sorts) is not None:
        return False
    sorts.workers.add(seen.worker)
    if each.report is None and not seen.worker:
        sorts.answers[place] = NotYet(f"job {each.job_id} is not given back: its daemon waits for its worker's answer")
    elif each.report is None:
        sorts.returned[place] = each.job_id, each.fence
    else:
        # A verdict of work that a daemon waits for is the same wherever it comes in.
        sorts.count(place, services.runner.end(seen.held, each.report, seen.worker or each.worker))
    return True


def _judge_again(place: int, each: OutcomeAnswer, before: RecentOutcome | None, sorts: OutcomeBatch) -> bool:
    """Decide by a verdict that this daemon has and the store need not know yet. False: it does not decide."""
    if before is None:
        return False
    if each.report is not None and is_repeat(before.outcome, each.report):
        sorts.awaited[place] = before
    elif each.report is not None and Exit.of_status(each.report.status) is Exit.OK:
        return False
    else:
        sorts.answers[place] = _stale(each, f"what stands of it is: {_said(before.outcome)}")
    return True


async def _judge_late(services: Services, place: int, each: OutcomeAnswer, fence: int, sorts: OutcomeBatch) -> bool:
    """It is in no hand that the report speaks of: what was said of the job before decides. False: not yet, which never
    is the answer to the last look.

    `fence`: of the lease that it is in now, where the report names none.
    """
    if (refused := sorts.refused.get((each.job_id, fence))) is not None:
        sorts.answers[place] = refused
        return True
    before = _before(services, each, fence, sorts)
    if _judge_again(place, each, before, sorts):
        return True
    if each.report is None:
        sorts.answers[place] = _stale(each, "it is not in that lease any more")
        return True
    untold = before.outcome if before else None
    try:
        view = await find(services, each.job_id)
    except NotFound as error:
        sorts.answers[place] = error
        return True
    coming = untold is None and not each.fence and may_come(services, view, each.worker)
    if coming and not sorts.is_last:
        return False
    attempt = _newest(view, each, untold)
    late = attempt is not None and Exit.of_status(each.report.status) is Exit.OK
    if coming and not late:
        worker = bare(each.worker)[:64]
        sorts.answers[place] = NotYet(f"whether worker {worker!r} has job {each.job_id} is not known yet; say it again")
    elif attempt is None:
        sorts.answers[place] = _stale(each, "it is not in that hand")
    elif is_repeat(attempt, each.report):
        sorts.answers[place] = None
    elif Exit.of_status(each.report.status) is not Exit.OK:
        sorts.answers[place] = _stale(each, f"what stands of it is: {_said(attempt)}")
    elif _has_ended(view, untold):
        sorts.answers[place] = _stale(each, f"it has ended before this report: {_said(attempt)}")
    elif (outcome := services.runner.succeed_late(attempt, each.report)) is None:
        detail = "the result is required, and too large to be kept; store it elsewhere"
        sorts.answers[place] = TooLarge(detail)
    else:
        sorts.count(place, outcome)
    return True


def _has_ended(view: JobView | Coming, untold: Outcome | None) -> bool:
    """Whether nothing may change any more how the job ends, though the store may have to be told yet.

    A success beats a cancel, whichever comes first.
    """
    if view.state.is_final:
        return view.state is not State.CANCELLED
    cancelled = isinstance(view, JobView) and view.cancel_asked
    return untold is not None and untold.fate in (Fate.FAILED, Fate.DEAD) and not cancelled


def _before(services: Services, each: OutcomeAnswer, fence: int, sorts: OutcomeBatch) -> RecentOutcome | None:
    """What this daemon knows of the claim and the store need not have known when it was asked."""
    same = sorts.claims.get((each.job_id, fence))
    if same is not None:
        return RecentOutcome(same, WITH_THIS)
    known = services.recent_outcomes.find(each.job_id, fence)
    if known is not None:
        (partition,) = services.where(each.job_id)
        if (known.position or 0) > sorts.points[partition]:
            return known
    ends = services.runner.ended(each.job_id), sorts.ended.get(each.job_id)
    return next((RecentOutcome(one, None) for one in ends if one is not None and _is_its(one, each, fence)), None)


def _is_its(ended: Outcome, each: OutcomeAnswer, fence: int) -> bool:
    """Whether that attempt, which ended in this daemon's own hand, is the one that the report speaks of."""
    return ended.fate is not Fate.ENTRUSTED and (ended.fence == fence if fence else ended.worker == each.worker)


def _newest(view: JobView | Coming, each: OutcomeAnswer, untold: Outcome | None) -> Outcome | None:
    """The last word on the attempt of that lease, or on the newest by that worker, at the job as it is now.

    An attempt that was given up may have succeeded since: then it stands in the history, and is how the job ended.
    """
    known = [untold] if untold else []
    if isinstance(view, JobView):
        ends = [*view.history, *([view.outcome] if view.outcome else [])]
        known += (one for one in ends if one.meant_for >= view.generation)
    mine = [one for one in known if (one.fence == each.fence if each.fence else one.worker == each.worker)]
    return max(reversed(mine), key=lambda one: one.fence, default=None)


def _journal(services: Services, sorts: OutcomeBatch) -> None:
    """Write what counts to the journal, and remember it: from now on it is the first verdict."""
    for some in frames(sorts.fresh):
        outcomes = [*some.values()]
        try:
            position = services.journal.write(Lane.OUTCOMES, len(outcomes), encode_outcomes(outcomes))
        except JournalRefused as error:
            sorts.answers |= dict.fromkeys(some, error)
            for one in outcomes:  # they stand nowhere
                del sorts.claims[one.job_id, one.fence]
                sorts.refused[one.job_id, one.fence] = error
        else:
            services.recent_outcomes.note(outcomes, position)
            sorts.written |= some
            sorts.position = position
    sorts.fresh.clear()


async def _sync(services: Services, sorts: OutcomeBatch) -> None:
    """Wait until what counts is on disk, and what was said before, too."""
    try:
        if sorts.written:
            await services.journal.wsync(sorts.position, shielded=True)
        sorts.answers |= dict.fromkeys(sorts.written)
    except JournalRefused as error:
        services.recent_outcomes.forget(sorts.written.values())
        sorts.answers |= dict.fromkeys(sorts.written, error)
    for place, before in sorts.awaited.items():
        try:
            if before.position is None:
                await services.runner.wait_durable(before.outcome.job_id)
            else:
                await services.journal.wsync(before.position or sorts.position, shielded=True)
        except JournalRefused as error:
            sorts.answers[place] = error
        else:
            sorts.answers[place] = None


async def _show(services: Services, told: Sequence[OutcomeAnswer], sorts: OutcomeBatch) -> None:
    """Wait until whoever looks sees what was taken, at any daemon. A store that is away is told later."""
    taken = [told[place].job_id for place, answer in sorts.answers.items() if answer is None]
    if taken:
        await services.control.wait_caught_up(Lane.OUTCOMES, services.journal.end, SHOWN_S, services.where(*taken))


async def _return(services: Services, sorts: OutcomeBatch, told: Sequence[OutcomeAnswer]) -> None:
    for its in _by_partition(services, {place: told[place] for place in sorts.returned}):
        try:
            given = frozenset(await services.store.release_entrusted([sorts.returned[place] for place in its]))
        except (StoreAway, StoreRefused) as error:
            sorts.answers |= dict.fromkeys(its, error)
            continue
        for place, each in its.items():
            taken = each.job_id in given
            sorts.answers[place] = None if taken else _stale(each, "it is not in that lease any more")


def _stale(each: OutcomeAnswer, why: str) -> JqdError:
    """LightJQ names no lease and knows no stale one: there is no such job in that worker's hand."""
    if each.worker:
        return NotFound(f"job {each.job_id} is not in the hand of worker {bare(each.worker)[:64]!r}: {why}")
    return Conflict(f"job {each.job_id} is not in lease {each.fence} any more, or was ended in it: {why}")


def _said(attempt: Outcome) -> str:
    fate = attempt.fate.name.lower()
    return f"{fate}, {attempt.message[:200]}" if attempt.message else fate
