"""Many jobs at once, newest first."""

import trio

from jqd.desk.desk import Desk
from jqd.desk.narrow import EVERYTHING, Narrow
from jqd.store import JobView, Page
from jqd.words.errors import Invalid
from jqd.words.job import State

PAGES_MAX = 20  # asked of the store for one answer: few jobs may have the words that are looked for
WITHIN_S = 2.0  # no page is asked for later than this: a short answer with a cursor is better than none


async def page_of(desk: Desk, state: State | None, name: str | None, tag: str | None, limit: int, cursor: str) -> Page:
    """At most `limit` jobs as the store finds them. Raises Invalid, StoreAway, StoreRefused."""
    whose = None if desk.principal.sees_all or name is not None else desk.principal.tenant
    jobtype = None if name is None else desk.own(name)
    try:
        return await desk.store.list_jobs(state, jobtype, tag, limit, cursor, whose)
    except ValueError as error:
        raise Invalid(f"cursor {cursor[:32]!r} is none that an answer gave; leave it out to begin anew") from error


async def list_jobs(
    desk: Desk,
    state: State | None,
    name: str | None,
    tag: str | None,
    limit: int,
    cursor: str = "",
    narrow: Narrow = EVERYTHING,
) -> Page:
    """At most `limit` jobs of that state, name and tag that fit, from the cursor on. Raises as `page_of`."""
    if narrow == EVERYTHING:
        return await page_of(desk, state, name, tag, limit, cursor)
    found: list[JobView] = []
    until_s = trio.current_time() + WITHIN_S
    for _ in range(PAGES_MAX):
        page = await page_of(desk, state, name, tag, limit - len(found), cursor)
        found += filter(narrow.fits, page.jobs)
        cursor = page.cursor
        if len(found) >= limit or not cursor or trio.current_time() >= until_s:
            break
    return Page(found, cursor)
