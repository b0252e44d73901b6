"""Takes workers' reports, at any daemon. The runner decides about jobs in flight here, an `OutcomeBatch` about the
others. A report is on disk before it is acknowledged."""

from collections.abc import Sequence

import trio

from jqd.domain.errors import (
    Invalid,
    JournalRefused,
    JqdError,
    NotFound,
    NotYet,
    StoreAway,
    StoreRefused,
)
from jqd.domain.jobid import is_id
from jqd.domain.record import Lane
from jqd.service.find import find, not_found
from jqd.service.outcome_batch import OutcomeAnswer, OutcomeBatch
from jqd.service.outcome_checks import wrong
from jqd.service.services import Services

SHOWN_S = 0.5  # after the sync, wait for the store to show the outcomes: a call, some milliseconds
LOOKS_MAX = 8  # look-ups at once for a bound principal: each is a call of the store; 64 held the loop for 10 ms
PIECE = 100  # reports examined before other tasks run


async def report(services: Services, reports: Sequence[OutcomeAnswer]) -> list[JqdError | None]:
    """Take reports. Returns for each, in order, None if it was accepted, or its error:

    NotFound, Conflict, Invalid       it does not count
    TooLarge                          its late result is required, and too large to be kept
    JournalRefused                    it counts, but is not on disk: it may be sent again
    NotYet, StoreAway, StoreRefused   nobody can tell now whether it counts: it may be sent again
    """
    batch = OutcomeBatch(services)
    answers, scopes = batch.answers, services.principal.scopes
    if services.principal.is_bound:
        answers |= await _refuse_inaccessible(services, reports)
    for place, each in enumerate(reports):
        follows = each.report.follows if each.report is not None else b""
        if follows and (why := wrong(services.config, services.workers.why_no_callback, follows, scopes)):
            answers.setdefault(place, Invalid(f"jobs: {why}; nothing of this outcome was taken"))
    fences: dict[int, int] = {}  # index in `reports` → fence, for jobs that were in flight at this daemon
    for place, each in enumerate(reports if services.runner.is_working else ()):
        runner = services.runner.of(each.job_id)
        if (
            each.report is not None
            and place not in answers
            and runner.done(each.job_id, each.report, fence=each.fence, worker_id=each.worker)
        ):
            ended = runner.ended(each.job_id)
            fences[place] = ended.fence if ended is not None else each.fence
    for place, fence in fences.items():
        job_id = reports[place].job_id
        try:
            await services.runner.of(job_id).wait_durable(job_id, fence)
            answers[place] = None
        except JournalRefused as error:
            answers[place] = error
    others = {place: each for place, each in enumerate(reports) if place not in answers}
    unknown = {place: each for place, each in others.items() if is_id(each.job_id)}
    answers |= {place: not_found(each.job_id) for place, each in others.items() if place not in unknown}
    await batch.sort(unknown)
    await batch.sync()
    await batch.give_back(reports)
    # Wait a moment, so that a client that asks any daemon sees the outcome. A store that is away gets it later.
    taken = [reports[place].job_id for place, answer in answers.items() if answer is None]
    if taken:
        where = services.where(*taken)
        await services.control.wait_caught_up(Lane.OUTCOMES, services.journal.end, SHOWN_S, where)
    for worker_id in batch.workers:
        services.workers.reached(worker_id)
    return [answers[place] for place in range(len(reports))]


async def _refuse_inaccessible(services: Services, reports: Sequence[OutcomeAnswer]) -> dict[int, JqdError | None]:
    """Look up the jobs of all reports, to refuse reports of jobs that the principal may not see. Return index in
    `reports` → why the report is refused: the job does not exist, belongs to another tenant, or is unknown while the
    store is away."""
    answers: dict[int, JqdError | None] = {}
    places, deadline_s = iter(range(len(reports))), trio.current_time() + services.config.find_s

    async def look() -> None:
        for place in places:
            if place % PIECE == 0:
                await trio.lowlevel.checkpoint()
            job_id = reports[place].job_id
            running = services.runner.of(job_id).running(job_id)
            if running is not None and services.principal.can_access(running.jobtype):
                continue
            try:
                await find(services, job_id, deadline_s=deadline_s)
            except (NotFound, NotYet, StoreAway, StoreRefused) as error:
                answers[place] = error

    async with trio.open_nursery() as nursery:
        for _ in range(min(LOOKS_MAX, len(reports))):
            nursery.start_soon(look)
    return answers
