"""Who asks: whose he is, and what he may do. The desk acts for one principal at a time (`Desk.acting`)."""

import enum
from typing import NamedTuple


class Role(enum.StrEnum):
    """What somebody may do."""

    PUSH = "push"
    """Push jobs, and look at, cancel and change those of his tenant one by one."""
    WORKER = "worker"
    """Register workers, take jobs and report them."""
    VIEWER = "viewer"
    """Look at everything of his tenant."""
    OPERATOR = "operator"
    """All that is about jobs, workers and rules of his tenant."""
    MASTER = "master"
    """That, and its tokens."""


class Principal(NamedTuple):
    """Somebody."""

    tenant: str = ""
    role: Role = Role.MASTER
    sees_all: bool = False
    """Of all tenants: he belongs to the tenant "", and does not speak for one."""
    token: str = ""
    """The name of the token that he came with; empty: none was asked for."""

    def sees(self, tenant: str) -> bool:
        """Whether what is that tenant's exists for him."""
        return self.sees_all or tenant == self.tenant


EVERYBODY = Principal(sees_all=True)
"""Who asks where no tokens are needed, and the daemon itself."""
