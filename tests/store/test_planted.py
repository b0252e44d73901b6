"""Something else wrote one of our keys. Who looks at the store finds it before anything is written; every method, at
every key that came later, does without it or refuses, and loses nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from jqd.domain.errors import StoreRefused
from jqd.domain.followers import follower_id
from jqd.domain.job import Change, ChangeKind, Fate, Job, Wanted
from jqd.domain.jobid import made_id
from jqd.domain.outcome_followers import encode_as_jobs
from jqd.domain.record import Lane
from jqd.store import (
    Ages,
    HistoryRow,
    JobView,
    NameJournaled,
    NameWanted,
    Store,
    StoreConfig,
    open_store,
)
from jqd.store.keys import KINDS, STEMS
from jqd.store.links import ParentNote, UniqueWanted, WatchPair
from jqd.testing.clock import ManualClock
from tests.contract.bench import JOURNAL, StoreBench, holds, outcome, setting
from tests.store.furnished import KEYS, LATE_AT, Furnished, at, dump, handed
from tests.store.places import short_pages
from tests.valkey import Valkey

NO_KEYS = {"wait_durable", "durability_rule", "at", "identity", "seal"}  # they ask the server, not the data, or nobody


BUCKETS = {
    "throttled",
    "busy",
}  # which of them a call meets it finds out on the way
PLANTED = [name for name in KINDS if name not in BUCKETS]
Call = Callable[[Furnished], Awaitable[object]]

CALLS: dict[str, Call] = {
    "look": lambda here: here.bench.store.look(fresh=False),
    "new_life": lambda here: here.bench.store.new_life("run.life"),
    "reserve_names": lambda here: here.bench.store.reserve_names(
        [NameWanted("yours", here.bench.make().id, "d", False)]
    ),
    "free_names": lambda here: here.bench.store.free_names([NameWanted("yours", here.bench.make().id, "d", False)]),
    "confirm_names": lambda here: here.bench.store.confirm_names([NameJournaled("mine", here.named.id, "d", 1 << 52)]),
    "get_outbox": lambda here: here.bench.store.get_outbox(9, 999),
    "is_owed": lambda here: here.bench.store.is_owed("acme", [b"none"]),
    "put_off": lambda here: here.bench.store.put_off("acme", [b"none"], 1),
    "put_back": lambda here: here.bench.store.put_back("acme", [b"none"]),
    "get_shelf": lambda here: here.bench.store.get_shelf(9, 999, 1),
    "list_shelves": lambda here: here.bench.store.list_shelves(9),
    "drop_outbox": lambda here: here.bench.store.drop_outbox([b"none"], children=[(here.parent.id, here.child.id)]),
    "get_jobs": lambda here: here.bench.store.get_jobs([here.ended.id]),
    "get_briefs": lambda here: here.bench.store.get_briefs([here.ended.id]),
    "watch_logs": lambda here: here.bench.store.watch_logs([(here.lent.job.id, here.lent.fence, 0)], 9),
    "list_failed": lambda here: here.bench.store.list_failed(0),
    "swap_notices": lambda here: here.bench.store.swap_notices(0, b"later"),
    "put_history": lambda here: here.bench.store.put_history("one", [HistoryRow(1, here.bench.clock.wall_ms(), b"r")]),
    "get_history": lambda here: here.bench.store.get_history(1, 0),
    "take_links": lambda here: here.bench.store.take_links(9, 1),
    "ask_again": lambda here: here.bench.store.ask_again(0, "another"),
    "watch_parents": lambda here: here.bench.store.watch_parents([WatchPair(here.child.id, "", here.parent.id, "")]),
    "note_parents": lambda here: here.bench.store.note_parents([ParentNote(here.child.id, here.parent.id, "failed")]),
    "drop_links": lambda here: here.bench.store.drop_links({f"e{here.parent.id}": [here.child.id]}, 0),
    "list_links": lambda here: here.bench.store.list_links([here.parent.id], 9),
    "join_group": lambda here: here.bench.store.join_group("crowd", [here.ended.id]),
    "confirm_members": lambda here: here.bench.store.confirm_members("crowd", [("", here.ended.id)]),
    "close_group": lambda here: here.bench.store.close_group("crowd"),
    "get_group": lambda here: here.bench.store.get_group("crowd"),
    "reserve_unique": lambda here: here.bench.store.reserve_unique([UniqueWanted("key", "t9", "ended")]),
    "confirm_unique": lambda here: here.bench.store.confirm_unique([UniqueWanted("key", "t1", "ended", here.child.id)]),
    "reserve_change": lambda here: here.bench.store.reserve_change(here.named.id),
    "reserve_edit": lambda here: here.bench.store.reserve_edit(here.held[0].job.id, 0),
    "apply_jobs": lambda here: here.bench.store.apply_jobs(JOURNAL, *at(here, Lane.JOBS), [here.bench.make()]),
    "apply_changes": lambda here: here.bench.store.apply_changes(JOURNAL, *at(here, Lane.CHANGES), [replaced(here)]),
    "apply_outcomes": lambda here: here.bench.store.apply_outcomes(
        JOURNAL,
        *at(here, Lane.OUTCOMES),
        [outcome(here.held[0], Fate.RETRY), outcome(here.held[1], Fate.SUCCEEDED, result=b"\x01", keep_result=True)],
    ),
    "apply_outcomes, dead": lambda here: here.bench.store.apply_outcomes(
        JOURNAL, *at(here, Lane.OUTCOMES), [outcome(here.held[0], Fate.DEAD), outcome(here.held[1], Fate.FAILED)]
    ),
    "apply_outcomes, of a worker": lambda here: here.bench.store.apply_outcomes(
        JOURNAL, *at(here, Lane.OUTCOMES), [outcome(here.held[0], Fate.FAILED), outcome(here.lent, Fate.RETRY)]
    ),
    "apply_outcomes, handed over": lambda here: here.bench.store.apply_outcomes(
        JOURNAL, *at(here, Lane.OUTCOMES), [outcome(here.held[0], Fate.FAILED), handed(here.held[1])]
    ),
    "apply_cancels": lambda here: here.bench.store.apply_cancels(
        JOURNAL, *at(here, Lane.CANCELS), [here.held[0].job.id, here.named.id, here.bench.make().id]
    ),
    "applied": lambda here: here.bench.store.applied(JOURNAL),
    "skip": lambda here: here.bench.store.skip(JOURNAL, Lane.JOBS, at(here, Lane.JOBS)[0], 1_000_000),
    "get_waiting_jobtypes": lambda here: here.bench.store.get_waiting_jobtypes([Wanted()], 9),
    "get_waiting_jobtypes, aged": lambda here: here.bench.store.get_waiting_jobtypes([Wanted()], 9, ages=True),
    "get_waiting_jobs": lambda here: here.bench.claim(here.owner, version="7"),
    "get_waiting_jobs, aged": lambda here: here.bench.claim(here.owner, version="7", ages=Ages(1 << 53, 0)),
    "save_ageing": lambda here: here.bench.store.save_ageing("one", 1_000),
    "requeue": lambda here: here.bench.store.requeue(here.owner, [(here.held[0], "\x1e7")]),
    "get_held": lambda here: here.bench.store.get_held(here.owner),
    "reassert": lambda here: here.bench.store.reassert(here.owner, {**holds(here.held), here.bench.make().id: 5}),
    "release_jobs": lambda here: here.bench.store.release_jobs(here.owner, holds(here.held)),
    "touch": lambda here: here.bench.store.touch(
        [(here.held[0].job.id, 1), (here.lent.job.id, here.lent.fence)], silence_s=5, progress=b"\x01"
    ),
    "release_entrusted": lambda here: here.bench.store.release_entrusted([(here.lent.job.id, here.lent.fence)]),
    "find_silent": lambda here: here.bench.store.find_silent({10: 1 << 52}, 9),
    "promote": lambda here: here.bench.store.promote(10),
    "reserve_sysid": lambda here: here.bench.store.reserve_sysid(
        "one", previous_epoch_dead=True, through=True, period_ms=1_000
    ),
    "renew_sysid": lambda here: here.bench.members(here.owner),
    "release_sysid": lambda here: here.bench.store.release_sysid(here.owner),
    "reap": lambda here: here.bench.store.reap("one", here.seat(), 9),
    "get_job": lambda here: here.bench.view(here.held[0].job),
    "get_job, ended": lambda here: here.bench.view(here.ended),
    "put_results": lambda here: here.bench.store.put_results(JOURNAL, LATE_AT, [here.late]),
    "get_piece": lambda here: here.bench.store.get_piece(here.pieces, 0),
    "drop_result": lambda here: here.bench.store.drop_result(here.ended.id),
    "purge": lambda here: here.bench.store.purge(10),
    "stats": lambda here: here.bench.store.stats(),
    "get_ends": lambda here: here.bench.store.get_ends([here.ended.id, here.named.id]),
    "save_kept": lambda here: here.bench.store.save_kept(JOURNAL, 5),
    "unfinished": lambda here: here.bench.store.unfinished([here.ended.id, here.named.id]),
    "resolve_all": lambda here: here.bench.store.resolve_all(["mine"]),
    "resolve": lambda here: here.bench.store.resolve("mine"),
    "list_jobs": lambda here: here.bench.store.list_jobs(None, None, None, 50, ""),
    "queue_place": lambda here: here.bench.store.queue_place(here.named.id),
    "list_types": lambda here: here.bench.store.list_types(),
    "delete_dead": lambda here: here.bench.store.delete_dead([here.ended.id]),
    "clean_ended": lambda here: here.bench.store.clean_ended(here.bench.clock.wall_ms() + 1, 9),
    "apply_settings": lambda here: here.bench.store.apply_settings(JOURNAL, 300, 400, [setting("w1", 6)]),
    "follow_settings": lambda here: here.bench.store.follow_settings(0, 0, ["w1"]),
    "forget_journal": lambda here: here.bench.store.forget_journal("ab" * 16),
    "forget_settings": lambda here: here.bench.store.forget_settings(1 << 52, [setting("w1", 5)]),
}


def replaced(here: Furnished) -> Job:
    """The named job with other content, of a later date than any."""
    revision = here.owner.epoch + 1_000_000
    change = Change(revision, revision, ChangeKind.REPLACE, "d2")
    return Job(here.named.id, "mail", name="mine", priority=3, change=change)


def plant(client: "redis.Redis", name: str, key: str) -> bytes:
    """Something else at that key. Returns what it is."""
    client.delete(key)
    if KINDS[name] == "string":
        client.rpush(key, "planted")
    else:
        client.set(key, "planted")
    return dump(client, key)


@pytest.fixture
async def here(fresh_valkey: Valkey, client: "redis.Redis", tmp_path: Path) -> AsyncIterator[Furnished]:
    """A store in which every key holds something, on a clock that stands still."""
    clock = ManualClock()
    with short_pages(tmp_path):
        async with open_store(StoreConfig(url=fresh_valkey.url), now_ms=clock.wall_ms) as store:
            furnished = Furnished(StoreBench(store, clock), client)
            await furnished.fill()
            yield furnished


def test_every_method_is_here() -> None:
    methods = {name for name in dir(Store) if not name.startswith("_")} - NO_KEYS
    assert {name.partition(",")[0] for name in CALLS} == methods


async def test_every_key_holds_something(here: Furnished) -> None:
    assert [name for name in PLANTED if not here.client.exists(here.key_of(name))] == []
    assert {
        "ready",
        "held",
        "asked",
        "backlog",
        "page",
        "beats",
        "queues",
        "loose",
        "shelf",
        "pieces",
        "children",
        "parents",
        "grouped",
        "history",
        "historic",
        *BUCKETS,
    } == STEMS, "`key_of` knows how they are spelled"


@pytest.mark.parametrize("key_name", [name for name in PLANTED if name not in STEMS])
async def test_a_planted_key_is_named_by_who_looks_before_anything_is_written(here: Furnished, key_name: str) -> None:
    here.again()
    plant(here.client, key_name, here.key_of(key_name))
    before = dump(here.client, KEYS["life"])
    assert KEYS[key_name] in str(await refused_by(CALLS["look"](here)))
    assert dump(here.client, KEYS["life"]) == before


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_meets_a_planted_key_loses_nothing(here: Furnished, name: str) -> None:
    """It stays as it is; the same call goes well when it is gone, whatever the first had written."""
    refused = 0
    for key_name in PLANTED:
        here.again()
        key = here.key_of(key_name)
        known = dump(here.client, key)
        planted = plant(here.client, key_name, key)
        if (refusal := await refused_by(CALLS[name](here))) is not None:
            refused += 1
            assert KEYS.stem in refusal
        assert dump(here.client, key) == planted
        here.client.restore(key, 0, known, replace=True)
        await CALLS[name](here)
        assert unplaced(here.client) == set(), f"{name} lost jobs when it met the key {key_name}"
    assert refused, f"{name} met no planted key at all"


@pytest.mark.parametrize("by", ["outcome", "outbox"])
async def test_a_success_that_meets_a_planted_key_loses_nothing_of_what_follows(here: Furnished, by: str) -> None:
    parent = here.held[0].job.id
    items = [{"name": name, "argument": None} for name in ("mail", "next")]
    follows = encode_as_jobs(items, parent, "mail", 0, 5, options=[]) if by == "outcome" else b"\x92\xa0\x90"
    ends = [outcome(here.held[0], Fate.SUCCEEDED, follows=follows), outcome(here.held[1], Fate.DEAD)]
    refused = 0
    for key_name in PLANTED:
        here.again()
        key = here.key_of(key_name)
        known = dump(here.client, key)
        plant(here.client, key_name, key)
        at_ = at(here, Lane.OUTCOMES)
        refused += await refused_by(here.bench.store.apply_outcomes(JOURNAL, *at_, ends)) is not None
        here.client.restore(key, 0, known, replace=True)
        await here.bench.store.apply_outcomes(JOURNAL, *at_, ends)
        waits = (await here.bench.store.get_outbox(9, 999)).entries
        its = [await here.bench.store.get_job(made_id(follower_id(parent, 0, place))) for place in (0, 1)]
        assert f"{parent} ".encode() + follows in waits or all(isinstance(one, JobView) for one in its), key_name
        assert unplaced(here.client) == set(), key_name
    assert refused


def unplaced(client: Any) -> set[bytes]:
    """Jobs that lie nowhere, or wait where no look finds them."""
    placed = set[bytes]()
    for name in ("later", "ended", "dead"):
        placed |= set(client.zrange(KEYS[name], 0, -1))
    for key in client.scan_iter(f"{KEYS['held']}:*", count=1_000):
        placed |= set(client.zrange(key, 0, -1))
    heads = {(row.partition(b":")[2], score) for row, score in client.zrange(KEYS["index"], 0, -1, withscores=True)}
    types = set(client.zrange(KEYS["types"], 0, -1))
    for key in client.scan_iter(f"{KEYS['loose']}:*", count=1_000):
        placed |= {row.partition(b":")[0] for row in client.zrange(key, 0, -1)}
    for key in client.scan_iter(f"{KEYS['ready']}:*", count=1_000):
        queue = key.removeprefix(f"{KEYS['ready']}:".encode())
        for job_id, score in client.zrange(key, 0, -1, withscores=True):
            if b"\x1e" in queue or (queue in types and (queue, score) in heads):
                placed.add(job_id)
    for key in client.scan_iter(f"{KEYS['page']}:*", count=1_000):
        first, _, queue = key.removeprefix(f"{KEYS['page']}:".encode()).partition(b":")
        if (queue, client.zscore(f"{KEYS['backlog']}:{queue.decode()}", first)) in heads and queue in types:
            placed |= set(client.lrange(key, 0, -1))
    return set(client.hkeys(KEYS["jobs"])) - placed


async def refused_by(call: Awaitable[object]) -> str | None:
    """What the refusal says; None when the call went well."""
    try:
        await call
    except StoreRefused as error:
        return str(error)
    return None
