"""The context of route handlers: the service, and what handlers need only because of HTTP."""

from dataclasses import dataclass, field, replace

import trio

from jqd.api.auth import Authenticator
from jqd.api.config import ApiConfig
from jqd.api.kept_types import KeptTypes
from jqd.api.siblings import Siblings
from jqd.http import BodyBudget, Guard
from jqd.service import Services
from jqd.service.principal import Principal


@dataclass(slots=True, eq=False)
class ApiContext:
    """What route handlers need: the service, authentication, and the limits of HTTP. `config` and `guard` change at a
    reload."""

    config: ApiConfig
    services: Services
    auth: Authenticator
    """Finds out who sends a request."""
    guard: Guard = field(default_factory=Guard)
    siblings: Siblings = field(default_factory=Siblings)
    """The other processes that share the port."""
    types: KeptTypes = field(default_factory=KeptTypes)
    read: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(1))
    """Limits the threads that decode large bodies to one at a time, because each may take 300 MB for objects
    (v1/push.py)."""
    shown: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(1))
    """Limits the threads that encode large answers to one at a time, for the same reason (large_bodies.py)."""
    bodies: BodyBudget = field(default_factory=lambda: BodyBudget(0, lambda _: ("", False), lambda: False))
    """The memory for bodies of requests, set by `Api`. Large answers that are made as a whole count, too."""

    def as_principal(self, principal: Principal) -> "ApiContext":
        """Return a copy of this context whose service acts for a principal."""
        if principal is self.services.principal:
            return self
        return replace(self, services=self.services.as_principal(principal))
