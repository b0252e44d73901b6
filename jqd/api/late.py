"""Reports of jobs that are not in the hand of their worker any more: said again, late, or of something else.

the same verdict as the one that stands            taken: the answer to it was lost, perhaps
a success, and the job has not ended               counts, as it does wherever it comes from: it did run
a failure after the attempt was given up           refused: the job is tried again already
another verdict than the one that stands           refused: the first one wins
"""

import trio

from jqd.api.find import find
from jqd.api.parts import Parts
from jqd.api.problems import Problem
from jqd.runner import Report, says_again
from jqd.store import JobView
from jqd.words.job import Exit, Outcome, State
from jqd.words.record import Lane, encode_outcomes


async def take_late(parts: Parts, worker_id: str, job_id: str, report: Report) -> None:
    """See to it that the report counts, or already does. Raises Problem 404, or 400 for a result nobody can keep."""
    attempt = parts.runner.ended(worker_id, job_id)  # what the store does not know yet
    if attempt is not None and says_again(attempt, report):
        return
    view = await find(parts, job_id)
    attempt = _newest(attempt, view, worker_id)
    if attempt is None:
        raise Problem(404, f"job {job_id} is not in the hand of worker {worker_id[:64]!r}")
    if says_again(attempt, report):
        return
    if Exit.of_status(report.status) is not Exit.OK:
        raise Problem(404, f"job {job_id} is not waited for any more; what stands of it is: {_said(attempt)}")
    if view.state.is_final and view.state is not State.CANCELLED:  # a success beats a cancel, whichever comes first
        raise Problem(404, f"job {job_id} has ended before this report: {_said(attempt)}")
    outcome = parts.runner.succeed_late(attempt, report)
    if outcome is None:
        raise Problem(400, f"the result of {len(report.result)} bytes is too large to be kept; store it elsewhere")
    position = parts.journal.write(Lane.OUTCOMES, 1, encode_outcomes([outcome]))
    with trio.CancelScope(shield=True):
        await parts.journal.wsync(position)


def _newest(unsettled: Outcome | None, view: object, worker_id: str) -> Outcome | None:
    """The last word on the newest attempt by that worker, at the job as it is now: not before it was replaced.

    An attempt that was given up may have succeeded since: then it stands in the history, and is how the job ended.
    """
    known = [unsettled] if unsettled else []
    if isinstance(view, JobView):
        ends = [*view.history, *([view.outcome] if view.outcome else [])]
        known += (one for one in ends if one.worker == worker_id and one.meant_for >= view.generation)
    return max(reversed(known), key=lambda one: one.fence, default=None)


def _said(attempt: Outcome) -> str:
    return f"{attempt.fate.name.lower()}, {attempt.message[:200]}" if attempt.message else attempt.fate.name.lower()
