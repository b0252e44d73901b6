"""What must hold of each claim where jobs age: nothing of its jobtype stays behind that was to go before what it took.

A job's rank is its priority and in which period it became ready; jobs of one priority go by id, with the best rank of
those that come behind them. Looked for is what waits in the store right after the claim, in queues without a limit.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from jqd.domain.jobid import parse_id
from jqd.store import Claimed, Owner
from jqd.testing.places import Places
from jqd.testing.store import FakeStore
from tests.simulation.mistake import Mistake, in_scripts, mistake
from tests.simulation.notes import Notes

PERIOD_S = 1.0  # jobs of the plan are pushed in some twenty of them, with two priorities


def _ranks(jobs: Iterable[tuple[str, int, int]], period_ms: int) -> dict[str, int]:
    """Of jobs of one queue: id, priority, and since when (ms) it is ready."""
    found: dict[str, int] = {}
    best: dict[int, int] = {}
    for job_id, priority, since_ms in sorted(jobs, reverse=True):
        rank = priority + since_ms // period_ms
        found[job_id] = best[priority] = min(rank, best.get(priority, rank))
    return found


def _pushed_ms(job_id: str) -> int:
    """When it was pushed."""
    parts = parse_id(job_id)
    assert parts is not None, f"{job_id!r} is no id"
    return parts.at_ms


def watch(store: FakeStore, history: Notes) -> None:
    """Let each claim of this client be looked at as soon as it is done."""
    real = store.get_waiting_jobs

    async def claim(owner: Owner, jobtype: str, limit: int, **named: Any) -> Claimed:
        claimed = await real(owner, jobtype, limit, **named)
        _check(history, store.places, jobtype, claimed, named)
        return claimed

    store.get_waiting_jobs = claim  # type: ignore[method-assign]


def _check(history: Notes, places: Places, jobtype: str, claimed: Claimed, named: Mapping[str, Any]) -> None:
    ages, suspects = named["ages"], places.deaths()
    taken = [held.job for held in claimed if not held.job.queue and held.job.id not in suspects]
    if not taken or len(taken) < len(claimed):
        return  # a suspect goes alone, or is passed over; what is limited is elsewhere
    dates = places.dates()
    rows = [
        (job_id, priority, max(dates.get(job_id, 0), _pushed_ms(job_id)))
        for job_id, priority in places.waiting(jobtype)
        if job_id not in suspects and named["priority_min"] <= priority <= named["priority_max"]
    ]
    # The dates of those that were taken are gone. A store that was emptied may not have had them.
    rows += [(job.id, job.priority, _pushed_ms(job.id)) for job in taken]
    ranked = _ranks(rows, ages.period_ms)
    worst = max(ranked[job.id] for job in taken)
    given = {job.id for job in taken}
    over = [job_id for job_id, *_ in rows if job_id not in given and ranked[job_id] < worst]
    if over or worst > ages.no_worse_than:
        history.wrong(f"aged: rank {worst} of {jobtype} was taken, {over} wait, and it was to be {ages.no_worse_than}")


AGED: dict[str, Mistake] = {
    "age-forgotten": mistake(
        "",
        0,
        "aged",
        "a claim goes by the priorities that were pushed",
        in_scripts("best = math.min(best, priority + since)", "best = math.min(best, priority)"),
        ages=True,
        dense=4,
    ),
    "bound-forgotten": mistake(
        "",
        28,
        "aged",
        "a claim goes on where a better job of another jobtype waits",
        in_scripts("following.rank > call.bound", "false"),
        ages=True,
        dense=4,
    ),
}
"""Mistakes about it, planted as those of `bugs.py`."""
