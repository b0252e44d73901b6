"""The function library: nothing of a call is left for the next one, and a server that has lost it gets it again."""

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
import trio
from structlog.testing import capture_logs

from jqd.domain.errors import PositionMismatch, StoreError, StoreFull
from jqd.domain.job import Fate, Job
from jqd.domain.record import Lane
from jqd.store import Member, RedisStore, StoreConfig, connect, open_store
from jqd.store.doctor import examine
from jqd.store.functions import OTHERS_MAX, Library, shipped
from jqd.testing import store as memory
from jqd.testing.clock import ManualClock
from jqd.testing.lua import machine
from tests.contract.bench import JOURNAL, StoreBench, outcome
from tests.store.furnished import KEYS, Furnished
from tests.store.places import check_places, short_pages
from tests.store.test_doctor import user
from tests.store.test_planted import CALLS
from tests.valkey import Valkey

# What lies in the library beside its code: each value that its functions reach, by the way to it. Of calls it may keep
# what is made anew with each, and how keys are spelled.
REACHED = b"""
local run = ...
local APART = {K = true, ARGV = true, call = true, keys_by_prefix = true}
local seen, found = {}, {}
local function walk(value, way)
  local kind = type(value)
  if kind ~= 'table' and kind ~= 'function' then
    found[#found + 1] = way .. ' = ' .. tostring(value)
  elseif not seen[value] then
    seen[value] = true
    for key, field in pairs(kind == 'table' and value or {}) do
      walk(field, way .. '.' .. tostring(key))
    end
    for at = 1, kind == 'function' and 255 or 0 do
      local name, held = debug.getupvalue(value, at)
      if not name then
        break
      elseif not APART[name] then
        walk(held, way .. '/' .. name)
      end
    end
  end
end
for at = 1, 255 do
  local name, functions = debug.getupvalue(run, at)
  if name == 'functions' then
    for name, registered in pairs(functions) do
      walk(registered.run, name)
    end
    break
  end
end
return table.concat(found, '\\n')
"""


class InMemory(Furnished):
    """The same over the server in memory."""

    def __init__(self, store: memory.FakeStore, clock: ManualClock) -> None:
        super().__init__(StoreBench(store, clock), _Raw(store))  # type: ignore[arg-type]
        self._store = store
        self._image = store.image()

    async def fill(self) -> None:
        """See Furnished."""
        await self.furnish()
        self._image = self._store.image()

    def again(self) -> None:
        """See Furnished."""
        self._store.server.keyspace.load(self._image)

    def seat(self) -> Member:
        """See Furnished."""
        counter, epoch, _ = self._store.server.keyspace.keys[KEYS["members"].encode()][b"one"].split(b":")
        return Member(int(counter), int(epoch), True)


class _Raw:
    def __init__(self, store: memory.FakeStore) -> None:
        self._keyspace = store.server.keyspace

    def hset(self, key: str, field: str, value: str) -> None:
        """As redis-py's."""
        self._keyspace.hset(*(word.encode() for word in (key, field, value)))


def reached(library: Library) -> set[str]:
    """What the functions of a library reach beside what a call may leave."""
    lua: Any = machine()
    return set(lua._lua.execute(REACHED, lua._loaded[library.digest]).decode(errors="replace").splitlines())


async def changed_by(monkeypatch: pytest.MonkeyPatch, names: Iterator[str]) -> dict[str, set[str]]:
    """Calls that left something to the next one, and what; the functions that ran are the last row."""
    clock, ran = ManualClock(), set[str]()
    store = memory.FakeStore(clock)
    here = InMemory(store, clock)
    run = memory.Server.run

    def watched(self: memory.Server, name: str, *rest: Any) -> object:
        ran.add(name)
        return run(self, name, *rest)

    monkeypatch.setattr(memory.Server, "run", watched)
    await here.fill()
    before, left = reached(memory.LIBRARY), dict[str, set[str]]()
    for name in names:
        here.again()
        with suppress(StoreError):
            await CALLS[name](here)
        if (now := reached(memory.LIBRARY)) != before:
            left[name] = now ^ before
            before = now
    return left | {"": memory.LIBRARY.flags.keys() - ran}


NOT_MET = {"allowed", "bury", "drop_pieces", "mark"}
"""Functions that none of these calls makes."""


async def test_nothing_of_a_call_is_left_for_the_next_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of whichever call; a variable that one forgets to make anew loses jobs of another daemon, sooner or later."""
    with short_pages(tmp_path):
        assert await changed_by(monkeypatch, iter(CALLS)) == {"": NOT_MET}


@pytest.mark.parametrize("left", ["Life.looks = (Life.looks or 0) + 1", "looks[#looks + 1] = true", "last = ARGV[1]"])
async def test_what_is_left_is_found(monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    begin = "register('applied', {'allow-oom'}, function()\n"
    planted = memory.LIBRARY.changed("applied", begin, f"local looks, last = {{}}, 0\n{begin}  {left}\n")
    monkeypatch.setattr(memory, "LIBRARY", planted)
    found = await changed_by(monkeypatch, iter(["stats", "applied", "stats"]))
    assert found.keys() == {"applied", ""}, found


@pytest.fixture(params=["fresh_valkey", "fresh_redis"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[StoreBench]:
    """Over a real server."""
    server: Valkey = request.getfixturevalue(request.param)
    clock = ManualClock()
    async with open_store(StoreConfig(url=server.url), now_ms=clock.wall_ms) as store:
        await store.look(fresh=True)
        yield StoreBench(store, clock)


def client_of(bench: StoreBench) -> Any:
    """Another client of its server."""
    assert isinstance(bench.store, RedisStore)
    return redis.Redis.from_url(bench.store._config.url)


ROUNDS, BATCHES, EACH = 20, 6, 10


async def test_a_server_that_loses_it_loses_and_doubles_no_job(bench: StoreBench) -> None:
    """Batches follow one another over one connection, others call meanwhile, and somebody flushes in between."""
    owner, end = await bench.join(), 0
    with client_of(bench) as client:
        for _ in range(ROUNDS):
            batches = [(end + at, [bench.make() for _ in range(EACH)]) for at in range(BATCHES)]
            end += BATCHES
            refused: list[tuple[int, list[Job]]] = []

            async def add(at: int, jobs: list[Job], refused: list[tuple[int, list[Job]]]) -> None:
                try:
                    await bench.store.apply_jobs(JOURNAL, at, at + 1, jobs)
                except PositionMismatch:
                    refused.append((at, jobs))

            async with trio.open_nursery() as nursery:
                for at, (start, jobs) in enumerate(batches):
                    nursery.start_soon(add, start, jobs, refused)
                    nursery.start_soon(bench.store.stats)
                    await trio.lowlevel.checkpoint()
                    if at == BATCHES // 2:
                        client.execute_command("FUNCTION", "FLUSH")
            for start, jobs in sorted(refused):  # they overtook one that was sent again: a lane goes back to it
                await bench.store.apply_jobs(JOURNAL, start, start + 1, jobs)
        held = await bench.claim(owner, limit=ROUNDS * BATCHES * EACH + 1)
        assert len({one.job.id for one in held}) == len(held) == ROUNDS * BATCHES * EACH
        check_places(client, KEYS)
        client.execute_command("FUNCTION", "FLUSH")
        await bench.store.wait_durable(timeout_s=0.1)  # its write goes over a connection of its own


def listed(client: Any) -> set[str]:
    """Names of our libraries."""
    names = (row[1] if isinstance(row, list) else row[b"library_name"] for row in client.function_list("jqd_*"))
    return {name.decode() for name in names if b"reports" not in name}


async def test_libraries_of_other_versions_stay_until_they_are_many(bench: StoreBench) -> None:
    ours = shipped().name
    with client_of(bench) as client:
        for number in range(OTHERS_MAX + 1):
            assert ours in listed(client)
            assert len(listed(client)) == 1 + number
            code = f"#!lua name=jqd_{number:016x}\nredis.register_function('f{number}', function() return 1 end)"
            client.function_load(code)
            client.function_load(code.replace("jqd_0", "jqd_reports").replace("'f", "'g"), replace=True)
            if number < OTHERS_MAX:
                await bench.store.look(fresh=False)
        await bench.store.look(fresh=False)
        assert listed(client) == {ours}
        assert len(client.function_list()) == 2 + OTHERS_MAX, "those of others are none of our business"
        client.function_flush()


async def test_another_daemon_may_be_faster_at_it(bench: StoreBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "others", lambda answer: [b"jqd_gone"] * (OTHERS_MAX + 1))
    await bench.store.look(fresh=False)
    assert (await bench.store.stats()).waiting == 0


async def test_who_may_not_delete_them_says_so_and_works(fresh_valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "others", lambda answer: [b"jqd_gone"] * (OTHERS_MAX + 1))
    with user(fresh_valkey, "~*", "+@all", "-function|delete") as url:
        async with open_store(StoreConfig(url=url)) as store:
            with capture_logs() as log:
                await store.look(fresh=True)
            assert [line["event"] for line in log] == ["store.libraries_kept"]
            assert "function delete" in log[0]["error"]
            assert (await store.stats()).waiting == 0


async def test_a_full_server_that_lacks_it_takes_it_when_it_has_room(bench: StoreBench) -> None:
    owner = await bench.join()
    for _ in range(3):
        await bench.push()
    held = await bench.claim(owner, limit=2)
    place = bench._range(Lane.OUTCOMES, 100)
    ended = [outcome(one, Fate.SUCCEEDED) for one in held]
    with client_of(bench) as client:
        client.execute_command("FUNCTION", "FLUSH")
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StoreFull, match="OOM"):
                await bench.store.renew_sysid(owner, through=True)
            with pytest.raises(StoreFull, match="OOM"):
                await bench.store.apply_outcomes(JOURNAL, *place, ended)
            found = await examine(StoreConfig(url=bench.store._config.url))
            assert "no_library" in {each.code for each in found}
        finally:
            client.config_set("maxmemory", 0)
        assert await bench.store.apply_outcomes(JOURNAL, *place, ended) == []
        assert listed(client) == {shipped().name}
