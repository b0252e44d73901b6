"""Failures by what went wrong: of thousands of jobs the few reasons."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import trio

from jqd.domain.job import Outcome, State
from jqd.domain.tenant import bare
from jqd.service.bulk import STEP_JOBS, STEPS_MAX, WITHIN_S
from jqd.service.job_filter import JobFilter, last_line
from jqd.service.listing import aside, fitting, page_of
from jqd.service.services import Services

GROUPS_MAX = 200  # in one answer, the largest: what nobody would read is only counted


class Failure(NamedTuple):
    """Jobs of one type of one tenant whose last attempt ended with the same words."""

    jobtype: str
    error: str
    times: int
    since_ms: int
    """When the first of them failed, and the last."""
    latest_ms: int
    job_id: str
    """The newest of them."""


class Failures(NamedTuple):
    """What a walk found."""

    groups: list[Failure]
    others: int
    """Failures that are in none of the groups, for those are many."""
    looked: int
    cursor: str
    """Where the next request goes on; empty when that was all."""


async def failures(
    services: Services, state: State, name: str | None, tag: str | None, narrow: JobFilter, cursor: str
) -> Failures:
    """The reasons of jobs in that state, the most frequent first. Raises Invalid, StoreAway, StoreRefused."""
    groups: dict[tuple[str, str], Failure] = {}
    looked, until_s = 0, trio.current_time() + WITHIN_S
    for _ in range(STEPS_MAX):
        page = await page_of(services, state, name, tag, narrow.step(STEP_JOBS), cursor, narrow.row_bytes)
        cursor = page.cursor
        looked += len(page.jobs)
        failed = [
            (view, view.outcome) for view in await fitting(services, narrow, page.jobs) if view.outcome is not None
        ]
        lines = await aside(services, partial(_lines, [last for _, last in failed]))
        for (view, last), line in zip(failed, lines, strict=True):
            key, at_ms = (view.jobtype, line), last.finished_at_ms
            known = groups.get(key) or Failure(*key, 0, at_ms, at_ms, bare(view.name) or view.id)
            groups[key] = known._replace(
                times=known.times + 1, since_ms=min(known.since_ms, at_ms), latest_ms=max(known.latest_ms, at_ms)
            )
        if not cursor or trio.current_time() >= until_s:
            break
    ranked = sorted(groups.values(), key=lambda group: (-group.times, -group.latest_ms))
    return Failures(ranked[:GROUPS_MAX], sum(group.times for group in ranked[GROUPS_MAX:]), looked, cursor)


def _lines(outcomes: Sequence[Outcome]) -> list[str]:
    return [last_line(outcome) for outcome in outcomes]
