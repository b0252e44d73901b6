"""What becomes of jobs that workers hold by themselves, by the clock of the daemon that looks."""

import random
from typing import Any

import pytest
import trio

from jqd.domain import lease
from jqd.domain.backoff import Backoff
from jqd.domain.errors import JournalRefused
from jqd.domain.job import Fate, Held, Job, Outcome, State, lease_claim
from jqd.domain.jobid import IdSource
from jqd.domain.lease import MARKS, SILENCE_S_MAX, Marks, allowed_silence_s
from jqd.domain.record import Lane, encode_outcomes
from jqd.loops.worker_timeouts import LOOK_S, NO_HEARTBEAT, WorkerTimeouts
from jqd.store import Hold, JobView, StoreLook
from tests.loops.house import House, house, until

BEAT_S = 10
LATE_S = 2.0  # after its silence a worker's job is back, at the latest


async def lent(here: House, nursery: trio.Nursery, number: int = 1, **fields: Any) -> list[Held]:
    """Jobs that a worker holds by itself, and a daemon that looks for silent ones."""
    source = random.Random(1)
    silence = WorkerTimeouts(
        journal=here.journal,
        store=here.store,
        membership=here.membership,
        clock=here.clock,
        source=source,
        backoff=Backoff(first_s=60.0),
        departures=here.reap.departures,
    )
    await here.store.look(fresh=True)
    await here.join(nursery)
    await nursery.start(silence.run)
    owner = await here.wait_claimable()
    ids = IdSource(journal=7, salt=1, clock=here.clock)
    await here.add(*(Job(ids.take(1).first, "mail", **fields) for _ in range(number)))
    held = await here.store.get_waiting_jobs(owner, "mail", 100, priority_min=-9, priority_max=9, bytes_max=1 << 20)
    here.runner.run_jobs("w", "mail", held)
    outcomes = [lease_claim(one, worker="acme\x1fw", silence_s=BEAT_S, started_at_ms=1) for one in held]
    await here.journal.wsync(here.journal.write(Lane.OUTCOMES, len(held), encode_outcomes(outcomes)))
    await until(lambda: not here.runner.in_flight)
    return held


async def view(here: House, held: Held) -> JobView:
    found = await here.store.get_job(held.job.id)
    assert isinstance(found, JobView)
    return found


async def test_a_silent_workers_jobs_are_back_soon_after_its_heartbeat(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        one, last = await lent(here, nursery, 2, max_retry=0)
        (first, *_) = await here.store.touch([(one.job.id, one.fence)], progress=b"\x01")
        assert first.hold is Hold.STANDS
        spoke_at_s = trio.current_time()
        await trio.sleep(BEAT_S - 0.1)
        assert (await view(here, last)).worker == "acme\x1fw"
        while (found := await view(here, last)).state is State.RUNNING:
            await trio.sleep(0.05)
        assert BEAT_S <= trio.current_time() - spoke_at_s <= BEAT_S + LATE_S
        assert found.outcome is not None
        assert (found.state, found.outcome.reason, found.outcome.worker) == (State.FAILED, "timeout", "acme\x1fw")
        assert found.outcome.message.startswith(f"{NO_HEARTBEAT}: nothing was heard ")
        nursery.cancel_scope.cancel()


async def test_a_worker_that_speaks_keeps_its_job_for_as_long_as_it_takes(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        (held,) = await lent(here, nursery)
        for _ in range(20):
            await trio.sleep(BEAT_S * 0.9)
            (found,) = await here.store.touch([(held.job.id, held.fence)])
            assert found.hold is Hold.STANDS
        await trio.sleep(BEAT_S + LATE_S)
        found_view = await view(here, held)
        assert (found_view.state, found_view.attempts) == (State.RETRYING, 1), "ready at once: no back-off on top"
        nursery.cancel_scope.cancel()


async def test_time_in_which_the_store_was_away_is_no_silence(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        (held,) = await lent(here, nursery)
        await trio.sleep(BEAT_S / 2)
        here.store.away = "cable pulled"
        await trio.sleep(5 * BEAT_S)
        here.store.away = None
        await trio.sleep(BEAT_S / 4)
        (found,) = await here.store.touch([(held.job.id, held.fence)])
        assert found.hold is Hold.STANDS
        nursery.cancel_scope.cancel()


async def test_whoever_sets_a_lease_aside_and_cannot_write_is_told_again(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        (held,) = await lent(here, nursery)
        write, refused = here.journal.write, []

        def refuse(*args: object) -> int:
            refused.append(trio.current_time())
            raise JournalRefused("disk full", full=True)

        monkeypatch.setattr(here.journal, "write", refuse)
        await until(lambda: refused)
        monkeypatch.setattr(here.journal, "write", write)
        while (found := await view(here, held)).state is State.RUNNING:
            await trio.sleep(0.1)
        lease_s = here.membership.config.lease_s
        assert lease_s <= trio.current_time() - refused[0] <= lease_s + LATE_S
        assert found.state is State.RETRYING
        nursery.cancel_scope.cancel()


# ---------------------------------------------------------------- marks


def test_marks_reach_far_back_and_tell_no_more_than_was_seen() -> None:
    marks, now_s, number = Marks(2 * LOOK_S), 100.0, 0
    assert marks.find(0, now_s) is None
    seen: list[tuple[float, int]] = []
    for number in range(20_000):
        marks.note(number, now_s)
        seen.append((now_s, number))
        now_s += LOOK_S
    last_s = seen[-1][0]
    for age_s in (0.0, 1.0, 60.0, 255.0, 900.0, 3600.0, 9_000.0):
        found = marks.find(age_s, last_s)
        assert found is not None
        assert last_s - seen[found][0] >= age_s, "it stood there at least so long ago"
        assert last_s - seen[found][0] <= age_s + max(LOOK_S, age_s / (MARKS * LOOK_S) * 2)
    assert marks.find(20_000 * LOOK_S, last_s) is None


def test_marks_reach_beyond_the_longest_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a lease of that length would never be found silent. Shown with fewer distances: the widest takes months."""

    def reach_s() -> float:
        return float((MARKS - 1) * 2 ** (lease.DISTANCES - 1) * LOOK_S)

    assert reach_s() > allowed_silence_s(SILENCE_S_MAX)
    monkeypatch.setattr(lease, "DISTANCES", 4)
    marks = Marks(2 * LOOK_S)
    for number in range(10_000):
        marks.note(number, number * LOOK_S)
    assert marks.find(reach_s(), 9_999 * LOOK_S) is not None


def test_marks_of_a_sequence_that_went_back_say_nothing() -> None:
    marks = Marks(1.0)
    marks.note(50, 0.0)
    marks.note(60, 1.0)
    marks.note(7, 2.0)
    assert marks.find(1.0, 2.0) is None
    assert marks.find(0.0, 2.0) == 7


def test_time_between_looks_counts_no_more_than_a_gap() -> None:
    marks = Marks(1.0)
    marks.note(50, 0.0)
    assert marks.find(1.0, 500.0) == 50
    assert marks.find(1.1, 500.0) is None
    marks.note(60, 500.0)
    marks.note(61, 500.5)
    assert marks.find(1.0, 500.5) == 50
    assert marks.find(0.4, 500.5) == 60


async def test_a_worker_keeps_its_jobs_when_a_lane_reaches_an_emptied_store_before_anybody_looked(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a store without a life is told of claims it cannot know for forgotten ones."""
    async with house() as here, trio.open_nursery() as nursery:
        one, other = await lent(here, nursery, 2)
        look, seen = here.store.look, trio.Event()

        async def later(**known: Any) -> StoreLook:
            await seen.wait()
            return await look(**known)

        monkeypatch.setattr(here.store, "look", later)
        here.store.wipe()
        end = Outcome(other.job.id, other.fence, Fate.SUCCEEDED, "mail", 0, 1)
        await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([end])))
        await trio.sleep(5)
        assert here.store.image().keys() <= {b"jqd:journals"}, "nothing is applied to a store that has no life"
        seen.set()
        await here.wait_claimable()
        await here.store.apply_jobs("ab" * 16, 0, 1, [one.job, other.job])
        assert await view(here, other) is not None
        assert (await view(here, one)).worker == "acme\x1fw"
        assert (await view(here, other)).state is State.SUCCEEDED
        nursery.cancel_scope.cancel()
