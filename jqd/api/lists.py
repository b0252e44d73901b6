"""Lists: how many are made at once, and their pages.

A cursor is the last name of the page before, as text that may stand in a query: one that was deleted meanwhile still
has its place. Within jqd a tenant's names have a character that no request may have (domain/tenant.py).
"""

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from operator import itemgetter
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

from jqd.api.decode import read_query
from jqd.api.message import answer_rows
from jqd.api.problems import Problem
from jqd.domain.array_split import Steps, in_steps
from jqd.http import Request, Response
from jqd.service.listing import no_cursor

PAGE = 1_000  # rows of one answer: some 1 MB of workers
STEP = 200  # names that are looked at in one piece
# Of one tenant. The store tells of 100 jobs in 1 to 2 ms, and all calls stand in one line: others wait some 30 ms more.
TENANT_LISTS_MAX = 16
ADDRESS_LISTS_MAX = 32  # of one address: there may be a proxy before several tenants
LISTS_MAX = 64  # of a daemon: a page of 1,000 jobs has 1 to 2 MiB until it is sent
KEPT = 8  # of these for who is of no tenant: several tenants together do not keep out who could stop them
AGAIN_S = 1  # one that is nothing but slow is over by then
ALL = ""


T = TypeVar("T")
Q = TypeVar("Q", bound="ListQuery")
PageLimit = Annotated[int, Meta(ge=1, le=PAGE, description=f"a whole number from 1 to {PAGE}")]


class ListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a list: page size and cursor."""

    limit: PageLimit = PAGE
    cursor: str = ""
    """That another page ended with; empty: from the first on."""

    @property
    def behind(self) -> str:
        """Return the name that the page before ended with; empty: from the first on. Raises Invalid for a cursor that
        no answer gave."""
        try:
            return base64.b64decode(self.cursor + "=" * (-len(self.cursor) % 4), altchars=b"-_", validate=True).decode()
        except ValueError as error:
            raise no_cursor(self.cursor) from error


class Page(Struct, frozen=True, kw_only=True):
    """One page of a list: its rows are the first field."""

    cursor: str = ""
    """Where the next page begins; empty: there is none."""


def page_wanted(request: Request, query: type[Q]) -> Q:
    """Read a list's query, before anything is looked up for it. Raises Invalid."""
    asked = read_query(request, query)
    _ = asked.behind
    return asked


async def answer_page(
    request: Request,
    wanted: ListQuery,
    page: Callable[..., Page],
    found: Iterable[tuple[str, T]],
    row: Callable[[T], Struct | None],
) -> Response:
    """Answer with one page of a list, by name. `found`: see `page_of`. `row`: None for what has gone meanwhile."""
    first, cursor = await page_of(request, wanted, found)
    rows = (one for one in map(row, first) if one is not None)
    return await answer_rows(request, page([], cursor=cursor), rows)


async def page_of(request: Request, wanted: ListQuery, found: Iterable[tuple[str, T]]) -> tuple[list[T], str]:
    """Return one page, and the cursor for the next one, empty for none. `found`: names and what is called so, in any
    order. Other tasks run while it is read: it goes through a copy of what may change."""
    first = await in_steps(_first(found, wanted.behind, wanted.limit + 1), request.breathe)
    cursor = _cursor_of(first[wanted.limit - 1][0]) if len(first) > wanted.limit else ""
    return [one for _, one in first[: wanted.limit]], cursor


def _first(found: Iterable[tuple[str, T]], behind: str, most: int) -> Steps[list[tuple[str, T]]]:
    """Return the first `most` items after a name; each piece of items is sorted into the earlier ones."""
    pieces, first = iter(found), list[tuple[str, T]]()
    while piece := [*islice(pieces, STEP)]:
        last = first[-1][0] if len(first) == most else None
        piece = [one for one in piece if one[0] > behind and (last is None or one[0] < last)]
        if piece:
            first = sorted(first + piece, key=itemgetter(0))[:most]
        yield
    return first


def _cursor_of(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


class ListLimit:
    """Limits the lists under way, by owner: each makes repeated calls to the store, and keeps what it has found."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    @contextmanager
    def place(self, owner: str, address: str) -> Iterator[None]:
        """Count one list while it is made. `owner`: a tenant; where none is known, the address. Raises Problem 429."""
        left = LISTS_MAX - self._of[ALL] + self._of[owner]
        own_max, all_max = TENANT_LISTS_MAX, LISTS_MAX - KEPT
        if owner == address:
            own_max, all_max = ADDRESS_LISTS_MAX, LISTS_MAX
        bounds = {
            address: ADDRESS_LISTS_MAX,
            owner: min(own_max, (left + 1) // 2),
            ALL: all_max,
        }  # half of what is left
        for name, most in bounds.items():
            if self._of[name] >= most:
                whose = f" for {name}" if name else ""
                detail = f"{most} lists are being made{whose} already; wait for their answers, or ask again"
                raise Problem(429, detail, retry_after_s=AGAIN_S)
        self._of.update(bounds.keys())
        try:
            yield
        finally:
            self._of.subtract(bounds.keys())
            self._of += Counter()  # forgets who has none
