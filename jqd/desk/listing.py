"""Many jobs at once, newest first."""

from jqd.desk.desk import Desk
from jqd.store import Page
from jqd.words.errors import Invalid
from jqd.words.job import State


async def list_jobs(
    desk: Desk, state: State | None, name: str | None, tag: str | None, limit: int, cursor: str = ""
) -> Page:
    """At most `limit` jobs of that state, name and tag, from the cursor on. Raises Invalid, StoreAway, StoreRefused."""
    try:
        return await desk.store.list_jobs(state, name, tag, limit, cursor)
    except ValueError as error:
        raise Invalid(f"cursor {cursor[:32]!r} is none that an answer gave; leave it out to begin anew") from error
