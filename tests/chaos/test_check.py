"""The checker finds what it is for: each rule is given a history that is well, and the same with one thing wrong."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tests.chaos.check import RULES, check
from tests.chaos.history import LAPSE, load
from tests.chaos.story import WALL_S, Story, found


def test_a_history_without_trouble_is_well() -> None:
    assert found(lambda s: None, jobs=1) == set()


def lost(s: Story) -> None:
    s.add("final", 90.0, job=s.push(2, 2.0), state="waiting")


def forgotten(s: Story) -> None:
    s.push(2, 2.0)


def cancelled_by_nobody(s: Story) -> None:
    s.well(2, 2.0, state="cancelled")


def cancel_undone(s: Story) -> None:
    job = s.well(2, 2.0)
    s.add("cancel_invoke", 2.5, job=job)
    s.add("cancel_ok", 2.6, job=job)


def succeeded_unrun(s: Story) -> None:
    s.add("final", 90.0, job=s.push(2, 2.0), state="succeeded")


def failed_for_nothing(s: Story) -> None:
    s.well(2, 2.0, state="failed")


def success_of_a_failure(s: Story) -> None:
    s.well(2, 2.0, plan="failed")


def unpushed(s: Story) -> None:
    s.claim("j0009", 5.0)
    s.run("j0009", 5.1)


def refused_and_run(s: Story) -> None:
    s.fault(4.9, 5.2, "stop", "daemon-0")
    s.push(9, 5.0, "push_fail")
    s.claim("j0009", 5.1)
    s.run("j0009", 5.2)


def other_id(s: Story) -> None:
    s.well(2, 2.0)
    s.claim("j0777", 5.0)
    s.run("j0777", 5.1, n=2)


def pushed_once_runs_as_two(s: Story) -> None:
    s.fault(4.9, 5.2, "kill", "daemon-0")
    s.push(9, 5.0, "push_info")
    for job in ("j0009", "j0777"):
        s.claim(job, 5.1)
        s.run(job, 5.2, n=9)


def unclaimed(s: Story) -> None:
    job = s.push(2, 2.0)
    s.run(job, 2.5)
    s.add("final", 90.0, job=job, state="succeeded")


def other_bytes(s: Story) -> None:
    s.settle(s.push(2, 2.0), 2.5, s.claim("j0002", 2.1))
    s.run("j0002", 2.2, sha="other")
    s.add("final", 90.0, job="j0002", state="succeeded")


def unexplained(s: Story) -> None:
    s.twice(13.0)


def fault_elsewhere(s: Story) -> None:
    s.twice(13.0)
    s.fault(11.0, 12.0, "kill", "daemon-1")
    s.fault(11.0, 12.0, "kill", "worker-1")


def fault_before(s: Story) -> None:
    s.twice(13.0)
    s.fault(8.0, 9.0, "stop", "daemon-0")


def fault_after(s: Story) -> None:
    s.twice(13.0)
    s.fault(13.5, 14.0, "stop", "daemon-0")


def known_before_the_fault(s: Story) -> None:
    s.twice(13.0, settled_t=10.4)
    s.fault(11.0, 12.0, "kill", "daemon-0")


def success_claimed_again(s: Story) -> None:
    s.twice(13.0, settled_t=11.5)
    s.fault(11.0, 12.0, "kill", "daemon-0")


def thrice_for_one_fault(s: Story) -> None:
    job = s.push(2, 10.0)
    fence = s.claim(job, 10.1)
    for t in (10.11, 12.7, 13.0):
        s.run(job, t)
    s.settle(job, 13.3, fence)
    s.fault(12.0, 12.5, "kill", "daemon-0")
    s.add("final", 90.0, job=job, state="succeeded")


def overlap(s: Story, again_t: float = 11.2) -> None:
    job = s.push(2, 10.0)
    s.claim(job, 10.1)
    s.run(job, 10.11, 5.0)
    s.settle(job, 15.3, s.claim(job, again_t - 0.01, "d1"), daemon="d1")
    s.run(job, again_t, daemon="d1", worker="worker-1")
    s.add("final", 90.0, job=job, state="succeeded")


def overlap_within_the_lease(s: Story) -> None:
    overlap(s)
    s.fault(11.0, 14.0, "stop", "daemon-0")


def fence_goes_back(s: Story) -> None:
    job = s.push(2, 10.0)
    s.claim(job, 10.1)
    s.settle(job, 13.5, s.claim(job, 13.0, "d1"), daemon="d1")
    s.run(job, 13.1, daemon="d1", worker="worker-1")
    s.run(job, 13.4, 0.05)  # d0 was killed, not paused: nothing of it can come so late
    s.fault(10.2, 10.3, "kill", "daemon-0")
    s.add("final", 90.0, job=job, state="succeeded")


def one_fence_twice(s: Story) -> None:
    job = s.well(2, 2.0)
    s.claim(job, 2.1)


def start_after_cancel(s: Story) -> None:
    job = s.push(2, 2.0)
    s.add("cancel_invoke", 2.1, job=job)
    s.add("cancel_ok", 2.2, job=job)
    s.claim(job, 2.3)
    s.run(job, 2.4)
    s.add("final", 90.0, job=job, state="cancelled")


def overtaken(s: Story) -> None:
    s.push(2, 2.0)
    s.well(3, 3.0)  # younger and as urgent, it is claimed at 3.1
    s.settle("j0002", 4.5, s.claim("j0002", 4.0))
    s.run("j0002", 4.1)
    s.add("final", 90.0, job="j0002", state="succeeded")


def claimed_unseen_before_it_was_logged(s: Story) -> None:
    """The answers to its ingest and to its first claim are dropped: the log tells of both when the fault is over."""
    s.push(2, 2.0)
    s.fault(1.5, 2.2, "drop", "edge-0")
    s.log("ingested", 2.9, "j0002", daemon="d0")
    s.well(3, 3.0)
    s.well(4, 3.2)
    s.settle("j0002", 4.5, s.claim("j0002", 4.0))
    s.run("j0002", 4.1)
    s.add("final", 90.0, job="j0002", state="succeeded")


def one_key_two_jobs(s: Story) -> None:
    s.push(2, 2.0, key="j0002")
    for t, job in ((3.0, "x1"), (4.0, "x2")):
        s.run(job, t + 0.1, n=2)
        s.settle(job, t + 0.5, s.claim(job, t))
        s.fault(t + 0.05, t + 0.15, "kill", "daemon-0")
    s.add("final", 90.0, job="j0002", state="succeeded")


def another_id_than_his_own(s: Story) -> None:
    s.push(2, 2.0, key="mine")
    s.settle("x1", 3.5, s.claim("x1", 3.0))
    s.run("x1", 3.1, n=2)
    s.add("final", 90.0, job="j0002", state="succeeded")


def too_early(s: Story) -> None:
    s.well(2, 2.0, delay_s=5)


def too_often(s: Story) -> None:
    job = s.push(2, 2.0, plan="retry")
    for attempt in range(1, 6):
        outcome = "ok" if attempt == 5 else "retry"
        s.settle(job, 2.5 + attempt, s.claim(job, 2.0 + attempt, attempt=attempt), outcome)
        s.run(job, 2.2 + attempt, attempt=attempt, outcome=outcome)
    s.add("final", 90.0, job=job, state="succeeded")


def risen_from_the_dead(s: Story) -> None:
    s.add("read", 5.0, job="j0001", t0=4.9, state="succeeded")
    s.add("read", 6.0, job="j0001", t0=5.9, state="waiting")


def unknown(s: Story) -> None:
    s.add("read", 5.0, job="j0001", t0=4.9, state="unknown")


def changed_at_the_end(s: Story) -> None:
    s.add("read", 5.0, job="j0001", t0=4.9, state="cancelled")


def never_drained(s: Story) -> None:
    s.end(1, t=70.0 + 31.0)


def healthy_and_unwilling(s: Story) -> None:
    s.push(9, 5.0, "push_info")
    s.fault(4.0, 6.0, "kill", "store")  # no excuse
    s.fault(4.0, 6.0, "kill", "daemon-1")


def unanswered(s: Story) -> None:
    s.add("push_invoke", 5.0, push=-9, daemon="daemon-0", jobs=[])


def held_up_by_another_server(s: Story) -> None:
    s.fault(10.0, 16.0, "stop", "store-1")
    s.push(2, 10.5)
    s.settle("j0002", 16.6, s.claim("j0002", 16.4))
    s.run("j0002", 16.5)
    s.add("final", 90.0, job="j0002", state="succeeded")


def paused_while_another_server_is_away(s: Story) -> None:
    held_up_by_another_server(s)
    s.add("pause", 9.0, name="plain", t0=9.0, daemon="daemon-0")
    s.add("resume_invoke", 16.3, name="plain")


def fault_of_another_server(s: Story) -> None:
    s.twice(13.0)
    s.fault(10.15, 10.2, "kill", "store-1")
    s.fault(10.15, 10.2, "cut", "edge-0-1")


PLANTED = [
    ("C1", lost, 2), ("C1", forgotten, 2), ("C1", cancelled_by_nobody, 2), ("C1", cancel_undone, 2),
    ("C1", succeeded_unrun, 2), ("C1", failed_for_nothing, 2), ("C1", success_of_a_failure, 2),
    ("C2", unpushed, 2), ("C2", refused_and_run, 2), ("C2", other_id, 3), ("C2", pushed_once_runs_as_two, 3),
    ("C2", unclaimed, 2), ("C3", other_bytes, 2),
    ("C4", unexplained, 2), ("C4", fault_elsewhere, 2), ("C4", fault_before, 2), ("C4", fault_after, 2),
    ("C4", known_before_the_fault, 2), ("C4", success_claimed_again, 2), ("C5", thrice_for_one_fault, 2),
    ("C4 C6", overlap, 2), ("C6", overlap_within_the_lease, 2), ("C4 C7", fence_goes_back, 2),
    ("C7", one_fence_twice, 2),
    ("C8", start_after_cancel, 2), ("C9", overtaken, 3), ("C4 C10", one_key_two_jobs, 2), ("C11", too_early, 2),
    ("C1 C2 C10", another_id_than_his_own, 3), ("C11", too_often, 2),
    ("C12", risen_from_the_dead, 1), ("C12", unknown, 1), ("C12", changed_at_the_end, 1),
    ("C14", never_drained, 1), ("C14", healthy_and_unwilling, 1), ("C14", unanswered, 1),
    ("C15", held_up_by_another_server, 2), ("", paused_while_another_server_is_away, 2),
    ("C4", fault_of_another_server, 2), ("", claimed_unseen_before_it_was_logged, 4),
]  # fmt: skip


@pytest.mark.parametrize(("codes", "plant", "jobs"), PLANTED, ids=[plant.__name__ for _, plant, _ in PLANTED])
def test_what_is_wrong_is_found_by_its_rule(codes: str, plant: Callable[[Story], None], jobs: int) -> None:
    assert found(plant, jobs) == set(codes.split())


def test_sums_that_do_not_agree_are_found() -> None:
    assert found(lambda s: None, jobs=2) == {"C13"}  # one that nobody pushed
    assert found(lambda s: None, jobs=0) == {"C13"}
    assert found(lambda s: None, jobs=0, held=1) == {"C13"}  # still in somebody's hand
    assert found(lambda s: None, jobs=0, dead=1) == {"C13"}


def test_every_rule_has_a_planted_violation() -> None:
    assert {code for codes, _, _ in PLANTED for code in codes.split()} | {"C13", "C16", "C17", "C18"} == set(RULES)


def test_the_command_reads_a_directory_and_says_what_it_found(tmp_path: Path) -> None:
    story = Story()
    story.well(1, 1.0)
    lost(story)
    story.end(2)
    half = len(story.events) // 2
    for name, part in (("a", story.events[:half]), ("b", story.events[half:])):
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(msgspec.json.encode(e) + b"\n" for e in part))
    (tmp_path / "daemon-0.log").write_text(f'{{"event": "{LAPSE}", "ts": "2026-01-01T00:00:00Z"}}\nno JSON\n')
    verdict = check(load(tmp_path))
    assert set(verdict.violations) == {"C1"}
    assert verdict.figures["lapses"] == 1
    command = [sys.executable, "-S", "-m", "tests.chaos.check", str(tmp_path)]  # -S: it needs no package but itself
    root = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "C1: " in ended.stdout
    assert "j0002 (n=2) was acknowledged and is waiting at the end" in ended.stdout


def test_a_pause_or_a_lost_lease_explains_what_a_death_does_not() -> None:
    def late_start(s: Story) -> None:
        fence_goes_back(s)
        s.fault(10.4, 13.3, "stop", "worker-0")

    assert found(late_start) == set()

    def lapse(s: Story) -> None:
        s.twice(13.0)
        ts = datetime.fromtimestamp(WALL_S + 10.2, UTC).isoformat()
        s.events.append({"ts": ts, "event": LAPSE, "daemon": "daemon-0"})

    assert found(lapse) == set()

    def overlap_after_the_lease(s: Story) -> None:
        overlap(s, 13.0)
        s.fault(11.0, 14.0, "stop", "daemon-0")

    assert found(overlap_after_the_lease) == set()


def test_jobs_wait_for_their_own_server_and_a_fault_of_it_explains_what_comes_twice() -> None:
    def waits(s: Story) -> None:
        s.fault(10.0, 16.0, "stop", "store-1")
        s.push(2, 10.5, server=1)
        s.settle("j0002", 16.6, s.claim("j0002", 16.4))
        s.run("j0002", 16.5)
        s.add("final", 90.0, job="j0002", state="succeeded")

    assert found(waits) == set()

    def others_busy_elsewhere(s: Story) -> None:
        held_up_by_another_server(s)
        s.fault(11.0, 12.0, "kill", "worker-0")

    assert found(others_busy_elsewhere) == set(), "more than one thing was wrong"

    def twice(s: Story) -> None:
        s.twice(13.0)
        for event in s.events:
            if event.get("e") == "push_invoke" and event["jobs"][0]["n"] == 2:
                event["jobs"][0]["server"] = 1
        s.fault(10.15, 10.2, "kill", "store-1")

    assert found(twice) == set()
