"""Several calls of a lane on their way to the store at once: lost, late, and in another order."""

import itertools
from collections.abc import AsyncIterator, Sequence

import pytest
import trio
import trio.testing

from jqd.domain.errors import StoreAway
from jqd.domain.job import Job
from jqd.domain.record import Lane
from jqd.loops.ingest import FLIGHTS_MAX
from tests.loops.lane import Bench, bench, run

CHUNK = 2


class Way:
    """Between a lane and its store: each call waits here until the test says what becomes of it."""

    def __init__(self, made: Bench) -> None:
        self._made = made
        self._apply = made.store.apply_jobs
        self._here: dict[int, trio.Event] = {}
        self._fates: dict[int, tuple[bool, bool]] = {}
        self._calls: dict[int, tuple[str, int, int, Sequence[Job]]] = {}
        self._answers: dict[int, int | None] = {}
        self.ends: dict[int, int] = {}
        """Start → end of all calls that were made."""
        made.store.apply_jobs = self._call  # type: ignore[method-assign]

    async def _call(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> int | None:
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
        return self._answers.pop(start)

    async def several(self) -> list[int]:
        """The starts of all calls that are here when nothing moves any more."""
        await trio.testing.wait_all_tasks_blocked()
        return sorted(self._here)

    async def do(self, start: int) -> None:
        """Have the store do it."""
        self._answers[start] = await self._apply(*self._calls[start])

    async def end(self, start: int, *, comes: bool = True, answered: bool = True) -> None:
        """Let that call end."""
        self._fates[start] = comes, answered
        self._here[start].set()
        await trio.testing.wait_all_tasks_blocked()

    async def end_at_once(self) -> None:
        """Have the store do all calls that are here, and let them end in one turn of the loop."""
        for start in (here := await self.several()):
            await self.do(start)
            self._fates[start] = False, True
        for start in here:
            self._here[start].set()

    async def end_all(self) -> None:
        """Let all calls end, those that follow too, in order."""
        while here := await self.several():
            await self.end(here[0])


@pytest.fixture
async def way(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Bench, Way, list[str]]]:
    """A lane with seven chunks of two jobs to bring into the store, and the way there."""
    monkeypatch.setattr("jqd.loops.lane_records.CHUNK_RECORDS", CHUNK)
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
    assert made.applied == [], "the first has an answer of its own to give"
    await there.end(first, comes=False)
    assert made.applied == ids[:4]
    await there.end_all()
    assert made.applied == ids


async def test_a_later_one_that_fails_is_not_done_because_one_before_it_is(autojump_clock: None, way: Under) -> None:
    made, there, ids = way
    first, second, third = await there.several()
    await there.do(first)
    await there.end(second)
    await there.end(third, comes=False, answered=False)
    await there.end(first, comes=False)
    assert made.applied == ids[:4]
    while not await there.several():
        await trio.sleep(1)
    await there.end_all()
    assert made.applied == ids


async def test_answers_that_come_at_once_are_each_given(autojump_clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their callers go on in any order. An answer of the outcomes' lane says which hand-overs came too late."""
    monkeypatch.setattr("jqd.loops.lane_records.CHUNK_RECORDS", CHUNK)
    for _ in range(20):
        async with bench() as made, trio.open_nursery() as nursery:
            await made.push(CHUNK * FLIGHTS_MAX)
            way = Way(made)
            await run(made, nursery)
            await way.end_at_once()
            with trio.fail_after(60):
                await made.drained()
            assert None not in made.answers
            nursery.cancel_scope.cancel()


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
    assert made.ingest.backoff.reason is None


@pytest.mark.parametrize("answered", list(itertools.product([True, False], repeat=FLIGHTS_MAX)))
@pytest.mark.parametrize("order", list(itertools.permutations(range(FLIGHTS_MAX))))
async def test_every_order_of_answers_and_losses_ends_well(
    autojump_clock: None, way: Under, order: tuple[int, ...], answered: tuple[bool, ...]
) -> None:
    """The store has done them all. A call that is let go of before it is over ends the lane when it comes back."""
    made, there, ids = way
    here = await there.several()
    for start in here:
        await there.do(start)
    for which in order:
        await there.end(here[which], comes=False, answered=answered[which])
    heard = max((which for which in range(FLIGHTS_MAX) if answered[which]), default=-1) + 1
    assert made.applied[: heard * CHUNK] == ids[: heard * CHUNK]
    while len(made.applied) < len(ids):
        await trio.sleep(1)
        await there.end_all()
    assert made.applied == ids
    assert made.rolled_back == 0


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
    with trio.fail_after(60):
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
    made.ingest.pause()
    for start in here:
        await there.end(start)
    assert await there.several() == []
    assert made.applied == ids[: 2 * FLIGHTS_MAX]
    made.ingest.resume()
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
