"""The journal's space: what may go goes, unfinished jobs are copied forward, and nothing is deleted too early."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from jqd.journal import Journal, JournalConfig, open_journal
from jqd.loops import retention as retention_module
from jqd.loops.ingest import Ingest, LaneRules
from jqd.loops.retention import EVERY_S, Copied, Keeper, Retention
from jqd.store import JobView, Owner, StoreConfig
from jqd.store.shapes import Ends
from jqd.testing.files import MemoryFiles
from jqd.testing.store import FakeStore
from jqd.words.errors import JournalRefused, StoreAway
from jqd.words.job import ChangeKind, Fate, Job, Outcome, State
from jqd.words.record import (
    Head,
    Lane,
    decode_cancels,
    decode_jobs,
    decode_outcomes,
    encode_cancels,
    encode_jobs,
    encode_outcomes,
)
from jqd.words.rules import Rules
from tests.loops.house import House, TrioClock, until

SEGMENT_BYTES = 4_000


@asynccontextmanager
async def small(
    unsafe: Callable[[], bool] = lambda: False, ended_keep_jobs: int = 100_000
) -> AsyncIterator[tuple[House, Retention]]:
    """A daemon whose journal has short segments and keeps nothing it need not."""
    clock = TrioClock()
    config = JournalConfig(
        directory=Path("/j"), segment_bytes=SEGMENT_BYTES, retention_s=0, retention_bytes=0, commit_bytes_max=1_000
    )
    async with open_journal(config, clock=clock, files=MemoryFiles()) as journal:
        store = FakeStore(clock, StoreConfig(url="redis://fake", ended_keep_jobs=ended_keep_jobs))
        here = House(journal, store, clock, sole=True)
        yield (
            here,
            Retention(
                journal=journal,
                keepers=[Keeper(here.store, here.membership, here.lanes, unsafe)],
                rules=Rules(),
                clock=clock,
                source=random.Random(2),
            ),
        )


def _never_asked(here: House) -> Ingest[Job]:
    """A lane that the store has not told its position yet."""
    rules = LaneRules(here.store.apply_jobs, lambda _: 100, lambda _: None)
    return Ingest(Lane.JOBS, rules, journal=here.journal, store=here.store, source=random.Random(2))


async def push(here: House, count: int) -> list[str]:
    """One frame each, some 300 bytes."""
    made = []
    for _ in range(count):
        ids = here.journal.ids.take(1)
        jobs = msgspec.msgpack.encode([{"name": "a", "argument": "x" * 200}])
        await here.journal.wsync(here.journal.write(Lane.JOBS, 1, encode_jobs(Head(ids.first, 1), jobs)))
        made.append(ids.first)
    return made


async def change(here: House) -> None:
    """A push under an id of its pusher's."""
    job_id, revision = here.journal.ids.take(1).first, await here.store.reserve_change("any")
    jobs = msgspec.msgpack.encode([{"name": "b", "job_id": "mine"}])
    head = Head(job_id, 1, changes={0: (job_id, revision, revision, ChangeKind.NEW)})
    await here.journal.wsync(here.journal.write(Lane.CHANGES, 1, encode_jobs(head, jobs)))


async def finish(here: House, owner: Owner, keep: set[str]) -> None:
    """Every job but those in `keep` runs and ends; those go back to ready."""
    for lane in here.lanes.values():
        await lane.wait_caught_up(here.journal.end)
    held = await here.store.get_waiting_jobs(owner, "a", 1_000, priority_min=0, priority_max=0, bytes_max=1 << 20)
    outcomes = [Outcome(h.job.id, h.fence, Fate.SUCCEEDED, "a", 0, 1) for h in held if h.job.id not in keep]
    await here.store.release_jobs(owner, {h.job.id: h.fence for h in held if h.job.id in keep})
    for outcome in outcomes:
        await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([outcome])))
    for lane in here.lanes.values():
        await lane.wait_caught_up(here.journal.end)


def outcome_ids(body: bytes) -> list[str]:
    return [outcome.job_id for outcome in decode_outcomes(body)]


async def state(here: House, job_id: str) -> State:
    view = await here.store.get_job(job_id)
    assert isinstance(view, JobView)
    return view.state


async def copied_at(journal: Journal, job_id: str) -> int:
    """Where its copy is."""
    pieces = [piece async for slices in journal.read_range(Lane.JOBS, 0, journal.end) for piece in slices]
    (place,) = [p.start for p in pieces if any(job.id == job_id and job.copied for job in decode_jobs(p.body))]
    return place


async def jobs_in(journal: Journal) -> list[str]:
    """Ids of all jobs still in the journal."""
    found = []
    async for slices in journal.read_range(Lane.JOBS, journal.start, journal.end):
        found += [job.id for piece in slices for job in decode_jobs(piece.body)]
    return found


async def test_finished_jobs_leave_one_open_segment(autojump_clock: None) -> None:
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        await push(here, 60)
        await finish(here, owner, set())
        assert here.journal.stats().segments > 4
        await nursery.start(retention.run)
        await until(lambda: here.journal.stats().segments == 1)
        nursery.cancel_scope.cancel()


async def test_one_unfinished_job_pins_nothing_and_is_copied_as_it_was(autojump_clock: None) -> None:
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 30)
        revision = await here.store.reserve_change(ids[3])
        head = Head(here.journal.ids.take(1).first, 1, {}, {0: (ids[3], revision, 0, ChangeKind.EDIT)})
        edited = encode_jobs(head, msgspec.msgpack.encode([{"name": "a", "argument": "edited"}]))
        await here.journal.wsync(here.journal.write(Lane.CHANGES, 1, edited))
        await push(here, 30)
        await finish(here, owner, {ids[3]})
        end = here.journal.end
        await nursery.start(retention.run)
        await until(lambda: here.journal.start > 3 * SEGMENT_BYTES)
        copies = [job_id for job_id in await jobs_in(here.journal) if job_id == ids[3]]
        assert copies == [ids[3]]
        assert here.journal.end > end
        # The copy meets a store that has the job, and one that has lost everything.
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        here.store.wipe()
        await trio.sleep(10)  # it is noticed, and applied again
        view = await here.store.get_job(ids[3])
        assert isinstance(view, JobView)
        assert (view.state, view.jobtype) == (State.WAITING, "a")
        assert (view.revision, msgspec.msgpack.decode(view.argument)) == (revision, "edited"), "so is its change"
        nursery.cancel_scope.cancel()


async def test_nothing_goes_on_the_word_of_a_store_that_would_lose_jobs(autojump_clock: None) -> None:
    unsafe = [True]
    async with small(unsafe=lambda: bool(unsafe)) as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        await push(here, 60)
        await finish(here, owner, set())
        await nursery.start(retention.run)
        await trio.sleep(10 * EVERY_S)
        assert here.journal.start == 0
        unsafe.clear()
        await until(lambda: here.journal.stats().segments == 1)
        nursery.cancel_scope.cancel()


async def test_a_backlog_stays_where_it_is(autojump_clock: None) -> None:
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 60)
        await nursery.start(retention.run)
        await trio.sleep(10 * EVERY_S)
        assert here.journal.start == 0
        assert await jobs_in(here.journal) == ids, "nothing was copied"
        await finish(here, owner, set())
        await until(lambda: here.journal.stats().segments == 1)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("purged", [False, True])
async def test_what_ended_a_job_while_it_was_copied_is_said_behind_its_copy(autojump_clock: None, purged: bool) -> None:
    async with small(ended_keep_jobs=0 if purged else 100) as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 60)
        await finish(here, owner, {ids[3]})
        ask, asked = here.store.unfinished, [0]

        async def ends_meanwhile(job_ids: list[str], *, dead: bool) -> list[str]:
            alive = await ask(job_ids, dead=dead)
            if ids[3] in alive and not asked[0]:
                asked[0] = 1
                await finish(here, owner, set())
                while purged and await here.store.purge(100):
                    pass
            return alive

        retire, refused = here.journal.retire, [0]

        async def refuses(position: int) -> None:
            refused[0] += 1
            if refused[0] <= 3:
                raise JournalRefused("no new file can be made", full=True)
            await retire(position)

        here.journal.retire = refuses  # type: ignore[method-assign]
        here.store.unfinished = ends_meanwhile  # type: ignore[method-assign,assignment]
        await nursery.start(retention.run)
        await until(lambda: here.journal.start > 0)
        await until(lambda: here.journal.stats().segments == 1)
        said, behind = {Lane.CANCELS: 0, Lane.OUTCOMES: 0}, await copied_at(here.journal, ids[3])
        for lane in said:
            async for slices in here.journal.read_range(lane, behind, here.journal.end):
                for piece in slices:
                    records = decode_cancels(piece.body) if lane is Lane.CANCELS else outcome_ids(piece.body)
                    said[lane] += records.count(ids[3])
        assert said == {Lane.CANCELS: int(purged), Lane.OUTCOMES: int(not purged)}, "once, however often it was refused"
        for lane in said:
            await here.lanes[lane].wait_caught_up(here.journal.end)
        if not purged:
            assert await state(here, ids[3]) is State.SUCCEEDED, "in a store that remembers it changes nothing"
        here.store.wipe()
        await trio.sleep(10)
        assert await state(here, ids[3]) is State.SUCCEEDED, "its outcome is there still, and beats a cancel"
        nursery.cancel_scope.cancel()


async def test_a_cancel_of_a_job_in_hand_is_said_behind_its_copy(autojump_clock: None) -> None:
    """Its worker goes on, and the segment with it goes: a store that is emptied then must know of it."""
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 60)
        await finish(here, owner, {ids[3]})
        held = await here.store.get_waiting_jobs(owner, "a", 9, priority_min=0, priority_max=0, bytes_max=1 << 20)
        assert [h.job.id for h in held] == [ids[3]]
        await here.journal.wsync(here.journal.write(Lane.CANCELS, 1, encode_cancels([ids[3]])))
        await push(here, 1)
        await here.lanes[Lane.CANCELS].wait_caught_up(here.journal.end)
        cancelled = here.journal.end
        await nursery.start(retention.run)
        await until(lambda: here.journal.start >= cancelled)
        here.store.wipe()
        await trio.sleep(10)
        assert await state(here, ids[3]) is State.CANCELLED
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["", "emptied", "another lane was quiet"])
async def test_a_copy_begins_no_job_anew_that_ended_and_is_deleted(autojump_clock: None, how: str) -> None:
    """The lane of jobs is behind; what retention copied to its end is over and gone when the lane comes to it.

    A lane that had nothing to say for long has its position before our oldest, too, and lacks nothing.
    """
    async with small(ended_keep_jobs=0) as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 60)
        await finish(here, owner, {ids[3]})
        jobs, copy = here.lanes[Lane.JOBS], retention._copy_forward

        async def copy_and_hold(start: int, end: int, kept: set[str]) -> Copied:
            jobs.hold()
            return await copy(start, end, kept)

        retention._copy_forward = copy_and_hold  # type: ignore[method-assign,assignment]
        await retention._free()
        assert here.journal.start > 0
        if how == "emptied":  # that life lacks what was deleted: to it the copy is the job
            jobs.let_go()
            here.store.wipe()
            await trio.sleep(10)
            assert await here.store.unfinished(ids) == [ids[3]]
            await push(here, 32)
            owner = await here.wait_claimable()
            await finish(here, owner, {ids[3]})
            await retention._free()
            assert len(await jobs_in(here.journal)) == 1
        held = await here.store.get_waiting_jobs(owner, "a", 9, priority_min=0, priority_max=0, bytes_max=1 << 20)
        assert [h.job.id for h in held] == [ids[3]]
        done = [Outcome(h.job.id, h.fence, Fate.SUCCEEDED, "a", 0, 1) for h in held]
        await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes(done)))
        await here.lanes[Lane.OUTCOMES].wait_caught_up(here.journal.end)
        while await here.store.purge(100):
            pass
        if how:
            await change(here)
            await here.lanes[Lane.CHANGES].wait_caught_up(here.journal.end)
        jobs.let_go()
        await jobs.wait_caught_up(here.journal.end)
        assert await here.store.get_job(ids[3]) is None
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("why", ["not applied", "not durable", "away", "full"])
async def test_nothing_goes_before_the_store_has_it_for_good(autojump_clock: None, why: str) -> None:
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 60)
        await finish(here, owner, {ids[3]})
        write, keepers = here.journal.write, retention._keepers

        async def not_durable(replicas: int = 0, timeout_s: float = 5.0, where: object = None) -> bool:
            return False

        def refuse(lane: Lane, records: int, body: bytes) -> int:
            raise JournalRefused("the disk is full", full=True)

        match why:
            case "not applied":
                unknown = {**here.lanes, Lane.JOBS: _never_asked(here)}
                retention._keepers = [keepers[0]._replace(lanes=unknown)]
            case "not durable":
                here.store.wait_durable = not_durable  # type: ignore[method-assign]
            case "away":
                here.store.away = "cable"
            case _:
                here.journal.write = refuse  # type: ignore[method-assign]
        await nursery.start(retention.run)
        await trio.sleep(4 * EVERY_S)
        assert here.journal.start == 0
        assert (retention.pace.reason is not None) == (why in ("away", "full"))
        here.store.away, here.journal.write = None, write  # type: ignore[method-assign]
        retention._keepers = keepers
        if why != "not durable":
            await until(lambda: here.journal.start > 0)
        nursery.cancel_scope.cancel()


async def copies_of(here: House, since: int) -> list[str]:
    """Ids of all copies behind a position, each as often as it was written."""
    found = []
    async with aclosing(here.journal.read_range(Lane.JOBS, since, here.journal.end)) as pieces:
        async for slices in pieces:
            found += [job.id for piece in slices for job in decode_jobs(piece.body)]
    return found


async def test_a_slow_disk_is_asked_for_a_little_at_once_and_for_nothing_twice(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began again with each refusal, and left its copies: the disk was full of them, and pushes were refused."""
    monkeypatch.setattr(retention_module, "COPY_BYTES", 1_000)
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 60)
        keep = ids[3:50:3]
        await finish(here, owner, set(keep))
        before, syncs, unsynced, most = here.journal.end, 0, 0, 0
        write, wsync = here.journal.write, here.journal.wsync

        def count(lane: Lane, records: int, body: bytes) -> int:
            nonlocal unsynced, most
            unsynced += len(body)
            most = max(most, unsynced)
            return write(lane, records, body)

        async def sync(position: int | None = None) -> None:
            nonlocal syncs, unsynced
            syncs += 1
            await wsync(position)
            unsynced = 0
            if syncs % 2 == 0:
                raise JournalRefused("the disk takes too long", full=False)

        monkeypatch.setattr(here.journal, "write", count)
        monkeypatch.setattr(here.journal, "wsync", sync)
        await nursery.start(retention.run)
        with trio.fail_after(600):
            await until(lambda: here.journal.start > 0)
        copies = await copies_of(here, before)
        assert set(copies) >= set(keep)
        assert len(copies) - len(keep) <= syncs / 2 * 3, "of what was refused with its sync, and of no more"
        assert most <= 1_400, "three frames, whatever there is to copy"
        assert retention.pace.reason is None
        nursery.cancel_scope.cancel()


async def test_what_ended_while_the_disk_was_waited_for_is_cancelled_behind_its_copy(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_module, "COPY_BYTES", 1)
    async with small(ended_keep_jobs=0) as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 60)
        await finish(here, owner, {ids[3], ids[30]})
        wsync, refused = here.journal.wsync, trio.Event()

        async def sync(position: int | None = None) -> None:
            await wsync(position)
            if retention._copied is not None and ids[30] in retention._copied.ids and not refused.is_set():
                refused.set()
                raise JournalRefused("the disk takes too long", full=False)

        monkeypatch.setattr(here.journal, "wsync", sync)
        await nursery.start(retention.run)
        await refused.wait()
        await finish(here, owner, {ids[30]})
        while await here.store.purge(100):
            pass
        await until(lambda: here.journal.start > 0)
        cancels = []
        async with aclosing(here.journal.read_range(Lane.CANCELS, 0, here.journal.end)) as pieces:
            async for slices in pieces:
                cancels += [record for piece in slices for record in decode_cancels(piece.body)]
        assert cancels == [ids[3]]
        nursery.cancel_scope.cancel()


async def test_what_cannot_be_read_is_kept_and_told(autojump_clock: None) -> None:
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.wait_claimable()
        await push(here, 20)
        later = msgspec.msgpack.encode([{"first": "0" * 26, "at": 1}, [{"name": "t", "colour": "red"}]])
        await here.journal.wsync(here.journal.write(Lane.JOBS, 1, msgspec.msgpack.encode({"later": later})))
        await push(here, 20)
        for lane in here.lanes.values():
            here.journal.read_cancel(lane.lane, here.journal.end)
            lane._position, lane._recheck = here.journal.end, False
        await nursery.start(retention.run)
        await until(lambda: retention.pace.reason is not None)
        assert ".jqd, byte " in str(retention.pace.reason)
        assert here.journal.start == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["emptied", "older"])
@pytest.mark.parametrize("moment", ["before the look", "while it is asked", "while it is copied"])
async def test_a_store_that_forgot_unnoticed_takes_no_job_along(autojump_clock: None, how: str, moment: str) -> None:
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        older = here.store.image()
        ids = await push(here, 60)
        await finish(here, owner, {ids[3]})
        ask, asked = here.store.unfinished, [0]

        def forget() -> None:
            here.store.wipe() if how == "emptied" else here.store.load(older)

        async def forgets(job_ids: list[str], *, dead: bool) -> list[str]:
            asked[0] += 1
            if moment == "while it is asked" and asked[0] == 1:
                forget()
            alive = await ask(job_ids, dead=dead)
            if moment == "while it is copied" and asked[0] == 1:
                forget()
            return alive

        here.store.unfinished = forgets  # type: ignore[method-assign,assignment]
        if moment == "before the look":
            forget()
        with pytest.raises(StoreAway):
            await retention._free()
        assert ids[3] in await jobs_in(here.journal)
        cancelled = here.journal.read_range(Lane.CANCELS, 0, here.journal.end)
        assert [piece async for pieces in cancelled for piece in pieces] == []
        await trio.sleep(10)  # it is noticed, and applied again
        view = await here.store.get_job(ids[3])
        assert isinstance(view, JobView)
        assert view.state is State.WAITING
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("asked", ["which have not ended", "how they ended"])
async def test_what_a_store_said_while_it_had_forgotten_is_not_believed_when_it_has_all_again(
    autojump_clock: None, asked: str
) -> None:
    """Its positions are where they were. Believed, the jobs would not be copied; or cancelled behind their copies."""
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 60)
        await finish(here, owner, {ids[3]})

        async def forget_and_be_told_again() -> None:
            before = await here.store.applied(here.journal.journal_id)
            here.store.wipe()
            await trio.sleep(10)  # it is noticed, and applied again
            again = await here.store.applied(here.journal.journal_id)
            assert all(again[lane] >= position for lane, position in before.items())

        async def unfinished(job_ids: list[str], *, dead: bool) -> list[str]:
            await forget_and_be_told_again()
            return []

        async def get_ends(job_ids: list[str]) -> Ends:
            await forget_and_be_told_again()
            return Ends([], {}, list(job_ids))

        if asked == "which have not ended":
            here.store.unfinished = unfinished  # type: ignore[method-assign,assignment]
        else:
            here.store.get_ends = get_ends  # type: ignore[method-assign,assignment]

        async def look_again_and_again() -> None:
            for _ in range(3):
                await retention._free()
                for lane in here.lanes.values():
                    await lane.wait_caught_up(here.journal.end)

        with pytest.raises(StoreAway):
            await look_again_and_again()
        assert here.journal.retired == 0
        cancelled = here.journal.read_range(Lane.CANCELS, 0, here.journal.end)
        assert [piece async for pieces in cancelled for piece in pieces] == []
        assert await state(here, ids[3]) is State.WAITING
        nursery.cancel_scope.cancel()
