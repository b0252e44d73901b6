"""The context of route handlers: the service, and the parts that only HTTP has."""

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
    """The service, authentication, and the limits of HTTP. `config` and `guard` change at a reload."""

    config: ApiConfig
    services: Services
    auth: Authenticator
    """Finds the principal of a request."""
    guard: Guard = field(default_factory=Guard)
    siblings: Siblings = field(default_factory=Siblings)
    """The other processes that share the port."""
    types: KeptTypes = field(default_factory=KeptTypes)
    read: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(1))
    """For threads that decode large bodies, one at a time: each may take 300 MB as objects (v1/push.py)."""
    shown: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(1))
    """For threads that encode large answers, one at a time, as above (large_bodies.py)."""
    bodies: BodyBudget = field(default_factory=lambda: BodyBudget(0, lambda _: ("", False), lambda: False))
    """Memory for bodies, set by `Api`; large answers that are made as a whole count in it, too."""

    def as_principal(self, principal: Principal) -> "ApiContext":
        """Return this context with its service acting for a principal."""
        if principal is self.services.principal:
            return self
        return replace(self, services=self.services.as_principal(principal))
