"""Seeded bugs: each check holds over the real code, and fails as soon as the mistake that it guards against is planted.

The mistakes themselves are in `tests.harness.bugs`. A check says nothing of how the mistake is made: it compares what
was acknowledged with what is there afterwards, as every other proof here does.
"""

import copy
import errno
import functools
import random
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from jqd.domain.errors import JournalLocked, JournalRefused
from jqd.domain.job import Fate, Outcome
from jqd.domain.record import Lane, encode_outcomes
from jqd.journal import Journal, JournalConfig, open_journal
from jqd.journal.frame import FRAME_HEADER_BYTES, HEAD_BYTES
from jqd.store import JobView
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.crash.disk import quiet
from tests.crash.lives import MortalStore, ingest_until, push_frame, write_jobs
from tests.harness.bugs import BUGS, Bug, planted
from tests.harness.files import MemoryFiles
from tests.journal.conftest import DIRECTORY, no_failure, once, opened, push, read_lane, segments, until
from tests.loops.conftest import threads_in_place as threads_in_place
from tests.loops.house import House, TrioClock

Check = Callable[..., Awaitable[None]]
SEEDS = range(12)  # power cuts that are tried: with each unsynced sector and name lost or kept by the toss of a coin
A, B, C, D = (letter.encode() * 600 for letter in "abcd")

CAUGHT: dict[str, str] = {}


def catches(name: str) -> Callable[[Check], Check]:
    """The check holds; with this mistake it does not, and says so by an assertion."""

    def make(check: Check) -> Check:
        CAUGHT[name] = check.__name__

        @functools.wraps(check)
        async def test(**fixtures: object) -> None:
            with quiet():
                await check(**fixtures)
                with planted(name), pytest.raises(AssertionError):
                    await check(**fixtures)
                await check(**fixtures)

        return test

    return make


async def taken(journal: Journal, body: bytes) -> bool:
    """Whether it was acknowledged."""
    try:
        await push(journal, body)
    except JournalRefused:
        return False
    return True


def cuts(files: MemoryFiles) -> list[MemoryFiles]:
    """The disk as power cuts at this moment may leave it."""
    return [files.crash(random.Random(seed)) for seed in SEEDS]


async def holds(disk: MemoryFiles, *acknowledged: bytes) -> None:
    """Exactly these records are there, and nothing looks damaged."""
    disk.fail = no_failure
    async with opened(disk) as journal:
        found = await read_lane(journal)
        assert found == list(acknowledged)
        assert journal.stats().damaged == []


# ---------------------------------------------------------------- what is acknowledged


async def acknowledged_is_on_disk() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, A, B)
        after = cuts(files)
    for disk in after:
        await holds(disk, A, B)


@catches("ack-before-sync")
async def test_ack_before_sync() -> None:
    await acknowledged_is_on_disk()


@catches("skip-sync")
async def test_skip_sync() -> None:
    await acknowledged_is_on_disk()


@catches("retry-failed-sync")
async def test_retry_failed_sync() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, A)
        files.fail = once(errno.EIO, "sync")
        told = [body for body in (B, C) if await taken(journal, body)]
        await until(lambda: not journal.refusing)
        await push(journal, D)
        after = cuts(files)
    for disk in after:
        await holds(disk, A, *told, D)


@catches("ignore-short-write")
async def test_ignore_short_write() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, A)
        files.short = lambda size: min(size, 100)
        await push(journal, B)
    await holds(files, A, B)


@catches("forget-refused")
async def test_forget_refused() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, A)
        files.fail = once(errno.ENOSPC, "write")
        assert not await taken(journal, B)
        await until(lambda: not journal.refusing)
    await holds(files, A)


@catches("reuse-positions")
async def test_reuse_positions() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, A)
        files.fail = once(errno.EIO, "write")
        refused = journal.write(Lane.JOBS, 1, B)
        await until(lambda: journal.stats().refusals and not journal.refusing)
        assert journal.write(Lane.JOBS, 1, C) > refused


# ---------------------------------------------------------------- segments


@catches("skip-directory-sync")
async def test_skip_directory_sync() -> None:
    await acknowledged_is_on_disk()


@catches("skip-sync-at-rotation")
async def test_skip_sync_at_rotation() -> None:
    files, after, begun = MemoryFiles(), list[MemoryFiles](), 0

    def look(call: str, _: int) -> None:
        nonlocal begun
        begun += call == "sync_directory"
        if call == "write" and begun >= 2:
            after.extend(cuts(files))  # the second segment has its name, and no frame yet

    async with opened(files, segment_bytes=100) as journal:
        await push(journal, A)
        files.fail = look
        await push(journal, B)
        files.fail = no_failure
        await push(journal, C)
    async with opened(files) as journal:
        after += cuts(files)  # and so at a start
    assert after
    for disk in after:
        disk.fail = no_failure
        async with opened(disk) as journal:
            assert journal.stats().damaged == []


@catches("append-to-poisoned")
async def test_append_to_poisoned() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, A)
        files.fail = once(errno.EIO, "sync")
        assert not await taken(journal, B)
        await until(lambda: not journal.refusing)
        await push(journal, C)
        after = cuts(files)
    for disk in after:
        await holds(disk, A, C)


@catches("miss-deletion")
async def test_miss_deletion() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, A)
        files.unlink(segments(files)[0])
        told = [body for body in (B,) if await taken(journal, body)]
    await holds(files, *told)


@catches("delete-unapplied")
async def test_delete_unapplied() -> None:
    files = MemoryFiles()
    async with opened(files, segment_bytes=100, retention_s=0, retention_bytes=0) as journal:
        await push(journal, A, B)
        await read_lane(journal)
        await push(journal, C, D)
        assert journal.trim(journal.read_point(Lane.JOBS))
        assert await read_lane(journal) == [C, D]
    async with opened(files) as journal:
        assert (await read_lane(journal))[-2:] == [C, D]


@catches("share-directory")
async def test_share_directory() -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = JournalConfig(directory=Path(directory))
        async with open_journal(config, clock=ManualClock()):
            entered = True
            try:
                async with open_journal(config, clock=ManualClock()):
                    pass
            except JournalLocked:
                entered = False
            assert not entered


# ---------------------------------------------------------------- reading and recovery


async def three_frames() -> tuple[Path, bytes]:
    """A segment with the frames A, B and C, all of the same length."""
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, A, B, C)
    (path,) = segments(files)
    return path, files.contents[path]


FRAME_BYTES = FRAME_HEADER_BYTES + len(A)


def frame(number: int) -> slice:
    """Where it lies in the file."""
    return slice(HEAD_BYTES + number * FRAME_BYTES, HEAD_BYTES + (number + 1) * FRAME_BYTES)


async def read_changed(change: Callable[[bytearray], None]) -> list[bytes]:
    path, content = await three_frames()
    changed = bytearray(content)
    change(changed)
    async with opened(MemoryFiles.holding({path: bytes(changed)})) as journal:
        return await read_lane(journal)


@catches("accept-torn-frame")
async def test_accept_torn_frame() -> None:
    def tear(content: bytearray) -> None:
        content[frame(2).stop - 512 :] = bytes(512)

    assert await read_changed(tear) == [A, B]


@catches("unseeded-checksum")
async def test_unseeded_checksum() -> None:
    def copy_first(content: bytearray) -> None:
        content[frame(1)] = content[frame(0)]

    assert await read_changed(copy_first) == [A, C]


@catches("cut-at-first-bad")
async def test_cut_at_first_bad() -> None:
    def spoil(content: bytearray) -> None:
        content[frame(1)] = bytes(FRAME_BYTES)

    assert await read_changed(spoil) == [A, C]


@catches("trust-unsynced")
async def test_trust_unsynced() -> None:
    files, killed = MemoryFiles(), list[MemoryFiles]()

    def kill(call: str, _: int) -> None:
        if call == "sync" and not killed:
            killed.append(copy.deepcopy(files))  # the page cache outlives the process

    async with opened(files) as journal:
        await push(journal, A)
        files.fail = kill
        await push(journal, B)
    disk = killed[0]
    disk.fail = no_failure
    disk._locks.clear()
    async with opened(disk) as journal:
        assert await read_lane(journal) == [A, B]  # and the store applies it
        after = cuts(disk)
    for cut in after:
        await holds(cut, A, B)


@catches("reuse-ids")
async def test_reuse_ids() -> None:
    """The clock was set back, or is coarse: the same millisecond again."""
    files, last = MemoryFiles(), ""
    config = JournalConfig(directory=DIRECTORY)
    for life in range(3):
        clock = ManualClock(wall_ms=1_800_000_000_000 - life)
        async with open_journal(config, clock=clock, files=files, random_bytes=lambda size: b"\1" * size) as journal:
            ids = journal.ids.take(2).ids()
            assert ids[0] > last
            last = ids[-1]
            await push(journal, A)


# ---------------------------------------------------------------- journal to store


@catches("advance-first")
async def test_advance_first() -> None:
    """A daemon that dies between any two calls to its store."""
    for calls in range(6):
        files = MemoryFiles()
        async with opened(files) as journal:
            pushed = [await write_jobs(journal, count) for count in (3, 600, 1)]
        store = MortalStore(ManualClock())
        await store.look(fresh=True)
        await ingest_until(files, store, calls)
        await ingest_until(files, store, 1_000)
        for job_id in (job_id for batch in pushed for job_id in batch):
            assert isinstance(await store.get_job(job_id), JobView), "acknowledged and never applied"
        assert (await store.stats()).waiting == 604


@catches("rejoin-early")
async def test_rejoin_early(autojump_clock: None) -> None:
    """A job that ended must not be claimed again by the next life: its outcome is applied before the seat is taken."""
    clock, disk = TrioClock(), MemoryFiles()
    store = FakeStore(clock)
    async with opened(disk, clock) as journal, trio.open_nursery() as nursery:
        here = House(journal, store, clock)
        (job_id,) = await write_jobs(journal, 1)
        await here.join(nursery)
        owner = await here.wait_claimable()
        await here.lanes[Lane.JOBS].wait_caught_up(journal.end)
        (held,) = await store.get_waiting_jobs(owner, "a", 1, priority_min=0, priority_max=0, bytes_max=1 << 20)
        nursery.cancel_scope.cancel()
    async with opened(disk, clock) as journal, trio.open_nursery() as nursery:
        here = House(journal, store, clock)
        outcome = Outcome(job_id, held.fence, Fate.SUCCEEDED, "a", 0, 1)
        await push_frame(journal, Lane.OUTCOMES, 1, encode_outcomes([outcome]))
        outcomes = here.lanes[Lane.OUTCOMES]
        outcomes._settings = outcomes._settings._replace(apply=never)
        await here.join(nursery)
        await trio.sleep(30)
        owner_meanwhile = here.membership.owner
        nursery.cancel_scope.cancel()
    assert owner_meanwhile is None


async def never(*_: object) -> None:
    await trio.sleep_forever()


# ---------------------------------------------------------------- the list itself


def test_every_bug_has_its_catcher() -> None:
    assert {name: f"test_{name.replace('-', '_')}" for name in BUGS} == CAUGHT


def test_a_bug_whose_place_is_gone_fails_loudly() -> None:
    gone = Bug("it was renamed", Journal, "write_as_it_was_called_once", lambda real: real)
    with pytest.raises(AttributeError, match="write_as_it_was_called_once"), gone.planted():
        raise AssertionError("it was planted nowhere")


@pytest.mark.parametrize("name", BUGS)
def test_what_was_planted_is_taken_out_again(name: str) -> None:
    bug = BUGS[name]
    before = vars(bug._owner)[bug._name]
    with planted(name):
        assert vars(bug._owner)[bug._name] is not before
    assert vars(bug._owner)[bug._name] is before
