"""Something else wrote one of our keys. Every method, at every key: it does without that key, or refuses before its
first write and says which key it is."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from msgspec import Raw

from jqd.domain.errors import StoreRefused, StoreUnsettled
from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import Change, ChangeKind, Fate, Held, Job, Outcome, Wanted, lease_claim
from jqd.domain.record import Lane
from jqd.domain.results import PIECE_BYTES, LargeResult
from jqd.domain.settings import Setting
from jqd.store import (
    Ages,
    HistoryRow,
    Member,
    NameJournaled,
    NameWanted,
    Owner,
    RateWanted,
    Release,
    Report,
    SlotsWanted,
    Store,
    StoreConfig,
    open_store,
)
from jqd.store.codec import decode_result
from jqd.store.keys import KINDS, STEMS, Keys
from jqd.store.links import NEW, ParentNote, UniqueWanted, WatchPair
from jqd.testing.clock import ManualClock
from tests.contract.bench import JOURNAL, StoreBench, holds, outcome, setting
from tests.store.places import PAGE_MAX, short_pages
from tests.store.test_faults import field
from tests.valkey import Valkey

KEYS = Keys("jqd")
NO_KEYS = {"wait_durable", "durability_rule", "at", "identity"}  # they ask the server, not the data, or nobody


class Furnished:
    """A store in which every key holds something, and how to have it again."""

    def __init__(self, bench: StoreBench, client: "redis.Redis") -> None:
        self.bench, self.client = bench, client
        self.owner = Owner("", 0)
        self.held: list[Held] = []
        self.lent = Held(Job("", ""), 0, 1)
        self.late = outcome(self.lent, Fate.SUCCEEDED)
        self.pieces = LargeResult("", 0, 0)
        self.other = Member(0, 0, False)
        self.ended = self.named = self.parent = self.child = Job("", "")
        self._rows: dict[bytes, bytes] = {}
        self._pages: list[bytes] = []

    async def fill(self) -> None:
        """Something of everything, and note it."""
        await self.furnish()
        self._pages = list(self.client.scan_iter(f"{KEYS['page']}:*:mail"))
        self._rows = {key: dump(self.client, key) for key in self.client.scan_iter()}

    async def furnish(self) -> None:
        """Something of everything."""
        bench = self.bench
        store, now_ms = bench.store, bench.clock.wall_ms()
        await store.look(fresh=True)
        await store.applied(JOURNAL)
        self.owner = await bench.join()
        await bench.add(*(bench.make(eligible_at_ms=wait and now_ms + wait) for wait in (0, 0, 0, 500, 99_000)))
        await bench.push("brief", expires_at_ms=now_ms + 99_000)
        self.held = await bench.claim(self.owner, limit=2)
        for _ in range(5):
            await bench.push("thumb", keep_result=True)
        ended, dead, retried, asked = await bench.claim(self.owner, "thumb", limit=4)
        self.ended = ended.job
        await bench.settle(
            outcome(ended, Fate.SUCCEEDED, result=b"\x01"),
            outcome(dead, Fate.DEAD, message="no", log="said"),
            outcome(retried, Fate.RETRY, delay_ms=9_000),
        )
        await self._limit()
        await store.reassert(self.owner, {bench.make().id: self.owner.epoch + 1})
        await self._die()
        await self._name()
        await store.apply_settings(JOURNAL, *at(self, Lane.RULES), [setting("w1", 5)])
        await store.follow_settings(0, 0, ["w1"])
        await bench.push("lent")
        (self.lent,) = await bench.claim(self.owner, "lent", version="7")
        await bench.settle(handed(self.lent))
        await store.watch_logs([(self.lent.job.id, self.lent.fence, 0)], 99_000)
        await store.swap_notices(0, b"first")
        await store.put_history("one", [HistoryRow(1, now_ms, b"row")])
        await bench.push("chain")
        (chain,) = await bench.claim(self.owner, "chain", version="7")
        await bench.settle(outcome(chain, Fate.SUCCEEDED, follows=b"\x91"))
        await store.put_off("acme", (await store.get_outbox(9, 999)).entries, 0)
        await bench.push("chain")
        (chain,) = await bench.claim(self.owner, "chain", version="7")
        await bench.settle(outcome(chain, Fate.SUCCEEDED, follows=b"\x90"))
        await self._link()
        await bench.cancel(asked.job.id, bench.make().id)
        await bench.push("large", keep_result=True)
        await self._put(await bench.claim(self.owner, "large", version="7"))
        bench.clock.advance(1)
        await bench.add(*(bench.make() for _ in range(PAGE_MAX - 1)))
        self.client.hset(KEYS["permits"], "hone\x1d", "1 1 0:0:0:1")  # of one partition it writes none

    async def _put(self, held: Sequence[Held]) -> None:
        """A large result that is kept, and another whose outcome is on its way."""
        store, told = self.bench.store, outcome(held[0], Fate.SUCCEEDED, result=LARGE)
        await self.bench.settle(*await store.put_results(JOURNAL, self.bench.at[Lane.OUTCOMES], [told]))
        self.late = told
        (late,) = await store.put_results(JOURNAL, LATE_AT, [told])
        large = decode_result(KEYS, told.job_id, late.result)
        assert isinstance(large, LargeResult)
        self.pieces = large

    async def _limit(self) -> None:
        """Jobs of constraints: one that is in a hand, one that waits for it, one that is free."""
        for at_ in (0, 1):
            body = {"match": "true", "concurrency": 1, "rate": {"limit": 9, "per_s": 9}, "digest": 7}
            one = Setting("constraint", "one", 1 + at_, 2**41, Raw(msgspec.msgpack.encode(body)))
            await self.bench.store.apply_settings(JOURNAL, *at(self, Lane.RULES), [one])
            self.bench.at[Lane.RULES] += 100
            if not at_:
                await self.bench.add(*(self.bench.make("slow", queue="\x1e7\x1eone\x1d1\x1d") for _ in range(2)))
                assert len(await self.bench.claim(self.owner, "slow", version="7")) == 1
        await self.bench.push(queue="\x1e7")  # loose; from now on they age, and none is it
        await self.bench.store.tell_ageing("one", 1_000)
        await self.bench.push(queue="\x1e7")
        await self.bench.push("slow", queue="\x1e7\x1eone\x1d1\x1d=k")
        assert len(await self.bench.claim(self.owner, "slow", version="7")) == 1

    async def _die(self) -> None:
        """A daemon that held a job does."""
        two = await self.bench.join("two")
        assert await self.bench.claim(two, "thumb", version="7")
        member = (await self.bench.members(self.owner))["two"]
        while await self.bench.store.reap("two", member, 9):
            continue
        two = await self.bench.join("two")
        assert two.epoch
        self.other = (await self.bench.members(self.owner))["two"]

    async def _link(self) -> None:
        """A job that waits for another, both in a group; and one with a unique key."""
        store = self.bench.store
        self.parent = await self.bench.push("linked")
        self.child = self.bench.make("linked", flow=Flow(after=(self.parent.id,)), eligible_at_ms=BLOCKED_MS)
        await self.bench.add(self.child)
        await store.watch_parents([WatchPair(self.child.id, "", self.parent.id, "")])
        await store.note_parents([ParentNote(self.child.id, size=NEW), ParentNote(self.child.id, self.parent.id)])
        await store.join_group("crowd", ["t1", "t2"])
        await store.confirm_members("crowd", [("t1", self.parent.id), ("t2", self.child.id)])
        await store.reserve_unique([UniqueWanted("key", "t1", "ended")])
        await store.confirm_unique([UniqueWanted("key", "t1", "ended", self.parent.id)])

    async def _name(self) -> None:
        self.named = job = self.bench.make(name="mine")
        (given,) = await self.bench.store.reserve_names([NameWanted("mine", job.id, "d1", False)])
        await self.bench.add(
            Job(job.id, "mail", name="mine", change=Change(given.revision, given.revision, ChangeKind.NEW, "d1"))
        )

    def seat(self) -> Member:
        """The member row of `one`, or nothing that matches when it is planted."""
        return seat(self.client)

    def again(self) -> None:
        """As it was when it was filled."""
        self.client.flushall()
        with self.client.pipeline(transaction=False) as pipeline:
            for key, row in self._rows.items():
                pipeline.restore(key, 0, row)
            pipeline.execute()

    def key_of(self, name: str) -> str:
        """A key of that name that the calls below use."""
        (page,) = self._pages
        return {
            "ready": KEYS.ready("mail"),
            "held": KEYS.held("one"),
            "beats": f"{KEYS['beats']}:10",
            "backlog": f"{KEYS['backlog']}:mail",
            "page": page.decode(),
            "queues": f"{KEYS['queues']}:mail",
            "loose": f"{KEYS['loose']}:mail",
            "shelf": f"{KEYS['shelf']}:acme",
            "pieces": f"{KEYS['pieces']}:{self.pieces.named}",
            "children": f"{KEYS['children']}:{self.parent.id}",
            "parents": f"{KEYS['parents']}:{self.child.id}",
            "grouped": f"{KEYS['grouped']}:crowd",
            "history": f"{KEYS['history']}:1",
            "historic": f"{KEYS['historic']}:1",
        }.get(name, KEYS[name])

    def rows(self) -> dict[bytes, bytes]:
        """All there is of jobs. Burning an epoch comes before emptying its hand, so seats may differ."""
        life = KEYS["life"].encode()
        seats = {KEYS["members"].encode(), KEYS["fence"].encode(), life}
        found = {key: dump(self.client, key) for key in self.client.scan_iter() if key not in seats}
        if self.client.type(life) == b"hash":
            fields: Any = self.client.hgetall(life)
            of_seats = (b"knows", b"loose", b"doubt:")
            rest = sorted((name, its) for name, its in fields.items() if not name.startswith(of_seats))
            found[life] = repr(rest).encode()
        return found


LARGE = msgspec.msgpack.encode(bytes(PIECE_BYTES))
LATE_AT = 1 << 40  # a position of no other outcome
BUCKETS = {
    "aside",
    "spent",
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
    "drop_outbox": lambda here: here.bench.store.drop_outbox([b"none"]),
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
    "link_children": lambda here: here.bench.store.link_children([(here.parent.id, here.child.id)]),
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
    "get_waiting_jobtypes, aged": lambda here: here.bench.store.get_waiting_jobtypes([Wanted()], 9, period_ms=1_000),
    "get_waiting_jobs": lambda here: here.bench.claim(here.owner, version="7"),
    "get_waiting_jobs, aged": lambda here: here.bench.claim(here.owner, version="7", ages=Ages(1_000, 1 << 53, 0)),
    "tell_ageing": lambda here: here.bench.store.tell_ageing("one", 1_000),
    "requeue": lambda here: here.bench.store.requeue(here.owner, [(here.held[0], "\x1e7")]),
    "get_held": lambda here: here.bench.store.get_held(here.owner),
    "reassert": lambda here: here.bench.store.reassert(here.owner, {**holds(here.held), here.bench.make().id: 5}),
    "release_jobs": lambda here: here.bench.store.release_jobs(here.owner, holds(here.held)),
    "release_jobs, later": lambda here: here.bench.store.release_jobs(
        here.owner, holds(here.held), Release.RETRY, delay_ms=9
    ),
    "release_jobs, ended": lambda here: here.bench.store.release_jobs(here.owner, holds(here.held), Release.ARCHIVE),
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
    "tell_kept": lambda here: here.bench.store.tell_kept(JOURNAL, 5),
    "unfinished": lambda here: here.bench.store.unfinished([here.ended.id, here.named.id]),
    "resolve": lambda here: here.bench.store.resolve("mine"),
    "list_jobs": lambda here: here.bench.store.list_jobs(None, None, None, 50, ""),
    "queue_place": lambda here: here.bench.store.queue_place(here.named.id),
    "list_types": lambda here: here.bench.store.list_types(),
    "delete_dead": lambda here: here.bench.store.delete_dead([here.ended.id]),
    "clean_ended": lambda here: here.bench.store.clean_ended(here.bench.clock.wall_ms() + 1, 9),
    "apply_settings": lambda here: here.bench.store.apply_settings(JOURNAL, 300, 400, [setting("w1", 6)]),
    "follow_settings": lambda here: here.bench.store.follow_settings(0, 0, ["w1"]),
    "forget_settings": lambda here: here.bench.store.forget_settings(1 << 52, [setting("w1", 5)]),
    "grant_rates": lambda here: here.bench.store.grant_rates([(RateWanted(b"one\x1d", 0, 1, 1, 0, 1_000_000), 1_000)]),
    "grant_slots": lambda here: here.bench.store.grant_slots(
        0, [SlotsWanted(b"one\x1d", 0, 1, Report(0, 0, 0, 0, 0))], [[Report(0, 0, 0, 0, 0)]]
    ),
    "tell_slots": lambda here: tell_slots(here),
}


async def tell_slots(here: Furnished) -> None:
    """A job that is in a hand has not come: that is told once all keys were looked at."""
    with suppress(StoreUnsettled):
        await here.bench.store.tell_slots(0, [(b"one\x1d", 1, 1, 0)], keep=True, give_back=True)


def handed(held: Held) -> Outcome:
    """Its hand-over to a worker."""
    return lease_claim(held, worker="w", silence_s=10, started_at_ms=1)


def at(here: Furnished, lane: Lane) -> tuple[int, int]:
    """The next range of that lane."""
    return here.bench.at[lane], here.bench.at[lane] + 100


def replaced(here: Furnished) -> Job:
    """The named job with other content, of a later date than any."""
    revision = here.owner.epoch + 1_000_000
    change = Change(revision, revision, ChangeKind.REPLACE, "d2")
    return Job(here.named.id, "mail", name="mine", priority=3, change=change)


def seat(client: "redis.Redis") -> Member:
    """The member row of `one`, or nothing that matches when it is planted."""
    if client.type(KEYS["members"]) != b"hash":
        return Member(1, 1, True)
    counter, epoch, _ = field(client, "members", "one").split(b":")
    return Member(int(counter), int(epoch), True)


def plant(client: "redis.Redis", name: str, key: str) -> bytes:
    """Something else at that key. Returns what it is."""
    client.delete(key)
    if KINDS[name] == "string":
        client.rpush(key, "planted")
    else:
        client.set(key, "planted")
    return dump(client, key)


def dump(client: "redis.Redis", key: bytes | str) -> bytes:
    """What that key holds."""
    row = client.dump(key)
    assert isinstance(row, bytes)
    return row


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


@pytest.mark.parametrize("name", CALLS)
async def test_a_planted_key_is_named_and_nothing_changes(here: Furnished, name: str) -> None:
    refused = 0
    for key_name in PLANTED:
        here.again()
        planted = plant(here.client, key_name, here.key_of(key_name))
        before = here.rows()
        if (refusal := await refused_by(CALLS[name](here))) is not None:
            refused += 1
            assert KEYS[key_name] in refusal
            assert here.rows() == before, f"{name} wrote something before it found the key {key_name} planted"
        assert dump(here.client, here.key_of(key_name)) == planted
    assert refused, f"{name} met no planted key at all"


async def refused_by(call: Awaitable[object]) -> str | None:
    """What the refusal says; None when the call went well."""
    try:
        await call
    except StoreRefused as error:
        return str(error)
    return None
