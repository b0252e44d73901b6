"""Who asks: of which tenant, and what it may do. The service acts for one principal (`Services.as_principal`)."""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.domain.tenant import bare, tenant_of
from jqd.domain.tokens import MAY, Role


class Principal(NamedTuple):
    tenant: str = ""
    role: Role = Role.MASTER
    sees_all: bool = False
    """Of all tenants: a principal of the tenant "" that does not speak for one."""
    token: str = ""
    """The id of its token; empty: none was asked for."""
    scopes: tuple[str, ...] = ()
    """Jobtypes that it may know, each as it is or with a * at its end; none: all."""
    speaks_for: bool = False
    """It belongs to the tenant "", and speaks for this one."""
    is_server: bool = True
    """It has the master key, or none is asked for: what is `server_only` is for it."""

    @property
    def tokens_tenant(self) -> str:
        """Whose its token is, and so its limits; without one: the tenant that it named."""
        return "" if self.speaks_for and self.token else self.tenant

    @property
    def is_bound(self) -> bool:
        """Whether there is something that it must not know."""
        return not self.sees_all or bool(self.scopes)

    def may(self, *roles: Role) -> bool:
        """Whether a call for one of these roles is for it; of none: for everybody."""
        return not roles or any(role in MAY[self.role] for role in roles)

    @property
    def can_read(self) -> bool:
        """Whether it may look at workers, pauses and all jobs, and not only at jobs whose ids it has."""
        return self.may(Role.VIEWER)

    def can_see(self, tenant: str) -> bool:
        return self.sees_all or tenant == self.tenant

    def can_access(self, jobtype: str) -> bool:
        """`jobtype`: a qualified name."""
        return self.can_see(tenant_of(jobtype)) and (not self.scopes or in_scope(self.scopes, bare(jobtype)))


def in_scope(scopes: Sequence[str], name: str) -> bool:
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in scopes)


EVERYBODY = Principal(sees_all=True)
"""Who asks where no tokens are needed, and the daemon itself."""
