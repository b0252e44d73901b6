"""Has the counts of a store compared with a recount after its calls."""

from collections.abc import Callable
from typing import Any, Protocol

import redis

from jqd.store import Store
from jqd.store.keys import Keys
from jqd.testing.keyspace import NOTHING, Keyspace, SortedSet
from jqd.testing.store import LIBRARY, FakeStore
from tests.harness.recount import WHOLE, counted, hands, recount
from tests.store.indexes import check_indexes
from tests.store.owners import check_owners

KEYS = Keys("jqd")
READS = frozenset(name for name, flags in LIBRARY.flags.items() if "no-writes" in flags)
"""What the servers, and the fake, let change nothing: behind it stands what stood before."""


class Raw(Protocol):
    """The server, not by way of functions."""

    def hset(self, name: Any, key: Any, value: Any, /) -> object: ...
    def hdel(self, name: Any, /, *keys: Any) -> object: ...
    def zadd(self, name: Any, /, *words: Any) -> object: ...


class Recount:
    """What a recount says of one store after each call of it; of a real server, which runs the same scripts and has to
    send all of it, after the last one."""

    def __init__(self, keyspace: Callable[[], Keyspace], raw: Raw) -> None:
        self._keyspace = keyspace
        self._raw = raw
        self._is_server = not isinstance(raw, Keyspace)
        self.off = False
        """What jqd would not write was written: nothing is compared."""
        self.has_many_priorities = False
        """Of a queue of more than are moved at once those behind them have rows, or have none."""
        self.met = set[str]()
        """Names of keys that there were."""
        self.is_wrong = False
        """A bucket counts what nobody has, until it is looked at."""
        self.calls = 0

    def spoil(self, job_id: str, row: bytes = b"\xc1", name: str = "jobs") -> None:
        """Somebody wrote over a row of a job."""
        self._raw.hset(_key(name), job_id.encode(), row)
        self.off = True

    def lose(self, job_id: str, name: str = "jobs") -> None:
        """Somebody deleted a row of a job."""
        self._raw.hdel(_key(name), job_id.encode())
        self.off = True

    def row(self, job_id: str) -> bytes | None:
        """Of a job, as it lies there."""
        found: bytes | None = self._keyspace().keys.get(_key("jobs"), NOTHING).get(job_id.encode())
        return found

    def watch(self, store: Store) -> None:
        """From now on each call of this client is followed by a recount."""
        store._caller = _Watched(store._caller, self)

    def hold(self, bucket: str, job_id: str) -> None:
        """Let a bucket count a job that is in no hand."""
        self.is_wrong = True
        key, raw = _key("busy") + b":" + bucket.encode(), self._raw
        if isinstance(raw, Keyspace):
            raw.zadd(key, b"1", job_id.encode())
        else:
            raw.zadd(key, {job_id: 1})

    def called(self, call: str) -> None:
        """One call of it more was answered."""
        self.calls += 1
        if not self._is_server and call not in READS:
            self.check(call)

    def check(self, call: str = "all") -> None:
        """Raises AssertionError where the counts differ from what there is."""
        if self.off:
            return
        keyspace = self._keyspace()
        assert counted(keyspace, KEYS) == recount(keyspace, KEYS), f"after {call}, its call number {self.calls}"
        if self._is_server:  # of which only some keys are read
            return
        if not self.is_wrong:
            self.met |= check_owners(keyspace, KEYS)
        if not self.has_many_priorities:
            check_indexes(keyspace, KEYS)


def of_fake(store: FakeStore) -> Recount:
    """Of a store in memory."""
    return Recount(lambda: store.server.keyspace, store.server.keyspace)


def of_server(client: redis.Redis) -> Recount:
    """Of a real one, whose keys are read in one step."""
    return Recount(lambda: mirror(client, KEYS), client)


def _key(name: str) -> bytes:
    return KEYS[name].encode()


def mirror(client: Any, keys: Keys) -> Keyspace:
    """What a recount reads of a real server, of one moment."""
    copy = Keyspace()
    names = [keys[name] for name in WHOLE] + hands(keys, client.hkeys(keys["members"]))
    with client.pipeline(transaction=True) as pipeline:
        for name in names:
            if name.rpartition(":")[2] in ("later", "ended", "dead") or name.startswith(keys["held"]):
                pipeline.zrange(name, 0, -1, withscores=True)
            else:
                pipeline.hgetall(name)
        found = pipeline.execute()
    for name, rows in zip(names, found, strict=True):
        if isinstance(rows, list):
            value = SortedSet()
            for member, score in rows:
                value.put(member, score)
            copy.keys[name.encode()] = value
        elif rows:
            copy.keys[name.encode()] = rows
    return copy


class _Watched:
    def __init__(self, caller: Any, recount: Recount) -> None:
        self._caller, self._recount = caller, recount

    def __getattr__(self, name: str) -> Any:
        return getattr(self._caller, name)

    async def call(self, name: str, *arguments: Any) -> object:
        try:
            return await self._caller.call(name, *arguments)
        finally:
            self._recount.called(name)

    async def call_behind(self, name: str, *arguments: Any) -> object:
        try:
            return await self._caller.call_behind(name, *arguments)
        finally:
            self._recount.called(name)
