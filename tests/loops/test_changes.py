"""Contents that were acknowledged at one daemon and a store that forgot them: an older one must not start meanwhile.

The pusher's daemon is quick to tell the store again, the editor's has a backlog.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from jqd.domain.errors import StoreAway
from jqd.domain.job import ChangeKind, Held
from jqd.domain.record import Head, Lane, encode_jobs
from jqd.journal import JournalConfig, open_journal
from jqd.store import JobView, NameGiven, NameWanted, Owner
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.loops.house import House, TrioClock, until

LATER_MS = 10_000_000_000_000
OLD, NEW = "old", "new"


@asynccontextmanager
async def two_daemons() -> AsyncIterator[tuple[House, House]]:
    """The pusher's and the editor's, at one store; both may claim."""
    clock = TrioClock()
    store = FakeStore(clock)
    config = JournalConfig(directory=Path("/journal"))
    async with (
        open_journal(config, clock=clock, files=MemoryFiles()) as here,
        open_journal(config, clock=clock, files=MemoryFiles()) as there,
        trio.open_nursery() as nursery,
    ):
        pusher, editor = House(here, store, clock, "d1"), House(there, store.another_client(), clock, "d2")
        for each in (pusher, editor):
            await each.join(nursery)
        for each in (pusher, editor):
            await each.wait_claimable()
        yield pusher, editor
        nursery.cancel_scope.cancel()


async def push(here: House, count: int = 1) -> list[str]:
    """Jobs with the old content."""
    ids = here.journal.ids.take(count)
    body = msgspec.msgpack.encode([{"name": "a", "argument": OLD}] * count)
    await here.journal.wsync(here.journal.write(Lane.JOBS, count, encode_jobs(Head(ids.first, 1), body)))
    return ids.ids()


async def edit(here: House, job_id: str, eligible_at_ms: int = 0) -> None:
    """The new content, or date, is acknowledged."""
    revision = await here.store.reserve_change(job_id)
    head = Head(
        here.journal.ids.take(1).first,
        1,
        {0: eligible_at_ms} if eligible_at_ms else {},
        {0: (job_id, revision, 0, ChangeKind.EDIT)},
    )
    body = encode_jobs(head, msgspec.msgpack.encode([{"name": "a", "argument": NEW}]))
    await here.journal.wsync(here.journal.write(Lane.CHANGES, 1, body))
    await here.lanes[Lane.CHANGES].wait_caught_up(here.journal.end)
    view = await here.store.get_job(job_id)
    assert isinstance(view, JobView)
    assert view.revision == revision


def hold_up(here: House, lane: Lane) -> trio.Event:
    """Let a lane wait for the event with whatever it has to apply."""
    ingest, gate = here.lanes[lane], trio.Event()
    apply = ingest._settings.apply

    async def late(*args: object) -> object:
        await gate.wait()
        return await apply(*args)  # type: ignore[arg-type]

    ingest._settings = ingest._settings._replace(apply=late)
    return gate


async def claim(here: House, owner: Owner) -> list[Held]:
    """All that may start now."""
    return await here.store.get_waiting_jobs(owner, "a", 99, priority_min=0, priority_max=0, bytes_max=1 << 20)


def contents(held: list[Held]) -> list[str]:
    return [msgspec.msgpack.decode(one.job.argument) for one in held]


@pytest.mark.parametrize("date", [0, LATER_MS])
async def test_an_older_content_does_not_start_while_the_editor_has_a_backlog(autojump_clock: None, date: int) -> None:
    async with two_daemons() as (pusher, editor):
        await push(editor, 20)
        (job_id,) = await push(pusher)
        await pusher.lanes[Lane.JOBS].wait_caught_up(pusher.journal.end)
        await edit(editor, job_id, date)
        backlog = hold_up(editor, Lane.JOBS)
        pusher.store.restart(None)
        pusher.store.wipe()
        await until(lambda: pusher.membership.not_ready_reason() is not None)
        owner = await pusher.wait_claimable()
        await pusher.lanes[Lane.JOBS].wait_caught_up(pusher.journal.end)
        assert contents(await claim(pusher, owner)) == ([] if date else [NEW]), "the backlog is not waited for"
        backlog.set()


async def test_nobody_claims_while_a_member_has_changes_to_tell(autojump_clock: None) -> None:
    async with two_daemons() as (pusher, editor):
        (job_id,) = await push(pusher)
        await pusher.lanes[Lane.JOBS].wait_caught_up(pusher.journal.end)
        await edit(editor, job_id)
        changes = hold_up(editor, Lane.CHANGES)
        pusher.store.restart(None)
        pusher.store.wipe()
        await trio.sleep(100)
        assert pusher.membership.through
        assert "another daemon applies what the store forgot" in str(pusher.membership.not_ready_reason())
        assert pusher.membership.owner is not None
        assert await claim(pusher, pusher.membership.owner) == [], "nor does the store give anything"
        changes.set()
        owner = await pusher.wait_claimable()
        assert contents(await claim(pusher, owner)) == [NEW]


async def test_a_name_stands_for_no_second_job_while_a_member_has_the_first_to_tell(autojump_clock: None) -> None:
    async with two_daemons() as (pusher, editor):
        ids = editor.journal.ids.take(1)
        (given,) = await editor.store.reserve_names([NameWanted("mine", ids.first, "digest", False)])
        head = Head(ids.first, 1, {}, {0: (given.job_id, given.revision, given.revision, ChangeKind.NEW)})
        body = encode_jobs(head, msgspec.msgpack.encode([{"name": "a", "job_id": "mine"}]))
        await editor.journal.wsync(editor.journal.write(Lane.CHANGES, 1, body))
        await editor.lanes[Lane.CHANGES].wait_caught_up(editor.journal.end)
        changes = hold_up(editor, Lane.CHANGES)
        pusher.store.restart(None)
        pusher.store.wipe()
        refused = 0  # times

        async def again() -> NameGiven | None:
            nonlocal refused
            try:
                (one,) = await pusher.store.reserve_names([NameWanted("mine", "another", "digest", False)])
            except StoreAway:
                refused += 1
                return None
            return one

        for _ in range(30):
            assert await again() is None, "whose it is stands in the other's journal"
            await trio.sleep(1)
        changes.set()
        while (told := await again()) is None:
            await trio.sleep(0.1)
        assert told.job_id == given.job_id
        assert refused >= 30


async def test_who_joins_a_settled_store_brings_changes_before_what_they_change(autojump_clock: None) -> None:
    """The store was wiped, and settled by another, while the daemon with the job and its edit was down."""
    clock, disk = TrioClock(), MemoryFiles()
    store = FakeStore(clock)
    config = JournalConfig(directory=Path("/journal"))
    async with open_journal(config, clock=clock, files=disk) as journal, trio.open_nursery() as nursery:
        here = House(journal, store, clock)
        await here.join(nursery)
        await here.wait_claimable()
        (job_id,) = await push(here)
        await here.lanes[Lane.JOBS].wait_caught_up(journal.end)
        await edit(here, job_id)
        nursery.cancel_scope.cancel()
    store.wipe()
    async with (
        open_journal(config, clock=clock, files=MemoryFiles()) as empty,
        open_journal(config, clock=clock, files=disk) as journal,
        trio.open_nursery() as nursery,
    ):
        other = House(empty, store.another_client(), clock, "d2")
        await other.join(nursery)
        theirs = await other.wait_claimable()
        here = House(journal, store.another_client(), clock)
        gate = hold_up(here, Lane.CHANGES)
        await here.join(nursery)
        await trio.sleep(30)
        assert here.membership.owner is None
        assert await claim(other, theirs) == []
        gate.set()
        await here.wait_claimable()
        await here.lanes[Lane.JOBS].wait_caught_up(journal.end)
        assert contents(await claim(other, theirs)) == [NEW]
        nursery.cancel_scope.cancel()
