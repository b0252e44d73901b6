"""What waits to follow ended jobs, in the outbox or for a quota, pins no journal and is not lost with one."""

from typing import Any

import pytest
import trio

from jqd.domain.errors import JournalRefused
from jqd.domain.followers import encode_as_outbox_entry
from jqd.domain.job import Fate, Outcome
from jqd.domain.record import Lane, decode_outcomes, encode_outcomes
from jqd.domain.tenant import annotate
from jqd.loops.retention.retention import EVERY_S
from jqd.store import Owner
from tests.loops.house import House, until
from tests.loops.segments import finish, outcomes_of, push, small


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
        follows = encode_as_outbox_entry([{"name": "next"}], "", annotate("acme", "a"), 0, 0)
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
        follows = encode_as_outbox_entry([{"name": "next"}], "", annotate("acme", "a"), 0, 0)
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
        follows = encode_as_outbox_entry([{"name": "next"}], "", annotate("acme", "a"), 0, 0)
        entries = [await followed(here, owner, follows, 20) for _ in range(3)]
        await push(here, 60)
        await finish(here, owner, set())
        await here.store.put_off("acme", entries, 1.0)
        write, said = here.journal.write, list[str]()

        def refuse_each_other(lane: Lane, records: int, body: bytes) -> int:
            if lane is Lane.OUTCOMES and any(one.follows for one in decode_outcomes(body)):
                said.extend(one.job_id for one in decode_outcomes(body))
                if len(said) % 2 == 0:
                    raise JournalRefused("the disk is full", full=True)
            return write(lane, records, body)

        here.journal.write = refuse_each_other  # type: ignore[method-assign]
        await nursery.start(retention.run)
        await until(lambda: entries[2][:26].decode() in said and here.journal.retired > 0)
        parents = [entry[:26].decode() for entry in entries]
        first = said[: said.index(parents[2]) + 1]
        assert [first.count(parent) for parent in parents[:2]] == [1, 2], "the second was refused once"
        nursery.cancel_scope.cancel()
