"""The journal's space: what may go goes, unfinished jobs are copied forward, and nothing is deleted too early."""

import random

import msgspec
import pytest
import trio

from jqd.domain.errors import JournalRefused, StoreAway, StoreRefused
from jqd.domain.job import Job, State
from jqd.domain.record import Lane, decode_rules, encode_rules
from jqd.domain.settings import Setting, SettingTable
from jqd.journal import Journal
from jqd.loops.ingest import Ingest, LaneRules
from jqd.loops.retention.horizon import Horizon
from jqd.loops.retention.retention import EVERY_S
from jqd.loops.retention.standstill import COMPLAIN_S
from jqd.store import JobView, KeptJob, OnItsWay
from jqd.store.types import Ends
from tests.loops.house import House, until
from tests.loops.segments import finish, jobs_in, push, small, state


def _never_asked(here: House) -> Ingest[Job]:
    """A lane that the store has not told its position yet."""
    settings = LaneRules(here.store.apply_jobs, lambda _: 100, lambda *_: None)
    return Ingest(Lane.JOBS, settings, journal=here.journal, store=here.store, source=random.Random(2))


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


async def test_the_clock_of_the_store_says_when_this_life_began(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = set[int]()
    monkeypatch.setattr(SettingTable, "now_ms", lambda *_: 5)
    monkeypatch.setattr(Journal, "opened_by", lambda _, now_ms: told.add(now_ms))
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        await nursery.start(retention.run)
        await until(lambda: told == {5})
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


async def test_jobs_that_lie_between_settings_go_all_the_same_and_these_are_not_copied_for_ever(
    autojump_clock: None,
) -> None:
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        settings = [Setting("kind", f"name-{n}", n + 1, here.clock.wall_ms(), msgspec.Raw(b"\x01")) for n in range(120)]
        retention._settings.take(settings)
        for place, each in enumerate(settings):
            if place == 60:
                await push(here, 3)
                await finish(here, owner, set())
            await here.journal.wsync(here.journal.write(Lane.RULES, 1, encode_rules([each])))
        await nursery.start(retention.run)
        await until(lambda: here.journal.start > 0)
        pieces = [piece async for some in here.journal.read_range(Lane.RULES, 0, here.journal.end) for piece in some]
        assert {each.name for piece in pieces for each in decode_rules(piece.body)} == {one.name for one in settings}
        await trio.sleep(10 * EVERY_S)
        written = here.journal.written
        await trio.sleep(10 * EVERY_S)
        assert here.journal.written == written
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("why", ["not applied", "not durable", "away", "full"])
async def test_nothing_goes_before_the_store_has_it_for_good(autojump_clock: None, why: str) -> None:
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 60)
        await finish(here, owner, {ids[3]})
        write, keepers = here.journal.write, retention._partitions

        async def not_durable(*_: object, **how: object) -> bool:
            return False

        def refuse(lane: Lane, records: int, body: bytes) -> int:
            raise JournalRefused("the disk is full", full=True)

        match why:
            case "not applied":
                unknown = {**here.lanes, Lane.JOBS: _never_asked(here)}
                retention._partitions = [keepers[0]._replace(lanes=unknown)]
            case "not durable":
                here.store.wait_durable = not_durable  # type: ignore[method-assign]
            case "away":
                here.store.away = "cable"
            case _:
                here.journal.write = refuse  # type: ignore[method-assign]
        await nursery.start(retention.run)
        await trio.sleep(4 * EVERY_S)
        assert here.journal.start == 0
        assert (retention.backoff.reason is not None) == (why in ("away", "full"))
        assert (retention.standstill.complaint is not None) == (why == "full"), "what lasts moments is no trouble"
        here.store.away, here.journal.write = None, write  # type: ignore[method-assign]
        retention._partitions = keepers
        if why != "not durable":
            await until(lambda: here.journal.start > 0)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("refused", ["write", "retire"])
async def test_a_full_disk_gets_the_room_of_segments_that_nobody_needs_any_more(
    refused: str, autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies and the mark of what is retired were refused first, at each look, and nothing was deleted."""
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        needed = [0]  # by another daemon's jobs: from the start on
        monkeypatch.setattr(Horizon, "unneeded", lambda *_: needed[0] if needed else None)
        await push(here, 60)
        await finish(here, owner, set())
        await nursery.start(retention.run)
        await until(lambda: here.journal.retired > 0)
        ids = await push(here, 60)
        await finish(here, owner, {ids[3]})
        retired = here.journal.retired

        def refuse(*_: object, **named: object) -> int:
            raise JournalRefused("the disk is full", full=True)

        async def refuse_retire(position: int) -> None:
            refuse()

        if refused == "write":
            monkeypatch.setattr(here.journal, "write", refuse)
        monkeypatch.setattr(here.journal, "retire", refuse_retire)
        await until(lambda: retention.backoff.reason)
        assert (here.journal.start, here.journal.retired) == (0, retired)
        needed.clear()
        await trio.sleep(3 * EVERY_S)
        assert here.journal.start == here.journal.closed(retired) > 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("why", ["not durable", "refused", "not through", "lanes"])
async def test_what_holds_up_all_deletion_for_long_is_told(autojump_clock: None, why: str) -> None:
    """All was green until the disk was nearly full."""
    async with small(unsafe=lambda: held) as (here, retention), trio.open_nursery() as nursery:
        held, save_kept, partitions = False, here.store.save_kept, retention._partitions
        await here.join(nursery)
        owner = await here.wait_claimable()
        await push(here, 60)
        await finish(here, owner, set())

        async def refuse(*_: object) -> KeptJob:
            raise StoreRefused("NOPERM this user has no permissions")

        said = ""
        match why:
            case "not durable":
                here.store.durable, said = False, here.store.durability_rule
            case "refused":
                here.store.save_kept, said = refuse, "NOPERM"  # type: ignore[assignment]
            case "not through":
                held, said = True, "see why no jobs are run"
            case _:
                lanes = {**here.lanes, Lane.JOBS: _never_asked(here)}
                retention._partitions, said = [partitions[0]._replace(lanes=lanes)], "see why no jobs are run"
        await nursery.start(retention.run)
        await trio.sleep(COMPLAIN_S - EVERY_S)
        assert retention.standstill.complaint is None
        await trio.sleep(2 * EVERY_S)
        assert "was deleted for 20 minutes" in str(retention.standstill.complaint)
        assert said in str(retention.standstill.complaint)
        here.store.durable, held, retention._partitions = True, False, partitions
        here.store.save_kept = save_kept  # type: ignore[method-assign]
        await until(lambda: here.journal.stats().segments == 1)
        await trio.sleep(2 * EVERY_S)
        assert retention.standstill.complaint is None
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("why", ["nothing to delete", "unfinished", "needed by others"])
async def test_what_stays_on_purpose_is_no_trouble(
    autojump_clock: None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        if why != "nothing to delete":
            ids = await push(here, 60)
            await finish(here, owner, set(ids) if why == "unfinished" else set())
        if why == "needed by others":
            monkeypatch.setattr(Horizon, "unneeded", lambda *_: 0)
        else:
            here.store.durable = why != "nothing to delete"
        await nursery.start(retention.run)
        await trio.sleep(2 * COMPLAIN_S)
        assert (here.journal.start, retention.standstill.complaint) == (0, None)
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
        await until(lambda: retention.backoff.reason is not None)
        assert ".jqd, byte " in str(retention.backoff.reason)
        assert here.journal.start == 0
        nursery.cancel_scope.cancel()


async def test_an_emptied_store_does_not_wait_for_what_ended_and_is_in_no_journal_any_more(
    autojump_clock: None,
) -> None:
    """Nobody pushes here any more, so no later job ever passes their ids. A copy is waited for until it is there."""
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 60)
        await finish(here, owner, {ids[3]})
        await nursery.start(retention.run)
        await until(lambda: here.journal.stats().segments == 1)
        lane = here.lanes[Lane.JOBS]
        settings = lane._settings

        async def is_slow(*_: object) -> None:
            raise StoreAway("it has no time for jobs")

        lane._settings = settings._replace(apply=is_slow)
        here.store.wipe()
        await trio.sleep(4 * EVERY_S)
        assert here.membership.settled
        found = [await here.store.get_job(one) for one in (ids[3], ids[-1])]
        assert found == 2 * [OnItsWay("", is_promised=True)]
        lane._settings = settings
        await trio.sleep(4 * EVERY_S)
        assert await state(here, ids[3]) is State.WAITING
        assert await here.store.get_job(ids[-1]) is None
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
