"""Mistakes about jobs whose content changes, planted as those of `bugs.py`: a word answered well is not kept."""

from collections.abc import Sequence
from typing import Any

from jqd.desk import cancel as cancel_module
from jqd.desk import take as take_module
from jqd.loops import barrier as barrier_module
from jqd.store import JobView
from jqd.testing.changes import FakeChanges
from jqd.testing.members import Entry, FakeMembers
from jqd.testing.sim.mistake import Mistake, Real, mistake
from jqd.testing.store import FakeStore
from jqd.words.job import Outcome
from jqd.words.record import Lane


def _was_never_here(real: Real) -> Real:
    def was_here(self: FakeStore, journal_id: str, job: Any) -> bool:
        return False

    return was_here


def _confirm_all(real: Real) -> Real:
    async def confirm(desk: Any, agreed: Any) -> set[int]:
        wanted = dict(agreed.refused)
        lapsed: set[int] = await real(desk, agreed)
        if lapsed:
            agreed.refused.clear()
            agreed.refused.update(wanted)
        return set()

    return confirm


def _cancel_what_is_shown(real: Real) -> Real:
    async def up_to(desk: Any, job_ids: Sequence[str]) -> tuple[dict[str, int], bool]:
        views = {job_id: await desk.store.get_job(job_id) for job_id in job_ids}
        return {i: view.generation if isinstance(view, JobView) else 0 for i, view in views.items()}, True

    return up_to


def _by_fence_alone(real: Any) -> Any:
    def meant_for(self: Outcome) -> int:
        return self.fence - 1

    return property(meant_for)


def _endings_only(real: Any) -> Any:
    return Lane.CANCELS, Lane.OUTCOMES


def _say_at_once(real: Real) -> Real:
    def expect_settled(self: FakeChanges) -> None:
        return

    return expect_settled


def _ready_whatever_its_date(real: Real) -> Real:
    def put_back(self: FakeMembers, entry: Entry, due_ms: int | None, last: Outcome | None = None) -> None:
        real(self, entry, due_ms, last)
        if entry.place == "later" and due_ms is None:
            entry.place, entry.score = "ready", entry.job.priority

    return put_back


UNKEPT: dict[str, Mistake] = {
    "copies-create": mistake(
        "trim,purge,backlog",
        41,
        "again",
        "a copy begins a job anew that has ended and was deleted",
        (FakeStore, "_was_here", _was_never_here),
    ),
    "names-lapse": mistake(
        "stall",
        376,
        "conflict",
        "a content is acknowledged though its name was given to another while its disk was slow",
        (take_module, "confirm", _confirm_all),
        changes=True,
    ),
    "cancel-the-shown": mistake(
        "backlog",
        29,
        "cancel",
        "a cancel is meant for the content that the store shows, whatever was acknowledged after that",
        (cancel_module, "_up_to_now", _cancel_what_is_shown),
        changes=True,
    ),
    "ended-by-fence": mistake(
        "backlog",
        23,
        "unrun",
        "an ending counts for any content whose revision is older than the claim",
        (Outcome, "meant_for", _by_fence_alone),
        changes=True,
    ),
    "changes-unawaited": mistake(
        "rollback,backlog",
        173,
        "conflict",
        "claims begin before the changes that a store forgot are told again",
        (barrier_module, "WORDS", _endings_only),
        changes=True,
    ),
    "names-unsettled": mistake(
        "wipe",
        141,
        "twins",
        "a store gives names while it is told what it forgot",
        (FakeChanges, "_expect_settled", _say_at_once),
        changes=True,
    ),
    "dates-dropped": mistake(
        "pause",
        104,
        "date",
        "a job that leaves a hand is ready, whatever date its content was given meanwhile",
        (FakeMembers, "_put_back", _ready_whatever_its_date),
        changes=True,
    ),
}
"""By name."""
