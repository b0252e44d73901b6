"""Runs jobs of every kind until all is over, and tells what the store still holds: the long form of `test_returns.py`.

python -m tests.store.returns --jobs 100000        # some minutes; a Valkey of its own
"""

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import redis
import trio

from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import ChangeKind, Fate, Held, Job, lease_claim
from jqd.domain.record import Lane, cancel_of
from jqd.domain.results import PIECE_BYTES
from jqd.store import Ages, Log, NameJournaled, NameWanted, Owner, Release, StoreConfig, open_store
from jqd.store.keys import Keys
from jqd.store.links import NEW, Joined, ParentNote, ParentsState, UniqueWanted, WatchPair
from jqd.store.types import JOINS_SOON_S
from jqd.testing.clock import ManualClock
from tests.contract.bench import JOURNAL, StoreBench, changed, holds, outcome, setting
from tests.contract.limited import KEYED, claim, item
from tests.contract.limited import setting as constraint
from tests.directories import short_directory
from tests.valkey import Valkey

PART = 200  # jobs of one kind in one go
DAY_S = 86_400.0
LARGE = msgspec.msgpack.encode(bytes(PIECE_BYTES))
KEYS = Keys("jqd")


class Round:
    """Jobs of each kind, some at once, up to their end. What their pushers and daemons do, and nothing else."""

    def __init__(self, bench: StoreBench, owner: Owner) -> None:
        self.bench, self.store, self.owner = bench, bench.store, owner
        self._names = self._revisions = 0
        self._ages: Ages | None = None

    async def taken(self, jobtype: str = "mail") -> list[Held]:
        """All that may start now."""
        held: list[Held] = []
        while some := await claim(self.bench, self.owner, PART, jobtype, ages=self._ages):
            held += some
        return held

    async def end(self, held: Sequence[Held], fate: Fate = Fate.SUCCEEDED, **fields: Any) -> None:
        await self.bench.settle(*(outcome(one, fate, **fields) for one in held))

    async def pushed(self, count: int, jobtype: str = "mail", **fields: Any) -> list[Job]:
        jobs = [self.bench.make(jobtype, **{"queue": KEYED} | fields) for _ in range(count)]
        await self.bench.add(*jobs)
        return jobs

    async def limit(self) -> None:
        """Say what is limited, once more."""
        self._revisions += 1
        await constraint(self.bench, "r", self._revisions, rate={"limit": 1, "per_s": 1})
        await constraint(self.bench, "c", self._revisions, concurrency=3, digest=0)

    async def plain(self, count: int) -> None:
        """More of one type than stay in `ready`."""
        await self.pushed(max(count, 120))
        await self.end(await self.taken())

    async def of_many_types(self, count: int) -> None:
        for number in range(count):
            await self.pushed(1, f"type{number}", priority=number)
            await self.end(await self.taken(f"type{number}"))

    async def of_tenants(self, count: int) -> None:
        await self.pushed(count, "acme\x1fmail")
        await self.end(await self.taken("acme\x1fmail"))

    async def kept(self, count: int) -> None:
        jobs = await self.pushed(count, keep_result=True)
        await self.end(await self.taken(), result=b"\x01")
        await self.store.drop_result(jobs[0].id)

    async def kept_apart(self, count: int) -> None:
        """Large results: of some the outcome comes too late, or never."""
        await self.pushed(count, keep_result=True)
        held = await self.taken()
        for _ in range(2):
            given = [outcome(one, Fate.SUCCEEDED, result=LARGE) for one in held]
            given = [*await self.store.put_results(JOURNAL, self.bench.at[Lane.OUTCOMES], given)]
            await self.bench.settle(*given[:-1])
        await self.end(held[-1:])

    async def dated(self, count: int) -> None:
        await self.pushed(count, eligible_at_ms=self.bench.clock.wall_ms() + 5_000)
        self.bench.clock.advance(6)
        await self.store.promote(2 * count)
        await self.end(await self.taken())

    async def aged(self, count: int) -> None:
        await self.store.save_ageing(self.owner.sysid, 1_000)
        self._ages = Ages(1 << 53, 0)
        await self.dated(count)
        self._ages = None
        await self.store.save_ageing(self.owner.sysid, 0)

    async def expiring(self, count: int) -> None:
        """A third each begins, is cancelled, and is late."""
        jobs = await self.pushed(count, expires_at_ms=self.bench.clock.wall_ms() + 60_000)
        await self.end(await claim(self.bench, self.owner, max(1, count // 3)))
        await self.bench.cancel(*(job.id for job in jobs[-count // 3 :]))
        self.bench.clock.advance(61)
        assert not await claim(self.bench, self.owner, 1), "it notes who died, and a promotion takes the note"
        await self.store.promote(2 * count)

    async def ends_before_it_expires(self, count: int) -> None:
        await self.pushed(count, expires_at_ms=self.bench.clock.wall_ms() + round(9_999 * DAY_S * 1000))
        await self.end(await self.taken())

    async def failed(self, count: int) -> None:
        await self.pushed(count)
        await self.end(await self.taken(), Fate.RETRY, delay_ms=1_000, log="said")
        self.bench.clock.advance(2)
        await self.store.promote(2 * count)
        await self.end(await self.taken(), Fate.DEAD, message="no", log="said again")

    async def tried_anew(self, count: int) -> None:
        jobs = await self.pushed(count)
        await self.end(await self.taken(), Fate.FAILED)
        for job in jobs:
            given = await self.store.reserve_edit(job.id, 0)
            assert given is not None
            await self.bench.add(changed(job, given.revision, ChangeKind.RETRY))
        await self.end(await self.taken())

    async def cancelled(self, count: int) -> None:
        """As they wait, in a hand, and before they come."""
        jobs = await self.pushed(count)
        held = await claim(self.bench, self.owner, max(1, count // 2))
        await self.bench.cancel(*(job.id for job in jobs))
        await self.bench.members(self.owner)
        await self.bench.members(self.owner)
        await self.store.release_jobs(self.owner, holds(held))
        early = [self.bench.make(queue=KEYED) for _ in range(count)]
        await self.bench.cancel(*(job.id for job in early))
        await self.bench.add(*early[: count // 2])

    async def never_came(self, count: int) -> None:
        """Their journals are lost, and others' words of them are not."""
        jobs = [self.bench.make(queue=KEYED) for _ in range(count)]
        for fate in (Fate.RETRY, Fate.FAILED, Fate.SUCCEEDED):
            held = [Held(job, self.owner.epoch - 9, 1, generation=at % 2) for at, job in enumerate(jobs)]
            await self.end(held, fate, result=b"\x01", keep_result=True, log="said")
        await self.bench.cancel(*(cancel_of(job.id, 7) for job in jobs))
        unseen = {self.bench.make(queue=KEYED).id: self.owner.epoch + 1 + at for at in range(count)}
        await self.store.reassert(self.owner, unseen, dict.fromkeys(unseen, 9))
        await self.store.release_jobs(self.owner, unseen)

    async def followed(self, count: int) -> None:
        await self.pushed(count)
        await self.end(await self.taken(), follows=b"\x91\xa4next")
        entries = (await self.store.get_outbox(count, 1 << 20)).entries
        await self.store.put_off("acme", entries[: count // 2], 0)
        await self.store.drop_outbox(entries[count // 2 :])
        if entries[: count // 2]:
            await self.store.drop_outbox(entries[: count // 2], tenant="acme")

    async def linked(self, count: int) -> None:
        """Each waits for one that ends; all are members of groups, and have unique keys."""
        store = self.store
        for _ in range(count):
            (parent,) = await self.pushed(1)
            child = self.bench.make(flow=Flow(after=(parent.id,), unique=f"k{parent.id}"), eligible_at_ms=BLOCKED_MS)
            assert await store.join_group(f"g{parent.id}", ["t1", "t2"]) is Joined.MEMBERS
            assert await store.confirm_members(f"g{parent.id}", [("t1", parent.id), ("t2", child.id)]) == []
            wanted = UniqueWanted(f"k{parent.id}", "t2", "ended", child.id)
            assert await store.reserve_unique([wanted]) == ["t2"]
            assert await store.confirm_unique([wanted]) == [child.id]
            await self.bench.add(child)
            await store.watch_parents([WatchPair(child.id, "", parent.id, "")])
            await store.note_parents([ParentNote(child.id, size=NEW), ParentNote(child.id, parent.id, size=1)])
            await self.end(await self.taken())
            due = await store.take_links(9, 0)
            (given,) = due.ended
            await store.drop_links({one.entry: () for one in due.blocked})
            told = await store.note_parents([ParentNote(child.id, parent.id, given.how)])
            assert told == {child.id: ParentsState(True, "")}
            await store.drop_links({given.entry: [child.id]}, 0)
            edit = await store.reserve_edit(child.id, 0)
            assert edit is not None
            await self.bench.add(changed(child, edit.revision, ChangeKind.EDIT, eligible_at_ms=0))
            await store.drop_outbox([], children=[(parent.id, child.id)])
            await self.end(await self.taken())
            await store.drop_links({one.entry: () for one in (await store.take_links(9, 0)).blocked})

    async def limited(self, count: int) -> None:
        """A key each; of one key some have to wait."""
        keyed = [KEYED + item("r", 1, f"={at // 3}") + item("c") for at in range(count)]
        await self.bench.add(*(self.bench.make("slow", queue=queue) for queue in keyed))
        await self.end(await self.taken("slow"))
        await self.limit()
        for _ in range(50 * count):
            held = await self.taken("slow")
            await self.end(held)
            self.bench.clock.advance(2)
            if not (await self.store.promote(2 * count)).moved and not held:
                break

    async def named(self, count: int) -> None:
        """Pushed twice, replaced, edited; some are given a name and do not come."""
        for _ in range(count):
            name = f"name{self._names}"
            self._names += 1
            jobs = [self.bench.make(name=name, queue=KEYED) for _ in range(3)]
            (given,) = await self.store.reserve_names([NameWanted(name, jobs[0].id, "d1", False)])
            await self.store.reserve_names([NameWanted(name, jobs[1].id, "d1", False)])
            await self.store.reserve_names([NameWanted(f"{name}never", jobs[2].id, "d1", False)])
            await self.store.confirm_names([NameJournaled(name, jobs[0].id, "d1", given.revision)])
            await self.bench.add(changed(jobs[0], given.revision, ChangeKind.NEW, digest="d1"))
            (next_,) = await self.store.reserve_names([NameWanted(name, jobs[1].id, "d2", True)])
            await self.bench.add(changed(jobs[0], next_.revision, ChangeKind.REPLACE, digest="d2"))
            edit = await self.store.reserve_edit(jobs[0].id, next_.revision)
            assert edit is not None
            await self.bench.add(changed(jobs[0], edit.revision, ChangeKind.EDIT, next_.revision, digest="d2"))
        await self.end(await self.taken())

    async def lent(self, count: int) -> None:
        """Held by a worker: a third each ends, is given back, and is silent."""
        await self.pushed(count)
        held = await self.taken()
        await self.bench.settle(*(lease_claim(one, worker="w", silence_s=10, started_at_ms=1) for one in held))
        third = max(1, count // 3)
        await self.store.watch_logs([(one.job.id, 0, 0) for one in held], 1)
        await self.store.touch(
            [(one.job.id, one.fence) for one in held], silence_s=20, progress=b"\x01", log=Log(0, 0, b"said\n")
        )
        await self.end(held[:third])
        await self.store.release_entrusted([(one.job.id, one.fence) for one in held[third : 2 * third]], Release.UNSENT)
        found = await self.store.find_silent({20: 1 << 52}, 2 * count)
        await self.end([one for lease in found.leases for one in lease.jobs], Fate.FAILED)
        await self.end(await self.taken())

    async def crashed(self, count: int) -> None:
        """Of a daemon that dies with them, twice."""
        await self.pushed(count)
        for _ in range(2):
            two = await self.bench.join("two")
            await claim(self.bench, two, count)
            member = (await self.bench.members(self.owner))["two"]
            while await self.store.reap("two", member, PART):
                continue
        while held := await claim(self.bench, self.owner, 1):
            await self.end(held)
        await self.end(await self.taken())

    async def gone_before_they_were_through(self, count: int) -> None:
        """Daemons, each with a volume of its own."""
        for number in range(count + 1):
            if number == count:
                self.bench.clock.advance(JOINS_SOON_S + 1)
            sysid = f"volume{number}"
            seat = await self.store.reserve_sysid(sysid, previous_epoch_dead=True, through=False)
            await self.store.release_sysid(seat)
        await self.store.renew_sysid(self.owner, through=True, settle=True)

    async def all(self, count: int) -> int:
        """So many of each kind, or more; how many were pushed in all."""
        kinds: list[Callable[[int], Awaitable[None]]] = [
            *(self.plain, self.of_many_types, self.of_tenants, self.kept, self.kept_apart),
            *(self.dated, self.aged, self.expiring),
            *(self.ends_before_it_expires, self.failed, self.tried_anew, self.cancelled, self.never_came),
            *(self.followed, self.linked, self.limited, self.named, self.lent, self.crashed),
            self.gone_before_they_were_through,
        ]
        await self.limit()
        for kind in kinds:
            await kind(count)
        return len(kinds) * count


async def is_over(bench: StoreBench, client: "redis.Redis") -> None:
    """All is deleted that people delete, or that time does."""
    raw: Any = client
    while dead := raw.zrange(KEYS["dead"], 0, PART - 1):
        await bench.store.delete_dead([job_id.decode() for job_id in dead])
    for _ in range(
        3
    ):  # what waits in `due` waits for the end of its window; a result goes before its job, a job before its notes
        bench.clock.advance(9 * DAY_S)
        while (await bench.store.promote(PART)).moved:
            continue
        while (await bench.store.purge(PART)).rows:
            continue


def held_by(client: "redis.Redis") -> dict[str, tuple[int, int]]:
    """Key → its fields, its bytes."""
    found: dict[str, tuple[int, int]] = {}
    sizes: dict[Any, Callable[[bytes], Any]] = {b"hash": client.hlen, b"zset": client.zcard, b"list": client.llen}
    for key in client.scan_iter(count=1_000):
        fields = sizes.get(client.type(key), lambda _: 1)(key)
        found[key.decode()] = fields, client.memory_usage(key, samples=0) or 0
    return found


async def begin(bench: StoreBench) -> Round:
    """A store that knows a daemon, its journal and a worker."""
    await bench.store.look(fresh=True)
    await bench.store.applied(JOURNAL)
    await bench.store.apply_settings(JOURNAL, 0, 100, [setting("w", 5)])
    bench.at[Lane.RULES] = 100
    await bench.store.follow_settings(0, 0, ["w"])
    return Round(bench, await bench.join())


async def compare(url: str, jobs: int) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]], int]:
    """What a store holds after a first job or two of each kind, and after so many more; how many these were."""
    pushed, clock = 0, ManualClock()
    config = StoreConfig(url=url, ended_keep_s=DAY_S, ended_keep_jobs=10_000_000)
    with redis.Redis.from_url(url) as client:
        async with open_store(config, now_ms=clock.wall_ms) as store:
            round_ = await begin(StoreBench(store, clock))
            await round_.all(3)
            await is_over(round_.bench, client)
            before = held_by(client)
            while pushed < jobs:
                pushed += await round_.all(min(PART, jobs - pushed))
                await is_over(round_.bench, client)
            return before, held_by(client), pushed


def grown(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> list[str]:
    """Which keys have more fields than before, or a KiB more: of more digits, or of a table that was large."""
    nothing = 0, 0
    return [
        f"{key}: {before.get(key, nothing)} → {its} (fields, bytes)"
        for key, its in after.items()
        if its[0] > before.get(key, nothing)[0] or its[1] > before.get(key, nothing)[1] + 1024
    ]


def main() -> int:
    """Say what has grown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000, help="how many, of all kinds together")
    options = parser.parse_args()
    with short_directory() as directory:
        server = Valkey(directory)
        server.start()
        try:
            before, after, jobs = trio.run(compare, server.url, options.jobs)
        finally:
            server.kill()
    for line in grown(before, after):
        sys.stdout.write(f"{line}\n")
    total = [sum(size for _, size in each.values()) for each in (before, after)]
    sys.stdout.write(f"{jobs} jobs: {len(before)} → {len(after)} keys, {total[0]} → {total[1]} bytes\n")
    return 1 if grown(before, after) else 0


if __name__ == "__main__":
    sys.exit(main())
