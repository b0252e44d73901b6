"""Silence of workers: who is back, who goes, and who is overdue."""

from typing import Any

import pytest

from jqd.runner import WorkerRegistry
from jqd.runner.presence import PROPAGATION_S, UNREACHABLE_S
from jqd.runner.worker import WorkerSpec
from jqd.testing.clock import ManualClock
from tests.runner.test_registry import register


def test_who_was_silent_for_longer_than_its_ttl_and_speaks_is_back_and_only_silence_counts() -> None:
    clock = ManualClock()
    workers = WorkerRegistry(clock=clock)
    worker = register(workers, name="w", ttl=10.0)
    clock.advance(11)
    assert workers.get(worker.id) is None
    workers.reached(worker.id)  # a sign of a job that it holds
    assert workers.get(worker.id) is not None
    clock.advance(11)
    assert [each for each in workers.silent() if each[0] > 5] == [], "it was not silent while its ttl ran"
    assert workers.get(worker.id) is None
    clock.advance(5)
    assert [setting.name for since_s, setting in workers.silent() if since_s > 5] == [worker.id]


def test_when_a_worker_was_heard_of_is_known_after_a_restart_and_who_asked_for_no_job_for_a_week_goes() -> None:
    clock = ManualClock()
    workers = WorkerRegistry(None, clock=clock)
    for name, url in (("p", None), ("q", "http://h/")):
        workers.register(WorkerSpec(name=name, id=name, max_jobs=1, url=url))
    settings = [*workers.settings.all("worker")]
    day_s = 86_400.0
    clock.advance(8 * day_s)
    began = WorkerRegistry(None, clock=clock)
    began.settings.take(settings)
    assert began.last_seen_at_ms("p") == settings[0].at_ms, "its registration is the first sign"
    began.record_signs({"p": 5_000})
    assert clock.wall_ms() - began.last_seen_at_ms("p") == 5_000
    assert not began.last_seen_at_ms("nobody")
    began.forget_silent()
    assert [one.id for one in began.list()] == ["p", "q"]
    workers.forget_silent()
    assert [one.id for one in workers.list()] == ["q"], "nothing is posted to it, either, so it may be well"
    assert workers.leaving == {"p": "silent"}


@pytest.mark.parametrize(
    ("card", "late_s"),
    [
        ({"ttl": 30.0, "heartbeat": 9.0}, 30.0),
        ({"ttl": 30.0, "url": "http://h/"}, 30.0),
        ({}, UNREACHABLE_S),
        ({"heartbeat": 9.0}, UNREACHABLE_S),
        ({"heartbeat": 900.0}, 900.0),
        ({"url": "http://h/"}, float("inf")),
    ],
    ids=["ttl", "ttl and a url", "none", "short leases", "long leases", "a url, and promises nothing"],
)
def test_a_worker_is_overdue_once_it_was_silent_for_longer_than_it_may_be(card: dict[str, Any], late_s: float) -> None:
    """And not forgotten, while nobody can say what others heard of it."""
    clock = ManualClock()
    workers = WorkerRegistry(clock=clock)
    worker = register(workers, name="w", **card)
    assert [workers.is_blind] == [False], "no other daemon was heard of"
    for _ in range(25):  # at another daemon
        clock.advance(1.0)
        workers.record_signs({worker.id: 0})
        assert not workers.is_overdue(worker)
    clock.advance(min(late_s, 1e6) + PROPAGATION_S)
    assert [workers.is_overdue(worker), workers.is_blind] == [False, True]
    clock.advance(0.5)
    assert workers.is_overdue(worker) == (late_s < float("inf"))
    if late_s == 30.0:  # it speaks, to this one
        for _ in range(30):
            workers.reached(worker.id)
            assert [workers.is_overdue(worker), workers.is_blind] == [False, True]
            clock.advance(2.0)
    workers.record_signs({})
    assert [workers.is_overdue(worker), workers.is_blind] == [False, False], "that time does not count"
    workers.reached(worker.id)
    assert not workers.is_overdue(worker)
