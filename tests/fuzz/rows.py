"""Garbage in the store's rows, under every script: a method answers, or refuses by name, whatever stands there.

The scripts run in the Lua that the fakes have. What is planted is of the right kind of key (the wrong kind is
`tests/store/test_planted.py`'s) and anything within: a cut row, a number that is none, bytes of another row.
"""

import random
from contextlib import suppress
from typing import Any

import trio

from jqd.domain.errors import StoreError
from jqd.store import Member
from jqd.testing.clock import ManualClock
from jqd.testing.keyspace import SortedSet
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench
from tests.store.furnished import Furnished
from tests.store.test_planted import CALLS

ODD = (b"", b"-1", b"nan", b"inf", b"1e400", b"9" * 40, b"\xff\x00", b"0:0:x", b"\xc1" * 9, b"x" * 300)
BIG = (float("inf"), -1.0, 1e300, 0.5, 2.0**60)


class Client:
    """What redis.Redis says while the store is furnished, as far as the fakes' server knows it."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store

    def __getattr__(self, command: str) -> Any:
        def call(*words: str | bytes) -> Any:
            given = [word.encode() if isinstance(word, str) else word for word in words]
            return getattr(self._store.server.keyspace, command)(*given)

        return call


class Filled(Furnished):
    """The fake store with something of everything, again and again."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.store = FakeStore(clock)
        client: Any = Client(self.store)
        super().__init__(StoreBench(self.store, clock), client)

    async def begin(self) -> None:
        """Fill it."""
        await self.furnish()
        self.member = (await self.bench.members(self.owner))["one"]
        self._image = self.store.server.keyspace.image()
        self._at = dict(self.bench.at)

    def seat(self) -> Member:
        """See Furnished."""
        return self.member

    def again(self) -> None:
        """See Furnished."""
        self.store.server.keyspace.load(self._image)
        self.bench.at.update(self._at)

    def plant(self, source: random.Random) -> str:
        """Something odd in one row of one key; says which."""
        keys = self.store.server.keyspace.keys
        key = source.choice(sorted(keys))
        value = keys[key]
        match value:
            case dict():
                field = source.choice(sorted(value))
                value[field] = self._odd(value[field], source)
            case list():
                value[source.randrange(len(value))] = self._odd(value[0], source)
            case SortedSet():
                member = source.choice([row[1] for row in value.rows])
                if source.random() < 0.5:
                    value.put(member, source.choice(BIG))
                else:
                    value.put(self._odd(member, source), source.choice((0.0, *BIG)))
            case bytes():
                keys[key] = self._odd(value, source)
        return key.decode(errors="replace")

    def _odd(self, row: bytes, source: random.Random) -> bytes:
        match source.randrange(4):
            case 0:
                return source.choice(ODD)
            case 1:
                return row[: source.randrange(len(row) + 1)]
            case 2:
                return row + source.choice(ODD)
            case _:
                at = source.randrange(len(row) + 1)
                return row[:at] + source.randbytes(1) + row[at + 1 :]


async def garbage(rounds: int, source: random.Random) -> dict[str, int]:
    """So many rounds of every method; how many of each kind of error came. Raises what is none of ours."""
    here = Filled()
    await here.begin()
    told: dict[str, int] = {}
    for _ in range(rounds):
        for name, call in CALLS.items():
            here.again()
            planted = [here.plant(source) for _ in range(source.choice((1, 1, 2, 5)))]
            try:
                with trio.fail_after(5), suppress(StoreError):
                    await call(here)
                    continue
                told["refused"] = told.get("refused", 0) + 1
            except Exception as error:
                raise AssertionError(f"{name}, with {planted} planted: {error!r}") from error
    return told
