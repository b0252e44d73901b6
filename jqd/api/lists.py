"""Lists: how many are made at once, and the pages by which they are told.

A cursor is the last name of the page before, as text that may stand in a query: one that was deleted meanwhile still
has its place. Within jqd a tenant's names have a character that no request may have (domain/tenant.py).
"""

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from heapq import nsmallest
from operator import itemgetter
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

from jqd.api.decode import read_query
from jqd.api.message import answer_rows
from jqd.api.problems import Problem
from jqd.domain.array_split import Steps, in_steps
from jqd.domain.errors import Invalid
from jqd.http import Request, Response

PAGE = 1_000  # rows of one answer: some 1 MB of workers
STEP = 200  # names that are looked at in one piece
# Of one tenant. The store tells of 100 jobs in 1 to 2 ms, and all calls stand in one line: others wait some 30 ms more.
TENANT_LISTS_MAX = 16
ADDRESS_LISTS_MAX = 32  # of one address: there may be a proxy before several tenants
LISTS_MAX = 64  # of a daemon: a page of 1,000 jobs has 1 to 2 MiB until it is sent
AGAIN_S = 1  # one that is nothing but slow is over by then
ALL = ""


T = TypeVar("T")
PageLimit = Annotated[int, Meta(ge=1, le=PAGE, description=f"a whole number from 1 to {PAGE}")]


class ListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a list: how many at once, and from where on."""

    limit: PageLimit = PAGE
    cursor: str = ""
    """That another page ended with; empty: from the first on."""


async def answer_page(
    request: Request,
    page: Callable[..., Struct],
    found: Iterable[tuple[str, T]],
    row: Callable[[T], Struct | None],
    query: type[ListQuery] = ListQuery,
) -> Response:
    """As much of a list as the query asks for, by name. `found`: names and what is called so. `row`: None for what has
    gone meanwhile. Raises Invalid."""
    first, cursor = await page_of(request, found, query)
    rows = (one for one in map(row, first) if one is not None)
    return await answer_rows(request, page([], cursor), rows)


async def page_of(
    request: Request, found: Iterable[tuple[str, T]], query: type[ListQuery] = ListQuery
) -> tuple[list[T], str]:
    """Those of one page, and the cursor for the next, empty for none. Raises Invalid."""
    asked = read_query(request, query)
    every = [*found]
    first = await in_steps(_first(every, _name_of(asked.cursor), asked.limit + 1), request.breathe)
    cursor = _cursor_of(first[asked.limit - 1][0]) if len(first) > asked.limit else ""
    return [one for _, one in first[: asked.limit]], cursor


def _first(every: list[tuple[str, T]], behind: str, most: int) -> Steps[list[tuple[str, T]]]:
    """The first so many behind that name."""
    later: list[tuple[str, T]] = []
    for at in range(0, len(every), STEP):
        later = nsmallest(most, later + [one for one in every[at : at + STEP] if one[0] > behind], key=itemgetter(0))
        yield
    return later


def _cursor_of(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _name_of(cursor: str) -> str:
    """Raises Invalid for what no answer gave."""
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise Invalid(f"cursor {cursor[:32]!r} is none that an answer gave; leave it out to begin anew") from error


class ListLimit:
    """Those under way, by whose they are: each asks the store again and again, and keeps what it has found so far."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    @contextmanager
    def place(self, owner: str, address: str) -> Iterator[None]:
        """For as long as one is made. `owner`: a tenant; where none is known, the address. Raises Problem 429."""
        bounds = {owner: TENANT_LISTS_MAX, address: ADDRESS_LISTS_MAX, ALL: LISTS_MAX}
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
