"""What one call is: who answers, and the types of what he takes and gives."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct

from jqd.api.message import ApiResponse
from jqd.api.problems import Details

Handler = Callable[..., Awaitable[ApiResponse]]
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of a call that has none."""


class Document(NamedTuple):
    """What an answer is that is no value: a page, say."""

    kind: str
    """Its media type."""


class Route(NamedTuple):
    """One call."""

    method: str
    path: str
    handler: Handler
    answers: Mapping[int, Any]
    """Status → the type of its body, or several of which it has one; a Document; None: it has none."""
    body: Any = None
    """The type of what it takes, or several; None: nothing."""
    query: type[Struct] = NoQuery
    headers: Mapping[str, str] = NO_HEADERS
    """Those that it needs, and what stands in them."""
    heeds: Mapping[str, str] = NO_HEADERS
    """The same of those that may be left out."""
    refusal: type[Struct] = Details
    """The type of its errors."""
    refuses: tuple[int, ...] = ()
    """The statuses of its errors, where its interface has a list of them."""
    plain: Mapping[str, str] = NO_HEADERS
    """Types that pages send, "" for none, and as what they are taken from programs."""
    polls: bool = False
    """Whether it may wait for something: it is told at once when its client sends no more."""
    lists: bool = False
    """Whether it is the longer the more there is: few of them are under way at once."""
    bare: bool = False
    """Whether what it takes may be left out."""
