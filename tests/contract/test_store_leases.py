"""Jobs that workers hold by themselves: handed over, renewed, ended, given back, found silent, told again."""

from typing import Any

import pytest

from jqd.store import Hold, Owner
from jqd.words.errors import StoreChanged, StoreUnsettled
from jqd.words.job import SNOOZE, ChangeKind, Fate, Held, Outcome, State, entrust
from jqd.words.record import Lane
from tests.contract.bench import JOURNAL, StoreBench, changed, holds, ids, outcome

BEAT_S = 10


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    """A store that nobody ever used has nothing to be told."""
    await store_bench.store.look(fresh=True)
    return store_bench


def handed(held: Held, worker: str = "w", silence_s: int = BEAT_S) -> Outcome:
    """The record of a hand-over."""
    return entrust(held, worker=worker, silence_s=silence_s, started_at_ms=1)


async def lend(bench: StoreBench, number: int = 1, worker: str = "w", **fields: Any) -> tuple[Owner, list[Held]]:
    """Jobs of a daemon's claim that a worker holds by itself now."""
    owner = await bench.join()
    await bench.add(*(bench.make(**fields) for _ in range(number)))
    held = await bench.claim(owner)
    assert len(held) == number
    assert await bench.settle(*(handed(one, worker) for one in held)) == []
    return owner, held


async def forget(bench: StoreBench) -> Owner:
    """The store is emptied; a daemon looks and sits down anew, and all journals are read from their beginnings."""
    bench.clock.advance(1)
    bench.wipe()
    bench.at = dict.fromkeys(Lane, 0)
    await bench.store.look(fresh=False)
    owner = await bench.join()
    await bench.store.renew_sysid(owner, through=True, settle=True)
    return owner


async def mark(bench: StoreBench) -> int:
    """Where the signs of life stand now."""
    bench.clock.advance(0.01)
    return (await bench.store.find_silent({}, 100)).now


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
    await store.touch([(held[0].job.id, claim)], renew=False)
    found = await store.find_silent({BEAT_S: after}, 9)
    (lease,) = found.leases
    assert (lease.fence, lease.worker, lease.silence_s, found.given_back) == (claim, "quiet one", BEAT_S, 0)
    assert holds(lease.jobs) == holds(held)
    assert [one.attempt for one in lease.jobs] == [1, 1]
    assert (await store.find_silent({BEAT_S: after, 0: after}, 9)).leases == [], "one look is told of it"
    (row,) = await store.touch([(held[0].job.id, claim)])
    assert row.hold is Hold.LATE, "it was set aside"
    assert await store_bench.settle(*(outcome(one, Fate.RETRY, reason="timeout") for one in lease.jobs)) == []
    assert [one.attempt for one in await store_bench.claim(await store_bench.join())] == [2, 2]
    assert (await store.find_silent({0: await mark(store_bench)}, 9)).silences_s == ()


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


async def test_an_emptied_store_is_told_again_of_leases(store_bench: StoreBench) -> None:
    _, (held,) = await lend(store_bench)
    for job_first in (True, False):
        owner = await forget(store_bench)
        if job_first:
            await store_bench.add(held.job)
        assert await store_bench.settle(handed(held)) == []
        if not job_first:
            (early,) = await store_bench.store.touch([(held.job.id, held.fence)])
            assert (early.hold, early.held, early.worker) == (Hold.STANDS, None, "w"), "it has not come yet"
            await store_bench.add(held.job)
        assert await store_bench.claim(owner) == []
        assert (await store_bench.view(held.job)).worker == "w"
    assert await store_bench.settle(outcome(held, Fate.SUCCEEDED)) == []
    assert await store_bench.state(held.job) is State.SUCCEEDED


@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD, Fate.RETRY])
@pytest.mark.parametrize("job_first", [True, False])
async def test_a_hand_over_told_after_its_end_means_nothing(
    store_bench: StoreBench, fate: Fate, job_first: bool
) -> None:
    _, (held,) = await lend(store_bench)
    await forget(store_bench)
    if job_first:
        await store_bench.add(held.job)
    await store_bench.settle(outcome(held, fate))
    assert await store_bench.settle(handed(held)) == [held.job.id]
    if not job_first:
        await store_bench.add(held.job)
    assert (await store_bench.view(held.job)).worker == ""
    assert await store_bench.state(held.job) is not State.RUNNING


@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD, Fate.RETRY])
@pytest.mark.parametrize("has_come", [True, False])
async def test_an_outcome_of_a_later_claim_counts_against_an_older_lease(
    store_bench: StoreBench, fate: Fate, has_come: bool
) -> None:
    """The simulation found that it did not while the job had not come: it ran again after it had failed for good."""
    _, (held,) = await lend(store_bench)
    await forget(store_bench)
    if has_come:
        await store_bench.add(held.job)
    await store_bench.settle(handed(held))
    later = Held(held.job, held.fence + 1, 2)
    assert await store_bench.settle(outcome(later, fate)) == []
    if not has_come:
        await store_bench.add(held.job)
    view = await store_bench.view(held.job)
    expected = {Fate.SUCCEEDED: State.SUCCEEDED, Fate.RETRY: State.RETRYING}.get(fate, State.FAILED)
    assert (view.state, view.worker, view.attempts) == (expected, "", 2)
    assert (await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)).given_back == 0


@pytest.mark.parametrize("reason", ["other", SNOOZE])
async def test_an_earlier_attempt_told_later_takes_nothing_from_a_later_one(
    store_bench: StoreBench, reason: str
) -> None:
    """An earlier snooze took the place of a later one, and a worker that had ended that attempt was given the job."""
    _, (held,) = await lend(store_bench)
    later = Held(held.job, held.fence + 1, 1 if reason == SNOOZE else 2)
    ends = [
        outcome(one, Fate.RETRY, reason=reason, snoozes=at if reason == SNOOZE else 0, delay_ms=1000)
        for at, one in enumerate((held, later), 1)
    ]
    await forget(store_bench)
    await store_bench.add(held.job)
    await store_bench.settle(ends[1])
    await store_bench.settle(ends[0])
    assert await store_bench.settle(handed(later)) == [held.job.id]
    view = await store_bench.view(held.job)
    assert (view.worker, view.snoozes) == ("", ends[1].snoozes)
    assert view.history == (ends[1:] if reason == SNOOZE else ends), "in the order of the attempts"


async def test_of_two_hand_overs_the_later_stays(store_bench: StoreBench) -> None:
    _, (held,) = await lend(store_bench)
    later = Held(held.job, held.fence + 1, 2)
    for order in ((held, later), (later, held)):
        await forget(store_bench)
        await store_bench.add(held.job)
        for one in order:
            await store_bench.settle(handed(one, f"w{one.attempt}"))
        (found,) = await store_bench.store.touch([(held.job.id, later.fence)])
        assert (found.hold, found.worker) == (Hold.STANDS, "w2")


@pytest.mark.parametrize("has_come", [True, False])
async def test_a_later_claim_of_a_daemon_takes_the_job_from_an_older_lease(
    store_bench: StoreBench, has_come: bool
) -> None:
    """The worker had given it back, which no journal tells."""
    _, (held,) = await lend(store_bench)
    for handed_first in (True, False):
        owner = await forget(store_bench)
        if has_come:
            await store_bench.add(held.job)
        if handed_first:
            await store_bench.settle(handed(held))
            assert await store_bench.store.reassert(owner, {held.job.id: held.fence}) == [held.job.id], "not the same"
        assert await store_bench.store.reassert(owner, {held.job.id: held.fence + 1}) == []
        if not handed_first:
            assert await store_bench.settle(handed(held)) == [held.job.id]
        if not has_come:
            await store_bench.add(held.job)
        assert await store_bench.store.get_held(owner) == {held.job.id: held.fence + 1}
        assert (await store_bench.view(held.job)).daemon == "one"


async def test_what_was_told_again_and_never_heard_of_is_given_back_untried(store_bench: StoreBench) -> None:
    _, (held, unseen) = await lend(store_bench, 2)
    await forget(store_bench)
    await store_bench.add(held.job)
    await store_bench.settle(handed(held), handed(unseen))
    found = await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)
    assert (found.leases, found.given_back) == ([], 2)
    await store_bench.add(unseen.job)
    assert [one.attempt for one in await store_bench.claim(await store_bench.join())] == [1, 1]


async def test_what_a_daemon_handed_over_and_died_is_no_attempt_until_the_worker_is_heard(
    store_bench: StoreBench,
) -> None:
    """The simulation found a job dead that no worker had seen: its daemon died before it answered the poll."""
    owner = await store_bench.join()
    await store_bench.add(store_bench.make(), store_bench.make())
    one, two = await store_bench.claim(owner)
    assert await store_bench.store.apply_outcomes(JOURNAL, 0, 9, [handed(one)], old=True) == []
    assert await store_bench.store.apply_outcomes(JOURNAL, 0, 9, [handed(one)], old=True) is None, "what was late?"
    found = await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)
    assert (found.leases, found.given_back) == ([], 1)
    assert await store_bench.store.apply_outcomes(JOURNAL, 9, 10, [handed(two)], old=True) == []
    await store_bench.store.touch([(two.job.id, two.fence)])
    (lease,) = (await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)).leases
    assert ids(lease.jobs) == [two.job.id]


async def test_a_worker_that_spoke_in_this_life_is_known_to_be_silent(store_bench: StoreBench) -> None:
    _, (held,) = await lend(store_bench)
    await forget(store_bench)
    await store_bench.add(held.job)
    await store_bench.settle(handed(held))
    await store_bench.store.touch([(held.job.id, held.fence)])
    (lease,) = (await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)).leases
    assert ids(lease.jobs) == [held.job.id]


async def test_of_another_life_nothing_is_said(store_bench: StoreBench) -> None:
    _, (held,) = await lend(store_bench)
    claim = (held.job.id, held.fence)
    store_bench.wipe()
    for ask in (
        lambda: store_bench.store.touch([claim]),
        lambda: store_bench.store.release_entrusted([claim]),
        lambda: store_bench.store.find_silent({}, 9),
    ):
        with pytest.raises(StoreChanged):
            await ask()
        await store_bench.store.look(fresh=False)
        store_bench.wipe()


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
        entrust(one, worker="a b", silence_s=BEAT_S, started_at_ms=held.fence // 1000) for one in (held, other)
    ]
    await forget(store_bench)
    await store_bench.add(held.job)
    assert await store_bench.settle(*told.outcomes) == []
    assert (await store_bench.view(held.job)).worker == "a b"
