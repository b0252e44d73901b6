"""Takes workers' reports, at any daemon: at once for jobs in flight here, else by an OutcomeBatch. A report is on disk
before it is acknowledged."""

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

SHOWN_S = 0.5  # from the sync until the store shows what was taken: a call, some milliseconds; it is on disk anyway
LOOKS_MAX = 8  # at once, for whom must not know of others' jobs: each is a call of the store; 64 held the loop 10 ms
PIECE = 100  # reports that are looked at before others have their turn


async def report(services: Services, reports: Sequence[OutcomeAnswer]) -> list[JqdError | None]:
    """Take reports. Returns the error of each, in order, None where it was taken.

    Of each: NotFound, Conflict, TooLarge for a late result that is required and cannot be kept; JournalRefused when
    it is taken and not on disk; StoreAway and StoreRefused when nobody can say whether it counts. Then it may be sent
    again.
    """
    batch = OutcomeBatch(services)
    answers, scopes = batch.answers, services.principal.scopes
    if services.principal.is_bound:
        answers |= await _of_others(services, reports)
    for place, each in enumerate(reports):
        follows = each.report.follows if each.report is not None else b""
        if follows and (why := wrong(services.config, services.workers.why_no_callback, follows, scopes)):
            answers.setdefault(place, Invalid(f"jobs: {why}; nothing of this outcome was taken"))
    fences: dict[int, int] = {}  # place → claim, of those in flight here
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
    # Whoever looks sees what was taken, at any daemon. A store that is away is told later.
    taken = [reports[place].job_id for place, answer in answers.items() if answer is None]
    if taken:
        where = services.where(*taken)
        await services.control.wait_caught_up(Lane.OUTCOMES, services.journal.end, SHOWN_S, where)
    for worker_id in batch.workers:
        services.workers.reached(worker_id)
    return [answers[place] for place in range(len(reports))]


async def _of_others(services: Services, reports: Sequence[OutcomeAnswer]) -> dict[int, JqdError | None]:
    """Return the reports of jobs that the principal may not know of, or that are not known to be its own: these stay
    untouched."""
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
