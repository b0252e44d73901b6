"""Journal → store, with answers lost, the store away, rolled back or emptied."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from jqd.domain.errors import JqdError, StoreAway, StoreRefused
from jqd.domain.job import Job, State
from jqd.domain.record import Lane
from jqd.lanes import GATHER_S
from jqd.loops.ingest import SKIP_BYTES
from jqd.loops.lane_records import CHUNK_BYTES, CHUNK_RECORDS
from jqd.store import JobView
from tests.loops.lane import bench, run


async def test_all_jobs_arrive_once_in_bounded_calls() -> None:
    async with bench() as made, trio.open_nursery() as nursery:
        calls: list[int] = []
        whole = made.store.apply_jobs

        async def count(journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> int | None:
            calls.append(len(jobs))
            return await whole(journal_id, start, end, jobs)

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
        assert made.ingest.backoff.reason is None
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
        while made.ingest.backoff.reason is None:
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
        while made.ingest.backoff.reason is None:
            await trio.sleep(0.1)
        assert "cable pulled" in made.ingest.backoff.reason
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


async def test_single_pushes_gather_behind_a_call_that_was_not_full(mock_clock: MockClock) -> None:
    async with bench() as made, trio.open_nursery() as nursery:
        made.ingest._settings = made.ingest._settings._replace(gather_s=GATHER_S)
        await made.push(1)
        await run(made, nursery)
        await made.drained()
        for _ in range(3):
            await made.push(1)
            await trio.testing.wait_all_tasks_blocked()
        assert len(made.answers) == 1
        mock_clock.jump(GATHER_S)
        await made.drained()
        assert len(made.answers) == 2
        await made.push(1)
        await made.ingest.wait_caught_up(made.journal.end)  # somebody waits: the clock stands, and it goes on
        await made.push(CHUNK_RECORDS)
        await made.ingest.wait_caught_up(made.journal.end)
        await made.push(1)
        await made.drained()  # nothing gathers behind one that was full
        assert len(made.answers) == 5
        nursery.cancel_scope.cancel()


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

        made.store.applied = slow  # type: ignore[method-assign, assignment]
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
        while made.ingest.backoff.reason is None:
            await trio.sleep(0.001)
        whole, sent = made.store.apply_jobs, trio.Event()

        async def slow(*args: Any) -> None:
            await whole(*args)
            sent.set()
            await trio.sleep(1)

        made.store.apply_jobs = slow  # type: ignore[method-assign,assignment]
        await sent.wait()
        made.ingest.recheck()
        with trio.fail_after(60):
            await made.drained()
        assert made.ingest.position == made.journal.end
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "trouble", [[], [None, StoreAway("answer lost")], [StoreAway("away"), None, StoreAway("away")]]
)
async def test_what_takes_several_calls_is_not_overtaken(trouble: list[JqdError | None], autojump_clock: None) -> None:
    async with bench() as made, trio.open_nursery() as nursery:
        began, under_way = list[int](), [0]
        made.store.trouble = [*trouble]

        async def in_pieces(journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> str | None:
            assert not under_way[0], "the one before was not applied, or not known to be"
            began.append(len(jobs))
            if is_large(jobs[-1]):
                under_way[0] += 1
                await trio.sleep(1)  # in which others could be sent
                under_way[0] -= 1
            return await made._apply(journal_id, start, end, jobs)

        def is_large(job: Job) -> bool:
            return len(job.argument) > 1_000

        made.ingest._settings = made.ingest._settings._replace(apply=in_pieces, is_alone=is_large)
        ids = [await made.push(count, size) for count, size in ((600, 3), (1, CHUNK_BYTES), (2, CHUNK_BYTES), (700, 3))]
        await run(made, nursery)
        await made.drained()
        assert made.applied == [job_id for some in ids for job_id in some]
        assert made.rolled_back == 0
        if not trouble:
            assert len(began) == 7
        nursery.cancel_scope.cancel()
