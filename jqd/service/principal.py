"""The caller of a request: its tenant, role and scopes. The service acts for one principal
(`Services.as_principal`)."""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.domain.tenant import bare, in_scope, tenant_of
from jqd.domain.tokens import MAY, Role


class Principal(NamedTuple):
    tenant: str = ""
    role: Role = Role.MASTER
    sees_all: bool = False
    """Whether it sees all tenants: one of the tenant "" that does not speak for another."""
    token: str = ""
    """The id of its token; empty: none was needed."""
    scopes: tuple[str, ...] = ()
    """Jobtypes that it may know, each as it is or with a * at its end; none: all."""
    speaks_for: bool = False
    """Whether it belongs to the tenant "", and speaks for this one."""
    is_server: bool = True
    """Whether it may use what is `server_only`: it has the master key, or none is set."""

    @property
    def tokens_tenant(self) -> str:
        """Return the tenant whose limits count: that of the token; without a token the one that was named."""
        return "" if self.speaks_for and self.token else self.tenant

    @property
    def is_bound(self) -> bool:
        """Return whether some jobs or tenants are hidden from it."""
        return not self.sees_all or bool(self.scopes)

    def may(self, *roles: Role) -> bool:
        """Return whether the principal may make a call for one of these roles; no roles: everybody may."""
        return not roles or any(role in MAY[self.role] for role in roles)

    @property
    def can_read(self) -> bool:
        """Return whether the principal may read workers, pauses and all jobs, not only jobs whose ids it has."""
        return self.may(Role.VIEWER)

    def can_see(self, tenant: str) -> bool:
        return self.sees_all or tenant == self.tenant

    def can_access(self, jobtype: str) -> bool:
        """Return whether a jobtype, a qualified name, is of its tenant and in its scopes."""
        return self.can_see(tenant_of(jobtype)) and (not self.scopes or in_scope(self.scopes, bare(jobtype)))


def is_within(scopes: Sequence[str], bounds: Sequence[str]) -> bool:
    """Return whether all jobtypes of `scopes` are jobtypes of `bounds`; none: all. It may say no of odd ones that are:
    `mail@3` is not within `mail`, as a handler may be called so."""
    if not bounds or not scopes:
        return not bounds
    return all(
        any(one == bound or (bound.endswith("*") and one.removesuffix("*").startswith(bound[:-1])) for bound in bounds)
        for one in scopes
    )


EVERYBODY = Principal(sees_all=True)
"""The principal of requests where no tokens are needed, and of the daemon itself."""
