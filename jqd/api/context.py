"""What route handlers work with."""

from dataclasses import dataclass, field, replace

import trio

from jqd.api.auth import Authenticator
from jqd.api.config import ApiConfig
from jqd.api.siblings import Siblings
from jqd.http import BodyBudget, Guard
from jqd.service import Services
from jqd.service.principal import Principal


@dataclass(slots=True, eq=False)
class ApiContext:
    """The service, and what only HTTP has: limits and guard, which may change."""

    config: ApiConfig
    services: Services
    auth: Authenticator
    """Finds the principal of a request."""
    guard: Guard = field(default_factory=Guard)
    siblings: Siblings = field(default_factory=Siblings)
    """The other processes that share the port."""
    read: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(1))
    """Large bodies that are being read, one at a time, as below (v1/push.py)."""
    shown: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(1))
    """Large answers that are being made, one at a time: each may take 300 MB as objects (large_bodies.py)."""
    bodies: BodyBudget = field(default_factory=lambda: BodyBudget(0, lambda _: ("", False), lambda: False))
    """The budget of the API, which sets it: answers count in it that are made whole and are large."""

    def as_principal(self, principal: Principal) -> "ApiContext":
        """Return the same context, with the service acting for a principal."""
        return (
            self
            if principal is self.services.principal
            else replace(self, services=self.services.as_principal(principal))
        )
