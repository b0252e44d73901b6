"""The journal's space: what may go goes, unfinished jobs are copied forward, and nothing is deleted too early."""

import random
from typing import Any

import msgspec
import pytest
import trio

from jqd.domain.errors import JournalRefused, StoreAway
from jqd.domain.followers import named
from jqd.domain.job import Fate, Job, Outcome, State
from jqd.domain.record import Lane, decode_outcomes, decode_rules, encode_outcomes, encode_rules
from jqd.domain.settings import Setting, SettingTable
from jqd.domain.tenant import annotate
from jqd.journal import Journal
from jqd.loops.ingest import Ingest, LaneRules
from jqd.loops.retention.retention import EVERY_S
from jqd.store import JobView, OnItsWay, Owner
from jqd.store.types import Ends
from tests.loops.house import House, until
from tests.loops.segments import finish, jobs_in, outcomes_of, push, small, state


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

        def refuse(lane: Lane, records: int, body: bytes, *, patient: bool = False) -> int:
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
        here.store.away, here.journal.write = None, write  # type: ignore[method-assign]
        retention._partitions = keepers
        if why != "not durable":
            await until(lambda: here.journal.start > 0)
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
        assert [await here.store.get_job(one) for one in (ids[3], ids[-1])] == [OnItsWay(""), OnItsWay("")]
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


@pytest.mark.parametrize("set_back_s", [0, 3_600])
async def test_an_outcome_stays_until_what_follows_is_in_a_journal_itself(
    autojump_clock: None, set_back_s: int
) -> None:
    """Until then it alone says so; also when the server's clock is set back."""
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ids = await push(here, 60)
        await finish(here, owner, {ids[3]})
        (held,) = await here.store.get_waiting_jobs(owner, "a", 1, priority_min=0, priority_max=0, bytes_max=1 << 20)
        outcome = Outcome(ids[3], held.fence, Fate.SUCCEEDED, "a", 0, 1, follows=b"\x91\xa4next")
        await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([outcome])))
        await push(here, 60)
        await finish(here, owner, set())
        said_at = min(await outcomes_of(here.journal, ids[3]))
        here.clock.set_wall_ms(here.clock.wall_ms() - round(trio.current_time() * 1000) - set_back_s * 1000)
        await nursery.start(retention.run)
        await trio.sleep(10 * EVERY_S)
        assert here.journal.retired <= said_at
        found = (await here.store.get_outbox(10, 1 << 20)).entries
        assert len(found) == 1, "and who empties it finds it"
        await here.store.drop_outbox(found)
        await until(lambda: here.journal.stats().segments == 1)
        nursery.cancel_scope.cancel()


async def followed(here: House, owner: Owner, follows: bytes, jobs: int) -> bytes:
    """Pushes so many jobs that all end, one of which others follow. Returns what the outbox has of these."""
    ids = await push(here, jobs)
    await finish(here, owner, {ids[3]})
    (held,) = await here.store.get_waiting_jobs(owner, "a", 1, priority_min=0, priority_max=0, bytes_max=999)
    outcome = Outcome(ids[3], held.fence, Fate.SUCCEEDED, "a", 0, 1, follows=follows)
    await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([outcome])))
    return ids[3].encode() + b" " + follows


async def test_what_waits_for_a_quota_pins_no_journal_and_outlives_the_store(autojump_clock: None) -> None:
    """Its outcome is written once more, as often as it must be."""
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        follows = named([{"name": "next"}], "", annotate("acme", "a"), 0, 0)
        entries = []
        for _ in range(2):
            entries.append(await followed(here, owner, follows, 60))
            await push(here, 60)
            await finish(here, owner, set())
        await here.store.put_off("acme", entries, 1.0)
        await here.store.drop_outbox(entries[:1], "acme")
        await nursery.start(retention.run)
        await until(lambda: here.journal.stats().segments <= 2)
        said = [await outcomes_of(here.journal, entry[:26].decode()) for entry in entries]
        assert (len(said[0]), min(said[1]) > here.journal.retired) == (0, True)
        for _ in range(2):
            await push(here, 60)
            await finish(here, owner, set())
        before, at = said[1], here.journal.retired
        await until(lambda: here.journal.retired > max(before))
        assert min(await outcomes_of(here.journal, entries[1][:26].decode())) > at
        here.store.wipe()
        await trio.sleep(10)  # it is noticed, and told again
        assert (await here.store.get_outbox(9, 1 << 20)).entries == entries[1:]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("stuck", [False, True], ids=["moves", "stuck"])
async def test_what_moves_to_the_outbox_meanwhile_or_stays_there_is_said_once_more_and_pins_nothing(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch, stuck: bool
) -> None:
    """It waits for something that may last; where it lies when it is looked for is all the same."""
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        follows = named([{"name": "next"}], "", annotate("acme", "a"), 0, 0)
        entry = await followed(here, owner, follows, 60)
        parent = entry[:26].decode()
        await push(here, 60)
        await finish(here, owner, set())
        if not stuck:
            await here.store.put_off("acme", [entry], 1.0)
            get_outbox = here.store.get_outbox

            async def get_then_move(*args: Any, **of: Any) -> Any:
                told = await get_outbox(*args, **of)
                await here.store.put_back("acme", [entry])
                return told

            monkeypatch.setattr(here.store, "get_outbox", get_then_move)
        all_follow, waited = retention._all_follow, list[bool]()

        async def follows_all(copied: Any) -> bool:
            waited.append(not await all_follow(copied))
            return not waited[-1]

        monkeypatch.setattr(retention, "_all_follow", follows_all)
        await nursery.start(retention.run)
        await until(lambda: here.journal.stats().segments <= 2)
        if not stuck:
            monkeypatch.undo()
        assert min(await outcomes_of(here.journal, parent)) > here.journal.retired
        if stuck:  # it stays the oldest: no other piece waits for it again
            at = here.journal.retired
            waited.clear()
            await push(here, 60)
            await finish(here, owner, set())
            await until(lambda: here.journal.retired > at)
            assert set(waited) == {False}
        here.store.wipe()
        await trio.sleep(20)  # it is noticed, and told again
        assert (await here.store.get_outbox(9, 1 << 20)).entries == [entry]
        nursery.cancel_scope.cancel()


async def test_what_waits_for_a_quota_is_not_written_from_its_beginning_after_each_refusal(
    autojump_clock: None,
) -> None:
    """On a disk that is nearly full it would never come to its end, and fill what room there is each time."""
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        follows = named([{"name": "next"}], "", annotate("acme", "a"), 0, 0)
        entries = [await followed(here, owner, follows, 20) for _ in range(3)]
        await push(here, 60)
        await finish(here, owner, set())
        await here.store.put_off("acme", entries, 1.0)
        write, said = here.journal.write, list[str]()

        def refuse_each_other(lane: Lane, records: int, body: bytes, *, patient: bool = False) -> int:
            if lane is Lane.OUTCOMES and any(one.follows for one in decode_outcomes(body)):
                said.extend(one.job_id for one in decode_outcomes(body))
                if len(said) % 2 == 0:
                    raise JournalRefused("the disk is full", full=True)
            return write(lane, records, body, patient=patient)

        here.journal.write = refuse_each_other  # type: ignore[method-assign]
        await nursery.start(retention.run)
        await until(lambda: entries[2][:26].decode() in said and here.journal.retired > 0)
        parents = [entry[:26].decode() for entry in entries]
        first = said[: said.index(parents[2]) + 1]
        assert [first.count(parent) for parent in parents[:2]] == [1, 2], "the second was refused once"
        nursery.cancel_scope.cancel()
