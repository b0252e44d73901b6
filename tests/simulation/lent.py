"""Mistakes about jobs that workers hold by themselves, planted in the real code by name: see `bugs.py`."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from jqd.domain.job import State
from jqd.loops.worker_timeouts import WorkerTimeouts
from jqd.runner.lease_handover import Claim, LeaseHandover
from jqd.service.outcome_batch import OutcomeBatch
from jqd.store import JobView
from tests.simulation import faults as faults_module
from tests.simulation.mistake import Mistake, Real, in_scripts, mistake


def _at_once(real: Real) -> Real:
    def old_marks(self: WorkerTimeouts, now_s: float) -> Iterator[tuple[int, int]]:
        for silence_s in self._silences_s:
            if (mark := self._marks.find(0.0, now_s)) is not None:
                yield silence_s, mark

    return old_marks


def _whatever_the_store_says(real: Real) -> Real:
    def arrived(self: LeaseHandover, claims: Iterable[Claim], epoch: int, void: Collection[int] | None) -> None:
        real(self, claims, epoch, ())

    return arrived


def _before_the_store_knows(real: Real) -> tuple[str, ...]:
    """No mistake: kills and pauses only where these show, while a hand-over or an end is in the journal alone."""
    return ("before apply_outcomes",)


def _by_daemons_alone(real: Real) -> Real:
    def may_come(batch: OutcomeBatch, view: Any, worker_id: str) -> bool:
        return isinstance(view, JobView) and view.state is State.RUNNING and bool(view.daemon)

    return may_come


LENT: dict[str, Mistake] = {
    "silent-at-once": mistake(
        "lost",
        9,
        "overlap",
        "who has said nothing since the last look is silent, however long ago that was",
        (WorkerTimeouts, "_old_marks", _at_once),
        lends=True,
    ),
    "deaf": mistake(
        "lost",
        1,
        "overlap",
        "signs of life renew nothing",
        in_scripts("for fence, job_ids in pairs(renew and standing or {}) do", "for fence, job_ids in pairs({}) do"),
        lends=True,
    ),
    "hand-over-forgotten": mistake(
        "wipe",
        99,
        "overlap",
        "a store that forgot a hand-over is not told of it again",
        in_scripts("elseif not is_forgotten(outcome.fence) or Move.has_ended", "elseif true or Move.has_ended"),
        lends=True,
    ),
    "newest-content": mistake(
        "lost",
        16,
        "unrun",
        "what a worker reports counts for the content that is there when it does",
        in_scripts(
            "is_workers and Leases.generation_of(hold) or not is_workers and generations[position] or false",
            "generations[position] or false",
        ),
        lends=True,
        changes=True,
    ),
    "heard-before-told": mistake(
        "kill",
        56,
        "lost",
        "a hand-over of a daemon that died before the store knew of it counts as an attempt",
        in_scripts("(not is_again and before", "(before"),
        (faults_module, "POINTS", _before_the_store_knows),
        lends=True,
        dense=2,
    ),
    "void-answers": mistake(
        "pause,lag",
        27,
        "unhanded",
        "a poll is answered with a job whose hand-over came too late, as the store says, or whose answer was lost",
        (LeaseHandover, "arrived", _whatever_the_store_says),
        (faults_module, "POINTS", _before_the_store_knows),
        lends=True,
        dense=3,
    ),
    "early-refused": mistake(
        "",
        9,
        "early",
        "a report that names no lease is refused when the hand-over comes between the two looks at its job",
        (OutcomeBatch, "_may_come", _by_daemons_alone),
        lends=True,
        hasty=True,
        dense=3,
    ),
}
"""By name."""
