"""The loop that lets children go on: each once, after all parents, whatever is repeated, refused or away meanwhile."""

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from jqd.chaining.flows import ALONE_S, COMPLAIN_S, GATHER_S, LOOK_S, OLD_MS, REST_S, Flows
from jqd.domain.errors import JournalRefused, StoreAway
from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import ChangeKind, Fate, Job, State
from jqd.domain.jobid import partition_of
from jqd.domain.record import cancel_of
from jqd.store import JobView, StoreConfig
from jqd.store.links import NEW, ParentNote, WatchPair
from jqd.testing.store import FakeStore
from tests.contract.bench import OTHER_JOURNAL, StoreBench, changed, outcome
from tests.loops.house import TrioClock
from tests.simulation.mistake import in_scripts

WALKS = 60
STEPS = 16
PARENTS = 3
CALLS = 5  # of one partition in one round, about
LOOPS = 4


class Faulty:
    """A way to a store on which something happens at one call, before or after the store did it."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.at, self.is_before = 0, False
        self.happens: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.store, name)
        if not callable(real):
            return real

        async def call(*args: Any, **named: Any) -> Any:
            self.at -= 1
            is_now = self.at == 0
            if is_now and self.is_before:
                await self.happens()
            answer = await real(*args, **named)
            if is_now and not self.is_before:
                await self.happens()
            return answer

        return call


class Room:
    """Two partitions, of which the second has the parents; what is released goes into the first at once."""

    def __init__(self, partitions: int = 2) -> None:
        self.clock = TrioClock()
        parts = StoreConfig(url="redis://fake", partitions=partitions).parts()
        self.stores = [FakeStore(self.clock, part) for part in parts]
        self.benches = [StoreBench(store, self.clock) for store in self.stores]
        self.unsettled: set[int] = set()
        self.released: list[str] = []
        self.failed: list[str] = []
        self.refuses: Exception | bool | None = None
        self.made: dict[str, Job] = {}
        self.flows = self.loop()

    def loop(self, number: int = 0, wrap: Callable[[FakeStore], Any] = lambda store: store) -> Flows:
        stores: Any = [wrap(store) for store in self.stores]
        return Flows(number, stores, self.settled, self.release, clock=self.clock, source=random.Random(1))

    def settled(self, where: Collection[int]) -> bool:
        return self.unsettled.isdisjoint(where)

    async def release(self, job_id: str, failed: str, _: str) -> bool:
        if isinstance(self.refuses, Exception):
            raise self.refuses
        view = await self.stores[0].get_job(job_id)
        if self.refuses or not isinstance(view, JobView) or view.state is not State.BLOCKED:
            return not self.refuses
        self.released.append(job_id)
        self.failed.append(failed)
        revision = await self.stores[0].reserve_change(job_id)
        await self.benches[0].add(changed(self.made[job_id], revision, ChangeKind.EDIT, eligible_at_ms=0))
        return True

    def make(self, home: int, **fields: Any) -> Job:
        made = self.benches[home].make(**fields)
        named = next(name for name in (made.id[:-1] + letter for letter in "01") if partition_of(name, 2) == home)
        job = msgspec.structs.replace(made, id=named)
        self.made[job.id] = job
        return job

    async def parent(self) -> Job:
        job = self.make(len(self.stores) - 1)
        await self.benches[-1].add(job)
        return job

    async def child(self, *parents: Job) -> Job:
        flow = Flow(after=tuple(parent.id for parent in parents))
        job = self.make(0, jobtype="sum", flow=flow, eligible_at_ms=BLOCKED_MS)
        await self.benches[0].add(job)
        return job

    async def retry(self, parent: Job) -> None:
        revision = await self.stores[-1].reserve_change(parent.id)
        await self.benches[-1].add(changed(parent, revision, ChangeKind.RETRY))

    async def end(self, fate: Fate = Fate.SUCCEEDED) -> None:
        bench = self.benches[-1]
        await bench.settle(outcome(await bench.claim_one(await bench.join()), fate))


@pytest.fixture
async def room() -> Room:
    room = Room()
    for store in room.stores:
        await store.look(fresh=True)
    return room


@pytest.fixture
async def running(room: Room, nursery: trio.Nursery) -> Room:
    await nursery.start(room.flows.run)
    return room


async def _walk(room: Room, source: random.Random) -> None:
    """Two daemons look at both partitions. At any call of one its answer is lost, or a parent ends and others work. In
    every other walk the first parent fails, and is tried anew before the last of the others ends."""
    ways: list[list[Faulty]] = [[] for _ in range(LOOPS)]

    def way_of(number: int) -> Callable[[FakeStore], Faulty]:
        def way(store: FakeStore) -> Faulty:
            ways[number].append(Faulty(store))
            return ways[number][-1]

        return way

    loops = [room.loop(number % 2, way_of(number)) for number in range(LOOPS)]
    parents = [await room.parent() for _ in range(PARENTS)]
    child = await room.child(*parents)
    left: list[Callable[[], Awaitable[None]]] = [room.end] * PARENTS
    if source.random() < 0.5:
        left.insert(0, partial(room.end, Fate.FAILED))
        left.insert(source.randint(1, PARENTS - 1), partial(room.retry, parents[0]))
    room.failed.clear()

    async def end() -> None:
        if left:
            await left.pop(0)()

    async def others_work() -> None:
        await end()
        for other in loops:
            await other.one_round()

    async def lose() -> None:
        await trio.lowlevel.checkpoint()
        raise StoreAway("lost")

    for _ in range(STEPS):
        what = source.choice((end, None, None, lose, lose, others_work, others_work))
        number = source.randrange(LOOPS)
        if what is end:
            await end()
        elif source.random() < 0.2:
            await trio.sleep(REST_S)
        for each in ways[number] if what in (lose, others_work) else ():
            each.at, each.is_before = source.randint(1, CALLS), source.random() < 0.5
            each.happens = what or trio.lowlevel.checkpoint
        with suppress(StoreAway):
            await loops[number].one_round()
        for each in ways[number]:
            each.at = 0
        assert not left or child.id not in room.released, "it went on before all had ended"
    while left:
        await end()
    for loop in (*loops, *loops):
        await trio.sleep(REST_S)
        while await loop.one_round() == 0.0:
            pass
    assert room.released.count(child.id) == 1
    assert room.failed == [""], "all of them succeeded in the end"
    bench = room.benches[0]
    held = await bench.claim_one(await bench.join(), "sum")
    assert held.job.id == child.id
    await bench.settle(outcome(held, Fate.SUCCEEDED))


async def test_whatever_is_lost_and_repeated_a_child_is_released_once_after_all(
    autojump_clock: None, room: Room
) -> None:
    await _walk_all(room)


async def _walk_all(room: Room) -> None:
    for seed in range(WALKS):
        try:
            await _walk(room, random.Random(seed))
        except AssertionError as error:
            raise AssertionError(f"walk {seed}: {error}") from error


def _reset_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was noted of parents is made void when they are asked already."""
    real = Flows._watch

    async def watch(self: Flows, pairs: Sequence[WatchPair]) -> Any:
        found = await real(self, pairs)
        await self._store.note_parents([ParentNote(child, size=NEW) for child in {pair.child for pair in pairs}])
        return found

    monkeypatch.setattr(Flows, "_watch", watch)


def _count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end that is noted twice counts as two."""
    for piece, wrong in (
        ("tonumber(known_stage) >= stage or", ""),
        ("if how ~= '' and (known or '') == '' then", "if how ~= '' then"),
    ):
        monkeypatch.setattr(*_part(piece, wrong))


def _part(piece: str, wrong: str) -> tuple[Any, str, Any]:
    owner, name, plant = in_scripts(piece, wrong)
    return owner, name, plant(getattr(owner, name))


def _keep_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent's first end stays."""
    monkeypatch.setattr(*_part("tonumber(known_stage) >= stage or", "known ~= '' or"))


def _take_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told last of a parent counts, however old it is."""
    monkeypatch.setattr(*_part("tonumber(known_stage) >= stage or", ""))


@pytest.mark.parametrize("plant", [_reset_late, _count_twice, _keep_first, _take_last])
async def test_the_walks_find_a_mistake(
    autojump_clock: None, room: Room, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"^walk \d+: "):
        await _walk_all(room)


async def test_an_end_that_comes_alone_is_told_at_once_and_others_together(
    autojump_clock: None, running: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of a chain waits for it."""
    parents = [await running.parent() for _ in range(3)]
    await trio.sleep(LOOK_S / 2)
    rounds, take_links = list[int](), running.stores[0].take_links

    async def taken(limit: int, rest_s: float, **named: Any) -> Any:
        due = await take_links(limit, rest_s, **named)
        rounds.extend([len(due.blocked)] if due.blocked else [])
        return due

    monkeypatch.setattr(running.stores[0], "take_links", taken)
    began_s = trio.current_time()
    await running.child(parents[0])
    running.flows.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert (rounds, trio.current_time()) == ([1], began_s)
    for parent in parents:
        await running.child(parent)
        running.flows.wake()
        await trio.testing.wait_all_tasks_blocked()
    assert rounds == [1]
    await trio.sleep(2 * ALONE_S)
    assert rounds == [1, 3]
    await running.child(parents[0])
    running.flows.wake()
    await trio.sleep(GATHER_S / 2)
    assert rounds == [1, 3], "where several come, more may"
    await trio.sleep(GATHER_S)
    assert rounds == [1, 3, 1]


async def test_it_is_complained_of_children_whose_parents_do_not_come(autojump_clock: None, running: Room) -> None:
    late = running.make(1)
    child = await running.child(late)
    await trio.sleep(COMPLAIN_S - LOOK_S)
    assert running.flows.complaint is None
    await trio.sleep(REST_S + 2 * LOOK_S)
    assert (running.flows.complaint or "").startswith(f"job {child.id} and 0 others wait")
    await running.benches[1].add(late)
    await running.end()
    await trio.sleep(2 * REST_S)
    assert (running.released, running.flows.complaint) == ([child.id], None)


async def test_a_parent_that_nobody_knows_has_ended_once_its_partition_was_told_all(
    autojump_clock: None, running: Room
) -> None:
    gone, later = running.make(1), running.make(1)
    await running.benches[1].add(later)  # of the same journal
    running.unsettled.add(1)
    child = await running.child(gone)
    await trio.sleep(4 * REST_S)
    assert running.released == []
    running.unsettled.clear()
    await trio.sleep(2 * REST_S)
    assert (running.released, running.failed) == ([child.id], [""])


async def test_a_parent_that_comes_while_the_answer_is_on_its_way_has_not_ended(
    autojump_clock: None, room: Room, nursery: trio.Nursery
) -> None:
    """Its partition had not been told all when it was asked: that it is whole now says nothing of that answer."""
    late, later = room.make(1), room.make(1)
    room.unsettled.add(1)

    class Slow(Faulty):
        async def watch_parents(self, pairs: Sequence[WatchPair]) -> Any:
            answer = await self.store.watch_parents(pairs)
            if room.unsettled:
                await room.benches[1].add(late)
                room.unsettled.clear()
            return answer

    await room.benches[1].add(later)  # of the same journal
    await nursery.start(room.loop(wrap=Slow).run)
    child = await room.child(late)
    await trio.sleep(3 * REST_S)
    assert room.released == []
    await room.end()
    await room.end()
    await room.loop(1).one_round()
    assert room.released == [child.id]


async def test_a_journal_that_tells_nothing_is_waited_for_no_longer_than_that(
    autojump_clock: None, running: Room
) -> None:
    child = await running.child(running.make(1))
    await trio.sleep(OLD_MS / 1000 - REST_S)
    assert running.released == []
    await trio.sleep(3 * REST_S)
    assert running.released == [child.id]


async def test_a_partition_that_is_away_is_asked_and_told_when_it_is_back(autojump_clock: None, running: Room) -> None:
    parent = await running.parent()
    running.stores[1].away = "cable pulled"
    child = await running.child(parent)
    await trio.sleep(4 * REST_S)
    running.stores[1].away = None
    await trio.sleep(4 * REST_S)
    assert running.released == []
    await running.end(Fate.FAILED)
    flows = running.loop(1)  # of the partition that tells
    while await flows.one_round() == 0.0:
        pass
    assert (running.released, running.failed) == ([child.id], [parent.id])


@pytest.mark.parametrize("refuses", [True, JournalRefused("the disk is full", full=True), StoreAway("cable pulled")])
async def test_a_release_that_is_refused_is_tried_again(
    autojump_clock: None, running: Room, refuses: Exception | bool
) -> None:
    await running.parent()
    await running.end()
    running.refuses = refuses
    child = await running.child(*[job for job in running.made.values() if job.jobtype != "sum"][-1:])
    running.flows.wake()
    await trio.sleep(3 * REST_S)
    assert running.released == []
    running.refuses = None
    await trio.sleep(3 * REST_S)
    assert running.released == [child.id]


async def test_a_release_that_is_refused_at_once_rests_and_holds_up_no_other_child(
    autojump_clock: None, running: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop would do nothing else meanwhile."""
    parent = await running.parent()
    slow, *others = [await running.child(parent) for _ in range(4)]
    monkeypatch.setattr(running.stores[1], "take_links", partial(running.stores[1].take_links, children_max=2))
    running.flows.wake()
    await trio.sleep(LOOK_S)
    tried, real = list[str](), running.release

    async def release(job_id: str, failed: str, mark: str) -> bool:
        tried.append(job_id)
        return job_id != slow.id and await real(job_id, failed, mark)

    monkeypatch.setattr(running.flows, "_release", release)
    await running.end()
    telling = running.loop(1)
    monkeypatch.setattr(telling, "_release", release)
    more_s = [await telling.one_round() for _ in range(4)]
    assert sorted(running.released) == sorted(child.id for child in others)
    assert more_s[-1] > 0
    assert 1 <= tried.count(slow.id) <= 3, "once with each lot of children"
    tried.clear()
    for _ in range(3):
        await trio.sleep(REST_S / 4)
        await telling.one_round()
    assert tried == []
    monkeypatch.setattr(telling, "_release", real)
    await trio.sleep(REST_S)
    await telling.one_round()
    assert running.released[-1] == slow.id


async def test_a_partition_that_lost_all_is_asked_again(autojump_clock: None, running: Room) -> None:
    parent = await running.parent()
    child = await running.child(parent)
    await trio.sleep(LOOK_S / 2)  # not while it looks
    running.stores[1].wipe()
    await running.stores[1].look(fresh=True)
    await running.benches[1].store.apply_jobs(OTHER_JOURNAL, 0, 1, [parent])
    await running.end()
    await trio.sleep(2 * LOOK_S)
    assert running.released == [child.id], "it had ended when it was asked again"


async def test_who_asks_waits_until_parents_know_their_children(autojump_clock: None, running: Room) -> None:
    parent = await running.parent()
    for _ in range(2):
        child = await running.child(parent)
        running.flows.wake()
        await running.flows.wait_told()
        (row,) = await running.stores[1].list_links([parent.id], 100)
        assert row is not None
        assert child.id in row.listed
        await running.flows.wait_told()  # nothing is due: it is not waited for
    running.stores[1].away = "cable pulled"
    await running.child(parent)
    running.flows.wake()
    with trio.move_on_after(LOOK_S) as waiting:
        await running.flows.wait_told()
    assert waiting.cancelled_caught


@pytest.mark.parametrize("told", ["before", "after"])
@pytest.mark.parametrize("end", ["first", "then", "own", "failed"])
async def test_a_parent_knows_of_a_child_that_had_ended_before_it_was_asked(
    autojump_clock: None, running: Room, told: str, end: str
) -> None:
    """A store that lost everything hears of such children together with their ends: whoever looks at the flow, cancels
    it or tries it anew finds them from their parents."""
    parent = running.make(len(running.stores) - 1)
    running.unsettled.add(1)
    if told == "before":
        await running.benches[1].add(parent)
    flow = Flow(after=(parent.id,), released=end == "failed", failed=parent.id if end == "failed" else "")
    child = running.make(0, jobtype="sum", flow=flow, eligible_at_ms=BLOCKED_MS)
    came = changed(child, 5, ChangeKind.NEW) if end == "own" else child  # under its pusher's id
    if end in ("then", "failed"):
        await running.benches[0].add(came)
    if end != "failed":  # else it waits yet, and expires in a moment
        await running.benches[0].cancel(cancel_of(child.id, 5 if end == "own" else 0))
    if end in ("first", "own"):
        await running.benches[0].add(came)
    running.flows.wake()
    await trio.sleep(2 * LOOK_S)
    if told == "after":
        await running.benches[1].add(parent)
    running.unsettled.clear()
    await trio.sleep(2 * REST_S)
    (row,) = await running.stores[1].list_links([parent.id], 9)
    assert row is not None
    assert row.listed == [child.id]
    await running.end()
    await trio.sleep(2 * REST_S)
    assert running.released == []
    assert running.flows.complaint is None
    assert (await running.stores[0].take_links(9, 0.0)).blocked == [], "nothing is asked for it any more"


async def test_who_asks_for_a_flow_waits_until_a_store_that_lost_all_knows_its_links(
    autojump_clock: None, running: Room
) -> None:
    """A retry of the flow left out the child: its question was heard before the parent came, and rested."""
    await running.flows.wait_told()  # all was well before
    running.unsettled.add(1)
    running.stores[1].wipe()
    await running.stores[1].look(fresh=True)
    parent = running.make(1)
    child = await running.child(parent)
    await running.benches[0].cancel(child.id)
    with trio.move_on_after(LOOK_S) as waiting:
        await running.flows.wait_told()
    assert waiting.cancelled_caught, "it is asked for, and nobody knows the parent yet"
    await running.benches[1].store.apply_jobs(OTHER_JOURNAL, 0, 1, [parent])
    running.unsettled.clear()
    with trio.fail_after(LOOK_S):
        await running.flows.wait_told()
    (row,) = await running.stores[1].list_links([parent.id], 9)
    assert row is not None
    assert row.listed == [child.id]


async def test_nobody_waits_for_the_parents_of_a_child_that_has_ended(autojump_clock: None, running: Room) -> None:
    gone = running.make(len(running.stores) - 1)  # it never comes
    child = await running.child(gone)
    await running.benches[0].cancel(child.id)
    running.flows.wake()
    await trio.sleep(COMPLAIN_S + 2 * REST_S)
    assert running.flows.complaint is None
    assert (await running.stores[0].take_links(9, 0.0)).blocked == []
