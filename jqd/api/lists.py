"""Lists of jobs, workers and so on: limits how many are made at once, and divides them into pages.

A cursor is the last name of the previous page, in base64. So it works even if the thing with this name was deleted
meanwhile. Base64 is needed because a qualified name has a character that no request may contain (domain/tenant.py).
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
STEP = 200  # names examined before other tasks have their turn
# Lists of one tenant. The store takes 1 to 2 ms for 100 jobs, one call after another: others wait some 30 ms longer.
TENANT_LISTS_MAX = 16
ADDRESS_LISTS_MAX = 32  # lists of one address, which may be a proxy for several tenants
LISTS_MAX = 64  # lists of a daemon: a page of 1,000 jobs takes 1 to 2 MiB until it is sent
KEPT = 8  # of LISTS_MAX, for callers without a tenant: an operator can list, whatever all tenants do
AGAIN_S = 1  # the `Retry-After`: most lists are done by then
ALL = ""


T = TypeVar("T")
Q = TypeVar("Q", bound="ListQuery")
PageLimit = Annotated[int, Meta(ge=1, le=PAGE, description=f"a whole number from 1 to {PAGE}")]


class ListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a list: page size and cursor."""

    limit: PageLimit = PAGE
    cursor: str = ""
    """The previous page's cursor; empty: begin with the first."""

    @property
    def behind(self) -> str:
        """Return the last name of the previous page, from the cursor; empty for the first page. Raises Invalid for a
        wrong cursor."""
        try:
            return base64.b64decode(self.cursor + "=" * (-len(self.cursor) % 4), altchars=b"-_", validate=True).decode()
        except ValueError as error:
            raise no_cursor(self.cursor) from error


class Page(Struct, frozen=True, kw_only=True):
    """One page of a list. The first field of each subclass has the items of the page."""

    cursor: str = ""
    """Where the next page begins; empty: there is none."""


def page_wanted(request: Request, query: type[Q]) -> Q:
    """Decode and check the query of a list. Raises Invalid."""
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
    """Answer with one page of a list, sorted by name. `wanted`: where the page begins, and how many items it has.
    `page`: the class of the page. `found`: (name, item) pairs in any order, from a collection that does not change
    meanwhile. `row`: makes what the page shows of an item; it returns None if the item no longer exists."""
    first, cursor = await page_of(request, wanted, found)
    rows = (each for each in map(row, first) if each is not None)
    return await answer_rows(request, page([], cursor=cursor), rows)


async def page_of(request: Request, wanted: ListQuery, found: Iterable[tuple[str, T]]) -> tuple[list[T], str]:
    """Return the items of one page, and the cursor of the next page (empty: there is none). `found`: (name, item) pairs
    in any order. Other tasks run while they are read, so `found` must not iterate over a collection that may change."""
    first = await in_steps(_first(found, wanted.behind, wanted.limit + 1), request.breathe)
    cursor = _cursor_of(first[wanted.limit - 1][0]) if len(first) > wanted.limit else ""
    return [item for _, item in first[: wanted.limit]], cursor


def _first(found: Iterable[tuple[str, T]], behind: str, most: int) -> Steps[list[tuple[str, T]]]:
    """Sort (name, item) pairs, and return the first `most` after the name `behind`. Each step reads some of `found`."""
    pieces, first = iter(found), list[tuple[str, T]]()
    while piece := [*islice(pieces, STEP)]:
        last = first[-1][0] if len(first) == most else None
        piece = [(name, item) for name, item in piece if name > behind and (last is None or name < last)]
        if piece:
            first = sorted(first + piece, key=itemgetter(0))[:most]
        yield
    return first


def _cursor_of(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


class ListLimit:
    """Limits how many lists are made at the same time, for each owner: a list makes several calls of the store, and
    takes memory."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    @contextmanager
    def place(self, owner: str, address: str) -> Iterator[None]:
        """Count one list during the `with` block. `owner`: the caller's tenant, or else `address`. Raises Problem 429
        if there are too many lists."""
        left = LISTS_MAX - self._of[ALL] + self._of[owner]
        own_max, all_max = TENANT_LISTS_MAX, LISTS_MAX - KEPT
        if owner == address:
            own_max, all_max = ADDRESS_LISTS_MAX, LISTS_MAX
        # An owner may have half of what the others leave.
        bounds = {address: ADDRESS_LISTS_MAX, owner: min(own_max, (left + 1) // 2), ALL: all_max}
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
            self._of += Counter()  # drops owners without lists
