"""Lists many jobs, newest first, and groups failures by reason."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import trio
from msgspec import UNSET, Meta, UnsetType

from jqd.domain.error_pattern import fold
from jqd.domain.errors import Invalid
from jqd.domain.job import Outcome, State
from jqd.domain.tenant import bare
from jqd.service.job_filter import JobFilter, last_line
from jqd.service.services import Services
from jqd.store import JobView, Page

READ_MAX = 10_000  # jobs read for one answer: few may have the words that are looked for
LIST_S = 0.03  # no step of a look is begun later than this: with the last one the answer comes within 0.1 s
FREE_JOBS = 500  # looked at however long it takes: few jobs are one answer on a busy machine, too
TEXT_JOBS = 100  # read in one step where texts are compared, at least
STEP_JOBS = 500  # read in one step of a walk: a function of the store stays below some milliseconds
STEPS_MAX = 20  # in one request
WALK_S = 5.0  # no step of a change is begun later than this: the answer comes before a client or a proxy gives up
GROUPS_MAX = 200  # reasons in one answer, the largest: what nobody would read is only counted

ENDED = (State.SUCCEEDED, State.CANCELLED)
RETRIED = (State.RETRYING, State.WAITING, State.SCHEDULED)
TOGETHER = {State.SUCCEEDED: ENDED, State.CANCELLED: ENDED, State.RETRYING: RETRIED}
"""State → the states whose jobs are listed from the same places of the store."""

TEXTS_MAX = 100  # lines of one reason that are told apart: 30 kB
HOUR_MS = 3_600_000

T = TypeVar("T")
Looked = Annotated[int, Meta(description="jobs looked at; left out for a tenant")] | UnsetType
Of = (
    Annotated[int, Meta(description="jobs that this goes through at most; left out where it is over, and for a tenant")]
    | UnsetType
)

_searching = trio.CapacityLimiter(1)
_queues: WeakValueDictionary[str, trio.CapacityLimiter] = WeakValueDictionary()
"""Where a tenant's lists and searches wait for each other: one of them at most waits in the common queue."""


@dataclass(slots=True)
class Failure:
    """Jobs of one type and tenant whose last attempt failed with the same line, but for what differs from job to job
    (`error_pattern`)."""

    jobtype: str
    pattern: str
    error: str = ""
    """The line of the newest of them."""
    times: int = 0
    times_of_late: int = 0
    """In the last hour."""
    since_ms: int = 0
    """The first failure, and the last."""
    latest_ms: int = -1
    job_id: str = ""
    """The newest of them."""
    texts: Counter[str] = field(default_factory=Counter)
    """The first TEXTS_MAX different lines that were seen, and how often each."""

    def note(self, line: str, at_ms: int, job_id: str, now_ms: int) -> None:
        self.since_ms = min(self.since_ms, at_ms) if self.times else at_ms
        self.times += 1
        self.times_of_late += now_ms - at_ms < HOUR_MS
        if at_ms > self.latest_ms:
            self.error, self.latest_ms, self.job_id = line, at_ms, job_id
        if line in self.texts or len(self.texts) < TEXTS_MAX:
            self.texts[line] += 1


class Failures(NamedTuple):
    """The reasons that a search found, the most frequent first."""

    groups: list[Failure]
    others: int
    """Failures that are in none of the groups, for those are many."""
    looked: int
    """Jobs looked at."""
    cursor: str
    """For the next request; empty: that was all."""


async def page_of(services: Services, wanted: JobFilter, limit: int, cursor: str) -> Page:
    """Return at most `limit` jobs as the store finds them. A principal of all tenants sees the jobs of that name of
    each.

    Raises Invalid, StoreAway, StoreRefused.
    """
    wanted.expect_dates()
    whose = None if services.principal.sees_all else services.principal.tenant
    jobtype = None if wanted.name is None else services.qualified_name(wanted.name)
    try:
        async with _queue(services):
            return await services.store.list_jobs(
                wanted.state,
                jobtype,
                wanted.tag,
                limit,
                cursor,
                whose,
                row_bytes=wanted.row_bytes,
                tried=wanted.is_of_tried,
            )
    except ValueError as error:
        raise no_cursor(cursor) from error


def no_cursor(cursor: str) -> Invalid:
    return Invalid(f"cursor {cursor[:32]!r} is none that an answer gave; leave it out to begin anew")


async def list_jobs(services: Services, wanted: JobFilter, limit: int) -> Page:
    """Return at most `limit` matching jobs, from the filter's cursor on. Raises as `page_of`."""
    if wanted.is_for_store:
        return await page_of(services, wanted, limit, wanted.cursor)
    found: list[JobView] = []
    cursor, read, looked, until_s = wanted.cursor, 0, 0, trio.current_time() + LIST_S
    while True:
        left = limit - len(found)
        page = await page_of(services, wanted, wanted.step(max(left, TEXT_JOBS)), cursor)
        fits = await fitting(services, wanted, page.jobs)
        if len(fits) > left:  # the next page begins behind what this one tells
            page = await page_of(services, wanted, wanted.step(left), cursor)
            fits = await fitting(services, wanted, page.jobs)
        found += fits
        read, looked, cursor = read + max(1, len(page.jobs)), looked + page.looked, page.cursor
        is_over = read >= READ_MAX or (looked >= FREE_JOBS and trio.current_time() >= until_s)
        if len(found) >= limit or not cursor or is_over:
            return Page(found, cursor, looked, page.in_parts)


async def examined_of(services: Services, wanted: JobFilter, cursor: str, looked: int) -> tuple[Looked, Of]:
    """Return how many jobs were looked at, and, if there is a cursor, how many such a list may have to look at in all.

    A token of one tenant gets neither: both count the jobs of others. Raises StoreAway, StoreRefused.
    """
    if not services.principal.sees_all:
        return UNSET, UNSET
    if not cursor:
        return looked, UNSET
    counts = (await services.store.stats()).counts
    states = TOGETHER.get(wanted.state, (wanted.state,)) if wanted.state else State
    return looked, int(sum(getattr(counts, state.value) for state in states))


async def failures(services: Services, wanted: JobFilter) -> Failures:
    """Return the reasons of matching failures. Raises Invalid, StoreAway, StoreRefused."""
    groups: dict[tuple[str, str], Failure] = {}
    cursor, looked, until_s = wanted.cursor, 0, trio.current_time() + LIST_S
    now_ms = services.clock.wall_ms()
    for _ in range(STEPS_MAX):
        page = await page_of(services, wanted, wanted.step(STEP_JOBS), cursor)
        cursor = page.cursor
        looked += page.looked
        failed = [(view, view.outcome) for view in await fitting(services, wanted, page.jobs) if view.outcome]
        lines = await in_thread(services, partial(_lines, [last for _, last in failed]))
        for (view, last), (line, pattern) in zip(failed, lines, strict=True):
            group = groups.setdefault((view.jobtype, pattern), Failure(view.jobtype, pattern))
            group.note(line, last.finished_at_ms, bare(view.name) or view.id, now_ms)
        if not cursor or (looked >= FREE_JOBS and trio.current_time() >= until_s):
            break
    ranked = sorted(groups.values(), key=lambda group: (-group.times, -group.latest_ms))
    return Failures(ranked[:GROUPS_MAX], sum(group.times for group in ranked[GROUPS_MAX:]), looked, cursor)


def _lines(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """Return each one's line and its pattern."""
    return [(line, fold(line)) for line in map(last_line, outcomes)]


async def fitting(services: Services, wanted: JobFilter, views: Sequence[JobView]) -> list[JobView]:
    """Return the jobs that match. Texts are searched in a thread: some take 30 ms."""
    if not wanted.reads_values:
        return [*filter(wanted.fits, views)]
    return await in_thread(services, lambda: [*filter(wanted.fits, views)])


async def in_thread(services: Services, look: Callable[[], T]) -> T:
    """Run `look` in a thread, one request at a time. A tenant's search waits for at most one search of each other
    tenant."""
    async with _queue(services):
        return await trio.to_thread.run_sync(look, limiter=_searching)


def _queue(services: Services) -> trio.CapacityLimiter:
    return _queues.setdefault(services.principal.tenant, trio.CapacityLimiter(1))
