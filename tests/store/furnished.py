"""A store in which every key holds something, for tests of what becomes of a key."""

from collections.abc import Sequence
from typing import Any

import msgspec
import redis
from msgspec import Raw

from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import Change, ChangeKind, Fate, Held, Job, Outcome, lease_claim
from jqd.domain.record import Lane
from jqd.domain.results import PIECE_BYTES, LargeResult
from jqd.domain.settings import Setting
from jqd.store import HistoryRow, Member, NameWanted, Owner
from jqd.store.codec import decode_result
from jqd.store.keys import Keys
from jqd.store.links import NEW, ParentNote, UniqueWanted, WatchPair
from tests.contract.bench import JOURNAL, StoreBench, outcome, setting
from tests.store.places import PAGE_MAX
from tests.store.test_faults import field

KEYS = Keys("jqd")
LARGE = msgspec.msgpack.encode(bytes(PIECE_BYTES))
LATE_AT = 1 << 40  # a position of no other outcome


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
        await bench.push("late", expires_at_ms=now_ms - 1)
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
        await self.bench.store.save_ageing("one", 1_000)
        await self.bench.push(queue="\x1e7")
        for count in (1, 0):  # the latter waits
            await self.bench.push("slow", queue="\x1e7\x1eone\x1d1\x1d=k")
            assert len(await self.bench.claim(self.owner, "slow", version="7")) == count

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
            "asked": f"{KEYS['asked']}:one",
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
        """What all keys but those of seats hold, in short: burning an epoch comes before emptying its hand."""
        seats = {KEYS["members"].encode(), KEYS["fence"].encode(), life := KEYS["life"].encode()}
        keys = [key for key in self.client.scan_iter(count=1_000) if key not in seats]
        digests: Any = self.client.execute_command("DEBUG", "DIGEST-VALUE", *keys)
        found = dict(zip(keys, digests, strict=True))
        if self.client.type(life) == b"hash":
            fields: Any = self.client.hgetall(life)
            found[life] = repr(sorted(fields.items())).encode()
        return found


def handed(held: Held) -> Outcome:
    """Its hand-over to a worker."""
    return lease_claim(held, worker="w", silence_s=10, started_at_ms=1)


def at(here: Furnished, lane: Lane) -> tuple[int, int]:
    """The next range of that lane."""
    return here.bench.at[lane], here.bench.at[lane] + 100


def seat(client: "redis.Redis") -> Member:
    """The member row of `one`, or nothing that matches when it is planted."""
    if client.type(KEYS["members"]) != b"hash":
        return Member(1, 1, True)
    counter, epoch, _ = field(client, "members", "one").split(b":")
    return Member(int(counter), int(epoch), True)


def dump(client: "redis.Redis", key: bytes | str) -> bytes:
    """What that key holds."""
    row = client.dump(key)
    assert isinstance(row, bytes)
    return row
