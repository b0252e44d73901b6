"""The user that code runs as, where that is not the worker's own: a worker of root has one for it."""

import os
import pwd
from functools import cache
from typing import Any, NamedTuple

from jqd.domain.errors import ConfigError


class Owner(NamedTuple):
    uid: int
    gid: int


@cache
def owner_of(user: str) -> Owner | None:
    """Return who a user is; None: the worker's own. Raises ConfigError."""
    if not user:
        return None
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise ConfigError(f"--user {user}: this machine has no such user") from None
    return None if found.pw_uid == os.geteuid() else Owner(found.pw_uid, found.pw_gid)


def as_owner(owner: Owner | None) -> dict[str, Any]:
    """Return what starts a process as that user."""
    return {} if owner is None else {"user": owner.uid, "group": owner.gid, "extra_groups": []}


def expect_owner(user: str) -> None:
    """Raise ConfigError where code cannot run as that user, or would be root without a word."""
    is_root = os.geteuid() == 0
    if is_root and not user:
        raise ConfigError(
            "this worker is root, and so would be all code: no limit of processes holds for root, and it may read the"
            " worker's token. Give the code a user with --user NAME, or say --user root if it must be so"
        )
    if not is_root and owner_of(user) is not None:
        raise ConfigError(f"--user {user}: only a worker of root can run code as somebody else; start it as that user")
