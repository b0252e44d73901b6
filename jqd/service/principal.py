"""The caller of a request, with tenant, role and scopes. The service acts for one (`Services.as_principal`)."""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.domain.tenant import bare, in_scope, tenant_of
from jqd.domain.tokens import MAY, Role


class Principal(NamedTuple):
    tenant: str = ""
    role: Role = Role.MASTER
    sees_all: bool = False
    """Whether it sees all tenants: it belongs to the tenant "" and does not speak for another."""
    token: str = ""
    """The id of its token; empty: none was needed."""
    scopes: tuple[str, ...] = ()
    """The only jobtypes that it may know, each in full or as a prefix with a * at its end; none: it may know all."""
    speaks_for: bool = False
    """Whether its token belongs to the tenant "", and it speaks for `tenant`."""
    is_server: bool = True
    """Whether it may push and change `server_only` jobs: it has the master key, or none is set."""

    @property
    def tokens_tenant(self) -> str:
        """Return the tenant whose limits count: the token's, or without a token the one that the request names."""
        return "" if self.speaks_for and self.token else self.tenant

    @property
    def is_bound(self) -> bool:
        """Return whether some jobs or tenants are hidden from the principal."""
        return not self.sees_all or bool(self.scopes)

    def may(self, *roles: Role) -> bool:
        """Return whether the principal may make a call that needs one of these roles, or none."""
        return not roles or any(role in MAY[self.role] for role in roles)

    @property
    def can_read(self) -> bool:
        """Return whether the principal may read workers, pauses and lists of jobs, not only jobs whose ids it has."""
        return self.may(Role.VIEWER)

    def can_see(self, tenant: str) -> bool:
        return self.sees_all or tenant == self.tenant

    def can_access(self, jobtype: str) -> bool:
        """Return whether a jobtype (a qualified name) is in the principal's tenant and scopes."""
        return self.can_see(tenant_of(jobtype)) and (not self.scopes or in_scope(self.scopes, bare(jobtype)))


def is_within(scopes: Sequence[str], bounds: Sequence[str]) -> bool:
    """Return whether all jobtypes of `scopes` are jobtypes of `bounds`; no scopes mean all jobtypes.

    `mail@3` counts as not within `mail`, for a handler may be called so."""
    if not bounds or not scopes:
        return not bounds
    return all(
        any(
            scope == bound or (bound.endswith("*") and scope.removesuffix("*").startswith(bound[:-1]))
            for bound in bounds
        )
        for scope in scopes
    )


EVERYBODY = Principal(sees_all=True)
"""The principal of requests where no tokens are needed, and of the daemon itself."""
