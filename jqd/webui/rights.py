"""Says which role may see and do what, so that pages hide links and disable buttons that the API would refuse. The API
checks every request itself."""

import shlex
from typing import NamedTuple

from jqd.domain.tokens import MAY, Role


class Right(NamedTuple):
    """A right to see or do something."""

    roles: tuple[Role, ...] = ()
    """A login needs one of these roles, or a role that includes one. Empty: any login will do."""
    is_of_all: bool = False
    """Whether it concerns all tenants together, so that a token of one tenant does not have it."""

    @property
    def holders(self) -> list[str]:
        """Return all roles that have the right, the least powerful first."""
        return [role.value for role in Role if not self.roles or MAY[role] & {*self.roles}]

    @property
    def whom(self) -> str:
        """The roles that have the right, as text for people: `the roles operator, master`."""
        holders = self.holders
        return f"the role{'s' if len(holders) > 1 else ''} {', '.join(holders)}"


ANYBODY = Right()
READ = Right((Role.PUSH, Role.VIEWER))
"""Right to see a job by its id, with its flow and its group."""
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
"""Name of an act in pages → right that it needs."""


ASK = "Ask whoever has a token of the role master for one that may"


def may(role: str, tenant: str, right: Right) -> bool:
    """Return whether a token of this role and tenant has a right. True for an unknown role, which a newer daemon may
    have: the API then decides."""
    return not (right.is_of_all and tenant) and (role not in {*Role} or role in right.holders)


def remedy(tenant: str, right: Right) -> str:
    """Return, as text, what a person who lacks a right can do to get it, or where else to look."""
    if right.is_of_all and tenant:
        return f"It is for tokens of no tenant. Tenants, Types and Workers show what is of {tenant}."
    whose = f" --of={shlex.quote(tenant)}" if tenant else ""
    return f"{ASK}: jqd tokens create {right.roles[0]}{whose}"
