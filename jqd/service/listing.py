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

READ_MAX = 10_000  # jobs read for one answer: few of them may match
LIST_S = 0.03  # no step of a list begins later than this: with the last step the answer comes within 0.1 s
FREE_JOBS = 500  # examined whatever time it takes: so a short list is one answer on a busy machine, too
TEXT_JOBS = 100  # the least number read in one step if texts are compared
STEP_JOBS = 500  # read in one step of a bulk change or count: a store call stays below some milliseconds
STEPS_MAX = 20  # steps of a listing of failures in one request
WALK_S = 5.0  # no step of a bulk change begins later than this: clients and proxies give up after longer
GROUPS_MAX = 200  # reasons in one answer, the most frequent ones; the failures of others are only counted

ENDED = (State.SUCCEEDED, State.CANCELLED)
RETRIED = (State.RETRYING, State.WAITING, State.SCHEDULED)
TOGETHER = {State.SUCCEEDED: ENDED, State.CANCELLED: ENDED, State.RETRYING: RETRIED}
"""State of a filter → all states whose jobs the store has to examine to find those of that state."""

TEXTS_MAX = 100  # different lines kept of one reason: 30 kB
HOUR_MS = 3_600_000

T = TypeVar("T")
Looked = Annotated[int, Meta(description="jobs looked at; left out for a tenant")] | UnsetType
Of = (
    Annotated[int, Meta(description="jobs that this goes through at most; left out where it is over, and for a tenant")]
    | UnsetType
)

_searching = trio.CapacityLimiter(1)
_queues: WeakValueDictionary[str, trio.CapacityLimiter] = WeakValueDictionary()
"""Tenant → a limiter that lets one of its lists and searches run at a time. So a tenant has at most one in the queue
that all tenants share."""


@dataclass(slots=True)
class Failure:
    """A group of failed jobs of one type and tenant, whose last attempts failed for the same reason: their error lines
    have the same `pattern`, in which numbers, ids and the like may differ (`error_pattern`)."""

    jobtype: str
    pattern: str
    error: str = ""
    """The error line of the newest failure."""
    times: int = 0
    times_of_late: int = 0
    """Failures in the last hour."""
    since_ms: int = 0
    """When the first of the failures was (Unix ms)."""
    latest_ms: int = -1
    """When the newest failure was (Unix ms)."""
    job_id: str = ""
    """The id of the job that failed last."""
    texts: Counter[str] = field(default_factory=Counter)
    """Error line → how often it was seen, for the first TEXTS_MAX different lines."""

    def note(self, line: str, at_ms: int, job_id: str, now_ms: int) -> None:
        self.since_ms = min(self.since_ms, at_ms) if self.times else at_ms
        self.times += 1
        self.times_of_late += now_ms - at_ms < HOUR_MS
        if at_ms > self.latest_ms:
            self.error, self.latest_ms, self.job_id = line, at_ms, job_id
        if line in self.texts or len(self.texts) < TEXTS_MAX:
            self.texts[line] += 1


class Failures(NamedTuple):
    """Failures grouped by reason, the most frequent first."""

    groups: list[Failure]
    others: int
    """Number of failures in groups that are left out, as there are more than GROUPS_MAX."""
    looked: int
    """Number of jobs examined."""
    cursor: str
    """To be sent with the next request; empty: all jobs were examined."""


async def page_of(services: Services, wanted: JobFilter, limit: int, cursor: str) -> Page:
    """Return at most `limit` jobs that match the filter's state, name and tag. The store checks these; the other fields
    of the filter are not checked.

    A principal that sees all tenants gets the jobs of every tenant. Raises Invalid, StoreAway, StoreRefused.
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
    """Return at most `limit` matching jobs, beginning at the filter's cursor. Raises Invalid, StoreAway,
    StoreRefused."""
    if wanted.is_for_store:
        return await page_of(services, wanted, limit, wanted.cursor)
    found: list[JobView] = []
    cursor, read, looked, until_s = wanted.cursor, 0, 0, trio.current_time() + LIST_S
    while True:
        left = limit - len(found)
        page = await page_of(services, wanted, wanted.step(max(left, TEXT_JOBS)), cursor)
        fits = await fitting(services, wanted, page.jobs)
        if len(fits) > left:  # read a smaller page, as the cursor is behind all jobs of a page
            page = await page_of(services, wanted, wanted.step(left), cursor)
            fits = await fitting(services, wanted, page.jobs)
        found += fits
        read, looked, cursor = read + max(1, len(page.jobs)), looked + page.examined, page.cursor
        is_over = read >= READ_MAX or (looked >= FREE_JOBS and trio.current_time() >= until_s)
        if len(found) >= limit or not cursor or is_over:
            return Page(found, cursor, looked, page.in_parts)


async def examined_of(services: Services, wanted: JobFilter, cursor: str, looked: int) -> tuple[Looked, Of]:
    """Return how many jobs were examined, and at most how many have to be examined in all. The second number is UNSET
    without a cursor, as the search is over then.

    For a principal of one tenant both are UNSET, as they include other tenants' jobs. Raises StoreAway,
    StoreRefused."""
    if not services.principal.sees_all:
        return UNSET, UNSET
    if not cursor:
        return looked, UNSET
    counts = (await services.store.stats()).counts
    states = TOGETHER.get(wanted.state, (wanted.state,)) if wanted.state else State
    return looked, int(sum(getattr(counts, state.value) for state in states))


async def failures(services: Services, wanted: JobFilter) -> Failures:
    """Group the failures of matching jobs by reason. Raises Invalid, StoreAway, StoreRefused."""
    groups: dict[tuple[str, str], Failure] = {}
    cursor, looked, until_s = wanted.cursor, 0, trio.current_time() + LIST_S
    now_ms = services.clock.wall_ms()
    for _ in range(STEPS_MAX):
        page = await page_of(services, wanted, wanted.step(STEP_JOBS), cursor)
        cursor = page.cursor
        looked += page.examined
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
    """Return for each outcome the line that shows why it failed, and that line's pattern."""
    return [(line, fold(line)) for line in map(last_line, outcomes)]


async def fitting(services: Services, wanted: JobFilter, views: Sequence[JobView]) -> list[JobView]:
    """Return those of the jobs that match the filter. Texts are searched in a thread, as that may take 30 ms."""
    if not wanted.reads_values:
        return [*filter(wanted.fits, views)]
    return await in_thread(services, lambda: [*filter(wanted.fits, views)])


async def in_thread(services: Services, look: Callable[[], T]) -> T:
    """Run `look` in a thread and return its result; only one such thread runs at a time. A tenant's search waits for at
    most one search of each other tenant."""
    async with _queue(services):
        return await trio.to_thread.run_sync(look, limiter=_searching)


def _queue(services: Services) -> trio.CapacityLimiter:
    return _queues.setdefault(services.principal.tenant, trio.CapacityLimiter(1))
