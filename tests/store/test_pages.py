"""Jobs far back in a long queue lie in pages (`lua/shared/pages.lua`): what waits, comes and goes as if they did not.

Most tests use pages of three jobs. Random walks have a long form: pytest tests/store -k is_a_queue --queue-walks 200
(half a second each, every fourth with the pages that ship and many more jobs, some seconds).
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
from jqd.domain.errors import StoreRefused
from jqd.domain.job import Change, ChangeKind, Fate, Job, State, Wanted
from jqd.domain.jobid import IdSource
from jqd.store import Owner, StoreConfig, open_store
from jqd.store.keys import Keys
from jqd.testing.clock import ManualClock
from tests.contract.bench import JOURNAL, OTHER_JOURNAL, StoreBench, ids, outcome
from tests.store.furnished import dump
from tests.store.places import PAGE_MAX, check_places, paged, short_pages
from tests.valkey import Valkey

KEYS = Keys("jqd")
STEPS = 60
CALL_JOBS = 500  # as the lanes send them
JOURNALS = {1: JOURNAL, 2: OTHER_JOURNAL}


@pytest.fixture
async def bench(fresh_valkey: Valkey, tmp_path: Path) -> AsyncIterator[StoreBench]:
    """A store with short pages."""
    clock = ManualClock()
    with short_pages(tmp_path):
        async with open_store(StoreConfig(url=fresh_valkey.url), now_ms=clock.wall_ms) as store:
            await store.look(fresh=True)
            yield StoreBench(store, clock)


async def waiting(bench: StoreBench, count: int, **fields: Any) -> list[Job]:
    """So many jobs that came together."""
    jobs = [bench.make(**fields) for _ in range(count)]
    await bench.add(*jobs)
    return jobs


def in_pages(client: "redis.Redis", jobtype: str = "mail") -> list[str]:
    """Their ids."""
    return [job_id.decode() for job_id, _ in paged(client, KEYS, jobtype)]


async def test_what_comes_behind_many_lies_in_pages(bench: StoreBench, client: "redis.Redis") -> None:
    first = await bench.push()
    assert not client.exists(KEYS["paged"]), "few need no pages"
    jobs = await waiting(bench, 8)
    assert in_pages(client) == [job.id for job in jobs]
    assert client.zcard(f"{KEYS['backlog']}:mail") == 3
    (found,) = await bench.store.get_waiting_jobtypes([Wanted()], 9)
    assert (found.waiting, found.head_id) == (9, first.id)
    owner = await bench.join()
    assert ids(await bench.claim(owner, limit=3)) == [first.id, jobs[0].id, jobs[1].id]
    assert in_pages(client) == [job.id for job in jobs[2:]]
    (found,) = await bench.store.get_waiting_jobtypes([Wanted()], 9)
    assert (found.waiting, found.head_id) == (6, jobs[2].id)
    assert ids(await bench.claim(owner)) == [job.id for job in jobs[2:]]
    assert await bench.store.get_waiting_jobtypes([Wanted()], 9) == []
    assert not client.exists(KEYS["paged"])


async def test_who_comes_back_goes_before_those_in_pages(bench: StoreBench, client: "redis.Redis") -> None:
    jobs = await waiting(bench, 9)
    owner = await bench.join()
    held = await bench.claim(owner, limit=5)
    await bench.settle(outcome(held[3], Fate.RETRY))
    await bench.store.release_jobs(owner, {held[1].job.id: held[1].fence})
    assert in_pages(client) == [job.id for job in jobs[5:]]
    assert ids(await bench.claim(owner, limit=4)) == [jobs[at].id for at in (1, 3, 5, 6)]


async def test_a_claim_within_priorities_takes_nothing_else(bench: StoreBench) -> None:
    jobs = [await waiting(bench, 7, priority=priority) for priority in (2, 0, 1)]
    owner = await bench.join()
    claimed = await bench.claim(owner, limit=9, priority_min=1, priority_max=1)
    assert ids(claimed) == [job.id for job in jobs[2]]
    assert ids(await bench.claim(owner, limit=9)) == [job.id for job in [*jobs[1], *jobs[0][:2]]]


async def test_bytes_that_are_too_many_leave_the_rest_of_a_page(bench: StoreBench, client: "redis.Redis") -> None:
    jobs = await waiting(bench, 7, argument=b"\xc4\x64" + bytes(100))
    owner = await bench.join()
    for job in jobs:
        assert ids(await bench.claim(owner, bytes_max=1)) == [job.id]
        assert len(in_pages(client)) == len(jobs) - jobs.index(job) - 1


async def test_a_suspect_in_a_page_is_left_there(bench: StoreBench, client: "redis.Redis") -> None:
    jobs = await waiting(bench, 6)
    client.hset(KEYS["deaths"], jobs[1].id, "2:0")  # as if two daemons had died over it, and it was never taken back
    owner = await bench.join()
    assert ids(await bench.claim(owner, limit=3)) == [jobs[0].id, jobs[2].id, jobs[3].id]
    assert in_pages(client) == [jobs[1].id, jobs[4].id, jobs[5].id]
    for job in jobs[4:]:
        assert ids(await bench.claim(owner, limit=1)) == [job.id], "however few are asked for"
    assert in_pages(client) == [jobs[1].id]


async def test_a_cancel_an_edit_and_a_hold_take_a_job_out_of_its_page(bench: StoreBench, client: "redis.Redis") -> None:
    jobs = await waiting(bench, 9)
    await bench.cancel(jobs[4].id)
    assert await bench.state(jobs[4]) is State.CANCELLED
    revision = await bench.store.reserve_change(jobs[5].id)
    change = Change(revision, 0, ChangeKind.EDIT)
    await bench.add(Job(jobs[5].id, "mail", priority=-1, change=change))
    owner = await bench.join()
    assert await bench.store.reassert(owner, {jobs[7].id: owner.epoch + 1}) == []
    assert in_pages(client) == [jobs[at].id for at in (0, 1, 2, 3, 6, 8)]
    assert [await bench.state(job) for job in (jobs[3], jobs[7])] == [State.WAITING, State.RUNNING]
    assert ids(await bench.claim(owner)) == [jobs[at].id for at in (5, 0, 1, 2, 3, 6, 8)]


async def test_what_comes_late_finds_its_page(bench: StoreBench, client: "redis.Redis") -> None:
    """Another daemon's jobs are as old; it tells the store of them later."""
    jobs = [bench.make() for _ in range(24)]
    await bench.add(*jobs[0:3], *jobs[6:24:2])
    await bench.add(*jobs[7:24:2])
    await bench.add(*jobs[3:6])
    assert in_pages(client) == [job.id for job in jobs]
    assert max(client.llen(key) for key in client.scan_iter(f"{KEYS['page']}:*")) <= PAGE_MAX
    owner = await bench.join()
    assert ids(await bench.claim(owner)) == [job.id for job in jobs]


async def test_what_is_in_a_page_already_comes_there_once(bench: StoreBench, client: "redis.Redis") -> None:
    """Its row was deleted by hand, and its journal is applied again."""
    jobs = await waiting(bench, 8)
    client.hdel(KEYS["jobs"], jobs[3].id, jobs[4].id, jobs[7].id)
    await bench.add(*jobs)
    assert in_pages(client) == [job.id for job in jobs]
    assert ids(await bench.claim(await bench.join())) == [job.id for job in jobs]


async def test_a_job_and_its_copy_in_one_call_come_there_once(bench: StoreBench, client: "redis.Redis") -> None:
    """As an emptied store is told again: what retention copied lies behind what it was copied from."""
    jobs = [bench.make() for _ in range(9)]
    copies = [msgspec.structs.replace(job, copied=(at, at)) for at, job in enumerate(jobs)]
    await bench.add(*jobs, *copies)
    assert in_pages(client) == [job.id for job in jobs]
    assert ids(await bench.claim(await bench.join())) == [job.id for job in jobs]


async def test_a_few_that_are_older_than_all_pages_get_none(bench: StoreBench, client: "redis.Redis") -> None:
    old, *jobs = [bench.make() for _ in range(8)]
    await bench.add(*jobs)
    client.delete(KEYS.ready("mail"))
    pages = in_pages(client)
    await bench.add(old)
    assert in_pages(client) == pages
    assert client.zrange(KEYS.ready("mail"), 0, -1) == [old.id.encode()]
    assert ids(await bench.claim(await bench.join(), limit=2)) == [old.id, jobs[0].id]


async def test_an_id_that_begins_a_page_begins_no_other(bench: StoreBench, client: "redis.Redis") -> None:
    """It was deleted after it had begun one, and comes again under another priority."""
    jobs = await waiting(bench, 6)
    assert client.hdel(KEYS["jobs"], jobs[3].id)
    client.lrem(f"{KEYS['page']}:{jobs[3].id}:mail", 1, jobs[3].id)
    client.hset(KEYS["paged"], "mail", 5)
    others = [Job(jobs[3].id, "mail", priority=1), *(bench.make(priority=1) for _ in range(3))]
    await bench.add(*others)
    left = [job.id for job in jobs if job is not jobs[3]]
    assert sorted(in_pages(client)) == sorted([*left, others[PAGE_MAX].id])
    assert ids(await bench.claim(await bench.join())) == [*left, *(job.id for job in others)]


async def test_a_page_that_something_else_wrote_is_refused(bench: StoreBench, client: "redis.Redis") -> None:
    """What waits before it is given, and all of it when it is away."""
    jobs = await waiting(bench, 3 * PAGE_MAX)
    last = f"{KEYS['page']}:{jobs[-PAGE_MAX].id}:mail"
    known = dump(client, last)
    client.set(last, "planted")
    owner = await bench.join()
    late, positions = bench.make(), dict(bench.at)
    for call in (bench.add(late), bench.claim(owner), bench.view(jobs[-1])):
        with pytest.raises(StoreRefused, match="has another type"):
            await call
    assert client.get(last) == b"planted"
    before = 2 * PAGE_MAX - 1
    assert ids(await bench.claim(owner, limit=before)) == [job.id for job in jobs[:before]]
    client.restore(last, 0, known, replace=True)
    bench.at.update(positions)
    await bench.add(late)
    assert ids(await bench.claim(owner)) == [job.id for job in [*jobs[before:], late]]


async def test_what_lies_wrong_is_found(bench: StoreBench, client: "redis.Redis") -> None:
    """By the look that random walks and chaos runs end with."""
    jobs = await waiting(bench, 8)
    check_places(client, KEYS)
    mistakes = [
        lambda: client.zadd(KEYS.ready("mail"), {jobs[5].id: 0}),
        lambda: client.lrem(f"{KEYS['page']}:{jobs[0].id}:mail", 1, jobs[1].id),
        lambda: client.rpush(f"{KEYS['page']}:{jobs[0].id}:mail", jobs[3].id),
        lambda: client.zrem(f"{KEYS['backlog']}:mail", jobs[3].id),
        lambda: client.hincrby(KEYS["paged"], "mail", 1),
        lambda: client.hset(KEYS["paged"], "thumb", 1),
        lambda: client.rpush(f"{KEYS['page']}:{jobs[1].id}:thumb", "x"),
        lambda: client.hdel(KEYS["jobs"], jobs[4].id),
        lambda: client.zadd(KEYS["types"], {"mail": 5}),
    ]
    kept = [(key, dump(client, key)) for key in client.scan_iter()]
    for mistake in mistakes:
        mistake()
        with pytest.raises(AssertionError):
            check_places(client, KEYS)
        client.flushall()
        for key, row in kept:
            client.restore(key, 0, row)
    check_places(client, KEYS)


class Queue:
    """Two journals push, jobs are claimed, come back, are cancelled; `model` says what waits."""

    def __init__(self, seed: int, bench: StoreBench, times: int = 1) -> None:
        """`times`: as many jobs as with pages of three."""
        self.times = times
        self.random = random.Random(seed)
        self.bench = bench
        self.sources = {n: IdSource(journal=n, salt=1, clock=bench.clock) for n in JOURNALS}
        self.behind: dict[int, list[Job]] = {n: [] for n in JOURNALS}
        self.model: dict[str, Job] = {}
        self.held: dict[str, int] = {}
        self.at = dict.fromkeys(JOURNALS, 0)
        self.edits = 0
        self.owner = Owner("", 0)

    def in_order(self, *priorities: int) -> list[str]:
        """What waits, as it is to be claimed."""
        chosen = [job for job in self.model.values() if job.priority in priorities]
        return [job.id for job in sorted(chosen, key=lambda job: (job.priority, job.id))]

    async def push(self) -> None:
        """Each journal makes some; one of them tells the store, of all that it has."""
        for number, source in self.sources.items():
            made = source.take(self.random.randint(1, 9 * self.times)).ids()
            priority = self.random.choice([0, 0, 0, 1])
            self.behind[number] += [Job(job_id, "mail", priority=priority) for job_id in made]
        number = self.random.choice(list(JOURNALS))
        jobs, self.behind[number] = self.behind[number], []
        await self.apply(number, jobs)
        self.model |= {job.id: job for job in jobs}

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
        assert ids(held) == expected
        for one in held:
            del self.model[one.job.id]
            self.held[one.job.id] = one.fence

    async def come_back(self) -> None:
        back = dict(self.random.sample(sorted(self.held.items()), min(len(self.held), 4 * self.times)))
        await self.bench.store.release_jobs(self.owner, back)
        for job_id in back:
            view = await self.bench.view(job_id)
            self.model[job_id] = Job(job_id, "mail", priority=view.priority)
            del self.held[job_id]

    async def cancel(self) -> None:
        gone = self.random.sample(sorted(self.model), min(len(self.model), 3 * self.times))
        await self.bench.cancel(*gone)
        for job_id in gone:
            del self.model[job_id]

    async def edit(self) -> None:
        for job_id in self.random.sample(sorted(self.model), min(len(self.model), 1)):
            revision = await self.bench.store.reserve_change(job_id)
            change = Change(revision, 0, ChangeKind.EDIT)
            self.model[job_id] = job = Job(job_id, "mail", priority=self.random.randint(0, 1), change=change)
            await self.bench.store.apply_changes(JOURNALS[1], self.edits, self.edits + 1, [job])
            self.edits += 1

    async def look(self) -> None:
        """All that can be seen of the queue."""
        found = await self.bench.store.get_waiting_jobtypes([Wanted()], 9)
        order = self.in_order(0, 1)
        assert [(one.head_id, one.waiting) for one in found] == ([(order[0], len(order))] if order else [])
        listed, cursor = [], ""
        while True:
            page = await self.bench.store.list_jobs(State.WAITING, "mail", None, 7 * self.times, cursor)
            listed += [view.id for view in page.jobs]
            cursor = page.cursor
            if not cursor:
                break
        assert sorted(listed) == sorted(order)
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


async def test_a_queue_in_pages_is_a_queue(
    request: pytest.FixtureRequest, tmp_path: Path, queue_seed: int, queue_server: str, queue_times: int
) -> None:
    """Claims give what is due, in order, whatever came in whichever order before."""
    server: Valkey = request.getfixturevalue(queue_server)
    clock = ManualClock()
    with short_pages(tmp_path) if queue_times == 1 else nullcontext(), redis.Redis.from_url(server.url) as client:
        async with open_store(StoreConfig(url=server.url), now_ms=clock.wall_ms) as store:
            await store.look(fresh=True)
            await Queue(queue_seed, StoreBench(store, clock), queue_times).walk(client)


async def test_a_locale_changes_no_order(fresh_valkey: Valkey, tmp_path: Path, client: "redis.Redis") -> None:
    """As on a server whose Lua compares by a language: ids are compared byte by byte then."""
    clock = ManualClock()
    with short_pages(tmp_path, has_no_locale="false"):
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
        assert len(in_pages(client)) > 14_000
        assert worst < 180
