"""A store in trouble: answers lost, scripts flushed, servers killed, keys planted or deleted, memory full."""

from collections.abc import Awaitable, Callable

import pytest
import redis
import trio
from structlog.testing import capture_logs

from jqd.domain.errors import StoreAway, StoreRefused
from jqd.domain.job import Fate, Held, State
from jqd.domain.record import Lane
from jqd.store import NameWanted, Owner, RedisStore, StoreConfig, StoreStats, connect, open_store
from jqd.store.functions import shipped
from jqd.store.keys import KINDS, STEMS, Keys
from tests.contract.bench import ALL, JOURNAL, StoreBench, holds, ids, outcome, setting
from tests.store.proxy import Proxy
from tests.valkey import Valkey

KEYS = Keys("jqd")
FUNCTION = shipped().function

Call = Callable[[StoreBench, Owner, list[Held]], Awaitable[object]]

# Every method that changes something: repeated after a lost answer it must leave what one call leaves.
CHANGES: dict[str, Call] = {
    "apply_jobs": lambda bench, owner, held: bench.store.apply_jobs(JOURNAL, 100, 200, [held[0].job]),
    "apply_outcomes": lambda bench, owner, held: bench.store.apply_outcomes(
        JOURNAL, 0, 9, [outcome(held[0], Fate.RETRY), outcome(held[1], Fate.SUCCEEDED)]
    ),
    "apply_cancels": lambda bench, owner, held: bench.store.apply_cancels(JOURNAL, 0, 9, [held[0].job.id, "x"]),
    "applied": lambda bench, owner, held: bench.store.applied(JOURNAL),
    "forget_journal": lambda bench, owner, held: bench.store.forget_journal(JOURNAL),
    "skip": lambda bench, owner, held: bench.store.skip(JOURNAL, Lane.OUTCOMES, 0, 77),
    "release_jobs": lambda bench, owner, held: bench.store.release_jobs(owner, holds(held)),
    "promote": lambda bench, owner, held: bench.store.promote(10),
    "release_sysid": lambda bench, owner, held: bench.store.release_sysid(owner),
    "renew_sysid": lambda bench, owner, held: bench.members(owner),
    "reassert": lambda bench, owner, held: bench.store.reassert(owner, {**holds(held), "unseen": 5}),
    "look": lambda bench, owner, held: bench.store.look(fresh=False),
    "new_life": lambda bench, owner, held: bench.store.new_life("run.life"),
    "drop_result": lambda bench, owner, held: bench.store.drop_result("x"),
    "purge": lambda bench, owner, held: bench.store.purge(10),
    "reserve_names": lambda bench, owner, held: bench.store.reserve_names([NameWanted("mine", "x", "d", False)]),
    "reserve_change": lambda bench, owner, held: bench.store.reserve_change("x"),
    "delete_dead": lambda bench, owner, held: bench.store.delete_dead([held[0].job.id]),
    "clean_ended": lambda bench, owner, held: bench.store.clean_ended(bench.clock.wall_ms(), 10),
    "apply_settings": lambda bench, owner, held: bench.store.apply_settings(JOURNAL, 0, 9, [setting("w1", 5)]),
    "follow_settings": lambda bench, owner, held: bench.store.follow_settings(0, 0, ["w1"]),
    "forget_settings": lambda bench, owner, held: bench.store.forget_settings(1 << 52, [setting("w1", 5)]),
}


async def prepare(bench: StoreBench) -> tuple[Owner, list[Held]]:
    """Two jobs in flight, one ready, one due, one that has a date; in a store that was looked at."""
    await bench.store.look(fresh=True)
    owner = await bench.join()
    now_ms = bench.clock.wall_ms()
    await bench.add(
        *(bench.make(eligible_at_ms=wait and now_ms + wait, keep_result=True) for wait in (0, 0, 0, 500, 99_000))
    )
    held = await bench.claim(owner, limit=2)
    bench.clock.advance(1)
    return owner, held


async def after(bench: StoreBench, owner: Owner) -> tuple[StoreStats, object]:
    """What can be seen from outside."""
    stats = await bench.store.stats()
    return stats._replace(used_memory=0), await bench.store.applied(JOURNAL)


@pytest.mark.parametrize("name", CHANGES)
async def test_a_lost_answer_may_be_asked_for_again(
    bench: StoreBench, proxy: Proxy, client: "redis.Redis", name: str
) -> None:
    call = CHANGES[name]
    owner, held = await prepare(bench)
    await call(bench, owner, held)
    once = await after(bench, owner)
    client.flushall()
    bench.at = dict.fromkeys(Lane, 0)
    owner, held = await prepare(bench)
    proxy.lose_answer(FUNCTION(name).encode())
    with pytest.raises(StoreAway):
        await call(bench, owner, held)
    assert proxy.hits == 1
    await call(bench, owner, held)
    assert await after(bench, owner) == once


async def test_a_claim_whose_answer_was_lost_is_found(bench: StoreBench, proxy: Proxy) -> None:
    owner, held = await prepare(bench)
    proxy.lose_answer(FUNCTION("get_waiting_jobs").encode())
    with pytest.raises(StoreAway):
        await bench.claim(owner)
    believed = await bench.store.get_held(owner)
    unknown = {i: fence for i, fence in believed.items() if i not in ids(held)}
    assert len(unknown) == 1
    await bench.store.release_jobs(owner, unknown)
    assert await bench.store.get_held(owner) == holds(held)


async def test_a_seat_whose_answer_was_lost_is_taken_again(bench: StoreBench, proxy: Proxy) -> None:
    owner, held = await prepare(bench)
    for name in ("reserve_sysid", "give_back"):
        proxy.lose_answer(FUNCTION(name).encode())
        with pytest.raises(StoreAway):
            await bench.join()
    again = await bench.join()
    assert again.epoch > owner.epoch
    assert ids(await bench.claim(again, limit=2)) == ids(held)


async def test_flushed_scripts_are_loaded_again(store: RedisStore, client: "redis.Redis") -> None:
    assert (await store.stats()).waiting == 0
    client.script_flush()
    assert (await store.stats()).waiting == 0


async def test_no_answer_in_time_is_weather(bench: StoreBench, proxy: Proxy) -> None:
    await bench.join()
    proxy.stall(FUNCTION("stats").encode())
    with pytest.raises(StoreAway, match="does not answer"):
        await bench.store.stats()
    await bench.push()


async def test_calls_that_take_long_are_told_once_a_minute(bench: StoreBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "SLOW_S", 0.0)
    with capture_logs() as log:
        for _ in range(3):
            await bench.store.stats()
    assert [(line["event"], line["call"]) for line in log] == [("store.slow", "stats")]


async def test_heartbeats_do_not_wait_behind_bulk_calls(proxy: Proxy) -> None:
    async with open_store(StoreConfig(url=proxy.url, timeout_s=2.0, connections_max=1)) as store:
        owner = await store.reserve_sysid("one", previous_epoch_dead=True, through=True)
        await store.renew_sysid(owner, through=True)
        proxy.stall(FUNCTION("stats").encode())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_away, store)
            nursery.start_soon(expect_away, store)
            while not proxy.hits:
                await trio.testing.wait_all_tasks_blocked(0.001)
            with trio.fail_after(1.9):
                assert "one" in (await store.renew_sysid(owner, through=True)).members


async def expect_away(store: RedisStore) -> None:
    """Ask, and be let down."""
    with pytest.raises(StoreAway):
        await store.stats()


async def test_a_killed_server_loses_nothing_it_had_synced(
    fresh_valkey: Valkey, client: "redis.Redis", config: StoreConfig
) -> None:
    client.config_set("appendfsync", "always")  # under everysec even the write may wait for a sync under way
    async with open_store(config) as store:
        owner = await store.reserve_sysid("one", previous_epoch_dead=True, through=True)
        fresh_valkey.kill()
        for _ in range(2):
            with pytest.raises(StoreAway):
                await store.renew_sysid(owner, through=True)
            with pytest.raises(StoreAway):
                await store.stats()
        fresh_valkey.start()
        assert "one" in (await store.renew_sysid(owner, through=True)).members
        assert await store.applied(JOURNAL) == dict.fromkeys(Lane, 0)


async def test_a_store_may_be_opened_before_its_server(fresh_valkey: Valkey, config: StoreConfig) -> None:
    fresh_valkey.kill()
    async with open_store(config) as store:
        with pytest.raises(StoreAway, match="does not answer"):
            await store.promote(1)
        fresh_valkey.start()
        assert (await store.promote(1)).moved == 0


async def test_counters_go_on_after_a_wipe(store: RedisStore, client: "redis.Redis") -> None:
    old = await store.reserve_sysid("one", previous_epoch_dead=True, through=True)
    before = (await store.renew_sysid(old, through=True)).members
    client.flushall()
    new = await store.reserve_sysid("one", previous_epoch_dead=True, through=True)
    assert new.epoch > old.epoch
    assert (await store.renew_sysid(new, through=True)).members["one"].counter > before["one"].counter


async def test_a_full_server_takes_no_jobs_but_ends_them(bench: StoreBench, client: "redis.Redis") -> None:
    owner, held = await prepare(bench)
    client.config_set("maxmemory", 1)
    with pytest.raises(StoreAway, match="OOM"):
        await bench.store.apply_jobs(JOURNAL, 100, 200, [bench.make()])
    await bench.members(owner)
    assert await bench.settle(outcome(held[0], Fate.SUCCEEDED)) == []
    await bench.store.release_jobs(owner, holds(held[1:]))
    assert (await bench.store.promote(9)).moved == 1
    assert len(await bench.claim(owner)) == 3
    assert await bench.state(held[0].job) is State.SUCCEEDED
    await bench.store.purge(9)
    await bench.store.release_sysid(owner)


async def test_a_server_that_takes_no_more_clients_is_weather(config: StoreConfig, client: "redis.Redis") -> None:
    before = client.config_get("maxclients")["maxclients"] or ""
    client.config_set("maxclients", 1)  # the one that sets it
    try:
        async with open_store(config) as store:
            with pytest.raises(StoreAway, match="does not answer"):
                await store.stats()
            client.config_set("maxclients", before)
            assert (await store.stats()).waiting == 0
    finally:
        client.config_set("maxclients", before)


# ---------------------------------------------------------------- mischief


def field(client: "redis.Redis", name: str, of: str) -> bytes:
    """A field of one of our hashes, which must be there."""
    value = client.hget(KEYS[name], of)
    assert isinstance(value, bytes)
    return value


@pytest.mark.parametrize("name", sorted(KINDS.keys() - STEMS))
async def test_any_key_may_be_deleted(bench: StoreBench, client: "redis.Redis", name: str) -> None:
    """An operator's slip costs what lay under that key; nothing stops working and nothing crashes."""
    owner, held = await prepare(bench)
    client.delete(KEYS[name])
    if name == "life":  # as if the store had been emptied: its daemons look again, and come through the barrier
        await bench.store.look(fresh=False)
    if name in ("life", "members"):
        owner = await bench.join()
    if name == "applied":
        bench.at = dict.fromkeys(Lane, 0)
    await bench.settle(outcome(held[0], Fate.RETRY), outcome(held[1], Fate.SUCCEEDED))
    await bench.push("thumb")
    assert len(await bench.claim(owner, "thumb")) == 1
    await bench.claim(owner)
    await bench.store.promote(9)
    await bench.store.purge(9)
    await bench.store.release_sysid(owner)


async def test_unreadable_rows_go_to_the_dead_and_spare_their_neighbours(
    bench: StoreBench, client: "redis.Redis"
) -> None:
    now_ms = bench.clock.wall_ms()
    bad = [await bench.push(), await bench.push(eligible_at_ms=now_ms + 5)]
    good = [await bench.push(), await bench.push(eligible_at_ms=now_ms + 5)]
    for job in bad:
        client.hset(KEYS["jobs"], job.id, b"\xc1 rubbish")
    bench.clock.advance(1)
    assert (await bench.store.promote(9)).moved == 2
    owner = await bench.join()
    assert ids(await bench.claim(owner)) == [job.id for job in good]
    assert (await bench.store.stats())[2:5] == (2, 0, 2)
    for job in bad:
        (end,) = (await bench.view(job)).history
        assert (end.reason, f"}}:jobs holds something at '{job.id}'" in end.message) == ("unreadable", True)
    await bench.store.release_sysid(owner)
    assert (await bench.store.stats())[:5] == (2, 0, 0, 0, 2)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("members", "one", "many:few"),
        ("members", "one", "99999999999999999999999:1"),
        ("applied", f"{JOURNAL}:jobs", "minus one"),
        ("fence", "", "high"),
    ],
)
async def test_rubbish_in_a_value_is_refused_by_name(
    bench: StoreBench, client: "redis.Redis", name: str, field: str, value: str
) -> None:
    owner, held = await prepare(bench)
    if name == "fence":
        client.set(KEYS[name], value)
    else:
        client.hset(KEYS[name], field or held[0].job.id, value)

    async def use() -> None:
        await bench.store.applied(JOURNAL)
        await bench.members(owner)
        await bench.claim(owner)
        await bench.view(held[0].job)
        await bench.push()

    with pytest.raises(StoreRefused, match=f"}}:{name} "):
        await use()


async def test_a_cut_history_row_hides_no_more_than_the_history(bench: StoreBench, client: "redis.Redis") -> None:
    owner, held = await prepare(bench)
    await bench.settle(outcome(held[0], Fate.RETRY, message="a" * 50))
    row = field(client, "tries", held[0].job.id)
    client.hset(KEYS["tries"], held[0].job.id, row[:-10])
    view = await bench.view(held[0].job)
    assert (view.state, view.argument) == (State.WAITING, held[0].job.argument)
    assert view.outcome is not None
    assert "}:tries holds something" in view.outcome.message
    assert len(await bench.claim(owner)) == 2, "the count can still be read, so the job can run"


async def test_a_claim_takes_what_is_planted_nowhere(bench: StoreBench, client: "redis.Redis") -> None:
    """An id without a row is dropped; a jobtype without jobs is forgotten."""
    owner = await bench.join()
    client.zadd(KEYS.ready("mail"), {"ghost": 0})
    client.zadd(KEYS["types"], {"mail": 0, "empty": 0})
    assert await bench.claim(owner) == []
    assert await bench.store.get_held(owner) == {}
    assert await bench.store.get_waiting_jobs(owner, "empty", 5, **ALL) == []
    assert client.zcard(KEYS["types"]) == 0


async def test_rubbish_in_another_seat_is_refused_by_name(bench: StoreBench, client: "redis.Redis") -> None:
    owner = await bench.join()
    await bench.push()
    client.hset(KEYS["members"], "other", "many:few")
    for call in (bench.members(owner), bench.claim(owner)):
        with pytest.raises(StoreRefused, match="}:members "):
            await call
    client.hdel(KEYS["members"], "other")
    assert len(await bench.claim(owner)) == 1


async def test_a_hold_whose_hand_was_deleted_does_not_lose_its_job(bench: StoreBench, client: "redis.Redis") -> None:
    """The job must lie somewhere: it is in that hand again."""
    owner, job = await bench.join(), bench.make()
    await bench.store.reassert(owner, {job.id: 5})
    client.delete(KEYS.held("one"))
    await bench.add(job)
    assert await bench.state(job) is State.RUNNING
    assert await bench.store.get_held(owner) == {job.id: 5}
    client.delete(KEYS["about"])
    await bench.join()
    assert ids(await bench.claim(await bench.join())) == [job.id], "a hand without a record is emptied all the same"


async def test_a_row_that_cannot_be_read_is_out_of_the_hand(bench: StoreBench, client: "redis.Redis") -> None:
    owner, job = await bench.join(), await bench.push()
    client.hset(KEYS["jobs"], job.id, b"\xc1 rubbish")
    assert await bench.store.reassert(owner, {job.id: 5}) == [job.id]
    assert await bench.claim(owner) == []
    assert (await bench.store.stats()).dead == 1
