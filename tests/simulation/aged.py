"""What must hold of each claim where jobs age: nothing of its jobtype stays behind that was to go before what it took.

A job's rank is its priority and in which period it became ready. Looked for is what waits in the store right after the
claim, in queues without a limit.
"""

from collections.abc import Mapping
from math import floor
from typing import Any

from jqd.domain.jobid import parse_id
from jqd.store import Claimed, Owner
from jqd.testing.store import FakeStore
from tests.simulation.mistake import Mistake, in_scripts, mistake
from tests.simulation.notes import Notes
from tests.store.job_places import Places, places_of

PERIOD_S = 1.0  # jobs of the plan are pushed in some twenty of them, with two priorities
UNITS = 1 << 22  # of a score, behind the point: numbers of periods, which begin anew


def _rank(job_id: str, score: float) -> int:
    """Of a job that waits under that score."""
    parts = parse_id(job_id)
    assert parts is not None, f"{job_id!r} is no id"
    pushed, behind = int(parts.at_ms // (1000 * PERIOD_S)), round((score - floor(score)) * UNITS)
    return floor(score) + pushed + ((behind - 1 - pushed) % (UNITS - 1) if behind else 0)


def watch(store: FakeStore, history: Notes) -> None:
    """Let each claim of this client be looked at as soon as it is done."""
    real = store.get_waiting_jobs

    async def claim(owner: Owner, jobtype: str, limit: int, **named: Any) -> Claimed:
        claimed = await real(owner, jobtype, limit, **named)
        _check(history, places_of(store), jobtype, claimed, named)
        return claimed

    store.get_waiting_jobs = claim  # type: ignore[method-assign]


def _check(history: Notes, places: Places, jobtype: str, claimed: Claimed, named: Mapping[str, Any]) -> None:
    ages, suspects = named["ages"], places.deaths()
    taken = [held.job for held in claimed if not held.job.queue and held.job.id not in suspects]
    if not taken or len(taken) < len(claimed):
        return  # a suspect goes alone, or is passed over; what is limited is elsewhere
    worst = max(_rank(job.id, job.priority) for job in taken)  # or worse, where one had a date
    over = [
        job_id
        for job_id, score in places.waiting(jobtype)
        if job_id not in suspects
        and named["priority_min"] <= floor(score) <= named["priority_max"]
        and _rank(job_id, score) < worst
    ]
    if over or worst > ages.no_worse_than:
        history.wrong(f"aged: rank {worst} of {jobtype} was taken, {over} wait, and it was to be {ages.no_worse_than}")


AGED: dict[str, Mistake] = {
    "age-forgotten": mistake(
        "",
        0,
        "aged",
        "a claim goes by the priorities that were pushed",
        in_scripts("return priority + period_of(id)", "return priority"),
        ages=True,
        dense=4,
    ),
    "bound-forgotten": mistake(
        "",
        28,
        "aged",
        "a claim goes on where a better job of another jobtype waits",
        in_scripts("claim_by_rank(tonumber(bound)", "claim_by_rank(2 ^ 40"),
        ages=True,
        dense=4,
    ),
}
"""Mistakes about it, planted as those of `bugs.py`."""
