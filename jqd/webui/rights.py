"""Which role may do what, so that a page greys out what the API would refuse. The API refuses it all the same."""

ROLES = ("push", "worker", "viewer", "operator", "master")
MANAGERS = frozenset({"operator", "master"})
PUSHERS = MANAGERS | {"push"}
WORKERS = MANAGERS | {"worker"}
ACTS = {
    "cancel": PUSHERS,
    "delete": PUSHERS,
    "retry": MANAGERS,
    "run-now": MANAGERS,
    "change": MANAGERS,
    "pause": MANAGERS,
    "resume": MANAGERS,
    "retry-many": MANAGERS,
    "delete-many": MANAGERS,
    "cancel-many": MANAGERS,
    "drain": MANAGERS,
    "set": MANAGERS,
    "remove": MANAGERS,
    "unregister": WORKERS,
    "flow": MANAGERS,
    "close": PUSHERS,
}
"""By act, as the pages call them: the roles that may."""


def may(role: str, act: str) -> bool:
    """Return whether a role may act so. A page that names an act which is not here has a mistake: KeyError."""
    return role in ACTS[act]
