"""Caches the jobtypes read for the first page of a list, for the list's later pages."""

import trio

from jqd.store import EdgeStore, TypeView

KEPT_S = 10.0  # the longest time between two pages of a list; for a page after it the jobtypes are read again


class KeptTypes:
    """The jobtypes that were read last, kept only if they do not fit into one page.

    A page has up to 1,000 jobtypes. But the store always returns all of them, which takes a second for 12,000. When
    each page read them anew, `jqd status` took 17 s.
    """

    def __init__(self) -> None:
        self._views: list[TypeView] = []
        self._until_s = 0.0

    async def read(self, store: EdgeStore, limit: int, *, goes_on: bool) -> list[TypeView]:
        """Return all jobtypes. `goes_on`: whether this is a later page of a list. If so, jobtypes that were read at
        most KEPT_S ago may be returned.

        Raises StoreAway and StoreRefused.
        """
        if goes_on and self._views and trio.current_time() < self._until_s:
            return self._views
        views = await store.list_types()
        self._views = views if len(views) > limit else []
        self._until_s = trio.current_time() + KEPT_S
        return views
