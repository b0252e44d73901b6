"""Followers that came with an outcome: those that have not ended are copied with it, as often as it must be."""

import trio

from jqd.domain.followers import follower_id
from jqd.domain.job import Fate, Outcome, State
from jqd.domain.jobid import made_id
from jqd.domain.outcome_followers import encode_as_jobs
from jqd.domain.record import Lane, encode_outcomes
from jqd.store import JobView, Owner
from tests.loops.house import House, until
from tests.loops.segments import finish, outcomes_of, push, small


async def followed(here: House, owner: Owner) -> tuple[str, str]:
    """Push jobs that all end, one of which brings two. Returns the ids of these."""
    ids = await push(here, 60)
    await finish(here, owner, {ids[3]})
    (held,) = await here.store.get_waiting_jobs(owner, "a", 1, priority_min=0, priority_max=0, bytes_max=999)
    items = [{"name": "next", "argument": 1}, {"name": "rest", "argument": 2}]
    follows = encode_as_jobs(items, ids[3], "a", 0, 5, options=[])
    outcome = Outcome(ids[3], held.fence, Fate.SUCCEEDED, "a", 0, 1, follows=follows)
    await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([outcome])))
    first, second = (made_id(follower_id(ids[3], 0, place)) for place in range(2))
    await until(lambda: here.lanes[Lane.OUTCOMES].done == here.journal.written)
    return first, second


async def end(here: House, owner: Owner, job_id: str) -> None:
    """A follower runs and ends."""
    (held,) = await here.store.get_waiting_jobs(owner, "next", 1, priority_min=0, priority_max=0, bytes_max=999)
    assert held.job.id == job_id
    outcome = Outcome(job_id, held.fence, Fate.SUCCEEDED, "next", 0, 1)
    await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([outcome])))


async def test_those_that_have_not_ended_pin_no_journal_and_outlive_the_store(autojump_clock: None) -> None:
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        ended, rests = await followed(here, owner)
        await end(here, owner, ended)
        parent = next(iter((await here.store.get_job(rests)).flow.parent.split()))  # type: ignore[union-attr]
        for _ in range(2):
            await push(here, 60)
            await finish(here, owner, set())
        await nursery.start(retention.run)
        await until(lambda: here.journal.stats().segments <= 2)
        said = await outcomes_of(here.journal, parent)
        assert said
        assert min(said) >= here.journal.retired, "it was written once more"
        for _ in range(2):
            await push(here, 60)
            await finish(here, owner, set())
        await until(lambda: here.journal.retired > max(said))
        here.store.wipe()
        await trio.sleep(10)  # it is noticed, and told again
        view = await here.store.get_job(rests)
        assert isinstance(view, JobView)
        assert (view.state, view.argument, view.name) == (State.WAITING, b"\x02", f"{parent}.1")
        assert not isinstance(await here.store.get_job(ended), JobView), "what ended does not come again"
        nursery.cancel_scope.cancel()
