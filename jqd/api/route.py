"""A route of the API: its handler, the types of its request and responses, and who may call it."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct

from jqd.api.message import refuse
from jqd.api.problems import Details
from jqd.domain.errors import JqdError
from jqd.domain.tokens import Role
from jqd.http import Request, Response, Urgency

Handler = Callable[..., Awaitable[Any]]
"""Returns the value to be answered; (status, value) if the route has several statuses; or a whole Response."""
Refuse = Callable[[Request, JqdError], Response]
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a call without parameters."""


class Document(NamedTuple):
    """A response body that is a document, such as HTML, and no value of a type."""

    kind: str
    """The media type."""
    also: tuple[str, ...] = ()
    """Other media types that a client may ask for by Accept."""


class Route(NamedTuple):
    """One call of the API: a method of a path."""

    method: str
    path: str
    handler: Handler
    answers: Mapping[int, Any]
    """Status → type of the response's body, a tuple of types of which it is one, a Document, or None for no body."""
    body: Any = None
    """The type of the request's body, or a tuple of types; None: it has no body."""
    query: type[Struct] = NoQuery
    roles: tuple[Role, ...] | None = None
    """The caller needs one of these roles; empty: it needs none, or the handler checks it. None: see `needs`."""
    one_tenant: bool = False
    """Whether the call is for one tenant, which a principal that sees all has to name."""
    all_tenants: bool = False
    """Whether the call is about all tenants together, and only for tokens without a tenant."""
    urgency: Urgency = Urgency.NOT
    """Urgent are workers' reports and heartbeats, and health checks: they do not wait behind a flood of pushes of the
    same tenant or address. Late, workers would lose their jobs, and health would be red."""
    watched: bool = False
    """Whether monitoring calls it every few seconds."""
    any_size: bool = False
    """Whether its body may be larger than one job: arrays of jobs, and results."""
    headers: Mapping[str, str] = NO_HEADERS
    """Required headers → what they contain."""
    heeds: Mapping[str, str] = NO_HEADERS
    """Optional headers → what they contain."""
    refusal: type[Struct] = Details
    """The type of its error bodies."""
    refuse: Refuse = refuse
    """Makes the response for an error."""
    refuses: tuple[int, ...] = ()
    """The statuses of its errors, if its API lists them."""
    plain: Mapping[str, str] = NO_HEADERS
    """Media types that any web page can send ("" for none) → the type they count as if a program sends them."""
    polls: bool = False
    """Whether it may wait for something; then it is woken at once when its client hangs up."""
    lists: bool = False
    """Whether it is a list, of which only a few are made at once."""
    bare: bool = False
    """Whether the request's body may be left out."""

    @property
    def status(self) -> int:
        """Return the status of an answer for which the handler gives none."""
        status: int = next(iter(self.answers))
        return status

    @property
    def needs(self) -> tuple[Role, ...]:
        """Return the roles that may make the call. By default, viewers may make GETs, and operators other calls."""
        if self.roles is not None:
            return self.roles
        return (Role.VIEWER,) if self.method == "GET" else (Role.OPERATOR,)
