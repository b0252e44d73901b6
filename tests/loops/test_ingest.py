"""Journal → store, with answers lost, the store away, rolled back or emptied."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from jqd.journal import Journal, JournalConfig, open_journal
from jqd.loops.chunks import CHUNK_BYTES, CHUNK_RECORDS
from jqd.loops.ingest import FLIGHTS_MAX, SKIP_BYTES, Ingest, LaneRules
from jqd.store import JobView
from jqd.testing.files import MemoryFiles
from jqd.testing.store import FakeStore
from jqd.words.clock import ManualClock
from jqd.words.errors import JqdError, StoreAway, StoreRefused
from jqd.words.job import Job, State
from jqd.words.record import Head, Lane, encode_jobs


class LossyStore(FakeStore):
    """Does what it is asked and then loses the answer, or refuses, for the calls told."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.trouble: list[JqdError | None] = []
        self.skips = 0

    async def apply_jobs(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> None:
        await super().apply_jobs(journal_id, start, end, jobs)
        if self.trouble and (error := self.trouble.pop(0)):
            raise error

    async def skip(self, journal_id: str, lane: Lane, start: int, end: int, *, gone: bool = False) -> None:
        self.skips += 1
        await super().skip(journal_id, lane, start, end, gone=gone)


class Bench:
    def __init__(self, journal: Journal, store: LossyStore, clock: ManualClock) -> None:
        self.journal, self.store, self.clock = journal, store, clock
        self.applied: list[str] = []
        self.answers: list[object] = []
        rules: LaneRules[Job] = LaneRules(self._apply, lambda job: len(job.argument), self._applied)
        self.rolled_back = 0
        self.ingest: Ingest[Any] = Ingest(
            Lane.JOBS, rules, journal=journal, store=store, source=random.Random(1), rolled_back=self._roll_back
        )

    async def _apply(self, journal_id: str, start: int, end: int, jobs: Sequence[Job], /) -> str:
        await self.store.apply_jobs(journal_id, start, end, jobs)
        return jobs[0].id

    def _applied(self, jobs: Sequence[Job], answer: object) -> None:
        self.applied.extend(job.id for job in jobs)
        self.answers.append(answer)
        assert answer in (None, jobs[0].id), "each hears what was answered of its own"

    def _roll_back(self) -> None:
        self.rolled_back += 1

    async def push(self, count: int, size: int = 3) -> list[str]:
        ids = self.journal.ids.take(count)
        jobs = msgspec.msgpack.encode([{"name": "t", "argument": b"x" * size} for _ in range(count)])
        await self.journal.wsync(self.journal.write(Lane.JOBS, count, encode_jobs(Head(ids.first, 1), jobs)))
        return ids.ids()

    async def drained(self) -> None:
        await self.ingest.wait_applied(self.journal.end)


@asynccontextmanager
async def bench(store: LossyStore | None = None) -> AsyncIterator[Bench]:
    clock = ManualClock()
    config = JournalConfig(directory=Path("/journal"))
    async with open_journal(config, clock=clock, files=MemoryFiles()) as journal, trio.open_nursery() as nursery:
        made = Bench(journal, store or LossyStore(clock), clock)
        await made.store.look(fresh=True)  # before that no lane may say anything
        yield made
        nursery.cancel_scope.cancel()


async def run(made: Bench, nursery: trio.Nursery) -> None:
    await nursery.start(made.ingest.run)


async def test_all_jobs_arrive_once_in_bounded_calls() -> None:
    async with bench() as made, trio.open_nursery() as nursery:
        calls: list[int] = []
        whole = made.store.apply_jobs

        async def count(journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> None:
            calls.append(len(jobs))
            await whole(journal_id, start, end, jobs)

        made.store.apply_jobs = count  # type: ignore[method-assign]
        ids = [await made.push(n) for n in (1, 1_700, 3)]
        await run(made, nursery)
        await made.drained()
        assert made.applied == [job_id for batch in ids for job_id in batch]
        assert max(calls) <= CHUNK_RECORDS
        assert len(calls) == 4
        assert (await made.store.stats()).waiting == 1_704
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("error", [StoreAway("answer lost"), StoreRefused("somebody's key")])
async def test_a_lost_answer_doubles_nothing_and_its_waiters_are_told(error: JqdError, autojump_clock: None) -> None:
    async with bench() as made, trio.open_nursery() as nursery:
        made.store.trouble = [None, error, error, None]
        first = await made.push(600)
        await run(made, nursery)
        more = await made.push(700)  # would make other chunks, were the unanswered one not sent again as it was
        await made.drained()
        assert made.applied == first + more
        assert made.answers[0] == first[0]
        assert (await made.store.stats()).waiting == 1_300
        assert made.ingest.pace.reason is None
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("known", ["nothing", "what came before", "all but the answer"])
async def test_an_answer_lost_by_a_store_that_then_forgets_skips_nothing(known: str, autojump_clock: None) -> None:
    """The chunk that is to be sent again begins where the store no longer stands."""
    async with bench() as made, trio.open_nursery() as nursery:
        await made.store.look(fresh=True)
        image = made.store.image()
        await run(made, nursery)
        ids = await made.push(5)
        await made.drained()
        if known == "what came before":
            image = made.store.image()
        made.store.trouble = [StoreAway("answer lost")]
        ids += await made.push(7)
        while made.ingest.pace.reason is None:
            await trio.sleep(0.001)
        made.store.restart(None if known == "all but the answer" else image)
        await made.store.look(fresh=False)
        made.ingest.recheck()
        await made.drained()
        assert (await made.store.stats()).waiting == 12
        assert set(made.applied) == set(ids)
        nursery.cancel_scope.cancel()


async def test_while_the_store_is_away_nothing_is_lost_and_health_says_so(autojump_clock: None) -> None:
    async with bench() as made, trio.open_nursery() as nursery:
        made.store.away = "cable pulled"
        await run(made, nursery)
        ids = await made.push(5)
        while made.ingest.pace.reason is None:
            await trio.sleep(0.1)
        assert "cable pulled" in made.ingest.pace.reason
        assert made.ingest.position is None
        made.store.away = None
        await made.drained()
        assert made.applied == ids
        nursery.cancel_scope.cancel()


async def test_an_emptied_store_is_filled_again_from_the_journal() -> None:
    async with bench() as made, trio.open_nursery() as nursery:
        ids = await made.push(10)
        await run(made, nursery)
        await made.drained()
        made.store.wipe()
        await made.store.look(fresh=False)
        later = await made.push(1)
        while (await made.store.stats()).waiting < 11:
            await trio.lowlevel.checkpoint()
        for job_id in ids + later:
            view = await made.store.get_job(job_id)
            assert isinstance(view, JobView)
            assert view.state is State.WAITING
        nursery.cancel_scope.cancel()


async def test_a_quiet_lane_tells_its_position_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SKIP_BYTES > CHUNK_BYTES
    monkeypatch.setattr("jqd.loops.ingest.SKIP_BYTES", 1_000)
    async with bench() as made, trio.open_nursery() as nursery:
        await made.push(1)
        await run(made, nursery)
        await made.drained()
        await made.journal.wsync(made.journal.write(Lane.OUTCOMES, 1, b"x" * 5_000))
        await made.push(1)
        await made.drained()
        assert made.store.skips == 0  # the job behind them moved the position along
        nursery.cancel_scope.cancel()


# ---------------------------------------------------------------- several calls on their way

CHUNK = 2


class Way:
    """Between a lane and its store: each call waits here until the test says what becomes of it."""

    def __init__(self, made: Bench) -> None:
        self._made = made
        self._apply = made.store.apply_jobs
        self._here: dict[int, trio.Event] = {}
        self._fates: dict[int, tuple[bool, bool]] = {}
        self._calls: dict[int, tuple[str, int, int, Sequence[Job]]] = {}
        self.ends: dict[int, int] = {}
        """Start → end of all calls that were made."""
        made.store.apply_jobs = self._call  # type: ignore[method-assign]

    async def _call(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> None:
        position = self._made.ingest.last_position
        assert position is not None
        assert self._made.journal.read_point(Lane.JOBS) <= position, "what may be lost yet would not be read again"
        assert self.ends.setdefault(start, end) == end, "it is not sent again as it was"
        self._calls[start] = journal_id, start, end, jobs
        self._here[start] = trio.Event()
        await self._here[start].wait()
        del self._here[start]
        comes, answered = self._fates.pop(start)
        if comes:
            await self.do(start)
        if not answered:
            raise StoreAway("lost on the way")

    async def several(self) -> list[int]:
        """The starts of all calls that are here when nothing moves any more."""
        await trio.testing.wait_all_tasks_blocked()
        return sorted(self._here)

    async def do(self, start: int) -> None:
        """Have the store do it."""
        await self._apply(*self._calls[start])

    async def end(self, start: int, *, comes: bool = True, answered: bool = True) -> None:
        """Let that call end."""
        self._fates[start] = comes, answered
        self._here[start].set()
        await trio.testing.wait_all_tasks_blocked()

    async def end_all(self) -> None:
        """Let all calls end, those that follow too, in order."""
        while here := await self.several():
            await self.end(here[0])


@pytest.fixture
async def way(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Bench, Way, list[str]]]:
    """A lane with seven chunks of two jobs to bring into the store, and the way there."""
    monkeypatch.setattr("jqd.loops.chunks.CHUNK_RECORDS", CHUNK)
    async with bench() as made, trio.open_nursery() as nursery:
        ids = await made.push(6) + await made.push(8)
        way = Way(made)
        await run(made, nursery)
        yield made, way, ids
        nursery.cancel_scope.cancel()


Under = tuple[Bench, Way, list[str]]


async def test_a_few_chunks_are_on_their_way_at_once(autojump_clock: None, way: Under) -> None:
    made, there, ids = way
    first, second, third = here = await there.several()
    assert len(here) == FLIGHTS_MAX
    await there.end(second)  # refused: it begins where the store does not stand yet
    assert made.applied == []
    await there.end(first)
    await there.end(third)
    await there.end_all()
    assert made.applied == ids
    assert made.rolled_back == 0, "a refusal of what came too early says nothing of the store"
    assert made.journal.read_point(Lane.JOBS) == made.journal.end


async def test_answers_that_come_in_another_order_are_told_in_order(autojump_clock: None, way: Under) -> None:
    made, there, ids = way
    first, second, _ = await there.several()
    await there.do(first)
    await there.end(second)
    assert made.applied == ids[:4]
    await there.end(first, comes=False)
    await there.end_all()
    assert made.applied == ids


async def test_who_is_answered_speaks_for_those_before_it(autojump_clock: None, way: Under) -> None:
    made, there, ids = way
    first, second, third = await there.several()
    await there.end(first, answered=False)
    assert made.applied == []
    await there.end(second)
    assert made.applied == ids[:4], "it can only have been done behind the first"
    await there.end(third)
    await there.end_all()
    assert made.applied == ids
    assert made.ingest.pace.reason is None


@pytest.mark.parametrize("comes", [True, False])
async def test_several_lost_answers_are_asked_for_again_as_they_were_and_in_order(
    autojump_clock: None, way: Under, comes: bool
) -> None:
    made, there, ids = way
    first, second, third = await there.several()
    await there.end(first, comes=comes, answered=False)
    await there.end(second, comes=comes, answered=False)
    await there.end(third, answered=False)
    assert made.applied == []
    await made.push(1)  # would make other chunks
    with trio.fail_after(10):
        while not await there.several():
            await trio.sleep(1)
    assert await there.several() == [first, second, third]
    await there.end_all()
    assert made.applied[: len(ids)] == ids
    assert (await made.store.stats()).waiting == len(made.applied) == 15
    assert made.rolled_back == 0


async def test_a_backlog_stops_when_the_store_is_to_be_asked_and_goes_on_from_what_it_says(
    autojump_clock: None, way: Under
) -> None:
    made, there, ids = way
    first, second, third = await there.several()
    made.ingest.recheck()
    for start in (first, second, third):
        await there.end(start)
    await there.end_all()
    assert made.applied == ids


async def test_a_backlog_stops_while_it_is_held(autojump_clock: None, way: Under) -> None:
    made, there, ids = way
    here = await there.several()
    made.ingest.hold()
    for start in here:
        await there.end(start)
    assert await there.several() == []
    assert made.applied == ids[: 2 * FLIGHTS_MAX]
    made.ingest.let_go()
    await there.end_all()
    assert made.applied == ids


async def test_what_a_wiped_store_refuses_is_read_again_from_where_it_stands(autojump_clock: None, way: Under) -> None:
    made, there, ids = way
    first, second, third = await there.several()
    await there.end(first)
    made.store.wipe()
    await made.store.look(fresh=False)
    await there.end(second)
    await there.end(third)
    there.ends.clear()  # the same places are cut anew
    await there.end_all()
    assert made.rolled_back == 1
    assert made.applied == ids[:2] + ids
    assert (await made.store.stats()).waiting == 14


async def test_a_reservation_that_ran_out_while_the_store_was_slow_is_taken_anew(
    autojump_clock: None, way: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, there, ids = way
    monkeypatch.setattr("jqd.loops.ingest.RESERVE_RECORDS", 4)
    await there.end_all()
    ids += await made.push(14)
    here = await there.several()
    made.clock.advance(60.0)
    await there.end(here[0])
    await there.end_all()
    assert made.applied == ids
    assert made.journal.read_point(Lane.JOBS) == made.journal.end


async def test_a_call_to_look_again_is_kept_while_the_store_is_asked_already(autojump_clock: None) -> None:
    """The answer on its way may be of the life before."""
    async with bench() as made, trio.open_nursery() as nursery:
        await made.store.look(fresh=True)
        await made.push(3)
        ask, asked = made.store.applied, trio.Event()

        async def slow(journal_id: str) -> dict[Lane, int]:
            answer = await ask(journal_id)
            asked.set()
            await trio.sleep(1)
            return answer

        made.store.applied = slow  # type: ignore[method-assign]
        await run(made, nursery)
        await asked.wait()
        made.store.applied = ask  # type: ignore[method-assign]
        made.store.wipe()
        await made.store.look(fresh=False)
        made.ingest.recheck()
        await made.drained()
        assert (await made.store.stats()).waiting == 3
        nursery.cancel_scope.cancel()


async def test_a_call_to_look_again_is_heard_while_a_lost_chunk_is_sent_again(autojump_clock: None) -> None:
    async with bench() as made, trio.open_nursery() as nursery:
        made.store.trouble = [StoreAway("answer lost")]
        await made.push(3)
        await run(made, nursery)
        while made.ingest.pace.reason is None:
            await trio.sleep(0.001)
        whole, sent = made.store.apply_jobs, trio.Event()

        async def slow(*args: Any) -> None:
            await whole(*args)
            sent.set()
            await trio.sleep(1)

        made.store.apply_jobs = slow  # type: ignore[method-assign,assignment]
        await sent.wait()
        made.ingest.recheck()
        with trio.fail_after(10):
            await made.drained()
        assert made.ingest.position == made.journal.end
        nursery.cancel_scope.cancel()
