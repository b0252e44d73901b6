"""Unfinished jobs are copied forward: what becomes of them meanwhile is said behind the copy, and nothing twice."""

import errno
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import msgspec
import pytest
import trio

from jqd.domain.errors import JournalRefused
from jqd.domain.job import ChangeKind, Fate, Outcome, State
from jqd.domain.record import Head, Lane, decode_cancels, encode_cancels, encode_jobs, encode_outcomes
from jqd.journal import Slice
from jqd.loops.retention import retention as retention_module
from jqd.loops.retention.copies import JournalCopies
from jqd.store import JobView
from tests.harness.files import MemoryFiles
from tests.journal.conftest import once
from tests.loops.house import until
from tests.loops.segments import (
    SEGMENT_BYTES,
    change,
    copied_at,
    copies_of,
    finish,
    jobs_in,
    outcome_ids,
    push,
    small,
    state,
)


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
                while purged and (await here.store.purge(100)).rows:
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

        async def copy_and_hold(start: int, end: int, kept: set[str]) -> JournalCopies:
            jobs.pause()
            return await copy(start, end, kept)

        retention._copy_forward = copy_and_hold  # type: ignore[method-assign,assignment]
        await retention._free()
        await retention._free()  # it deletes what the look before retired
        assert here.journal.start > 0
        if how == "emptied":  # that life lacks what was deleted: to it the copy is the job
            jobs.resume()
            here.store.wipe()
            await trio.sleep(10)
            assert await here.store.unfinished(ids) == [ids[3]]
            await push(here, 32)
            owner = await here.wait_claimable()
            await finish(here, owner, {ids[3]})
            await retention._free()
            await retention._free()
            assert len(await jobs_in(here.journal)) == 1
        held = await here.store.get_waiting_jobs(owner, "a", 9, priority_min=0, priority_max=0, bytes_max=1 << 20)
        assert [h.job.id for h in held] == [ids[3]]
        done = [Outcome(h.job.id, h.fence, Fate.SUCCEEDED, "a", 0, 1) for h in held]
        await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes(done)))
        await here.lanes[Lane.OUTCOMES].wait_caught_up(here.journal.end)
        while (await here.store.purge(100)).rows:
            pass
        if how:
            await change(here)
            await here.lanes[Lane.CHANGES].wait_caught_up(here.journal.end)
        jobs.resume()
        await jobs.wait_caught_up(here.journal.end)
        assert await here.store.get_job(ids[3]) is None
        nursery.cancel_scope.cancel()


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

        async def sync(position: int | None = None, **how: Any) -> None:
            nonlocal syncs, unsynced
            syncs += 1
            await wsync(position, **how)
            unsynced = 0
            if syncs % 2 == 0:
                raise JournalRefused("the disk takes too long", full=False)

        monkeypatch.setattr(here.journal, "write", count)
        monkeypatch.setattr(here.journal, "wsync", sync)
        await nursery.start(retention.run)
        with trio.fail_after(600):
            await until(lambda: here.journal.retired > 0)
        copies = await copies_of(here, before)
        assert set(copies) >= set(keep)
        assert len(copies) - len(keep) <= syncs / 2 * 3, "of what was refused with its sync, and of no more"
        assert most <= 1_400, "three frames, whatever there is to copy"
        assert retention.backoff.reason is None
        nursery.cancel_scope.cancel()


async def test_a_copy_that_the_disk_refused_is_written_again_though_one_behind_it_was_taken(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal goes on by itself after a refusal, between two frames of a copy: nothing of it was deleted unread."""
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 60)
        keep = {*ids[3:50:3]}
        await finish(here, owner, keep)
        files, read, before, refusals = cast("MemoryFiles", here.journal._files), retention._read, here.journal.end, 0

        async def pieces(start: int, end: int, *lanes: Lane) -> AsyncIterator[Slice]:
            nonlocal refusals
            async with aclosing(read(start, end, *lanes)) as found:
                async for piece in found:
                    if here.journal.written > before and not refusals:  # the frame that was written before this read
                        refusals += 1
                        files.fail = once(errno.EIO, "sync")
                        await until(lambda: here.journal.stats().refusals == 1 and not here.journal.refusing)
                    yield piece

        monkeypatch.setattr(retention, "_read", pieces)
        await nursery.start(retention.run)
        await until(lambda: here.journal.start >= before)
        assert refusals == 1
        assert set(await copies_of(here, before)) >= keep
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

        async def sync(position: int | None = None, **how: Any) -> None:
            await wsync(position, **how)
            if retention._copied is not None and ids[30] in retention._copied.ids and not refused.is_set():
                refused.set()
                raise JournalRefused("the disk takes too long", full=False)

        monkeypatch.setattr(here.journal, "wsync", sync)
        await nursery.start(retention.run)
        await refused.wait()
        await finish(here, owner, {ids[30]})
        while (await here.store.purge(100)).rows:
            pass
        await until(lambda: here.journal.start > 0)
        cancels = []
        async with aclosing(here.journal.read_range(Lane.CANCELS, 0, here.journal.end)) as pieces:
            async for slices in pieces:
                cancels += [record for piece in slices for record in decode_cancels(piece.body)]
        assert cancels == [ids[3]]
        nursery.cancel_scope.cancel()
