"""A daemon that was away while the store lost its data comes back to one that the others have settled."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from jqd.domain.carried import carry
from jqd.domain.errors import StoreAway
from jqd.domain.followers import follower_id
from jqd.domain.job import Fate, Outcome, State
from jqd.domain.jobid import made_id
from jqd.domain.outcome_followers import encode_as_jobs
from jqd.domain.record import Lane, decode_outcomes, encode_outcomes
from jqd.journal import JournalConfig, open_journal
from jqd.loops.ingest import FLIGHTS_MAX
from jqd.loops.lane_records import CHUNK_RECORDS
from jqd.recovery.recovery import pass_on_positions
from jqd.store import JobView
from tests.harness.files import MemoryFiles
from tests.loops.house import House, house, until

CONFIG = JournalConfig(directory=Path("/other"))


@pytest.mark.parametrize("lives", [False, True], ids=["it starts", "it was cut off"])
async def test_nobody_claims_a_job_that_came_with_an_outcome_and_ended_later_in_that_journal(
    autojump_clock: None, lives: bool
) -> None:
    """Nor if a call is lost by which it takes its seat."""
    async with house() as here, trio.open_nursery() as nursery:
        files = MemoryFiles()
        async with open_journal(CONFIG, clock=here.clock, files=files) as journal:
            parent, *others = journal.ids.take(1 + (FLIGHTS_MAX + 2) * CHUNK_RECORDS).ids()
            child = made_id(follower_id(parent, 0, 0))
            follows = encode_as_jobs([{"name": "next", "argument": None}], parent, "a", 0, 5, options=[])
            ends = [Outcome(one, 1, Fate.SUCCEEDED, "a", 0, 1) for one in others]
            for some in (
                [Outcome(parent, 1, Fate.SUCCEEDED, "a", 0, 1, follows=follows)],
                ends,
                [Outcome(child, 2, Fate.SUCCEEDED, "next", 0, 1)],
            ):
                await journal.wsync(journal.write(Lane.OUTCOMES, len(some), encode_outcomes(some)))
        await here.join(nursery)
        await here.wait_claimable()
        async with open_journal(CONFIG, clock=here.clock, files=files) as journal:
            client = here.store.another_client()
            tell, claimed = client.apply_outcomes, list[str]()

            async def tell_and_claim(*args: Any, **options: Any) -> Any:
                answer = await tell(*args, **options)
                owner = here.membership.joined_as
                if owner is not None and here.claims.may_claim:
                    got = await here.store.get_waiting_jobs(
                        owner, "next", 9, priority_min=0, priority_max=0, bytes_max=999
                    )
                    claimed.extend(one.job.id for one in got)
                return answer

            reserve, asked = client.reserve_sysid, list[str]()

            async def sit_down_late(sysid: str, *args: Any, **options: Any) -> Any:
                asked.append(sysid)
                if len(asked) == 1 + lives:
                    raise StoreAway("it was lost on its way")
                return await reserve(sysid, *args, **options)

            client.apply_outcomes, client.reserve_sysid = tell_and_claim, sit_down_late  # type: ignore[method-assign]
            other = House(journal, client, here.clock, "d2")
            await other.join(nursery)
            if lives:
                await until(lambda: other.membership.settled)
                client.away = "the cable"
                here.store.wipe()
                await trio.sleep(here.membership.config.lease_s)
                await here.wait_claimable()
                client.away = None
            await until(lambda: other.membership.life == here.membership.life and other.membership.through)
            assert len(asked) == 2 + lives
            assert claimed == []
            view = await here.store.get_job(child)
            assert isinstance(view, JobView)
            assert view.state is State.SUCCEEDED
            nursery.cancel_scope.cancel()


async def test_a_copied_job_that_the_old_id_of_a_journal_lacked_comes_under_the_new_one(autojump_clock: None) -> None:
    """Its outcome was retired before this life of the store came to it, so that it came without the job."""
    new, parent = "cd" * 16, "01MCC5RM00J3VGCGZGDEMV5000"
    follows = encode_as_jobs([{"name": "next", "argument": None}], parent, "a", 0, 5, options=[])
    child = made_id(follower_id(parent, 0, 0))
    original = encode_outcomes([Outcome(parent, 1, Fate.SUCCEEDED, "a", 0, 1, follows=follows)])
    ((_, _, body),) = carry(Lane.OUTCOMES, original, {child}, 300)
    async with house() as here:
        await here.store.look(fresh=True)
        lanes: Any = {lane: SimpleNamespace(last_position=400 if lane is Lane.OUTCOMES else 0) for lane in Lane}
        await pass_on_positions(here.journal, here.store, lanes, new)
        await here.store.apply_outcomes(new, 400, 500, decode_outcomes(body))
        assert isinstance(await here.store.get_job(child), JobView)


async def test_positions_are_handed_down_again_where_the_other_copy_moved_on_since(autojump_clock: None) -> None:
    """A first try may fail half-way; then each further one was refused, and the daemon took no job any more."""
    new = "cd" * 16
    async with house() as here:
        await here.store.look(fresh=True)
        for position in (400, 500, 300):
            lanes: Any = {lane: SimpleNamespace(last_position=position) for lane in Lane}
            await pass_on_positions(here.journal, here.store, lanes, new)
        assert set((await here.store.applied(new)).values()) == {500}
