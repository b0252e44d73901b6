"""Keeps the jobtypes read for the first page of a list for its other pages."""

import trio

from jqd.store import EdgeStore, TypeView

KEPT_S = 10.0  # between two pages of a list; who reads on later gets numbers read anew


class KeptTypes:
    """The jobtypes that were read last, if they are more than one page.

    A page has up to 1,000 jobtypes, but the store gives all of them, which takes a second for 12,000: with a read for
    each page `jqd status` took 17 s.
    """

    def __init__(self) -> None:
        self._views: list[TypeView] = []
        self._until_s = 0.0

    async def read(self, store: EdgeStore, limit: int, *, goes_on: bool) -> list[TypeView]:
        """Return all jobtypes. `goes_on`: for a later page, so those of the page before are good enough.

        Raises StoreAway and StoreRefused.
        """
        if goes_on and self._views and trio.current_time() < self._until_s:
            return self._views
        views = await store.list_types()
        self._views = views if len(views) > limit else []
        self._until_s = trio.current_time() + KEPT_S
        return views
