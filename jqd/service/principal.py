"""Who asks: whose he is, and what he may do. The service acts for one principal at a time (`Services.as_principal`)."""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.domain.tenant import bare, tenant_of
from jqd.domain.tokens import MAY, Role


class Principal(NamedTuple):
    """Somebody."""

    tenant: str = ""
    role: Role = Role.MASTER
    sees_all: bool = False
    """Of all tenants: he belongs to the tenant "", and does not speak for one."""
    token: str = ""
    """The id of the token that he came with; empty: none was asked for."""
    scopes: tuple[str, ...] = ()
    """Jobtypes that he may know, each as it is or with a * at its end; none: all."""

    speaks_for: bool = False
    """He belongs to the tenant "", and speaks for this one."""
    is_server: bool = True
    """He has the master key, or nobody is asked for it: what is `server_only` is for him."""

    @property
    def tokens_tenant(self) -> str:
        """Whose the token is that he came with, so that its limits are his; without one: the tenant that he named."""
        return "" if self.speaks_for and self.token else self.tenant

    @property
    def is_bound(self) -> bool:
        """Whether there is something that he must not know."""
        return not self.sees_all or bool(self.scopes)

    def may(self, *roles: Role) -> bool:
        """Whether a call for one of these is for him; of none: for everybody."""
        return not roles or any(role in MAY[self.role] for role in roles)

    @property
    def can_read(self) -> bool:
        """Whether workers, pauses and all jobs are for him to look at, and not only jobs whose ids he has."""
        return self.may(Role.VIEWER)

    def can_see(self, tenant: str) -> bool:
        """Whether what is that tenant's exists for him."""
        return self.sees_all or tenant == self.tenant

    def can_access(self, jobtype: str) -> bool:
        """Whether jobs of that type, named as jqd knows it, exist for him."""
        return self.can_see(tenant_of(jobtype)) and (not self.scopes or in_scope(self.scopes, bare(jobtype)))


def in_scope(scopes: Sequence[str], name: str) -> bool:
    """Whether a jobtype is one of them."""
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in scopes)


EVERYBODY = Principal(sees_all=True)
"""Who asks where no tokens are needed, and the daemon itself."""
