"""Mistakes about what scripts count, planted as those of `bugs.py`: how jobs stand, and what constraints allow."""

from tests.simulation.mistake import Mistake, in_scripts, mistake

UNCOUNTED: dict[str, Mistake] = {
    "try-uncounted": mistake(
        "wipe,lost,workers",
        10,
        "number",
        "a failed attempt is not counted when a hand-over of the next one is told to an emptied store before it",
        in_scripts("elseif outcome.fate ~= Outcomes.RETRY or generation_of(", "elseif true or in_hand_of("),
        lends=True,
        dense=4,
    ),
    "given-back-uncounted": mistake(
        "kill",
        0,
        "counts",
        "a job that leaves a dead daemon's hand counts as running for ever",
        in_scripts("    Counts.moved(jobtype, from, to, id)\n", ""),
    ),
    "retry-uncounted": mistake(
        "",
        0,
        "counts",
        "a job that is claimed again counts as one that waits for its next attempt, too",
        in_scripts("Counts.moved(jobtype, 'retrying', 'running', again)\n", ""),
    ),
    "expired-uncounted": mistake(
        "away",
        0,
        "counts",
        "a job that expired counts as one that waits",
        in_scripts("  Counts.moved(queue, Counts.waits(id, date_ms), 'failed', id)\n", ""),
        expires=True,
    ),
    "spent-on-nothing": mistake(
        "kill",
        1,
        "rate",
        "what is claimed is not taken from what a rate allows",
        in_scripts("if rule and rule.limit > 0 and cost > 0 then", "if false then"),
        limits=True,
        dense=2,
    ),
    "window-forgotten": mistake(
        "kill",
        5,
        "rate",
        "what an earlier claim has spent is out of the window for the next one",
        in_scripts(
            "if spent.end_us <= now_us - window_us then  -- the latest", "if spent.end_us < now_us then  -- the latest"
        ),
        limits=True,
        dense=2,
    ),
    "rate-begins-anew": mistake(
        "wipe",
        43,
        "rate",
        "a store that was emptied allows at once what it had allowed before",
        in_scripts("if rule.said_ms * 1000 < high then", "if false then"),
        limits=True,
        dense=3,
    ),
    "hands-uncounted": mistake(
        "wipe",
        9,
        "concurrency",
        "what was in flight when a store was emptied does not count there",
        in_scripts("redis.call('ZADD', K.busy .. item.bucket, digits(fence), id)\n", ""),
        limits=True,
        dense=2,
    ),
}
"""By name."""
