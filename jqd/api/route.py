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
"""A function that handles a request. It returns the value to be answered; (status, value) if the route has several
statuses; or a whole Response."""
Refuse = Callable[[Request, JqdError], Response]
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query type of a call that takes no parameters."""


class Document(NamedTuple):
    """Describes a response body that is a document, such as HTML, and not an encoded value."""

    kind: str
    """The media type."""
    also: tuple[str, ...] = ()
    """Other media types that a client may request by Accept."""


class Route(NamedTuple):
    """One call of the API: a method of a path."""

    method: str
    path: str
    handler: Handler
    answers: Mapping[int, Any]
    """Status → type of the response's body: a type, a tuple of possible types, a Document, or None for no body."""
    body: Any = None
    """The type of the request's body, or a tuple of possible types; None: it has no body."""
    query: type[Struct] = NoQuery
    roles: tuple[Role, ...] | None = None
    """The roles of which the caller needs one. Empty: no role is needed, or the handler checks it. None: see
    `needs`."""
    one_tenant: bool = False
    """Whether the call concerns exactly one tenant. A principal that sees all tenants must name it."""
    all_tenants: bool = False
    """Whether the call concerns all tenants together. Only tokens without a tenant may make it."""
    urgency: Urgency = Urgency.NOT
    """How urgent requests are. Workers' reports, heartbeats and health checks are urgent: they do not wait behind a
    flood of pushes of the same tenant or address. If they came late, workers would lose their jobs, and the daemon
    would look unhealthy."""
    watched: bool = False
    """Whether monitoring calls it every few seconds."""
    any_size: bool = False
    """Whether the body may be larger than one job, as arrays of jobs and results are."""
    headers: Mapping[str, str] = NO_HEADERS
    """Required header → what it contains."""
    heeds: Mapping[str, str] = NO_HEADERS
    """Optional header → what it contains."""
    refusal: type[Struct] = Details
    """The type of the bodies of its errors."""
    refuse: Refuse = refuse
    """The function that makes the response for an error."""
    refuses: tuple[int, ...] = ()
    """The statuses of errors, if the API lists them in its documentation."""
    plain: Mapping[str, str] = NO_HEADERS
    """Media type that any web page can send ("" for none) → the type as which it is read if a program sends it."""
    polls: bool = False
    """Whether the call may wait for something. If so, it is interrupted at once when its client hangs up."""
    lists: bool = False
    """Whether the call makes a list, of which only a few are made at the same time."""
    bare: bool = False
    """Whether the request's body may be left out."""

    @property
    def status(self) -> int:
        """Return the status of an answer for which the handler returns no status."""
        status: int = next(iter(self.answers))
        return status

    @property
    def needs(self) -> tuple[Role, ...]:
        """Return the roles that may make the call. By default viewers may make GETs, and operators all other calls."""
        if self.roles is not None:
            return self.roles
        return (Role.VIEWER,) if self.method == "GET" else (Role.OPERATOR,)
