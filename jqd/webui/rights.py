"""Which role may look at which page and do what, so that the head of a page leaves out, and a page greys out, what the
API would refuse. The API refuses it all the same."""

import shlex
from typing import NamedTuple

from jqd.domain.tokens import MAY, Role


class Right(NamedTuple):
    """Whom the API lets do something."""

    roles: tuple[Role, ...] = ()
    """Those whose calls it is made of, any of them; none: whoever is logged in."""
    is_of_all: bool = False
    """Tokens of a tenant may not: it is of all tenants together."""

    @property
    def holders(self) -> list[str]:
        """Return all roles that have it, the least first."""
        return [role.value for role in Role if not self.roles or MAY[role] & {*self.roles}]

    @property
    def whom(self) -> str:
        """Return in words whom it is for."""
        holders = self.holders
        return f"the role{'s' if len(holders) > 1 else ''} {', '.join(holders)}"


ANYBODY = Right()
READ = Right((Role.PUSH, Role.VIEWER))
"""Look at a job by its id, its flow and its group."""
LOOK = Right((Role.VIEWER,))
SOURCE = Right((Role.VIEWER, Role.WORKER))
OPERATE = Right((Role.OPERATOR,))
LOOK_AT_ALL = Right((Role.VIEWER,), is_of_all=True)
PUSH = Right((Role.PUSH,))
MASTER = Right((Role.MASTER,))
ACTS = {
    "cancel": PUSH,
    "close": PUSH,
    "unregister": Right((Role.WORKER,)),
    "token": MASTER,
    "drain": Right((Role.OPERATOR,), is_of_all=True),
    **dict.fromkeys(("delete", "retry", "run-now", "change", "pause", "resume", "set", "remove", "flow"), OPERATE),
    **dict.fromkeys(("retry-many", "delete-many", "cancel-many"), OPERATE),
}
"""By act, as the pages call them. A page that names an act which is not here has a mistake: KeyError."""


ASK = "Ask whoever has a token of the role master for one that may"


def may(role: str, tenant: str, right: Right) -> bool:
    """Return whether the API would let a token of this role and tenant. A role that is not known here may be one of a
    newer daemon, which then says what it may."""
    return not (right.is_of_all and tenant) and (role not in {*Role} or role in right.holders)


def remedy(tenant: str, right: Right) -> str:
    """Return what to do about a right that a token has not."""
    if right.is_of_all and tenant:
        return f"It is for tokens of no tenant. Tenants, Types and Workers show what is of {tenant}."
    whose = f" --of={shlex.quote(tenant)}" if tenant else ""
    return f"{ASK}: jqd tokens create {right.roles[0]}{whose}"
