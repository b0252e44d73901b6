"""The checker says nothing of what has its cause: each excuse, and where it ends."""

from typing import Any

from tests.chaos.story import WALL_S, Story, found


def test_every_kind_of_explained_trouble_is_well() -> None:
    def plant(s: Story) -> None:
        s.twice(13.0)
        s.fault(10.15, 10.2, "kill", "daemon-0")
        job = s.push(3, 20.0, plan="retry")  # asks for another try, and gets it
        first = s.claim(job, 20.1)
        s.run(job, 20.1, outcome="retry")
        s.settle(job, 20.3, first, "retry")
        s.settle(job, 21.3, s.claim(job, 21.0, attempt=2))
        s.run(job, 21.1, attempt=2)
        s.add("final", 90.0, job=job, state="succeeded")
        job = s.push(4, 30.0, delay_s=50)
        s.add("cancel_invoke", 30.1, job=job)
        s.add("cancel_ok", 30.2, job=job)
        s.add("final", 90.0, job=job, state="cancelled")
        s.push(5, 40.0, "push_info")  # nobody knew; it was taken, and ran
        s.fault(39.9, 40.5, "kill", "daemon-0")
        s.settle("j0005", 40.4, s.claim("j0005", 40.2))
        s.run("j0005", 40.2)
        s.add("push_invoke", 50.0, push=-6, daemon="daemon-1", jobs=[])
        s.add("push_fail", 50.1, push=-6, why="connection refused")
        s.fault(49.0, 51.0, "stop", "daemon-1")
        s.add("read", 60.0, job="j0001", t0=59.9, state="succeeded")
        s.push(7, 61.0, "push_info", key="j0007")  # under an id of its own, so it may be pushed until it is known
        s.events[-1]["why"] = "503 the store is away"
        s.push(7, 62.0, key="j0007")
        s.push(7, 63.0, key="j0007")
        s.settle("x7", 62.5, s.claim("x7", 62.1))
        s.run("x7", 62.2, n=7)
        s.add("final", 90.0, job="j0007", state="succeeded")

    assert found(plant, jobs=6) == set()


def kept_twice(s: Story, kept_t: float) -> None:
    """Worker 0 holds job 2 by itself from `kept_t` on; its daemon dies at 10.5, and worker 1 gets the job, too."""
    job = s.push(2, 10.0)
    fence = s.claim(job, 10.1)
    s.settle(job, kept_t, fence, "entrusted")
    s.run(job, 10.3, 2.0, daemon="", fence=fence)
    s.fault(10.5, 10.6, "kill", "daemon-0")
    again = s.claim(job, 13.0, "d1")
    s.run(job, 13.1, daemon="", worker="worker-1", fence=again)
    s.settle(job, 13.3, again, daemon="d1")
    s.add("final", 90.0, job=job, state="succeeded")


def test_what_a_worker_holds_itself_no_daemons_death_explains() -> None:
    assert found(lambda s: kept_twice(s, 11.0)) == set(), "it was the daemon's yet"
    assert found(lambda s: kept_twice(s, 10.2)) == {"C4"}
    assert "C2" in found(lambda s: s.run(s.well(2, 10.0), 11.0, daemon="", fence=7)), "nobody claimed it so"


def test_an_end_of_which_nobody_knows_whether_it_counted_may_be_claimed_again() -> None:
    """The store said that it changed nothing, for the job was another's by then, and the answer was lost."""

    def again(s: Story, **told: Any) -> None:
        s.twice(13.0, settled_t=11.5, **told)
        s.fault(11.0, 12.0, "kill", "daemon-0")

    assert found(again) == {"C4"}
    assert found(lambda s: again(s, void=None)) == set()


def test_an_end_that_was_unsure_first_and_then_counted_is_looked_at() -> None:
    def sure_later(s: Story) -> None:
        s.twice(13.0, settled_t=11.5, void=None)
        s.fault(11.0, 12.0, "kill", "daemon-0")
        s.settle("j0002", 11.6, round((WALL_S + 10.1) * 1e6))

    assert found(sure_later) == {"C4"}


def unlogged_twice(s: Story, killed_t: float) -> None:
    """Job 2 is started by a daemon that is killed before its log says that it had claimed the job; then by another."""
    job = s.push(2, 10.0)
    s.run(job, 10.2)
    s.fault(killed_t, killed_t + 0.1, "kill", "daemon-0")
    s.settle(job, 13.3, s.claim(job, 13.0, "d1"), daemon="d1")
    s.run(job, 13.1, daemon="d1", worker="worker-1")
    s.add("final", 90.0, job=job, state="succeeded")


def test_what_a_daemon_did_just_before_its_death_need_not_stand_in_its_log() -> None:
    assert found(lambda s: unlogged_twice(s, 10.203)) == set()
    assert found(lambda s: unlogged_twice(s, 10.19)) == set(), "its worker began what was sent before"
    assert "C2" in found(lambda s: unlogged_twice(s, 11.0)), "by then it was written"


def test_a_run_that_had_begun_before_the_204_may_succeed_after_it() -> None:
    def late_success(s: Story) -> None:
        job = s.push(2, 10.0)
        fence = s.claim(job, 10.1)
        s.run(job, 10.2, 4.0)
        s.fault(10.3, 13.0, "stop", "daemon-0")  # another took its jobs over, and let this one wait
        s.add("cancel_invoke", 12.4, job=job)
        s.add("cancel_ok", 12.5, job=job)
        s.add("read", 12.8, job=job, t0=12.7, state="cancelled")
        s.settle(job, 14.3, fence)
        s.add("read", 15.0, job=job, t0=14.9, state="succeeded")
        s.add("final", 90.0, job=job, state="succeeded")

    assert found(late_success) == set()


def test_a_cancel_that_a_daemon_took_behind_the_failure_that_it_did_not_know_beats_it() -> None:
    def cancel(s: Story, answer: str) -> None:
        job = s.push(2, 10.0, plan="fail")
        s.fault(9.9, 12.0, "hole", "edge-1")
        s.add("cancel_invoke", 10.05, job=job)
        fence = s.claim(job, 10.1)
        s.run(job, 10.2, outcome="fail")
        s.settle(job, 10.4, fence, "failed")
        s.add("read", 10.8, job=job, t0=10.7, state="failed")
        s.add("cancel_info", 12.1, job=job, why=answer)
        s.add("final", 90.0, job=job, state="cancelled")

    assert found(lambda s: cancel(s, "202")) == set()
    assert found(lambda s: cancel(s, "409")) == {"C12"}, "who is told that it had failed has cancelled nothing"
