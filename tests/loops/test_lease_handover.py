"""Jobs on their way to who asked for them, of which the store says that the hand-over came too late, or nothing."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import trio

from jqd.domain.errors import StoreAway
from jqd.domain.job import ChangeKind, Fate, Held, Outcome, State
from jqd.domain.jobid import homes_of
from jqd.domain.record import Head, Lane, encode_jobs, encode_outcomes
from jqd.loops.claims import IDLE_S
from jqd.runner.lease_handover import JOB_BYTES_MAX
from jqd.runner.worker import Worker
from jqd.store import JobView
from tests.loops.house import until
from tests.loops.pairs import HERE, Pair, pair

WORKER = Worker(name="w", id="w", jobs=(HERE,), max_jobs=1, priority_min=-9, priority_max=9, registered_at_ms=0)
OTHER = "ab" * 16
Void = list[int] | None


def meddle(here: Pair, what: str) -> list[Outcome]:
    """At the first hand-over that the daemon tells the store. Returns those it told."""
    store, told = here.stores[0], list[Outcome]()
    apply = store.apply_outcomes

    async def applied(journal_id: str, start: int, end: int, outcomes: Sequence[Outcome], **fields: Any) -> Void:
        told.extend(outcomes)
        if len(told) > len(outcomes):
            return await apply(journal_id, start, end, outcomes, **fields)
        fence = told[0].fence + {"ended before": -1, "rolled back": 1}.get(what, 0)
        if fence != told[0].fence:
            ending = Outcome(told[0].job_id, fence, Fate.SUCCEEDED, HERE, 0, 1)
            assert await apply(OTHER, 0, 1, [ending]) == []
        void = await apply(journal_id, start, end, outcomes, **fields)
        if what == "answer lost":
            raise StoreAway("the answer did not come")
        return void

    store.apply_outcomes = applied  # type: ignore[method-assign]
    return told


@pytest.mark.parametrize("what", ["ended before", "rolled back", "answer lost"])
async def test_a_poll_is_answered_with_nothing_that_ended_meanwhile(autojump_clock: None, what: str) -> None:
    """Either a success of an attempt counts whose worker was found silent. Or the store was rolled back to when our
    seat and our claim stood, and is told again that another daemon ran the job, after it had taken us for dead.
    """
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        told = meddle(here, what)
        with here.daemon.capacity.pulls.waiting(WORKER, 1) as poll:
            (job_id,) = await here.push(HERE)
            with trio.fail_after(30):
                await poll.wait()
            assert ([one.fate for one in told[:1]], told[0].job_id) == ([Fate.ENTRUSTED], job_id)
            assert poll.given == []
        await until(lambda: not here.daemon.partitions[0].runner.in_flight)
        await trio.sleep(1)
        found = await here.stores[0].get_job(job_id)
        assert isinstance(found, JobView)
        assert found.state is (State.WAITING if what == "answer lost" else State.SUCCEEDED), "given back untried"
        nursery.cancel_scope.cancel()


async def test_content_that_replaced_what_another_daemon_runs_begins_as_soon_as_that_ends(autojump_clock: None) -> None:
    """No slot of ours is freed by it, and a look by chance would come later."""
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        store = here.stores[0]
        other = await store.reserve_sysid("other", True, through=True)
        (job_id,) = await here.push(HERE)
        await here.daemon.partitions[0].lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        (old,) = await store.get_waiting_jobs(other, HERE, 1, priority_min=0, priority_max=0, bytes_max=1)
        revision = await store.reserve_change(job_id)
        change = {0: (job_id, revision, revision, ChangeKind.REPLACE)}
        body = msgspec.msgpack.encode([{"name": HERE, "argument": "new"}])
        frame = encode_jobs(Head(here.journal.ids.take(1, homes_of([HERE])).first, 1, changes=change), body)
        await here.journal.wsync(here.journal.write(Lane.CHANGES, 1, frame))
        with here.daemon.capacity.pulls.waiting(WORKER, 1) as poll:
            for _ in range(3):
                await trio.sleep(1)
                await store.renew_sysid(other, through=True)
            claims = here.daemon.partitions[0].claims
            looked_at_s = claims.looked_at_s
            await until(lambda: claims.looked_at_s != looked_at_s)
            ended = Outcome(job_id, old.fence, Fate.SUCCEEDED, HERE, 0, 1)
            began_s = trio.current_time()
            await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([ended])))
            await poll.wait()
            assert [held.job.argument for held in poll.given] == [msgspec.msgpack.encode("new")]
            assert trio.current_time() - began_s < IDLE_S / 4
        nursery.cancel_scope.cancel()


async def test_what_follows_a_job_counts_for_what_is_remembered_of_it(autojump_clock: None) -> None:
    """Ten thousand are remembered, and each may have a megabyte of followers."""
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        runner = here.daemon.partitions[0].runner
        for size, is_remembered in ((JOB_BYTES_MAX // 2, True), (JOB_BYTES_MAX, False)):
            (held,) = await pulled(here, await here.push(HERE, then=[{"name": HERE, "argument": "x" * size}]))
            assert len(held.job.argument) < JOB_BYTES_MAX // 4
            assert ((held.job.id, held.fence) in runner.given) is is_remembered
        nursery.cancel_scope.cancel()


async def pulled(here: Pair, job_ids: list[str]) -> list[Held]:
    """What a worker gets that asks for one job."""
    with here.daemon.capacity.pulls.waiting(WORKER, 1) as poll, trio.fail_after(30):
        await poll.wait()
        assert [held.job.id for held in poll.given] == job_ids
        return list(poll.given)
