"""A store whose server is in memory. Its methods and Lua functions are the real ones, and it passes the same tests as a
real store (`tests/contract`).

store = FakeStore(clock)
store.away = "cable pulled"      # every method raises StoreAway until it is None again
other = store.another_client()   # as another daemon would have
"""

import copy
from collections.abc import Collection, Mapping
from typing import Any, Self

import redis
import trio

from jqd.domain.clock import Clock
from jqd.domain.errors import StoreAway, StoreChanged
from jqd.store import Store, StoreConfig, StoreLook, codec
from jqd.store.functions import Library, shipped
from jqd.store.keys import Keys
from jqd.store.scripts import translate
from jqd.testing.keyspace import Keyspace, Value
from jqd.testing.lua import ScriptError, machine

LIBRARY: Library = shipped()
"""The Lua functions that all these stores run. Tests may replace it."""


class Server:
    """The data of an in-memory server. All its clients share it."""

    def __init__(self) -> None:
        self.keyspace = Keyspace()
        self.runs = 1
        """Number of the present run: how often the server was started."""
        self.lives = 0
        """Counter for ids of lives: a store that lost data begins a new life. Each `look` offers a new id for it."""

    def run(self, name: str, keys: Keys, arguments: tuple[Any, ...]) -> object:
        """Call a Lua function. Raises ScriptError."""
        return machine().run(LIBRARY, name, self.keyspace, keys.stem.encode(), arguments)


class Client:
    """One daemon's connection to an in-memory server, in place of `jqd.store.scripts.ScriptCaller`."""

    def __init__(self, server: Server, keys: Keys, clock: Clock) -> None:
        self.away: str | None = None
        self.identity, self.seal = ".", ""
        self.server = server
        self.accepted_run = 0
        """Run of the server that the last `look` accepted. If another run answers, calls are refused. 0: accept any."""
        self.changed = ""
        """Why all calls are refused until the next `look`; empty: they are not."""
        self._keys = keys
        self._clock = clock

    async def expect_there(self) -> None:
        """Raise StoreAway if a test has set `away`: then the server does not answer."""
        await trio.lowlevel.checkpoint()
        if self.away is not None:
            raise StoreAway(f"the store does not answer: {self.away}")

    async def answer(self) -> None:
        """Check that the server answers, and was not restarted since the last `look`. Raises StoreAway,
        StoreChanged."""
        await self.expect_there()
        if self.accepted_run not in (0, self.server.runs):
            self.changed = "another run of the server answers than was accepted"
        if self.changed:
            raise StoreChanged(self.changed)

    async def call(self, name: str, *arguments: Any) -> object:
        await self.answer()
        return self.call_now(name, *arguments)

    def call_now(self, name: str, *arguments: Any) -> object:
        """Call a Lua function at once, without the checks of `call`."""
        try:
            return self.server.run(name, self._keys, (self._clock.wall_ms(), *arguments))
        except ScriptError as error:
            known = translate(redis.ResponseError(str(error)), name, self._keys)
            if isinstance(known, StoreChanged):
                self.changed = str(known)
            raise known from error

    async def call_behind(self, name: str, *arguments: Any) -> object:
        """Call a Lua function after all calls made earlier. Here they are always done by now, so this is the same as
        `call`."""
        return await self.call(name, *arguments)

    async def info(self, *sections: str) -> dict[str, str]:
        await self.answer()
        return {}


class FakeStore(Store):
    """One client of an in-memory store. All times in it are those of `clock`."""

    def __init__(self, clock: Clock, config: StoreConfig | None = None, server: Server | None = None) -> None:
        self.durable = True
        """What `wait_durable` returns."""
        self.clock = clock
        self.config = config or StoreConfig(url="redis://fake")
        self.server = server or Server()
        self.keys = Keys(self.config.prefix, self.config.partition)
        self.client = Client(self.server, self.keys, clock)
        super().__init__(self.config, self.keys, self.client, self.client)

    def another_client(self) -> Self:
        """Return another client of the same in-memory server."""
        other = copy.copy(self)
        FakeStore.__init__(other, self.clock, self.config, self.server)
        other.durable, other.away = self.durable, self.away
        return other

    @property
    def away(self) -> str | None:
        """Why the server does not answer; None: it does. Tests set it."""
        return self.client.away

    @away.setter
    def away(self, why: str | None) -> None:
        self.client.away = why

    # ------------------------------------------------------------ what may happen to a server

    def image(self) -> Mapping[bytes, Value]:
        """Return a copy of all keys and values of the server, as a dump (snapshot) would hold them."""
        return self.server.keyspace.image()

    def load(self, image: Mapping[bytes, Value]) -> None:
        """Replace all data by an older image. The key `life`, by which clients recognise the data, stays, so that
        clients do not notice the change."""
        life = self.keys["life"].encode()
        kept = {life: self.server.keyspace.keys[life]} if life in self.server.keyspace.keys else {}
        self.server.keyspace.load(image)
        self.server.keyspace.keys |= kept

    def restart(self, image: Mapping[bytes, Value] | None = None) -> None:
        """Restart the server, with its data or an older image. Clients notice that another run answers."""
        self.server.runs += 1
        self.server.keyspace.seed = self.server.runs
        if image is not None:
            self.server.keyspace.load(image)

    def wipe(self) -> None:
        """Delete all data, as FLUSHALL does. Connections stay open."""
        self.server.keyspace.load({})

    # ------------------------------------------------------------ which store this is

    async def look(self, *, fresh: bool, highest: int = 0, before: int = 0) -> StoreLook:
        await self.client.expect_there()
        run = self.server.runs
        about = (int(fresh), self.config.place, highest, before)
        answer = self.client.call_now("look", self._name_life(), run, "history", *about)
        life, settled, fence, seal, since = codec.list_of(self.keys, "life", answer)
        client = self.client
        client.accepted_run, client.changed = run, ""
        client.identity = f"{run}.{codec.text(self.keys, 'life', life)}"
        client.seal = codec.text(self.keys, "life", seal)
        numbers = (codec.whole(self.keys, key, number or 0) for key, number in (("fence", fence), ("life", since)))
        return StoreLook(client.identity, settled == client.identity.encode(), *numbers)

    async def new_life(self, identity: str) -> None:
        await self.client.call("new_life", identity.rpartition(".")[2], self._name_life())

    def _name_life(self) -> str:
        self.server.lives += 1
        return f"life-{self.server.lives}"

    async def wait_durable(
        self,
        replicas: int = 0,
        timeout_s: float = 5.0,
        where: Collection[int] | None = None,
        *,
        or_accepted: bool = False,
    ) -> bool:
        await self.client.answer()
        return self.durable

    @property
    def durability_rule(self) -> str:
        return "whatever `durable` says"
