"""What the store's methods need of a connection, and which of our exceptions stand for errors of the server."""

from typing import Any, Protocol

import redis

from jqd.domain.errors import (
    PositionMismatch,
    StaleOwner,
    StoreAway,
    StoreChanged,
    StoreError,
    StoreFull,
    StoreMisplaced,
    StoreRefused,
    StoreUnsettled,
    SysidTaken,
)
from jqd.store.functions import is_missing
from jqd.store.keys import KINDS, STEMS, Keys

# First words of server errors that pass by themselves, or by a failover; all others need a human.
WEATHER = frozenset({"LOADING", "BUSY", "MASTERDOWN", "MISCONF", "OOM", "TRYAGAIN", "NOREPLICAS", "ASK"})


class ScriptCaller(Protocol):
    """What the store's methods need of a connection."""

    @property
    def identity(self) -> str:
        """Return the identity of the store's life (a time without loss of data) that `look` accepted last."""

    @property
    def seal(self) -> str:
        """Return the key that cursors are sealed with; "" before the first `look`."""

    async def call(self, name: str, *arguments: Any) -> object:
        """Call a function of the library, and return its answer. The present time (`now_ms`) is put before the
        arguments."""

    async def call_behind(self, name: str, *arguments: Any) -> object:
        """Call a function of the library, after all earlier calls of this method, and return its answer. The call is
        sent before the earlier calls are answered."""

    async def info(self, *sections: str) -> dict[str, str]: ...


class OtherServer(redis.ConnectionError):
    """Raised if a connection leads to another server than the accepted one, or to one that is no master now. Nothing
    was sent."""


def translate(error: redis.RedisError, call: str, keys: Keys) -> StoreError:
    """Return our exception for a redis-py error. `call`: the name of the call that failed, for the message. If one of
    our own functions failed, the message contains nothing that a user wrote."""
    if isinstance(error, (redis.AuthenticationError, redis.exceptions.AuthorizationError)):
        return StoreRefused(f"the store does not let us in ({call}): {error}; check user and password in its URL")
    if isinstance(error, OtherServer):
        return StoreChanged(str(error))
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
        return StoreAway("the store does not answer", str(error))
    if not isinstance(error, redis.ResponseError):
        return StoreRefused(f"the store answered {call} with something that is not understood: {error}")
    words = str(error).split(" ")
    if words[0].startswith("JQD_"):
        return _named(words[0], words[1] if len(words) > 1 else "", call, keys)
    code = str(getattr(error, "status_code", None) or words[0])
    if code == "READONLY":
        return StoreChanged("the server has become a copy of another one, whose data takes the place of its own")
    if code == "MOVED":
        return StoreChanged(
            "the store's keys belong to another node of the cluster now, which is looked for when the store's URL is"
            " redis+cluster://…",
            str(error),
        )
    if code == "CLUSTERDOWN":
        # This node lost touch with the others, or some slots have no master. Another node may have taken its place.
        return StoreChanged(f"the cluster, or this node of it, cannot serve now: {error}")
    if is_missing(error):
        return StoreAway("the store has lost jqd's functions again, as soon as they were loaded")
    if code in WEATHER:
        return (StoreFull if code == "OOM" else StoreAway)(
            f"the store cannot serve now: {code} {str(error).removeprefix(f'{code} ')}"
        )
    if code == "WRONGTYPE":
        return StoreRefused(f"{call}: a key {keys.stem}… has another type; something else wrote it: move it away")
    return StoreRefused(f"the store refuses {call}: {error}")


def _named(name: str, detail: str, call: str, keys: Keys) -> StoreError:
    if name == "JQD_POSITION" and detail.isdigit():
        message = f"{call}: the store has applied this journal up to {detail}; go on from there"
        return PositionMismatch(message, stored=int(detail))
    if name == "JQD_STORE_CHANGED":
        return StoreChanged("another life of the store has begun: it was emptied, or found to be rolled back")
    if name == "JQD_UNSETTLED" and detail == "jobs":
        return StoreUnsettled(
            "a daemon is telling the store the jobs that it forgot; who has a unique key, and who is in a group, it "
            "knows only then"
        )
    if name == "JQD_UNSETTLED":
        return StoreUnsettled("the daemons are telling the store what it forgot; how jobs stand it knows only then")
    if name == "JQD_STALE_OWNER":
        return StaleOwner(f"{call}: our epoch was burnt (present: {detail}); stop all work and reserve a new one")
    if name == "JQD_SYSID_TAKEN":
        return SysidTaken(f"another living daemon uses this sysid (epoch {detail}): a copied data directory?")
    if name == "JQD_PARTITION":
        return StoreMisplaced(f"the store was begun as partition {detail}; `jqd doctor` says what to do")
    if name == "JQD_WRONG_TYPE" and detail in KINDS:
        key = keys[detail] + (":…" if detail in STEMS else "")
        return StoreRefused(f"{call}: the key {key} is not a {KINDS[detail]}; something else wrote it: move it away")
    if name == "JQD_BAD_VALUE" and detail in KINDS:
        return StoreRefused(f"{call}: the key {keys[detail]} holds a value that jqd did not write; look at it by hand")
    return StoreRefused(f"{call}: the function refused its arguments: {name} {detail}")
