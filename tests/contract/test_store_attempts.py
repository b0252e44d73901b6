"""How attempts end, and what is known of them before their job comes, on the fake and on a real Valkey."""

import msgspec
import pytest

from jqd.domain.job import NIL, SNOOZE, ChangeKind, Fate, Held, State, Wanted
from jqd.store import JobView, Log, OnItsWay, Promoted, WaitingType
from tests.contract.bench import ENDS, StoreBench, changed, holds, ids, outcome, outcome_of


async def test_endings(store_bench: StoreBench) -> None:
    jobs = [await store_bench.push(keep_result=keep) for keep in (True, False, False, False)]
    kept, plain, failed, dead = await store_bench.claim(await store_bench.join())
    done = outcome(kept, Fate.SUCCEEDED, result=b"\x07", worker="w", finished_at_ms=5)
    assert (
        await store_bench.settle(
            done,
            outcome(plain, Fate.SUCCEEDED, result=b"\x08"),
            outcome(failed, Fate.FAILED, message="no such address"),
            outcome(dead, Fate.DEAD, reason="timeout"),
        )
        == []
    )
    views = [await store_bench.view(job) for job in jobs]
    assert [view.state for view in views] == [State.SUCCEEDED, State.SUCCEEDED, State.FAILED, State.FAILED]
    assert [view.result for view in views] == [b"\x07", None, None, None]
    assert views[0].outcome == msgspec.structs.replace(done, result=NIL)
    assert [len(view.history) for view in views] == [0, 0, 1, 1]
    assert views[2].history[0].message == "no such address"
    stats = await store_bench.store.stats()
    assert (stats.waiting, stats.running, stats.ended, stats.dead) == (0, 0, 2, 2), (
        "whoever failed for good is dead, whatever said so"
    )
    await store_bench.store.drop_result(jobs[0].id)
    await store_bench.store.drop_result(jobs[0].id)
    assert (await store_bench.view(jobs[0])).result is None


async def test_a_retry_waits_for_its_date_and_is_counted(store_bench: StoreBench) -> None:
    job = await store_bench.push(priority=4)
    owner = await store_bench.join()
    for attempt in range(1, 6):
        held = await store_bench.claim_one(owner)
        assert held.attempt == attempt
        await store_bench.settle(outcome(held, Fate.RETRY, delay_ms=1000, message=f"try {attempt}"))
        view = await store_bench.view(job)
        assert view.state is State.RETRYING
        assert view.eligible_at_ms == store_bench.clock.wall_ms() + 1000
        store_bench.clock.advance(0.4)
        assert await store_bench.store.promote(10) == Promoted(0, 600, is_any=False)
        store_bench.clock.advance(0.6)
        assert await store_bench.store.promote(10) == Promoted(1, None)
    view = await store_bench.view(job)
    assert view.state is State.RETRYING
    assert view.attempts == 5
    assert [one.message for one in view.history] == ["try 3", "try 4", "try 5"], "only the last few are kept"
    assert view.outcome == view.history[-1]
    assert await store_bench.store.get_waiting_jobtypes([Wanted()], 9) == [
        WaitingType("mail", 4, job.id, 1, suspect=False, rank=4)
    ]


async def test_a_snooze_waits_for_its_date_and_spends_no_attempt(store_bench: StoreBench) -> None:
    job = await store_bench.push(max_retry=1)
    owner = await store_bench.join()

    async def again(attempt: int, snoozes: int) -> Held:
        store_bench.clock.advance(1.0)
        await store_bench.store.promote(10)
        held = await store_bench.claim_one(owner)
        assert (held.attempt, held.snoozes) == (attempt, snoozes)
        return held

    async def snooze(held: Held) -> JobView:
        number = held.snoozes + 1
        put_off = {"reason": SNOOZE, "snoozes": number, "delay_ms": 1000, "message": f"snooze {number}"}
        await store_bench.settle(outcome(held, Fate.RETRY, **put_off))
        view = await store_bench.view(job)
        assert (view.snoozes, view.eligible_at_ms) == (number, store_bench.clock.wall_ms() + 1000)
        return view

    for snoozes in range(4):
        view = await snooze(await again(1, snoozes))
        assert (view.state, view.attempts) == (State.SCHEDULED, 0)
        assert [one.message for one in view.history] == [f"snooze {snoozes + 1}"], "they do not push failures out"
    await store_bench.settle(outcome(await again(1, 4), Fate.RETRY, delay_ms=1000, message="failure", snoozes=4))
    view = await snooze(await again(2, 4))
    assert (view.state, view.attempts) == (State.RETRYING, 1)
    view = await snooze(await again(2, 5))
    assert [one.message for one in view.history] == ["snooze 4", "failure", "snooze 6"]
    await store_bench.settle(outcome(await again(2, 6), Fate.DEAD, snoozes=6))
    revision = await store_bench.store.reserve_change(job.id)
    await store_bench.add(changed(job, revision, ChangeKind.RETRY))
    await again(1, 0)


async def test_what_the_last_failed_attempt_printed_is_kept_of_the_newest_jobs(store_bench: StoreBench) -> None:
    first = await store_bench.push()
    owner = await store_bench.join()
    held = await store_bench.claim_one(owner)
    await store_bench.settle(outcome(held, Fate.RETRY, log="one\ntwo"))
    assert (await store_bench.view(first)).log == "one\ntwo"
    assert [view.log for view in (await store_bench.store.list_jobs(None, None, None, 9, "")).jobs] == [""], (
        "a list need not carry it"
    )
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.RETRY))
    assert (await store_bench.view(first)).log == ""
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.DEAD, log="three"))
    assert (await store_bench.view(first)).log == "three"
    store_bench.clock.advance(1.0)
    others = [store_bench.make() for _ in range(1_000)]
    await store_bench.add(*others)
    rest = await store_bench.claim(owner, limit=1_000)
    await store_bench.settle(*(outcome(one, Fate.FAILED, log="four") for one in rest))
    assert [(await store_bench.view(job)).log for job in (first, others[0], others[-1])] == ["", "four", "four"]


async def test_a_retry_without_delay_is_ready_at_once(store_bench: StoreBench) -> None:
    await store_bench.push()
    owner = await store_bench.join()
    held = await store_bench.claim_one(owner)
    await store_bench.settle(outcome(held, Fate.RETRY))
    assert (await store_bench.claim_one(owner)).attempt == 2


async def test_late_outcomes(store_bench: StoreBench) -> None:
    """A success of an older attempt counts, nothing else does; and nothing after the end."""
    jobs = [await store_bench.push() for _ in range(4)]
    owner = await store_bench.join()
    old = await store_bench.claim(owner)
    await store_bench.store.release_jobs(owner, holds(old))
    (new,) = await store_bench.claim(owner, limit=1)
    assert (
        await store_bench.settle(outcome(old[0], Fate.RETRY), outcome(old[0], Fate.DEAD), outcome(old[0], Fate.FAILED))
        == [jobs[0].id] * 3
    )
    assert await store_bench.state(jobs[0]) is State.RUNNING
    assert await store_bench.settle(outcome(old[0], Fate.SUCCEEDED)) == []
    assert await store_bench.state(jobs[0]) is State.SUCCEEDED
    assert await store_bench.settle(outcome(new, Fate.DEAD), outcome(new, Fate.SUCCEEDED)) == [jobs[0].id] * 2
    assert await store_bench.settle(outcome(old[1], Fate.SUCCEEDED)) == [], "taken out of the ready set"
    assert await store_bench.store.get_held(owner) == {}
    held = await store_bench.claim(owner)
    assert ids(held) == [jobs[2].id, jobs[3].id]
    await store_bench.settle(outcome(held[0], Fate.RETRY, delay_ms=5000))
    assert await store_bench.settle(outcome(old[2], Fate.SUCCEEDED)) == [], "taken out of the later set"
    assert (await store_bench.store.stats()).scheduled == 0


@pytest.mark.parametrize("fate", ENDS)
async def test_an_outcome_may_come_before_its_job(store_bench: StoreBench, fate: Fate) -> None:
    """A store that was emptied is filled again lane by lane."""
    job = store_bench.make(keep_result=True)
    early = outcome_of(job, fate)
    assert await store_bench.settle(early, early) == ([] if fate is Fate.RETRY else [job.id])
    await store_bench.add(job)
    view = await store_bench.view(job)
    assert (
        view.state
        is {
            Fate.SUCCEEDED: State.SUCCEEDED,
            Fate.FAILED: State.FAILED,
            Fate.DEAD: State.FAILED,
            Fate.RETRY: State.RETRYING,
        }[fate]
    )
    assert view.result == (b"\x05" if fate is Fate.SUCCEEDED else None)
    assert (await store_bench.store.stats()).dead == (fate in (Fate.FAILED, Fate.DEAD))
    if fate is Fate.RETRY:
        assert view.eligible_at_ms == store_bench.clock.wall_ms() + 500


async def test_attempts_told_before_the_job_count(store_bench: StoreBench) -> None:
    """The journal may hold the third attempt and no longer the first."""
    job = store_bench.make()
    await store_bench.settle(outcome(Held(job, 12345, 3), Fate.RETRY))
    await store_bench.add(job)
    assert (await store_bench.claim_one(await store_bench.join())).attempt == 4


async def test_notes_of_unseen_jobs_merge(store_bench: StoreBench) -> None:
    cancelled, finished, retried = (store_bench.make() for _ in range(3))
    await store_bench.cancel(cancelled.id, finished.id, retried.id)
    await store_bench.settle(outcome_of(finished, Fate.SUCCEEDED), outcome_of(retried, Fate.RETRY))
    assert isinstance(await store_bench.store.get_job(cancelled.id), OnItsWay)
    await store_bench.add(cancelled, finished, retried)
    states = [await store_bench.state(job) for job in (cancelled, finished, retried)]
    assert states == [State.CANCELLED, State.SUCCEEDED, State.CANCELLED]
    await store_bench.add(await store_bench.push())
    assert await store_bench.store.get_waiting_jobtypes([Wanted("mail")], 9) != [], (
        "notes are used up by the job they meet"
    )


async def test_what_a_success_printed_is_kept_beside_what_failures_did(store_bench: StoreBench) -> None:
    first = await store_bench.push()
    owner = await store_bench.join()
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.DEAD, log="failed"))
    store_bench.clock.advance(1.0)
    others = [store_bench.make() for _ in range(1_001)]
    await store_bench.add(*others)
    rest = await store_bench.claim(owner, limit=1_001)
    follows = msgspec.msgpack.encode([{"name": "next"}])
    await store_bench.settle(outcome(rest[0], Fate.SUCCEEDED, log="oldest"))
    store_bench.clock.advance(1.0)
    await store_bench.settle(
        *(outcome(one, Fate.SUCCEEDED, log=f"é\n{one.job.id}", result=b"\x07", keep_result=True) for one in rest[1:-1]),
        outcome(rest[-1], Fate.SUCCEEDED, log="followed", follows=follows),
    )
    told = [await store_bench.view(job) for job in (first, others[1], others[-1])]
    assert [view.log for view in told] == ["failed", f"é\n{others[1].id}", "followed"]
    assert told[1].result == b"\x07"
    assert (await store_bench.view(others[0])).log == "", "of the newest 1,000"


async def test_lines_of_a_running_job_are_kept_while_somebody_watches_it(store_bench: StoreBench) -> None:
    job, store = await store_bench.push(), store_bench.store
    owner = await store_bench.join()
    held = await store_bench.claim_one(owner)
    fence = held.fence

    async def say(start: int, text: bytes, claim: int = fence) -> int | None:
        (seen,) = await store.touch([(job.id, claim)], log=Log(0, start, text))
        return seen.log_end

    async def heard(end: int = 0) -> Log | None:
        (log,) = await store.watch_logs([(job.id, fence, end)], 15_000)
        return log

    assert await say(0, b"one\n") is None
    assert (await store_bench.view(job)).log == ""
    assert await heard() is None
    assert await say(0, b"") == 0
    assert await say(0, b"one\ntwo\n") == 8
    assert await say(4, b"two\nthree\n") == 14, "what came twice counts once"
    assert await heard() == Log(fence, 0, b"one\ntwo\nthree\n")
    assert await heard(8) == Log(fence, 8, b"three\n")
    assert await heard(14) is None
    assert (await store_bench.view(job)).log == "one\ntwo\nthree"
    assert await say(0, b"none", claim=fence - 1) is None
    assert await say(100, b"later\n") == 106, "what is missing in between is known to be missing"
    assert await heard(14) == Log(fence, 100, b"later\n")
    await say(106, b"x" * 99 + b"\n" + b"y" * 65_499 + b"\n")
    assert await heard(106) == Log(fence, 206, b"y" * 65_499 + b"\n"), "64 KiB, of whole lines"
    store_bench.clock.advance(16.0)
    assert await say(200, b"nobody hears\n") is None
    assert await heard() == Log(fence, 206, b"y" * 65_499 + b"\n")
    await store_bench.settle(outcome(held, Fate.SUCCEEDED, log="y\nend", log_from=65_704))
    assert await heard(65_706) == Log(fence, 65_706, b"end\n")
    assert (await store_bench.view(job)).log == "y" * 65_499 + "\nend"


async def test_of_a_last_line_longer_than_what_is_kept_the_end_is(store_bench: StoreBench) -> None:
    job = await store_bench.push()
    held = await store_bench.claim_one(await store_bench.join())
    await store_bench.settle(outcome(held, Fate.DEAD, log="begin\n" + "z" * 65_536))
    view = await store_bench.view(job)
    assert view.log == "z" * 65_535
