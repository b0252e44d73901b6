"""The checker finds what is wrong with schedules, pauses and limits (C16 to C18), and what it lets by has a cause."""

from collections.abc import Callable

import pytest

from tests.chaos.story import WALL_S, Story, found

OF_WORDS = {"C16", "C17", "C18"}


def date(s: Story, t: float, state: str = "succeeded", job: str = "x1", *, late_s: float = 0.1) -> str:
    """A date at `t` of the schedule whose jobs have the number -1; its job is started a little later."""
    s.add("date", 90.0, name=f"fast@{t}", at_ms=(WALL_S + t) * 1000, job=job, state=state, server=0)
    fence = s.claim(job, t + late_s)
    s.run(job, t + late_s, n=-1)
    s.settle(job, t + late_s + 0.2, fence)
    return job


def fired_once_more(s: Story, t: float) -> None:
    s.settle("x1", t + 0.2, s.claim("x1", t), daemon="d1")
    s.run("x1", t, n=-1, daemon="d1", worker="worker-1")


def under_another_id(s: Story) -> None:
    date(s, 10.0)
    s.settle("x2", 10.9, s.claim("x2", 10.5))
    s.run("x2", 10.6, n=-1)


def never_fired(s: Story) -> None:
    date(s, 10.0)
    s.add("date", 90.0, name="fast@20", at_ms=(WALL_S + 20.0) * 1000, job=None, state="unknown", server=0)


def twice(s: Story) -> None:
    date(s, 10.0)
    fired_once_more(s, 15.0)


def too_early(s: Story) -> None:
    date(s, 10.0, late_s=-0.5)


def not_ended(s: Story) -> None:
    date(s, 10.0, "waiting")


def pause(s: Story, t: float, until: float | None) -> None:
    s.add("pause", t, name="plain", t0=t - 0.01, daemon="daemon-1")
    if until is not None:
        s.add("resume_invoke", until, name="plain")


def claimed_while_paused(s: Story) -> None:
    pause(s, 10.0, 20.0)
    s.well(2, 14.0)


def claimed_after_a_fault(s: Story) -> None:
    pause(s, 10.0, None)
    s.fault(10.1, 10.5, "cut", "edge-1")
    s.well(2, 19.0)


def limit(s: Story, **allowed: object) -> None:
    s.add("limit", 10.0, name="few", jobtypes=["plain"], **allowed)


def one_start_too_many(s: Story) -> None:
    limit(s, rate={"limit": 2, "per_s": 1.0})
    for n, t in enumerate((14.0, 14.6, 14.9), 2):
        s.well(n, t)


def one_too_many_at_once(s: Story, struck: str = "") -> None:
    limit(s, concurrency=1)
    for n, t in enumerate((14.0, 14.2), 2):
        job = s.push(n, t)
        fence = s.claim(job, t + 0.1)
        s.run(job, t + 0.11, 0.5)
        s.settle(job, t + 0.7, fence)
        s.add("final", 90.0, job=job, state="succeeded")
    if struck:
        s.fault(14.15, 14.25, "stop", struck)


def one_too_many_while_another_server_is_struck(s: Story) -> None:
    one_too_many_at_once(s, "store-1")


@pytest.mark.parametrize(
    ("finds", "plant", "jobs"),
    [
        ("C16", under_another_id, 3),
        ("C16", never_fired, 2),
        ("C4 C16", twice, 2),
        ("C16", too_early, 2),
        ("C16", not_ended, 2),
        ("C17", claimed_while_paused, 2),
        ("C17", claimed_after_a_fault, 2),
        ("C18", one_start_too_many, 4),
        ("C18", one_too_many_at_once, 3),
        ("C18", one_too_many_while_another_server_is_struck, 3),
    ],
)
def test_what_was_said_and_is_not_so_is_found(finds: str, plant: Callable[[Story], None], jobs: int) -> None:
    assert found(plant, jobs=jobs) <= set(finds.split())
    assert found(plant, jobs=jobs) & OF_WORDS == set(finds.split()) & OF_WORDS


def fired_again_for_a_fault(s: Story) -> None:
    twice(s)
    s.fault(10.15, 10.25, "kill", "daemon-0")


def claimed_at_once(s: Story) -> None:
    pause(s, 10.0, 20.0)
    s.well(2, 10.5)
    s.well(3, 20.0)


def claimed_by_one_who_was_away(s: Story) -> None:
    pause(s, 10.0, 30.0)
    s.fault(9.0, 12.0, "stop", "daemon-0")
    s.well(2, 12.2)


def as_many_as_allowed(s: Story) -> None:
    limit(s, rate={"limit": 2, "per_s": 1.0})
    for n, t in enumerate((10.2, 10.3, 10.4, 14.0, 14.6, 15.1), 2):  # before it was known to all there may be more
        s.well(n, t)


def as_many_on_each_server(s: Story) -> None:
    limit(s, rate={"limit": 1, "per_s": 1.0})
    for n, server in enumerate((0, 1), 2):
        s.well(n, 14.0 + server / 10, server=server)


def at_work_for_a_daemon_that_was_paused(s: Story) -> None:
    one_too_many_at_once(s, "daemon-0")


@pytest.mark.parametrize(
    ("plant", "jobs"),
    [
        (fired_again_for_a_fault, 2),
        (claimed_at_once, 3),
        (claimed_by_one_who_was_away, 2),
        (as_many_as_allowed, 7),
        (as_many_on_each_server, 3),
        (at_work_for_a_daemon_that_was_paused, 3),
    ],
)
def test_what_has_a_cause_is_well(plant: Callable[[Story], None], jobs: int) -> None:
    assert found(plant, jobs=jobs) & OF_WORDS == set()
