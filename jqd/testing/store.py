"""The store over a data server in memory: the real methods and functions, held to the contract (`tests/contract`).

store = FakeStore(clock)
store.away = "cable pulled"      # every method raises StoreAway until it is None again
other = store.another_client()   # what another daemon would open
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
from jqd.testing.places import Places

LIBRARY: Library = shipped()
"""What each of these stores runs; exchanged in tests."""


class Server:
    """The data of one acted server, which all its clients share."""

    def __init__(self) -> None:
        self.keyspace = Keyspace()
        self.runs = 1
        """How often it was started."""
        self.lives = 0
        """How many lives were begun; a name is taken for each that may begin."""

    def run(self, name: str, keys: Keys, arguments: tuple[Any, ...]) -> object:
        """Call a function. Raises ScriptError."""
        return machine().run(LIBRARY, name, self.keyspace, keys.stem.encode(), arguments)


class Client:
    """One daemon's way to the server: what `jqd.store.scripts.ScriptCaller` asks."""

    def __init__(self, server: Server, keys: Keys, clock: Clock) -> None:
        self.away: str | None = None
        self.identity, self.seal = ".", ""
        self.server = server
        self.accepted_run = 0
        """The run of the server that is accepted; 0: any."""
        self.changed = ""
        """Why nothing is sent before the next look."""
        self._keys = keys
        self._clock = clock

    async def expect_there(self) -> None:
        """Raise StoreAway where the acted server is away."""
        await trio.lowlevel.checkpoint()
        if self.away is not None:
            raise StoreAway(f"the store does not answer: {self.away}")

    async def answer(self) -> None:
        """Raises StoreAway, StoreChanged."""
        await self.expect_there()
        if self.accepted_run not in (0, self.server.runs):
            self.changed = "another run of the server answers than was accepted"
        if self.changed:
            raise StoreChanged(self.changed)

    async def call(self, name: str, *arguments: Any) -> object:
        """See Caller."""
        await self.answer()
        return self.call_now(name, *arguments)

    def call_now(self, name: str, *arguments: Any) -> object:
        """As `call`, without waiting."""
        try:
            return self.server.run(name, self._keys, (self._clock.wall_ms(), *arguments))
        except ScriptError as error:
            known = translate(redis.ResponseError(str(error)), name, self._keys)
            if isinstance(known, StoreChanged):
                self.changed = str(known)
            raise known from error

    async def call_behind(self, name: str, *arguments: Any) -> object:
        """See Caller: here nothing is ever on its way."""
        return await self.call(name, *arguments)

    async def info(self, *sections: str) -> dict[str, str]:
        """See Caller."""
        await self.answer()
        return {}


class FakeStore(Store):
    """One client of a store."""

    def __init__(self, clock: Clock, config: StoreConfig | None = None, server: Server | None = None) -> None:
        """Time comes from `clock` alone."""
        self.durable = True
        """What `wait_durable` says."""
        self.clock = clock
        self.config = config or StoreConfig(url="redis://fake")
        self.server = server or Server()
        self.keys = Keys(self.config.prefix, self.config.partition)
        self.client = Client(self.server, self.keys, clock)
        super().__init__(self.config, self.keys, self.client, self.client)

    def another_client(self) -> Self:
        """Return one more client of the same server."""
        other = copy.copy(self)
        FakeStore.__init__(other, self.clock, self.config, self.server)
        other.durable, other.away = self.durable, self.away
        return other

    @property
    def away(self) -> str | None:
        """Why nothing answers, or None."""
        return self.client.away

    @away.setter
    def away(self, why: str | None) -> None:
        self.client.away = why

    @property
    def places(self) -> Places:
        """Return what lies where on the server."""
        return Places(self.server.keyspace, self.keys)

    # ------------------------------------------------------------ what may happen to a server

    def image(self) -> Mapping[bytes, Value]:
        """Return all keys and values of the server, as a dump would hold them."""
        return self.server.keyspace.image()

    def load(self, image: Mapping[bytes, Value]) -> None:
        """Put an old dump in place of what there is, unnoticed by connections: all but the note of the life."""
        life = self.keys["life"].encode()
        kept = {life: self.server.keyspace.keys[life]} if life in self.server.keyspace.keys else {}
        self.server.keyspace.load(image)
        self.server.keyspace.keys |= kept

    def restart(self, image: Mapping[bytes, Value] | None = None) -> None:
        """Start anew, with an older dump or with all there is: connections lead to another run of it."""
        self.server.runs += 1
        self.server.keyspace.seed = self.server.runs
        if image is not None:
            self.server.keyspace.load(image)

    def wipe(self) -> None:
        """Lose everything, as FLUSHALL does: connections stay."""
        self.server.keyspace.load({})

    # ------------------------------------------------------------ which store this is

    async def look(self, *, fresh: bool, highest: int = 0, before: int = 0) -> StoreLook:
        """See Store."""
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
        """See Store."""
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
        """See Store."""
        await self.client.answer()
        return self.durable

    @property
    def durability_rule(self) -> str:
        """See Store."""
        return "whatever `durable` says"
