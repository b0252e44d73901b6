"""One call of the interface: its handler, and the types of its request and responses."""

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
"""Returns what its answer says, in the language of the request; its status, too, where the call has several; or a whole
Response."""
Refuse = Callable[[Request, JqdError], Response]
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a call that has none."""


class Document(NamedTuple):
    """A response that is no value, but a document."""

    kind: str
    """The media type."""
    also: tuple[str, ...] = ()
    """Others that a client may ask for by Accept."""


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
    roles: tuple[Role, ...] | None = None
    """Of which one is needed; of none: it is open, or asks by itself. Left out: see `needs`."""
    one_tenant: bool = False
    """Whether it is of one tenant, so that who sees all has to name it."""
    all_tenants: bool = False
    """Whether it is of all tenants together, and for tokens of no tenant."""
    urgency: Urgency = Urgency.NOT
    """Late behind a flood of pushes of the same tenant or address, workers lose the jobs that they have, and health
    is red: what they say of these, and what looks after the daemon, waits behind none."""
    watched: bool = False
    """Whether it is looked at every few seconds by what watches the daemon."""
    any_size: bool = False
    """Whether its body may be larger than one job: arrays of jobs, and results."""
    headers: Mapping[str, str] = NO_HEADERS
    """Those that it needs, and what stands in them."""
    heeds: Mapping[str, str] = NO_HEADERS
    """The same of those that may be left out."""
    refusal: type[Struct] = Details
    """The type of its error bodies."""
    refuse: Refuse = refuse
    """An error in the words of its interface."""
    refuses: tuple[int, ...] = ()
    """The statuses of its errors, where its interface has a list of them."""
    plain: Mapping[str, str] = NO_HEADERS
    """Types that pages send, "" for none, and as what they are taken from programs."""
    polls: bool = False
    """Whether it may wait for something: it is woken at once when its client hangs up."""
    lists: bool = False
    """Whether it is the longer the more there is: few of them are under way at once."""
    bare: bool = False
    """Whether what it takes may be left out."""

    @property
    def status(self) -> int:
        """Return the status of its answers, where nothing else is said."""
        status: int = next(iter(self.answers))
        return status

    @property
    def needs(self) -> tuple[Role, ...]:
        """Return the roles that may make the call. Where the table names none: viewers for GET, else operators."""
        if self.roles is not None:
            return self.roles
        return (Role.VIEWER,) if self.method == "GET" else (Role.OPERATOR,)
