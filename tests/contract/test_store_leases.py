"""Jobs that workers hold by themselves: handed over, renewed, ended, given back, found silent, told again."""

import pytest

from jqd.domain.errors import StoreUnsettled
from jqd.domain.job import ChangeKind, Fate, Held, State, lease_claim
from jqd.domain.record import Lane
from jqd.store import Hold
from tests.contract.bench import StoreBench, changed, holds, ids, outcome
from tests.contract.lent import BEAT_S, forget, handed, lend, mark
from tests.contract.lent import store_bench as store_bench  # the fixture

# ---------------------------------------------------------------- in and out


async def test_what_is_handed_over_is_the_workers_whatever_becomes_of_the_daemon(store_bench: StoreBench) -> None:
    owner, (held,) = await lend(store_bench)
    assert await store_bench.store.get_held(owner) == {}
    watcher = await store_bench.join("watcher")
    seen = (await store_bench.members(watcher))["one"]
    assert await store_bench.store.reap("one", seen, 10) == 0
    view = await store_bench.view(held.job)
    assert (view.state, view.worker, view.daemon, view.attempts) == (State.RUNNING, "w", "", 1)
    assert view.started_at_ms == held.fence // 1000
    assert (await store_bench.store.stats()).running == 1
    assert [job.id for job in (await store_bench.store.list_jobs(State.RUNNING, None, None, 9, "")).jobs] == [
        held.job.id
    ]
    assert await store_bench.claim(watcher) == []
    assert await store_bench.settle(handed(held)) == [], "a repeat changes nothing"
    assert await store_bench.settle(outcome(held, Fate.SUCCEEDED)) == []
    assert await store_bench.state(held.job) is State.SUCCEEDED
    assert (await store_bench.store.find_silent({}, 9)).silences_s == (), "the lease went with its last job"


async def test_a_claim_that_went_elsewhere_is_not_handed_over(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    job = await store_bench.push()
    old = await store_bench.claim_one(owner)
    await store_bench.store.release_jobs(owner, holds([old]))
    assert await store_bench.settle(handed(old)) == [job.id], "it waits"
    new = await store_bench.claim_one(await store_bench.join("two"))
    assert await store_bench.settle(handed(old)) == [job.id], "another holds it"
    await store_bench.settle(outcome(new, Fate.FAILED))
    assert await store_bench.settle(handed(new)) == [job.id], "it has ended"
    assert await store_bench.state(job) is State.FAILED


async def test_a_worker_asks_whether_its_claims_stand(store_bench: StoreBench) -> None:
    owner, (one, two, ended) = await lend(store_bench, 3, keep_result=True, max_retry=2)
    waiting = await store_bench.push("rest")
    await store_bench.settle(outcome(ended, Fate.FAILED))
    claims = [(one.job.id, one.fence), (two.job.id, 0), (one.job.id, one.fence - 1), (ended.job.id, one.fence)]
    found = await store_bench.store.touch([*claims, (waiting.id, 7), ("none", 7)])
    assert [each.hold for each in found] == [Hold.STANDS, Hold.STANDS, Hold.LATE, Hold.OVER, Hold.LATE, Hold.OVER]
    first, second, stale, *_ = found
    assert first.worker == second.worker == "w"
    assert (first.cancelled, stale.worker) == (False, "")
    assert [each.silence_s for each in found] == [BEAT_S, BEAT_S, 0, 0, 0, 0]
    for each, expected in ((first, one), (second, two)):
        assert each.held is not None
        assert (each.held.fence, each.held.attempt, each.held.job.id) == (one.fence, 1, expected.job.id)
        assert (each.held.job.max_retry, each.held.job.keep_result) == (2, True)
    assert stale.held is not None
    assert stale.held.fence == one.fence - 1
    bare = await store_bench.store.touch([*claims, (waiting.id, 7), ("none", 7)], rows=False)
    assert bare == [each._replace(held=None) for each in found]
    await store_bench.cancel(one.job.id)
    assert [each.cancelled for each in await store_bench.store.touch(claims[:2])] == [True, False]
    assert (await store_bench.store.renew_sysid(owner, through=True)).cancels == [], "no daemon has it"
    assert await store_bench.settle(outcome(one, Fate.RETRY)) == []
    assert await store_bench.state(one.job) is State.CANCELLED


async def test_progress_is_shown_until_the_job_leaves(store_bench: StoreBench) -> None:
    _, (one, two) = await lend(store_bench, 2)
    await store_bench.store.touch([(one.job.id, one.fence)], progress=b"\x92\x07\xa1x")
    assert (await store_bench.view(one.job)).progress == b"\x92\x07\xa1x"
    await store_bench.store.touch([(one.job.id, one.fence)])
    assert (await store_bench.view(one.job)).progress == b"\x92\x07\xa1x", "as it was"
    assert (await store_bench.view(two.job)).progress is None
    await store_bench.settle(outcome(one, Fate.RETRY))
    again = await store_bench.claim_one(await store_bench.join())
    await store_bench.settle(handed(again))
    assert (await store_bench.view(one.job)).progress is None


async def test_progress_of_what_a_daemon_holds_is_shown_until_the_job_leaves_its_hand(store_bench: StoreBench) -> None:
    jobs = [await store_bench.push() for _ in range(3)]
    owner = await store_bench.join()
    held = await store_bench.claim(owner)
    for one in held:
        (seen,) = await store_bench.store.touch([(one.job.id, one.fence)], progress=b"\x01")
        assert seen.hold is Hold.STANDS
    assert [(await store_bench.view(job)).progress for job in jobs] == [b"\x01"] * 3
    await store_bench.settle(outcome(held[0], Fate.RETRY))
    await store_bench.store.release_jobs(owner, holds(held[1:2]))
    await store_bench.store.release_sysid(owner)
    again = await store_bench.claim(await store_bench.join("other"))
    assert len(again) == 3
    assert [(await store_bench.view(job)).progress for job in jobs] == [None] * 3


@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.RETRY])
@pytest.mark.parametrize("by_worker", [True, False])
async def test_how_far_a_job_was_is_told_when_it_was_cancelled_until_it_begins_anew_or_is_deleted(
    store_bench: StoreBench, fate: Fate, by_worker: bool
) -> None:
    """Who cancels a job at work wants to know how far it came."""
    jobs = [await store_bench.push() for _ in range(3)]
    owner = await store_bench.join()
    held = await store_bench.claim(owner)
    for one in held:
        if by_worker:
            await store_bench.settle(handed(one))
        await store_bench.store.touch([(one.job.id, one.fence)], progress=b"\x92\x07\xa1x")
    await store_bench.cancel(jobs[0].id, jobs[1].id)
    assert [(await store_bench.view(job)).progress for job in jobs] == [b"\x92\x07\xa1x"] * 3
    await store_bench.settle(*(outcome(one, fate) for one in held))
    views = [await store_bench.view(job) for job in jobs]
    assert [view.state is State.CANCELLED for view in views] == [True, True, False]
    assert [view.progress for view in views] == [b"\x92\x07\xa1x", b"\x92\x07\xa1x", None]
    revision = await store_bench.store.reserve_change(jobs[0].id)
    await store_bench.add(changed(jobs[0], revision, ChangeKind.RETRY))
    assert (await store_bench.view(jobs[0])).progress is None
    assert jobs[0].id in ids(await store_bench.claim(owner))
    assert (await store_bench.view(jobs[0])).progress is None
    await store_bench.store.delete_dead([jobs[1].id])
    await store_bench.add(jobs[1])
    assert jobs[1].id in ids(await store_bench.claim(owner))
    assert (await store_bench.view(jobs[1])).progress is None


@pytest.mark.parametrize("dies", [True, False])
async def test_how_far_it_was_is_told_too_where_nobody_reports_it_any_more(store_bench: StoreBench, dies: bool) -> None:
    job, owner = await store_bench.push(), await store_bench.join()
    held = await store_bench.claim_one(owner)
    await store_bench.store.touch([(job.id, held.fence)], progress=b"\x01")
    await store_bench.cancel(job.id)
    if dies:
        await store_bench.store.release_sysid(owner)
    else:
        await store_bench.store.release_jobs(owner, holds([held]))
    view = await store_bench.view(job)
    assert (view.state, view.progress) == (State.CANCELLED, b"\x01")


async def test_a_worker_gives_jobs_back_untried(store_bench: StoreBench) -> None:
    _, (one, two, cancelled) = await lend(store_bench, 3)
    await store_bench.cancel(cancelled.job.id)
    claims = [(one.job.id, one.fence), (two.job.id, two.fence - 1), (cancelled.job.id, two.fence), ("none", 3)]
    assert await store_bench.store.release_entrusted(claims) == [one.job.id, cancelled.job.id]
    assert await store_bench.state(cancelled.job) is State.CANCELLED
    again = await store_bench.claim_one(await store_bench.join())
    assert (again.job.id, again.attempt) == (one.job.id, 1)
    assert await store_bench.settle(outcome(one, Fate.FAILED)) == [one.job.id]
    assert (await store_bench.view(two.job)).worker == "w"


async def test_a_job_replaced_while_a_worker_holds_it_runs_again(store_bench: StoreBench) -> None:
    _, (held,) = await lend(store_bench)
    for _ in range(2):  # of the content that it was pushed with, and of a later one
        await store_bench.add(changed(held.job, held.fence + 5, ChangeKind.REPLACE, priority=3))
        assert (await store_bench.view(held.job)).worker == "w"
        (found,) = await store_bench.store.touch([(held.job.id, held.fence)])
        assert found.held is not None
        assert found.held.generation == held.generation, "the worker has what it was given"
        (told,) = (await store_bench.store.get_ends([held.job.id])).outcomes
        assert told.generation == held.generation
        assert await store_bench.settle(outcome(found.held, Fate.SUCCEEDED)) == [held.job.id]
        assert await store_bench.state(held.job) is State.WAITING
        assert (await store_bench.store.find_silent({}, 9)).silences_s == ()
        replaced_at, held = held.fence + 5, await store_bench.claim_one(await store_bench.join())
        assert held.generation == replaced_at
        assert await store_bench.settle(handed(held)) == []
    (lease,) = (await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)).leases
    assert [one.generation for one in lease.jobs] == [held.generation]


async def test_of_what_a_daemon_has_in_hand_and_was_replaced_no_report_counts(store_bench: StoreBench) -> None:
    """Which content ran only that daemon can say: the job runs again in any case."""
    owner = await store_bench.join()
    job = await store_bench.push()
    held = await store_bench.claim_one(owner)
    (found,) = await store_bench.store.touch([(job.id, held.fence)])
    assert (found.hold, found.worker, found.silence_s) == (Hold.STANDS, "", 0)
    await store_bench.add(changed(job, held.fence + 5, ChangeKind.REPLACE))
    (found,) = await store_bench.store.touch([(job.id, held.fence)])
    assert found.hold is Hold.LATE
    await store_bench.store.release_jobs(owner, holds([held]))
    again = await store_bench.claim_one(owner)
    (found,) = await store_bench.store.touch([(job.id, again.fence)])
    assert found.hold is Hold.STANDS, "that one has the later content"


# ---------------------------------------------------------------- silence


async def test_a_silent_lease_is_found_by_where_the_sequence_stood(store_bench: StoreBench) -> None:
    _, held = await lend(store_bench, 2, worker="quiet one")
    store = store_bench.store
    claim = held[0].fence
    before = await mark(store_bench)
    assert (await store.find_silent({BEAT_S: claim}, 9)).leases == [], "it was heard of after the claim"
    assert (await store.find_silent({BEAT_S + 1: before}, 9)).leases == [], "it may be silent for another time"
    await store.touch([(held[0].job.id, claim)])
    assert (await store.find_silent({BEAT_S: before}, 9)).leases == [], "a word of one job renews all"
    await store.touch([(held[0].job.id, claim)], renew=False, silence_s=77, progress=b"\x01")
    assert (await store_bench.view(held[0].job)).progress is None, "this was a look"
    after = await mark(store_bench)
    (seen,) = await store.touch([(held[0].job.id, claim)], renew=False)
    assert (seen.hold, seen.held) == (Hold.STANDS, None), "who only looks is not told the whole job"
    found = await store.find_silent({BEAT_S: after}, 9)
    (lease,) = found.leases
    assert (lease.fence, lease.worker, lease.silence_s, found.given_back) == (claim, "quiet one", BEAT_S, 0)
    assert holds(lease.jobs) == holds(held)
    assert [one.attempt for one in lease.jobs] == [1, 1]
    assert (await store.find_silent({BEAT_S: after, 0: after}, 9)).leases == [], "one look is told of it"
    (row,) = await store.touch([(held[0].job.id, claim)])
    assert row.hold is Hold.LATE, "it was set aside"
    assert [one.hold for one in await store.touch([(held[0].job.id, claim), ("none", 1)], renew=False)] == [
        Hold.LATE,
        Hold.OVER,
    ]
    assert await store_bench.settle(*(outcome(one, Fate.RETRY, reason="timeout") for one in lease.jobs)) == []
    assert [one.attempt for one in await store_bench.claim(await store_bench.join())] == [2, 2]
    assert (await store.find_silent({0: await mark(store_bench)}, 9)).silences_s == ()


async def test_a_hand_over_told_again_is_no_sign_of_life(store_bench: StoreBench) -> None:
    """Retention writes those of its oldest segments anew. The simulation found a job that ran for ever: it did so more
    often than its worker might be silent."""
    _, (held,) = await lend(store_bench)
    store = store_bench.store
    before = await mark(store_bench)
    assert await store_bench.settle(handed(held)) == []
    (lease,) = (await store.find_silent({BEAT_S: before}, 9)).leases
    assert ids(lease.jobs) == [held.job.id]
    assert await store_bench.settle(handed(held)) == []
    (row,) = await store.touch([(held.job.id, held.fence)])
    assert row.hold is Hold.LATE, "it was set aside"
    (again,) = (await store.find_silent({0: await mark(store_bench)}, 9)).leases
    assert ids(again.jobs) == [held.job.id], "and who was told of it may have died"


async def test_whoever_was_told_of_a_silent_lease_and_died_has_a_successor(store_bench: StoreBench) -> None:
    _, held = await lend(store_bench)
    store = store_bench.store
    (first,) = (await store.find_silent({BEAT_S: await mark(store_bench)}, 9)).leases
    (second,) = (await store.find_silent({0: await mark(store_bench)}, 9)).leases
    assert (second.fence, second.silence_s, ids(second.jobs)) == (first.fence, 0, ids(held))
    assert await store_bench.settle(outcome(held[0], Fate.SUCCEEDED)) == [], "it did run"


async def test_silence_allowed_may_be_changed_and_lengths_are_told(store_bench: StoreBench) -> None:
    _, (held,) = await lend(store_bench)
    store = store_bench.store
    await store.touch([(held.job.id, held.fence)], silence_s=3600)
    found = await store.find_silent({BEAT_S: await mark(store_bench)}, 9)
    assert (found.leases, found.silences_s) == ([], (3600,))
    await store.touch([(held.job.id, held.fence)])
    assert (await store.find_silent({}, 9)).silences_s == (3600,), "until it is changed again"


async def test_a_look_for_silent_leases_takes_no_more_than_it_can_tell(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    for _ in range(5):
        await store_bench.push()
        await store_bench.settle(handed(await store_bench.claim_one(owner)))
    now = await mark(store_bench)
    numbers = [len((await store_bench.store.find_silent({BEAT_S: now}, 2)).leases) for _ in range(4)]
    assert numbers == [2, 2, 1, 0]


async def test_of_a_lease_whose_jobs_are_gone_nothing_is_told(store_bench: StoreBench) -> None:
    """Jobs that left for a later claim of theirs leave it behind."""
    _, (held,) = await lend(store_bench)
    later = Held(held.job, held.fence + 1, 1)
    await forget(store_bench)
    await store_bench.add(held.job)
    assert await store_bench.settle(handed(held), handed(later)) == []
    assert await store_bench.settle(outcome(later, Fate.SUCCEEDED)) == []
    found = await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)
    assert (found.leases, found.given_back) == ([], 0)
    assert (await store_bench.store.find_silent({}, 9)).silences_s == ()


# ---------------------------------------------------------------- the store forgot


async def test_a_claim_is_not_called_late_while_a_journal_may_know_better(store_bench: StoreBench) -> None:
    _, (held,) = await lend(store_bench)
    store_bench.clock.advance(1)
    store_bench.wipe()
    store_bench.at = dict.fromkeys(Lane, 0)
    await store_bench.store.look(fresh=False)
    await store_bench.add(held.job)
    with pytest.raises(StoreUnsettled):
        await store_bench.store.touch([(held.job.id, held.fence)])
    await store_bench.settle(handed(held))
    (found,) = await store_bench.store.touch([(held.job.id, held.fence)])
    assert found.hold is Hold.STANDS


async def test_retention_is_told_what_workers_hold(store_bench: StoreBench) -> None:
    """It writes that again behind the copies of the jobs."""
    _, (held, other) = await lend(store_bench, 2, worker="a b")
    await store_bench.cancel(other.job.id)
    told = await store_bench.store.get_ends([held.job.id, other.job.id])
    assert told.asked == {other.job.id: 0}
    assert told.outcomes == [
        lease_claim(one, worker="a b", silence_s=BEAT_S, started_at_ms=held.fence // 1000) for one in (held, other)
    ]
    await forget(store_bench)
    await store_bench.add(held.job)
    assert await store_bench.settle(*told.outcomes) == []
    assert (await store_bench.view(held.job)).worker == "a b"
