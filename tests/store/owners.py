"""To whom each field of the store belongs: what no owner is here for would stay for ever (docs/STORE.md, Bounds)."""

from typing import Any

from jqd.store.keys import Keys
from jqd.testing.keyspace import Keyspace


def check_owners(keyspace: Keyspace, keys: Keys) -> None:
    """Raises AssertionError where a field has no owner."""

    def at(name: str) -> Any:
        value = keyspace.keys.get(keys[name].encode())
        return getattr(value, "scores", value) or {}

    here = at("jobs").keys() - at("ended").keys() - at("dead").keys()
    assert at("expiring").keys() <= here, "what has ended does not expire"
