"""Another server, another run of it, an older copy of its data: nothing is sent there before it was looked at."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from jqd.domain.errors import PositionMismatch, StoreAway, StoreChanged
from jqd.domain.job import Change, ChangeKind, Job, State
from jqd.domain.record import Lane, cancel_of
from jqd.store import NameWanted, StoreConfig, copy_rdb, open_store
from jqd.store.functions import load, shipped
from jqd.store.keys import Keys
from jqd.testing.clock import ManualClock
from tests.contract.bench import JOURNAL, StoreBench, setting
from tests.store.proxy import Proxy
from tests.valkey import Valkey, valkey

KEYS = Keys("jqd")
DURABLE = ("--appendfsync", "always")  # what a script wrote is in the file when it has answered


@pytest.fixture
def own() -> Iterator[Valkey]:
    """A server of this test alone."""
    with valkey(*DURABLE) as server, redis.Redis.from_url(server.url) as client:
        load(client, shipped())  # as in `bench`
        yield server


async def assert_shut(bench: StoreBench) -> None:
    """Whatever is asked of it."""
    store = bench.store
    for call in (store.stats(), bench.push(), store.applied(JOURNAL), store.get_job("x"), store.wait_durable()):
        with pytest.raises(StoreChanged):
            await call


def served(server: Valkey) -> bool:
    """Whether any function ran on this run of the server."""
    with redis.Redis.from_url(server.url) as client:
        return any(name.startswith("cmdstat_fcall") for name in client.info("commandstats"))


@pytest.fixture
async def looked(own: Valkey) -> AsyncIterator[StoreBench]:
    """A store that was looked at, on a server of its own."""
    clock = ManualClock()
    async with open_store(StoreConfig(url=own.url), now_ms=clock.wall_ms) as store:
        await store.look(fresh=True)
        yield StoreBench(store, clock)


async def test_a_full_server_takes_what_was_acknowledged_of_changes_and_rules_and_gives_no_new_ones(
    own: Valkey, looked: StoreBench
) -> None:
    """Nobody may claim before they are in: it would stay full, and stand still, for ever."""
    store, job = looked.store, await looked.push()
    given = await store.reserve_edit(job.id, 0)
    assert given is not None
    edit = given.revision
    with redis.Redis.from_url(own.url) as client:
        client.config_set("maxmemory", 1)
    for refused in (
        looked.push(),
        store.reserve_edit(job.id, 0),
        store.reserve_names([NameWanted("a", "X", "", False)]),
    ):
        with pytest.raises(StoreAway, match="OOM"):
            await refused
    await looked.add(Job(job.id, "mail", change=Change(edit, 0, ChangeKind.EDIT)))
    assert (await looked.view(job)).revision == edit
    await looked.cancel(cancel_of(job.id, await store.reserve_change(job.id)))
    assert await looked.state(job) is State.CANCELLED
    await store.apply_settings(JOURNAL, 0, 100, [setting("a", 1)])
    assert (await store.follow_settings(0, 0, [])).settings == [setting("a", 1)]


async def test_a_server_that_was_started_anew_is_looked_at_first(own: Valkey, looked: StoreBench) -> None:
    store = looked.store
    before = await store.look(fresh=True)
    assert before.settled
    owner = await looked.join()
    own.kill()
    with pytest.raises(StoreAway):
        await looked.members(owner)
    own.start()
    with pytest.raises(StoreChanged, match="started anew"):
        await looked.members(owner)
    await assert_shut(looked)
    assert not served(own)
    after = await store.look(fresh=False)
    assert after.identity != before.identity
    assert not after.settled, "it may be older than it was: nobody is through"
    assert (await store.renew_sysid(owner, through=False)).members["one"].epoch == owner.epoch
    assert await looked.claim(owner) == []


def older(server: Valkey, copy: Path) -> None:
    """An older copy of its file takes the place of the present one."""
    server.kill()
    shutil.rmtree(server.directory / "appendonlydir")
    shutil.copytree(copy, server.directory / "appendonlydir")
    server.start()


def cut(server: Valkey) -> None:
    """The last script in the file never reached the disk."""
    server.kill()
    (path,) = server.directory.glob("appendonlydir/*.incr.aof")
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b"*1\r\n$5\r\nMULTI\r\n")])
    server.start()


def torn(server: Valkey) -> None:
    """The last script reached the disk in part: the server itself drops the rest of it."""
    server.kill()
    (path,) = server.directory.glob("appendonlydir/*.incr.aof")
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b"*1\r\n$5\r\nMULTI\r\n") + 60])
    server.start()


@pytest.mark.parametrize("loss", ["older", "cut", "torn"])
async def test_data_that_went_back_shows_in_identity_and_position(
    own: Valkey, looked: StoreBench, tmp_path: Path, loss: str
) -> None:
    store = looked.store
    owner = await looked.join()
    first = await looked.push()
    held = await looked.claim_one(owner)
    before = await store.look(fresh=False)
    shutil.copytree(own.directory / "appendonlydir", tmp_path / "copy")
    second = await looked.push()
    {"older": lambda: older(own, tmp_path / "copy"), "cut": lambda: cut(own), "torn": lambda: torn(own)}[loss]()
    with pytest.raises(StoreChanged):
        await looked.members(owner)
    after = await store.look(fresh=False)
    assert after.identity != before.identity
    assert before.settled
    assert not after.settled
    with pytest.raises(PositionMismatch) as caught:
        await looked.push()
    assert caught.value.stored == 100
    owner = await store.reserve_sysid("one", previous_epoch_dead=True, through=False)
    assert owner.epoch > held.fence, "epochs and fences never start again"
    await store.apply_jobs(JOURNAL, 100, 200, [second])
    assert await store.reassert(owner, {first.id: held.fence, second.id: held.fence}) == []
    assert (await store.renew_sysid(owner, through=True, settle=True)).settled
    assert await store.get_held(owner) == {first.id: held.fence, second.id: held.fence}


async def test_a_deleted_life_counts_as_another_store(looked: StoreBench, own: Valkey) -> None:
    owner = await looked.join()
    with redis.Redis.from_url(own.url) as client:
        client.delete(KEYS["life"])
    with pytest.raises(StoreChanged):
        await looked.members(owner)
    await looked.store.look(fresh=True)
    assert (await looked.members(owner))["one"].epoch == owner.epoch


async def test_a_connection_to_another_server_sends_nothing(own: Valkey, bench: StoreBench, proxy: Proxy) -> None:
    """An address that leads elsewhere from now on, while the old server lives and old connections to it too."""
    store = bench.store
    before = await store.look(fresh=True)
    job = await bench.push()  # over a connection that stays open
    owner = await bench.join()  # over another one
    proxy.lead_to(own.socket)
    assert (await store.stats()).waiting == 1
    with pytest.raises(StoreChanged, match="another server"):
        await bench.members(owner)  # heartbeats open a connection of their own
    await assert_shut(bench)
    assert not served(own)
    after = await store.look(fresh=False)
    assert after.identity != before.identity
    assert await store.applied(JOURNAL) == dict.fromkeys(Lane, 0)
    await store.apply_jobs(JOURNAL, 0, 10, [job])
    with redis.Redis.from_url(own.url) as client:
        assert client.hlen(KEYS["jobs"]) == 1, "no old connection is used again"


async def test_an_address_that_moves_while_we_look_is_looked_at_again(
    own: Valkey, fresh_valkey: Valkey, bench: StoreBench, proxy: Proxy
) -> None:
    proxy.lead_to(fresh_valkey.socket, own.socket)
    with pytest.raises(StoreChanged):
        await bench.store.look(fresh=True)
    assert not served(own)
    await bench.store.look(fresh=True)
    assert served(own)


async def test_a_copy_of_another_server_is_not_accepted(own: Valkey, looked: StoreBench) -> None:
    store = looked.store
    before = await store.look(fresh=False)
    owner = await looked.join()
    await looked.members(owner)
    with redis.Redis.from_url(own.url) as client:
        client.replicaof("127.0.0.1", "1")
        with pytest.raises(StoreChanged, match="copy of another"):
            await looked.members(owner)  # over an open connection: it refuses to write
        with pytest.raises(StoreAway, match="not a master"):
            await store.look(fresh=False)
        with pytest.raises(StoreChanged):
            await store.stats()
        client.replicaof("NO", "ONE")
    after = await store.look(fresh=False)
    assert after.identity.partition(".")[0] == before.identity.partition(".")[0], "the same run of the same server"
    assert after.identity != before.identity, "but its data may have come from elsewhere"
    assert not after.settled


async def test_a_server_that_gave_a_copy_is_as_it_was(own: Valkey, looked: StoreBench, tmp_path: Path) -> None:
    """A backup is no loss: all daemons would stop for a lease, and each rate for a whole window."""
    before = await looked.store.look(fresh=False)
    with redis.Redis.from_url(own.url) as client:
        its = client.info("replication")["master_replid"]
        copy_rdb(StoreConfig(url=own.url), tmp_path / "copy.rdb")
        assert client.info("replication")["master_replid"] != its, "a history that begins anew, of the same data"
    assert await looked.store.look(fresh=False) == before


async def test_a_server_that_comes_back_after_another_one_served_is_not_as_it_was(
    own: Valkey, looked: StoreBench
) -> None:
    """It followed the other one meanwhile, and got what that had noted: where it was looked at last."""
    before = await looked.store.look(fresh=False)
    assert await looked.store.look(fresh=False) == before
    with redis.Redis.from_url(own.url) as client:
        client.hset(KEYS["life"], "run", "b" * 40)
    after = await looked.store.look(fresh=False)
    assert after.identity != before.identity
    assert not after.settled


async def test_a_new_connection_to_a_server_that_became_a_copy_sends_nothing(own: Valkey, looked: StoreBench) -> None:
    with redis.Redis.from_url(own.url) as client:
        client.replicaof("127.0.0.1", "1")
        with pytest.raises(StoreChanged, match="copy of another"):
            await looked.store.stats()  # it would have answered: reading is allowed there


async def test_looking_at_a_server_that_is_away_changes_nothing(own: Valkey, looked: StoreBench) -> None:
    own.kill()
    with pytest.raises(StoreAway, match="does not answer"):
        await looked.store.look(fresh=False)
    own.start()
    with pytest.raises(StoreChanged):
        await looked.store.stats()
    await looked.store.look(fresh=False)
    assert (await looked.store.stats()).waiting == 0


async def test_before_the_first_look_anything_is_accepted(own: Valkey) -> None:
    async with open_store(StoreConfig(url=own.url)) as store:
        await store.stats()
        own.kill()
        with pytest.raises(StoreAway):
            await store.stats()
        own.start()
        assert (await store.stats()).waiting == 0
