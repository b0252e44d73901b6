"""Jobs that must have begun by some instant: else they are dead with reason `expired`, whatever happened meanwhile."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from jqd.domain.job import ChangeKind, Fate, Held, Job, Outcome, State
from jqd.store import Release
from jqd.store.views import crashed, expired
from tests.contract.bench import ALL, StoreBench, changed, holds, outcome
from tests.contract.lent import BEAT_S, forget, handed, mark
from tests.contract.limited import DIGEST, KEYED, item, setting

ENCODED = msgspec.msgpack.encode(bytes(300_000))


async def expiring(bench: StoreBench, seconds: float = 1.0, **fields: Any) -> Job:
    """A job that expires so many seconds from now."""
    return await bench.push(expires_at_ms=bench.clock.wall_ms() + round(seconds * 1000), **fields)


async def test_it_is_dead_when_nobody_began_it_in_time(store_bench: StoreBench) -> None:
    job, other = await expiring(store_bench), await store_bench.push()
    assert (await store_bench.view(job)).expires_at_ms == job.expires_at_ms
    store_bench.clock.advance(0.999)
    assert (await store_bench.store.promote(10)).moved == 0
    store_bench.clock.advance(0.001)
    assert (await store_bench.store.promote(10)).moved == 1
    view = await store_bench.view(job)
    assert view.outcome is not None
    assert (view.state, view.outcome.reason, view.outcome.finished_at_ms) == (
        State.FAILED,
        "expired",
        job.expires_at_ms,
    )
    assert view.outcome.message == "no attempt had begun when it expired"
    assert await store_bench.state(other) is State.WAITING
    assert (await store_bench.store.stats()).dead == 1


async def test_who_promotes_hears_once_how_many_died_by_whatever_call(store_bench: StoreBench) -> None:
    for _ in range(2):
        await expiring(store_bench)
    await store_bench.push()
    owner = await store_bench.join()
    store_bench.clock.advance(1)
    assert len(await store_bench.claim(owner)) == 1
    await store_bench.push("bill", expires_at_ms=store_bench.clock.wall_ms() + 1_000)
    store_bench.clock.advance(1)
    promoted = await store_bench.store.promote(10)
    assert (promoted.moved, promoted.died) == (1, {"mail": 2, "bill": 1})
    assert (await store_bench.store.promote(10)).died == {}


async def test_a_claim_never_begins_it_and_takes_the_ones_behind(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    late = [await expiring(store_bench) for _ in range(3)]
    good = await expiring(store_bench, 9)
    store_bench.clock.advance(1)
    assert [held.job.id for held in await store_bench.claim(owner)] == [good.id]
    assert [await store_bench.state(job) for job in late] == [State.FAILED] * 3


async def test_many_that_expire_at_once_are_ended_in_steps(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    at_ms = store_bench.clock.wall_ms() + 1_000
    await store_bench.add(*(store_bench.make(expires_at_ms=at_ms) for _ in range(250)), store_bench.make(priority=1))
    store_bench.clock.advance(1)
    claimed = [len(await store_bench.claim(owner)) for _ in range(2)]
    assert claimed == [0, 1], "none of them is begun"
    assert (await store_bench.store.stats()).counts.failed == 250


@pytest.mark.parametrize("limited", [False, True])
async def test_many_that_expire_at_once_hold_up_no_others(store_bench: StoreBench, limited: bool) -> None:
    """They are ended in steps, and what is given meanwhile has not expired."""
    owner = await store_bench.join()
    queue: Any = {"queue": KEYED + item("r")} if limited else {}
    version: Any = {"version": str(DIGEST)} if limited else {}
    if limited:
        await setting(store_bench, "r", concurrency=1_000)
    at_ms = store_bench.clock.wall_ms() + 1_000
    many = [store_bench.make(expires_at_ms=at_ms, **queue) for _ in range(350)]
    good = store_bench.make(jobtype="other", **queue)
    await store_bench.add(*many, good)
    store_bench.clock.advance(1)
    assert [held.job.id for held in await store_bench.claim(owner, "other", **version)] == [good.id]
    assert (await store_bench.store.stats()).counts.failed == 100
    claimed = await store_bench.store.get_waiting_jobs(owner, "mail", 100, **{**ALL, **version})
    assert (list(claimed), claimed.more) == ([], True)
    assert (await store_bench.store.stats()).counts.failed > 200, "those that were chosen are ended by name"


async def test_what_was_begun_in_time_goes_on(store_bench: StoreBench) -> None:
    """Running, given back, tried again: an attempt had begun."""
    owner = await store_bench.join()
    running, back, again = [await expiring(store_bench) for _ in range(3)]
    held = await store_bench.claim(owner)
    await store_bench.settle(outcome(held[2], Fate.RETRY, delay_ms=10))
    store_bench.clock.advance(2)
    await store_bench.store.promote(10)
    await store_bench.store.release_jobs(owner, holds(held[1:2]), Release.UNGET)
    await store_bench.store.promote(10)
    states = [await store_bench.state(job) for job in (running, back, again)]
    assert states == [State.RUNNING, State.WAITING, State.RETRYING]
    assert len(await store_bench.claim(owner)) == 2


@pytest.mark.parametrize("way", ["unsent", "requeue"])
async def test_what_nobody_was_told_of_is_dead_when_it_comes_back_too_late(store_bench: StoreBench, way: str) -> None:
    """Its daemon was drained, say. One that failed before goes on, and one that was begun over its instant."""
    store, owner = store_bench.store, await store_bench.join()

    async def back(held: list[Held]) -> None:
        if way == "requeue":
            await store.requeue(owner, [(one, "") for one in held])
        else:
            await store.release_jobs(owner, holds(held), Release.UNSENT)

    tried = await expiring(store_bench)
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.RETRY))
    late, early, begun = [await expiring(store_bench) for _ in range(3)]
    held = {one.job.id: one for one in await store_bench.claim(owner)}
    await back([held[early.id]])
    store_bench.clock.advance(1)
    await store.promote(10)
    await store.release_jobs(owner, holds([held[begun.id]]))
    await back([held[late.id], held[tried.id], await store_bench.claim_one(owner)])
    views = [await store_bench.view(job) for job in (late, tried, early, begun)]
    assert [view.state for view in views] == [State.FAILED, State.RETRYING, State.FAILED, State.WAITING]
    assert [views[at].outcome for at in (0, 2)] == [expired(job.id, job.expires_at_ms) for job in (late, early)]
    assert {one.job.id for one in await store_bench.claim(owner)} == {tried.id, begun.id}
    assert (await store.stats()).dead == 2


@pytest.mark.parametrize("way", ["sent", "reaped"])
@pytest.mark.parametrize("then", ["waits", "unsent"])
async def test_what_may_have_begun_in_an_earlier_hand_does_not_expire(
    store_bench: StoreBench, way: str, then: str
) -> None:
    """It was sent in time and came back without an end; at its instant it waits, or lies in another hand."""
    store, owner = store_bench.store, await store_bench.join()
    job = await expiring(store_bench)
    held = await store_bench.claim_one(owner)
    if way == "sent":
        await store.release_jobs(owner, holds([held]), Release.UNGET)
    else:
        await store.release_sysid(owner)
        owner = await store_bench.join()
    if then == "unsent":
        held = await store_bench.claim_one(owner)
    store_bench.clock.advance(2)
    await store.promote(10)
    if then == "unsent":
        await store.release_jobs(owner, holds([held]), Release.UNSENT)
    view = await store_bench.view(job)
    assert (view.state, view.attempts) == (State.WAITING, 0)
    again = await store_bench.claim_one(owner)
    assert (again.job.id, again.attempt) == (job.id, 1)


async def test_one_with_a_date_expires_by_its_own_instant(store_bench: StoreBench) -> None:
    now_ms = store_bench.clock.wall_ms()
    job = await store_bench.push(eligible_at_ms=now_ms + 5_000, expires_at_ms=now_ms + 1_000)
    store_bench.clock.advance(1)
    await store_bench.store.promote(10)
    assert await store_bench.state(job) is State.FAILED


async def test_what_ended_or_is_deleted_is_not_ended_again(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    done, cancelled, gone = [await expiring(store_bench) for _ in range(3)]
    (held,) = await store_bench.claim(owner, limit=1)
    await store_bench.settle(outcome(held, Fate.SUCCEEDED))
    await store_bench.cancel(cancelled.id, gone.id)
    await store_bench.store.delete_dead([gone.id])
    store_bench.clock.advance(2)
    await store_bench.store.promote(10)
    assert [await store_bench.state(job) for job in (done, cancelled)] == [State.SUCCEEDED, State.CANCELLED]
    assert (await store_bench.store.stats()).dead == 0


async def test_another_content_has_an_instant_of_its_own(store_bench: StoreBench) -> None:
    now_ms = store_bench.clock.wall_ms()
    kept, later = [await expiring(store_bench, name=name) for name in ("a", "b")]
    await store_bench.add(changed(kept, 10**15, ChangeKind.EDIT, expires_at_ms=0))
    await store_bench.add(changed(later, 10**15 + 1, ChangeKind.EDIT, expires_at_ms=now_ms + 5_000))
    store_bench.clock.advance(1)
    await store_bench.store.promote(10)
    assert [await store_bench.state(job) for job in (kept, later)] == [State.WAITING] * 2
    store_bench.clock.advance(4)
    await store_bench.store.promote(10)
    assert [await store_bench.state(job) for job in (kept, later)] == [State.WAITING, State.FAILED]
    await store_bench.add(changed(later, 10**15 + 2, ChangeKind.RETRY, expires_at_ms=0))
    assert await store_bench.state(later) is State.WAITING, "tried anew, it does not expire"


@pytest.mark.parametrize("how", ["came back", "failed", "in a hand", "failed and came back"])
@pytest.mark.parametrize("begun", [False, True])
async def test_what_became_of_an_earlier_content_lets_no_replacement_be_begun_late(
    store_bench: StoreBench, how: str, begun: bool
) -> None:
    """Its own attempts count, also where they ended without a word."""
    store, owner = store_bench.store, await store_bench.join()
    job = await expiring(store_bench)
    if "failed" in how:
        await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.RETRY))
    held = await store_bench.claim_one(owner) if how != "failed" else None
    if held and how != "in a hand":
        await store.release_jobs(owner, holds([held]), Release.UNGET)
    store_bench.clock.advance(0.1)
    revision = store_bench.clock.wall_ms() * 1_000
    expires_at_ms = store_bench.clock.wall_ms() + 1_000
    await store_bench.add(changed(job, revision, ChangeKind.REPLACE, expires_at_ms=expires_at_ms))
    store_bench.clock.advance(0.1)
    if held and how == "in a hand":
        await store.release_jobs(owner, holds([held]), Release.UNGET)
    if begun:
        await store.release_jobs(owner, holds([await store_bench.claim_one(owner)]), Release.UNGET)
    assert len((await store_bench.view(job)).history) == ("failed" in how)
    store_bench.clock.advance(1)
    await store.promote(10)
    assert await store_bench.state(job) is (State.WAITING if begun else State.FAILED)


@pytest.mark.parametrize(
    "way", ["succeeded", "retry", "unget", "unsent", "requeue", "reaped", "refused", "lost", "silent"]
)
@pytest.mark.parametrize("replaced", [True, False])
async def test_it_is_late_by_what_the_hand_had_when_its_instant_came_there(
    store_bench: StoreBench, way: str, replaced: bool
) -> None:
    """Whoever may have begun it, in the hand that it leaves, began another content where it was replaced."""
    store, owner = store_bench.store, await store_bench.join()
    await store.look(fresh=True)
    job = await (store_bench.push() if replaced else expiring(store_bench))
    held = await store_bench.claim_one(owner)
    if way in ("refused", "lost", "silent"):
        await store_bench.settle(handed(held), old=way == "silent")
    store_bench.clock.advance(0.1)
    if replaced:
        at_ms = store_bench.clock.wall_ms() + 900
        await store_bench.add(
            changed(job, store_bench.clock.wall_ms() * 1_000, ChangeKind.REPLACE, expires_at_ms=at_ms)
        )
    store_bench.clock.advance(1)
    await store.promote(10)
    match way:
        case "succeeded" | "retry":
            fate = Fate.SUCCEEDED if way == "succeeded" else Fate.RETRY
            await store_bench.settle(outcome(held, fate))
        case "unget" | "unsent":
            await store.release_jobs(owner, holds([held]), Release(way))
        case "requeue":
            await store.requeue(owner, [(held, "")])
        case "reaped":
            await store.release_sysid(owner)
        case "refused" | "lost":
            how = Release.UNSENT if way == "refused" else Release.UNGET
            assert await store.release_entrusted([(job.id, held.fence)], how) == [job.id]
        case "silent":
            assert (await store.find_silent({BEAT_S: await mark(store_bench)}, 9)).given_back == 1
    late = replaced or way in ("unsent", "requeue", "refused")
    begun = State.SUCCEEDED if way == "succeeded" else State.RETRYING if way == "retry" else State.WAITING
    view = await store_bench.view(job)
    assert view.state is (State.FAILED if late else begun)
    if late:
        assert view.outcome is not None
        assert view.outcome.reason == "expired"
    else:
        await store.promote(10)
        assert len(await store_bench.claim(await store_bench.join())) == (way != "succeeded")


@pytest.mark.parametrize("succeeded", [True, False])
async def test_an_emptied_store_learns_of_it_again(store_bench: StoreBench, succeeded: bool) -> None:
    """The job comes from its journal, and expires again; a success that was told before wins, in either order."""
    owner = await store_bench.join()
    job = await expiring(store_bench)
    held = await store_bench.claim_one(owner)
    if not succeeded:
        await store_bench.store.release_jobs(owner, holds([held]))
    store_bench.wipe()
    await store_bench.store.look(fresh=False)
    store_bench.at = dict.fromkeys(store_bench.at, 0)
    store_bench.clock.advance(2)
    await store_bench.add(job)
    await store_bench.store.promote(10)
    assert await store_bench.state(job) is State.FAILED
    if succeeded:
        await store_bench.settle(outcome(held, Fate.SUCCEEDED))
        assert await store_bench.state(job) is State.SUCCEEDED


async def test_an_edit_that_says_an_instant_counts_the_attempts_of_what_was_tried_again(
    store_bench: StoreBench,
) -> None:
    """Of that content none has begun."""
    owner = await store_bench.join()
    job = await store_bench.push()
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.DEAD))
    store_bench.clock.advance(0.1)
    now_ms = store_bench.clock.wall_ms()
    await store_bench.add(changed(job, now_ms * 1_000, ChangeKind.RETRY))
    await store_bench.add(
        changed(job, now_ms * 1_000 + 1, ChangeKind.EDIT, now_ms * 1_000, expires_at_ms=now_ms + 1_000)
    )
    store_bench.clock.advance(1)
    await store_bench.store.promote(10)
    assert await store_bench.state(job) is State.FAILED


async def test_an_edit_does_not_forget_that_an_attempt_may_have_begun(store_bench: StoreBench) -> None:
    job, owner = await expiring(store_bench), await store_bench.join()
    await store_bench.store.release_jobs(owner, holds(await store_bench.claim(owner)))
    await store_bench.add(
        changed(job, await store_bench.store.reserve_change(job.id), ChangeKind.EDIT, argument=b"\x01")
    )
    store_bench.clock.advance(2)
    await store_bench.store.promote(10)
    assert await store_bench.state(job) is State.WAITING


async def test_what_expired_shows_no_attempt_that_a_journal_tells_of_behind_that(store_bench: StoreBench) -> None:
    """The journal was away for longer than others wait: the store had to decide without it."""
    job = await expiring(store_bench)
    held = await store_bench.claim_one(await store_bench.join())
    await forget(store_bench)
    await store_bench.add(job)
    store_bench.clock.advance(2)
    await store_bench.store.promote(10)
    assert await store_bench.settle(outcome(held, Fate.RETRY)) == [job.id]
    view = await store_bench.view(job)
    assert (view.state, view.attempts, len(view.history)) == (State.FAILED, 0, 1)


@pytest.mark.parametrize("seen", [expired, crashed])
async def test_an_emptied_store_lets_no_edit_begin_anew_what_ended_untried_behind_it(
    store_bench: StoreBench, seen: Callable[[str, int], Outcome]
) -> None:
    """A journal tells of the end first, then comes the job, and the edit, which was made before that end."""
    store, job = store_bench.store, store_bench.make(expires_at_ms=store_bench.clock.wall_ms() + 1_000)
    edit = changed(job, await store.reserve_change(job.id), ChangeKind.EDIT, argument=b"\x01")
    store_bench.clock.advance(2)
    await store_bench.settle(seen(job.id, 2))
    await store_bench.add(job)
    await store_bench.add(edit)
    await store.promote(10)
    view = await store_bench.view(job)
    assert (view.state, view.attempts, view.argument) == (State.FAILED, 0, b"\x01")


async def test_a_job_that_a_hand_had_before_it_came_expires_when_it_is_given_back(store_bench: StoreBench) -> None:
    """The store was emptied, and its daemon told of the claim before the journal brought the job."""
    owner, job = await store_bench.join(), store_bench.make(expires_at_ms=store_bench.clock.wall_ms() + 5_000)
    await store_bench.store.reassert(owner, {job.id: 5})
    await store_bench.add(job)
    await store_bench.store.release_jobs(owner, {job.id: 5}, Release.UNSENT)
    store_bench.clock.advance(5)
    assert await store_bench.claim(owner) == []
    assert await store_bench.state(job) is State.FAILED


async def test_who_promotes_hears_of_what_expired_in_a_hand(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    await expiring(store_bench)
    held = await store_bench.claim(owner)
    store_bench.clock.advance(1)
    await store_bench.store.release_jobs(owner, holds(held), Release.UNSENT)
    assert (await store_bench.store.promote(10)).died == {"mail": 1}


async def test_rows_of_what_expired_are_read_some_megabytes_at_a_time_and_none_of_it_begins(
    store_bench: StoreBench,
) -> None:
    """A hundred whole rows were read in each claim while a backlog expired, of a megabyte each perhaps."""
    owner, at_ms = await store_bench.join(), store_bench.clock.wall_ms() + 1_000
    jobs = [store_bench.make(argument=ENCODED, expires_at_ms=at_ms) for _ in range(24)]
    await store_bench.add(*jobs)
    store_bench.clock.advance(1)
    died = (await store_bench.store.promote(500)).moved
    assert 0 < died <= 8
    while (got := await store_bench.claim(owner)).more:
        assert got == []
    assert got == []
    assert [await store_bench.state(job) for job in jobs] == [State.FAILED] * len(jobs)
