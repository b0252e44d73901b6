"""Many jobs at once, newest first."""

from collections.abc import Callable, Sequence
from typing import TypeVar
from weakref import WeakValueDictionary

import trio

from jqd.domain.errors import Invalid
from jqd.domain.job import State
from jqd.service.job_filter import EVERYTHING, JobFilter
from jqd.service.services import Services
from jqd.store import JobView, Page

LOOKED_MAX = 10_000  # jobs looked at for one answer: few may have the words that are looked for
WITHIN_S = 2.0  # no page is asked for later than this: a short answer with a cursor is better than none

T = TypeVar("T")

_searching = trio.CapacityLimiter(1)
_lines: WeakValueDictionary[str, trio.CapacityLimiter] = WeakValueDictionary()
"""Where a tenant's lists and searches wait for each other: one of them at most stands in everybody's line."""


async def page_of(
    services: Services,
    state: State | None,
    name: str | None,
    tag: str | None,
    limit: int,
    cursor: str,
    row_bytes: int = 0,
) -> Page:
    """At most `limit` jobs as the store finds them: who sees all tenants is shown each one's of that name.

    Raises Invalid, StoreAway, StoreRefused.
    """
    whose = None if services.principal.sees_all else services.principal.tenant
    jobtype = None if name is None else services.qualified_name(name)
    try:
        async with _line(services):
            return await services.store.list_jobs(state, jobtype, tag, limit, cursor, whose, row_bytes=row_bytes)
    except ValueError as error:
        raise Invalid(f"cursor {cursor[:32]!r} is none that an answer gave; leave it out to begin anew") from error


async def list_jobs(
    services: Services,
    state: State | None,
    name: str | None,
    tag: str | None,
    limit: int,
    cursor: str = "",
    narrow: JobFilter = EVERYTHING,
) -> Page:
    """At most `limit` jobs of that state, name and tag that fit, from the cursor on. Raises as `page_of`."""
    if narrow == EVERYTHING:
        return await page_of(services, state, name, tag, limit, cursor)
    found: list[JobView] = []
    looked, until_s = 0, trio.current_time() + WITHIN_S
    while True:
        page = await page_of(services, state, name, tag, narrow.step(limit - len(found)), cursor, narrow.row_bytes)
        found += await fitting(services, narrow, page.jobs)
        looked, cursor = looked + max(1, len(page.jobs)), page.cursor
        if len(found) >= limit or not cursor or looked >= LOOKED_MAX or trio.current_time() >= until_s:
            return Page(found, cursor)


async def fitting(services: Services, narrow: JobFilter, views: Sequence[JobView]) -> list[JobView]:
    """Those that fit. Values are looked through aside: some take 30 ms."""
    if not narrow.reads_values:
        return [*filter(narrow.fits, views)]
    return await aside(services, lambda: [*filter(narrow.fits, views)])


async def aside(services: Services, look: Callable[[], T]) -> T:
    """What comes of looking through values: in a thread, for one request at a time, so that nobody else waits.

    A tenant's searches wait for one search of each other tenant at most, however many others ask for.
    """
    async with _line(services):
        return await trio.to_thread.run_sync(look, limiter=_searching)


def _line(services: Services) -> trio.CapacityLimiter:
    return _lines.setdefault(services.principal.tenant, trio.CapacityLimiter(1))
