"""Whose key a request shows: the master's, a client's, one that nobody has, or none.

Tokens stand beside them (`who.py`): one of a master is as good as the master key.
"""

import enum
from hmac import compare_digest

from jqd.api.config import ApiConfig
from jqd.domain.tokens import Role
from jqd.service.principal import Principal


class ApiKey(enum.Enum):
    """What is known of whoever shows a key."""

    MASTER = "master"
    CLIENT = "client"
    UNKNOWN = "unknown"
    NONE = "none"


class ApiKeys:
    """The keys that are set. With no master key set nobody is asked for one, but by who has no other way to be told."""

    def __init__(self, config: ApiConfig) -> None:
        self._master, self._client = config.master_key.encode(), config.client_key.encode()

    def whose(self, given: str) -> ApiKey:
        """Compared in constant time, also where nothing is set."""
        key = given.encode("utf-8", "surrogatepass")
        is_master, is_client = compare_digest(key, self._master), compare_digest(key, self._client)
        if not key:
            return ApiKey.NONE
        return ApiKey.MASTER if is_master else ApiKey.CLIENT if is_client else ApiKey.UNKNOWN

    def is_server(self, who: Principal, said: str) -> bool:
        """Whether somebody may do what only the server itself may: by his bearer, where a master key is set."""
        if not self._master:
            return who.may(Role.OPERATOR)
        if who.token and who.may(Role.MASTER):
            return True
        scheme, _, given = said.partition(" ")
        return scheme.lower() == "bearer" and self.whose(given.strip()) is ApiKey.MASTER
