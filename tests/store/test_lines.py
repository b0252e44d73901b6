"""Jobs wait in lines of hints (`lua/shared/lines.lua`): what waits, comes and goes as if there were no stale ones.

Most tests use bounds so small that nearly all hints stay. Random walks have a long form: pytest tests/store -k
is_a_queue --queue-walks 200 (half a second each, every fourth with the bounds that ship and many more jobs, some
seconds).
"""

import random
import struct
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from bench.memory import used_bytes
from jqd.domain.job import Change, ChangeKind, Fate, Job, State, Wanted
from jqd.domain.jobid import IdSource
from jqd.domain.record import Lane
from jqd.store import Owner, StoreConfig, open_store
from jqd.store.keys import Keys
from jqd.testing.clock import ManualClock
from tests.contract.bench import JOURNAL, OTHER_JOURNAL, StoreBench, ids, outcome
from tests.store.furnished import dump
from tests.store.places import check_places, short_lines
from tests.valkey import Valkey

KEYS = Keys("jqd")
STEPS = 60
CALL_JOBS = 500  # as the lanes send them
JOURNALS = {1: JOURNAL, 2: OTHER_JOURNAL}


@pytest.fixture
async def bench(fresh_valkey: Valkey, tmp_path: Path) -> AsyncIterator[StoreBench]:
    """A store that leaves hints."""
    clock = ManualClock()
    with short_lines(tmp_path):
        async with open_store(StoreConfig(url=fresh_valkey.url), now_ms=clock.wall_ms) as store:
            await store.look(fresh=True)
            yield StoreBench(store, clock)


async def waiting(bench: StoreBench, count: int, **fields: Any) -> list[Job]:
    """So many jobs that came together."""
    jobs = [bench.make(**fields) for _ in range(count)]
    await bench.add(*jobs)
    return jobs


def hints(client: "redis.Redis", line: str = "-:0:mail") -> list[str]:
    """Of a line: of jobs that wait in it, and stale ones."""
    raw: Any = client
    return [job_id.decode() for job_id in raw.lrange(f"{KEYS['line']}:{line}", 0, -1)]


async def test_a_claim_within_priorities_takes_nothing_else(bench: StoreBench) -> None:
    jobs = [await waiting(bench, 7, priority=priority) for priority in (2, 0, 1)]
    owner = await bench.join()
    claimed = await bench.claim(owner, limit=9, priority_min=1, priority_max=1)
    assert ids(claimed) == [job.id for job in jobs[2]]
    assert ids(await bench.claim(owner, limit=9)) == [job.id for job in [*jobs[1], *jobs[0][:2]]]


async def test_who_failed_goes_to_the_end_and_what_is_given_back_to_the_front(bench: StoreBench) -> None:
    jobs = await waiting(bench, 9)
    owner = await bench.join()
    held = await bench.claim(owner, limit=5)
    await bench.settle(outcome(held[3], Fate.RETRY))
    await bench.store.release_jobs(owner, {one.job.id: one.fence for one in held[1:3]})
    assert ids(await bench.claim(owner)) == [jobs[at].id for at in (1, 2, 5, 6, 7, 8, 3)]


async def test_bytes_that_are_too_many_leave_the_rest_of_a_line(bench: StoreBench, client: "redis.Redis") -> None:
    jobs = await waiting(bench, 7, argument=b"\xc4\x64" + bytes(100))
    owner = await bench.join()
    for at, job in enumerate(jobs):
        assert ids(await bench.claim(owner, bytes_max=1)) == [job.id]
        assert hints(client) == [each.id for each in jobs[at + 1 :]]


async def test_a_cancel_an_edit_and_a_hold_leave_hints_that_nobody_is_given(
    bench: StoreBench, client: "redis.Redis"
) -> None:
    jobs = await waiting(bench, 9)
    await bench.cancel(jobs[4].id)
    assert await bench.state(jobs[4]) is State.CANCELLED
    revision = await bench.store.reserve_change(jobs[5].id)
    change = Change(revision, 0, ChangeKind.EDIT)
    await bench.add(Job(jobs[5].id, "mail", priority=-1, change=change))
    owner = await bench.join()
    assert await bench.store.reassert(owner, {jobs[7].id: owner.epoch + 1}) == []
    assert hints(client) == [job.id for job in jobs]
    assert client.hgetall(KEYS["stale"]) == {b"0:mail": b"3"}
    check_places(client, KEYS)
    assert [await bench.state(job) for job in (jobs[3], jobs[7])] == [State.WAITING, State.RUNNING]
    assert ids(await bench.claim(owner)) == [jobs[at].id for at in (5, 0, 1, 2, 3, 6, 8)]
    assert not client.exists(KEYS["stale"])


async def test_an_edit_that_moves_a_job_nowhere_leaves_it_where_it_waits(
    bench: StoreBench, client: "redis.Redis"
) -> None:
    jobs = await waiting(bench, 5)
    for _ in range(3):
        change = Change(await bench.store.reserve_change(jobs[2].id), 0, ChangeKind.EDIT)
        await bench.add(Job(jobs[2].id, "mail", argument=b"\x01", change=change))
    assert hints(client) == [job.id for job in jobs]
    assert not client.exists(KEYS["stale"])


async def test_a_job_and_its_copy_in_one_call_come_once(bench: StoreBench, client: "redis.Redis") -> None:
    """As an emptied store is told again: what retention copied lies behind what it was copied from."""
    jobs = [bench.make() for _ in range(9)]
    copies = [msgspec.structs.replace(job, copied=(at, at)) for at, job in enumerate(jobs)]
    await bench.add(*jobs, *copies)
    assert hints(client) == [job.id for job in jobs]
    check_places(client, KEYS)
    assert ids(await bench.claim(await bench.join())) == [job.id for job in jobs]


async def test_a_line_that_something_else_wrote_is_refused_by_name(bench: StoreBench, client: "redis.Redis") -> None:
    await waiting(bench, 3)
    owner, line = await bench.join(), f"{KEYS['line']}:-:0:mail"
    client.delete(line)
    client.set(line, "planted")
    for _ in range(2):
        with pytest.raises(Exception, match=KEYS["line"]):
            await bench.push()
        with pytest.raises(Exception, match=KEYS["line"]):
            await bench.claim(owner)
        bench.at[Lane.JOBS] -= 100
    assert client.get(line) == b"planted"
    other = await bench.push(priority=1)
    with pytest.raises(Exception, match=KEYS["line"]):
        await bench.claim(owner)
    assert ids(await bench.claim(owner, priority_min=1)) == [other.id]


async def test_a_claim_meets_so_many_stale_hints_and_the_next_one_the_others(
    bench: StoreBench, client: "redis.Redis"
) -> None:
    jobs = [*await waiting(bench, 800), *await waiting(bench, 800)]
    await bench.cancel(*(job.id for job in jobs[1:-1]))
    owner = await bench.join()
    first = await bench.claim(owner, limit=10)
    assert (ids(first), first.more) == ([jobs[0].id], True)
    assert len(hints(client)) < 600
    assert ids(await bench.claim(owner, limit=10)) == [jobs[-1].id]


@pytest.mark.parametrize("how", ["twice", "in a hand", "elsewhere", "ended", "before its row"])
async def test_no_hint_is_trusted(bench: StoreBench, client: "redis.Redis", how: str) -> None:
    """Whatever left one there that `stale` does not count: a call that was cut short and came again, or a mistake."""
    raw: Any = client
    line, owner = f"{KEYS['line']}:-:0:mail", await bench.join()
    jobs = [bench.make() for _ in range(4)]
    if how == "before its row":
        raw.rpush(line, jobs[0].id, jobs[1].id)
    await bench.add(*jobs)
    gone = [jobs[1].id] if how in ("in a hand", "ended") else []
    if how == "twice":
        raw.rpush(line, jobs[1].id, jobs[1].id)
    elif how == "elsewhere":
        raw.rpush(f"{KEYS['line']}:-:3:mail", jobs[1].id)
        raw.zadd(f"{KEYS['turns']}:-:3:mail", {"mail": 1})
        raw.zadd(f"{KEYS['levels']}:mail", {"-:3": 3})
    elif gone:
        held = await bench.claim(owner, limit=2)
        if how == "ended":
            await bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in held))
        raw.lpush(line, jobs[1].id)
        gone.append(jobs[0].id)
    given = [one.job.id for _ in range(4) for one in await bench.claim(owner, limit=9)]
    assert sorted(given) == sorted(job.id for job in jobs if job.id not in gone)
    assert not client.exists(line, f"{KEYS['line']}:-:3:mail")


async def test_a_line_that_lost_its_turn_has_one_when_a_job_comes(bench: StoreBench, client: "redis.Redis") -> None:
    """A write that failed, or somebody's slip: what waits in it is not lost."""
    jobs = await waiting(bench, 3)
    client.delete(f"{KEYS['turns']}:-:0:mail", f"{KEYS['levels']}:mail", f"{KEYS['heads']}:")
    client.hset(KEYS["life"], "turn", "many")
    owner = await bench.join()
    assert await bench.claim(owner) == []
    jobs.append(await bench.push())
    check_places(client, KEYS)
    assert ids(await bench.claim(owner)) == [job.id for job in jobs]


async def test_what_lies_wrong_is_found(bench: StoreBench, client: "redis.Redis") -> None:
    """By the look that random walks and chaos runs end with."""
    jobs = await waiting(bench, 8)
    await bench.cancel(jobs[6].id)
    check_places(client, KEYS)
    line, row = f"{KEYS['line']}:-:0:mail", f"-:0:{jobs[0].id}:mail"
    mistakes = [
        lambda: client.lrem(line, 1, jobs[1].id),
        lambda: client.rpush(line, jobs[3].id),
        lambda: client.rpush(f"{KEYS['line']}:-:1:mail", jobs[3].id),
        lambda: client.zrem(f"{KEYS['turns']}:-:0:mail", "mail"),
        lambda: client.zadd(f"{KEYS['turns']}:-:0:mail", {"thumb": 1}),
        lambda: client.zrem(f"{KEYS['levels']}:mail", "-:0"),
        lambda: client.zadd(f"{KEYS['levels']}:mail", {"-:5": 5}),
        lambda: client.zrem(f"{KEYS['heads']}:", row),
        lambda: client.zadd(f"{KEYS['heads']}:", {row.replace(jobs[0].id, jobs[1].id): 0}),
        lambda: client.hset(KEYS["parked"], "-:0:mail", "1 x"),
        lambda: client.hdel(KEYS["stale"], "0:mail"),
        lambda: client.hdel(KEYS["jobs"], jobs[4].id),
        lambda: client.zadd(KEYS["later"], {jobs[4].id: 1}),
    ]
    kept = [(key, dump(client, key)) for key in client.scan_iter()]
    for mistake in mistakes:
        mistake()
        with pytest.raises(AssertionError):
            check_places(client, KEYS)
        client.flushall()
        for key, row_ in kept:
            client.restore(key, 0, row_)
    check_places(client, KEYS)


class Queue:
    """Two journals push, jobs are claimed, come back, are cancelled; `model` says what waits."""

    def __init__(self, seed: int, bench: StoreBench, times: int = 1) -> None:
        """`times`: as many jobs as with small bounds."""
        self.times = times
        self.random = random.Random(seed)
        self.bench = bench
        self.sources = {n: IdSource(journal=n, salt=1, clock=bench.clock) for n in JOURNALS}
        self.behind: dict[int, list[Job]] = {n: [] for n in JOURNALS}
        self.lines: dict[int, list[str]] = {0: [], 1: []}
        self.held: dict[str, int] = {}
        self.at = dict.fromkeys(JOURNALS, 0)
        self.edits = 0
        self.owner = Owner("", 0)

    def in_order(self, *priorities: int) -> list[str]:
        """What waits, as it is to be claimed."""
        return [job_id for priority in priorities for job_id in self.lines[priority]]

    def leave(self, job_id: str) -> int:
        """It waits no more. Its priority."""
        priority = 0 if job_id in self.lines[0] else 1
        self.lines[priority].remove(job_id)
        return priority

    async def push(self) -> None:
        """Each journal makes some; one of them tells the store, of all that it has."""
        for number, source in self.sources.items():
            made = source.take(self.random.randint(1, 9 * self.times)).ids()
            priority = self.random.choice([0, 0, 0, 1])
            self.behind[number] += [Job(job_id, "mail", priority=priority) for job_id in made]
        number = self.random.choice(list(JOURNALS))
        jobs, self.behind[number] = self.behind[number], []
        await self.apply(number, jobs)
        for job in jobs:
            self.lines[job.priority].append(job.id)

    async def apply(self, number: int, jobs: list[Job]) -> None:
        """As the lane of that journal does."""
        for first in range(0, len(jobs), CALL_JOBS):
            chunk, start = jobs[first : first + CALL_JOBS], self.at[number]
            self.at[number] = end = start + len(chunk)
            await self.bench.store.apply_jobs(JOURNALS[number], start, end, chunk)

    async def claim(self) -> None:
        priorities = self.random.choice([(0,), (1,), (0, 1), (0, 1)])
        limit = self.random.randint(1, 12 * self.times)
        expected = self.in_order(*priorities)[:limit]
        owner = self.owner
        held = await self.bench.claim(owner, limit=limit, priority_min=min(priorities), priority_max=max(priorities))
        assert ids(held) == expected or (held.more and ids(held) == expected[: len(held)])
        for one in held:
            self.leave(one.job.id)
            self.held[one.job.id] = one.fence

    async def come_back(self) -> None:
        back = dict(self.random.sample(sorted(self.held.items()), min(len(self.held), 4 * self.times)))
        await self.bench.store.release_jobs(self.owner, back)
        for job_id in reversed(back):
            view = await self.bench.view(job_id)
            self.lines[view.priority].insert(0, job_id)
            del self.held[job_id]

    async def cancel(self) -> None:
        gone = self.random.sample(waits := sorted(self.in_order(0, 1)), min(len(waits), 3 * self.times))
        await self.bench.cancel(*gone)
        for job_id in gone:
            self.leave(job_id)

    async def edit(self) -> None:
        for job_id in self.random.sample(waits := sorted(self.in_order(0, 1)), min(len(waits), 1)):
            revision = await self.bench.store.reserve_change(job_id)
            change = Change(revision, 0, ChangeKind.EDIT)
            job = Job(job_id, "mail", priority=self.random.randint(0, 1), change=change)
            await self.bench.store.apply_changes(JOURNALS[1], self.edits, self.edits + 1, [job])
            if job_id not in self.lines[job.priority]:
                self.leave(job_id)
                self.lines[job.priority].append(job_id)
            self.edits += 1

    async def look(self) -> None:
        """All that can be seen of the queue."""
        found = await self.bench.store.get_waiting_jobtypes([Wanted()], 9)
        order = self.in_order(0, 1)
        assert not order or [(one.jobtype, one.waiting) for one in found] == [("mail", len(order))]
        listed, cursor = [], ""
        while True:
            page = await self.bench.store.list_jobs(State.WAITING, "mail", None, 7 * self.times, cursor)
            listed += [view.id for view in page.jobs]
            cursor = page.cursor
            if not cursor:
                break
        assert sorted({*listed}) == sorted(order)
        for job_id in order[:: max(1, len(order) // 5)]:
            assert (await self.bench.view(job_id)).state is State.WAITING

    async def walk(self, client: "redis.Redis") -> None:
        """Random steps."""
        self.owner = await self.bench.join()
        for _ in range(STEPS):
            step = self.random.choice([self.push, self.push, self.push, self.claim, self.claim, self.come_back])
            await self.random.choice([step, step, step, self.cancel, self.edit, self.look])()
            check_places(client, KEYS)
            self.bench.clock.advance(self.random.choice([0, 0.001, 0.005]))
        await self.look()


async def test_a_line_is_a_queue(
    request: pytest.FixtureRequest, tmp_path: Path, queue_seed: int, queue_server: str, queue_times: int
) -> None:
    """Claims give what is due, in order, whatever came in whichever order before."""
    server: Valkey = request.getfixturevalue(queue_server)
    clock = ManualClock()
    with short_lines(tmp_path) if queue_times == 1 else nullcontext(), redis.Redis.from_url(server.url) as client:
        async with open_store(StoreConfig(url=server.url), now_ms=clock.wall_ms) as store:
            await store.look(fresh=True)
            await Queue(queue_seed, StoreBench(store, clock), queue_times).walk(client)


async def test_a_locale_changes_no_order(fresh_valkey: Valkey, tmp_path: Path, client: "redis.Redis") -> None:
    """As on a server whose Lua compares by a language: ids are compared byte by byte then."""
    clock = ManualClock()
    with short_lines(tmp_path, has_no_locale="false"):
        async with open_store(StoreConfig(url=fresh_valkey.url), now_ms=clock.wall_ms) as store:
            await store.look(fresh=True)
            await Queue(99, StoreBench(store, clock)).walk(client)


async def test_a_long_queue_is_packed(fresh_valkey: Valkey, client: "redis.Redis") -> None:
    """What waits costs at most 180 B over its argument: just after the server's table of jobs has doubled, too."""
    clock = ManualClock()
    async with open_store(StoreConfig(url=fresh_valkey.url), now_ms=clock.wall_ms) as store:
        await store.look(fresh=True)
        bench = StoreBench(store, clock)
        argument = b"\xc5" + struct.pack(">H", 197) + bytes(197)
        await waiting(bench, 500, argument=argument)
        before, count, worst = used_bytes(client), 0, 0.0
        while count < 15_000:
            await waiting(bench, 500, argument=argument)
            count += 500
            if count > 7_000:
                worst = max(worst, (used_bytes(client) - before) / count - len(argument))
        assert len(hints(client)) > 14_000
        assert worst < 180
