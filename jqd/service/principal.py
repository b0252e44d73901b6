"""The caller of a request, with tenant, role and scopes. The service acts for one principal
(`Services.as_principal`)."""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.domain.tenant import bare, in_scope, tenant_of
from jqd.domain.tokens import MAY, Role


class Principal(NamedTuple):
    tenant: str = ""
    role: Role = Role.MASTER
    sees_all: bool = False
    """Whether the principal sees all tenants: it belongs to the tenant "" and does not act for another."""
    token: str = ""
    """The id of the principal's token; empty: the request needed none."""
    scopes: tuple[str, ...] = ()
    """The jobtypes that the principal is limited to, each in full or as a prefix with a * at its end; empty: no
    limit."""
    speaks_for: bool = False
    """Whether the token belongs to the tenant "", and acts for `tenant` in this request."""
    is_server: bool = True
    """Whether the principal may push and change `server_only` jobs: it has the master key, or none is configured."""

    @property
    def tokens_tenant(self) -> str:
        """Return the tenant whose limits apply: the token's, or without a token the tenant that the request names."""
        return "" if self.speaks_for and self.token else self.tenant

    @property
    def is_bound(self) -> bool:
        """Return whether some jobs or tenants are hidden from the principal."""
        return not self.sees_all or bool(self.scopes)

    def may(self, *roles: Role) -> bool:
        """Return whether the principal has at least one of these roles' rights; True if no roles are given."""
        return not roles or any(role in MAY[self.role] for role in roles)

    @property
    def can_read(self) -> bool:
        """Return whether the principal may read workers, pauses and lists of jobs, and not only single jobs by their
        ids."""
        return self.may(Role.VIEWER)

    def can_see(self, tenant: str) -> bool:
        return self.sees_all or tenant == self.tenant

    def can_access(self, jobtype: str) -> bool:
        """Return whether a jobtype (a qualified name) belongs to a tenant that the principal sees, and to its
        scopes."""
        return self.can_see(tenant_of(jobtype)) and (not self.scopes or in_scope(self.scopes, bare(jobtype)))


def is_within(scopes: Sequence[str], bounds: Sequence[str]) -> bool:
    """Return whether every jobtype that `scopes` allow is also allowed by `bounds`. Empty scopes allow all jobtypes.

    The scope `mail@3` does not count as within `mail`, since a handler may have that name.
    """
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
