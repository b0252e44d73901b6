"""What workers report of jobs: in their hand; or not any more, said again, late, or of something else.

Whatever is taken is on disk before it is said to be taken.

the same verdict as the one that stands            taken: the answer to it was lost, perhaps
a success, and the job has not ended               counts, as it does wherever it comes from: it did run
a failure after the attempt was given up           refused: the job is tried again already
another verdict than the one that stands           refused: the first one wins, known to the store or not
"""

from jqd.desk.desk import Desk
from jqd.desk.find import Coming, find
from jqd.runner import Report, says_again
from jqd.store import JobView
from jqd.words.errors import NotFound, TooLarge
from jqd.words.job import Exit, Fate, Outcome, State
from jqd.words.record import Lane, encode_outcomes


async def report(desk: Desk, worker_id: str, job_id: str, told: Report) -> None:
    """What a worker says of a job that it has in hand, or had. Raises as `take_late` does.

    Also JournalRefused, when the report is taken and not on disk: it stays in memory, and may be sent again.
    """
    if desk.runner.done(worker_id, job_id, told):
        await desk.runner.wait_noted(worker_id, job_id)
    else:
        await take_late(desk, worker_id, job_id, told)


async def take_late(desk: Desk, worker_id: str, job_id: str, report: Report) -> None:
    """See to it that the report counts, or already does. Raises NotFound, or TooLarge for a result nobody can keep."""
    untold = desk.runner.ended(worker_id, job_id)  # what the store does not know yet
    if untold is not None and says_again(untold, report):
        await desk.runner.wait_noted(worker_id, job_id)
        return
    view = await find(desk, job_id)
    attempt = _newest(untold, view, worker_id)
    if attempt is None:
        raise NotFound(f"job {job_id} is not in the hand of worker {worker_id[:64]!r}")
    if says_again(attempt, report):
        return
    if Exit.of_status(report.status) is not Exit.OK:
        raise NotFound(f"job {job_id} is not waited for any more; what stands of it is: {_said(attempt)}")
    if _has_ended(view, untold):
        raise NotFound(f"job {job_id} has ended before this report: {_said(attempt)}")
    outcome = desk.runner.succeed_late(attempt, report)
    if outcome is None:
        raise TooLarge(f"the result of {len(report.result)} bytes is too large to be kept; store it elsewhere")
    position = desk.journal.write(Lane.OUTCOMES, 1, encode_outcomes([outcome]))
    await desk.journal.wsync(position, shielded=True)


def _has_ended(view: JobView | Coming, untold: Outcome | None) -> bool:
    """Whether nothing may change any more how the job ends, though the store may have to be told yet.

    A success beats a cancel, whichever comes first.
    """
    if view.state.is_final:
        return view.state is not State.CANCELLED
    cancelled = isinstance(view, JobView) and view.cancel_asked
    return untold is not None and untold.fate in (Fate.FAILED, Fate.DEAD) and not cancelled


def _newest(untold: Outcome | None, view: object, worker_id: str) -> Outcome | None:
    """The last word on the newest attempt by that worker, at the job as it is now: not before it was replaced.

    An attempt that was given up may have succeeded since: then it stands in the history, and is how the job ended.
    """
    known = [untold] if untold else []
    if isinstance(view, JobView):
        ends = [*view.history, *([view.outcome] if view.outcome else [])]
        known += (one for one in ends if one.worker == worker_id and one.meant_for >= view.generation)
    return max(reversed(known), key=lambda one: one.fence, default=None)


def _said(attempt: Outcome) -> str:
    return f"{attempt.fate.name.lower()}, {attempt.message[:200]}" if attempt.message else attempt.fate.name.lower()
