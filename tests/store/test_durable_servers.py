"""When what was applied counts as safe, on real servers."""

import socket
from contextlib import suppress

import pytest
import redis
import trio
import trio.testing

from jqd.domain.errors import StoreAway, StoreChanged, StoreRefused
from jqd.store import StoreConfig, open_store
from jqd.store.durable import Rule
from jqd.store.keys import Keys
from tests.valkey import Valkey, valkey


@pytest.fixture
def free_port() -> int:
    """A TCP port that nobody uses at the moment: replicas cannot use a unix socket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("options", "rule", "safe"),
    [
        (("--appendfsync", "always"), Rule.ALWAYS, True),
        (("--appendfsync", "no"), Rule.NOTHING, False),
        (("--appendonly", "no"), Rule.NOTHING, False),
        (("--appendonly", "no", "--save", "3600 1000"), Rule.SNAPSHOT, False),
    ],
)
async def test_the_rule_of_a_real_server(options: tuple[str, ...], rule: Rule, safe: bool) -> None:
    with valkey(*options) as server:
        async with open_store(StoreConfig(url=server.url)) as store:
            await store.look(fresh=True)
            assert store.durability_rule == Rule.UNKNOWN
            assert await store.wait_durable(timeout_s=0.2) is safe
            assert store.durability_rule == rule
            assert not await store.wait_durable(replicas=1, timeout_s=0.2)


async def test_a_real_snapshot() -> None:
    with valkey("--appendonly", "no", "--save", "3600 1000") as server:
        async with open_store(StoreConfig(url=server.url)) as store, trio.open_nursery() as nursery:
            await store.look(fresh=True)
            assert not await store.wait_durable(timeout_s=0.1)
            told: list[bool] = []

            async def wait() -> None:
                told.append(await store.wait_durable(timeout_s=30.0))

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.05)
            with redis.Redis.from_url(server.url) as client:
                while not told:  # the first may fall into the second in which the server began
                    with suppress(redis.ResponseError):  # one is under way
                        client.bgsave()
                    await trio.sleep(0.2)
        assert told == [True]


async def test_a_real_snapshot_that_began_is_not_one_that_succeeded() -> None:
    with valkey("--appendonly", "no", "--save", "3600 1000") as server:
        async with open_store(StoreConfig(url=server.url)) as store, trio.open_nursery() as nursery:
            await store.look(fresh=True)
            told: list[bool] = []

            async def wait() -> None:
                told.append(await store.wait_durable(timeout_s=2.0))

            with redis.Redis.from_url(server.url) as client:
                client.mset({f"somebody's {number}": "x" for number in range(100)})
                client.config_set("rdb-key-save-delay", 1_000_000)  # microseconds: it goes on for longer than the test
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked(0.05)
                client.bgsave()
        assert told == [False]


async def test_a_real_server_that_syncs_every_second(fresh_valkey: Valkey) -> None:
    async with open_store(StoreConfig(url=fresh_valkey.url, timeout_s=0.5)) as store:
        await store.look(fresh=True)
        assert await store.wait_durable(timeout_s=20.0)
        assert store.durability_rule == Rule.PERIOD
        await store.look(fresh=True)
        assert store.durability_rule == Rule.PERIOD, "the same run of the same server"
        fresh_valkey.kill()
        fresh_valkey.start()
        with pytest.raises((StoreAway, StoreChanged)):
            await store.wait_durable()
        await store.look(fresh=True)
        assert store.durability_rule == Rule.UNKNOWN


async def test_a_mark_is_written_on_a_full_server_and_refused_at_a_planted_key(fresh_valkey: Valkey) -> None:
    async with open_store(StoreConfig(url=fresh_valkey.url)) as store:
        await store.look(fresh=True)
        with redis.Redis.from_url(fresh_valkey.url) as client:
            client.config_set("appendfsync", "always")
            try:
                client.config_set("maxmemory", 1)
                assert not await store.wait_durable(replicas=1, timeout_s=0.05)
                client.config_set("maxmemory", 0)
                client.delete(Keys("jqd")["life"])
                client.rpush(Keys("jqd")["life"], "planted")
                with pytest.raises(StoreRefused, match=r"wait_durable: a key .* has another type"):
                    await store.wait_durable(replicas=1, timeout_s=0.05)
            finally:
                client.config_set("appendfsync", "everysec")


async def test_a_real_replica_is_waited_for(free_port: int) -> None:
    with (
        valkey("--port", str(free_port), "--appendfsync", "always", "--repl-diskless-sync-delay", "0") as server,
        valkey("--replicaof", f"127.0.0.1 {free_port}") as copy,
    ):
        async with open_store(StoreConfig(url=server.url)) as store:
            await store.look(fresh=True)
            assert await store.wait_durable(replicas=1, timeout_s=20.0)
            assert not await store.wait_durable(replicas=2, timeout_s=0.2)
        async with open_store(StoreConfig(url=copy.url)) as store:
            with pytest.raises(StoreAway, match="slave"):
                await store.look(fresh=True)
