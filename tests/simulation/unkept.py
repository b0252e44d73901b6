"""Mistakes about jobs whose content changes, planted as those of `bugs.py`: a word answered well is not kept."""

from collections.abc import Sequence
from typing import Any

from jqd.domain.record import Lane
from jqd.recovery import recovery as barrier_module
from jqd.service import cancel as cancel_module
from jqd.service import push as take_module
from jqd.store import JobView
from tests.simulation.mistake import Mistake, Real, in_scripts, mistake


def _confirm_all(real: Real) -> Real:
    async def confirm(services: Any, agreed: Any, *places: Any) -> set[int]:
        wanted = dict(agreed.refused)
        lapsed: set[int] = await real(services, agreed, *places)
        if lapsed:
            agreed.refused.clear()
            agreed.refused.update(wanted)
        return set()

    return confirm


def _cancel_what_is_shown(real: Real) -> Real:
    async def up_to(services: Any, job_ids: Sequence[str], **how: Any) -> tuple[dict[str, int], bool]:
        views = {job_id: await services.store.get_job(job_id) for job_id in job_ids}
        return {i: view.generation if isinstance(view, JobView) else 0 for i, view in views.items()}, True

    return up_to


def _endings_only(real: Any) -> Any:
    return Lane.CANCELS, Lane.OUTCOMES


UNKEPT: dict[str, Mistake] = {
    "copies-create": mistake(
        "trim,purge,backlog,pause",
        154,
        "again",
        "a copy begins a job anew that has ended and was deleted",
        in_scripts("return (outside[1] or outside[2]) and true or false", "return false"),
        dense=3,
    ),
    "deleted-forgotten": mistake(
        "backlog,pause,purge,trim",
        5225,
        "older",
        "an older content that comes when the newer one has ended and is deleted is taken for a new job",
        in_scripts(
            "  if revision >= change.revision or not row", "  if row and revision >= change.revision or not row"
        ),
        changes=True,
        dense=3,
    ),
    "numbers-behind": mistake(
        "clock,wipe",
        13,
        "older",
        "a store that was emptied gives numbers below those that journals tell",
        in_scripts("if revision > call.highest then", "if false then"),
        changes=True,
        dense=3,
    ),
    "late-endings-dropped": mistake(
        "backlog,wipe",
        173,
        "again",
        "an ending of a later content is not remembered when an earlier one has ended the job",
        in_scripts("      end_late(outcome)\n      too_late(outcome)", "      too_late(outcome)"),
        changes=True,
    ),
    "names-lapse": mistake(
        "stall",
        376,
        "conflict",
        "a content is acknowledged though its name was given to another while its disk was slow",
        (take_module, "confirm_ids", _confirm_all),
        changes=True,
    ),
    "cancel-the-shown": mistake(
        "backlog",
        31,
        "cancel",
        "a cancel is meant for the content that the store shows, whatever was acknowledged after that",
        (cancel_module, "_up_to_now", _cancel_what_is_shown),
        changes=True,
    ),
    "ended-by-fence": mistake(
        "backlog",
        68,
        "unrun",
        "an ending counts for any content whose revision is older than the claim",
        in_scripts("outcome.id, outcome.meant = id, tonumber(outcome.generation)", "outcome.id = id"),
        changes=True,
        dense=4,
    ),
    "changes-unawaited": mistake(
        "rollback,backlog",
        4285,
        "conflict,older",
        "claims begin before the changes that a store forgot are told again",
        (barrier_module, "WORDS", _endings_only),
        changes=True,
        dense=4,
    ),
    "names-unsettled": mistake(
        "wipe",
        300,
        "twins,conflict",
        "a store gives names while it is told what it forgot, in whatever life they were asked for",
        in_scripts("  Life.expect_life(identity)\n  Settled.expect_settled(identity)\n", ""),
        changes=True,
        dense=6,
    ),
    "dates-dropped": mistake(
        "kill,pause,away",
        263,
        "date",
        "a job that leaves a hand is ready, whatever date its content was given meanwhile",
        in_scripts(
            "elseif eligible_at_ms > now_ms then\n    redis.call('ZADD', K.later, eligible_at_ms, id)\n"
            "    Counts.note_blocked(",
            "elseif false then\n    Counts.note_blocked(",
        ),
        changes=True,
    ),
}
"""By name."""
