"""A breaker belongs to a registration: who leaves and comes back begins anew."""

import random

import msgspec
import pytest

from jqd.runner import Capacity, RunnerConfig, WorkerRegistry, WorkerSpec, WorkerViews
from jqd.runner import worker_health as views_module
from jqd.runner.circuit_breaker import CircuitBreaker
from jqd.runner.transport import Connections
from jqd.runner.worker import Worker
from jqd.runner.worker_health import WELL
from jqd.testing.clock import ManualClock

CARD = WorkerSpec(name="w", id="w", url="http://here:80/", max_jobs=4)


class Hall:
    """The gates of one daemon, its workers and its view."""

    def __init__(self, *networks: str) -> None:
        self.clock = ManualClock(wall_ms=1_000_000)
        self.workers = WorkerRegistry(None, clock=self.clock)
        self.capacity = Capacity(RunnerConfig(worker_networks=networks), self.workers, random.Random(1), self.clock)
        self.views = WorkerViews("d1", self.workers, self.capacity, self.clock, 3_600.0)

    def register(self, card: WorkerSpec = CARD) -> CircuitBreaker:
        return self.capacity.breaker(self.workers.register(card))

    def come_back(self) -> CircuitBreaker:
        self.workers.unregister("w")
        self.clock.advance(0.01)
        return self.register()


@pytest.fixture
def hall() -> Hall:
    return Hall()


def test_who_left_and_registers_afresh_begins_with_a_closed_breaker(hall: Hall) -> None:
    breaker = hall.register()
    for _ in range(5):
        breaker.back_off(hall.clock.mono_s(), hall.clock.mono_s())
    breaker.not_taken("mail", hall.clock.mono_s())
    assert hall.register().is_open(hall.clock.mono_s()), "a repetition says nothing of what failed"
    back = hall.come_back()
    now_s = hall.clock.mono_s()
    assert (back.free("mail", now_s), back.failures, back.takes("mail", now_s)) == (4, 0, True)
    back.back_off(now_s - 0.005, now_s)
    assert not back.failures, "what was sent before it came back says nothing of it"


def test_slots_are_shared_among_daemons_that_reach_the_worker(hall: Hall) -> None:
    asked: list[str | None] = []

    def place(machine: str | None) -> tuple[int, int]:
        asked.append(machine)
        return (0, 1) if machine else (1, 2)

    hall.workers.place = place
    hall.register()
    assert hall.capacity.posting()[0][1].free("mail", hall.clock.mono_s()) == 2, "the second of two daemons"
    near = hall.workers.register(WorkerSpec(name="near", id="n", url="http://127.0.0.1:80/", max_jobs=1))
    assert hall.workers.share(near.max_jobs, near) == 1, "no other daemon on this machine"
    assert hall.workers.share(near.max_jobs, near) == 1
    assert (asked, bool(near.machine)) == (["", near.machine], True)


def test_a_drained_daemon_has_its_share_until_its_jobs_have_ended(hall: Hall) -> None:
    other = WorkerViews("d2", hall.workers, hall.capacity, hall.clock, 3_600.0)
    machine = hall.workers.register(CARD).machine
    for rests in False, True, False:
        other.is_drained = lambda rests=rests: rests  # type: ignore[misc]
        other.look()
        assert hall.views.begins("d2"), "it takes pushes"
        assert [hall.views.begins("d2", at) for at in ("", machine, "another")] == [not rests, not rests, False]


def test_a_daemon_that_is_kept_from_starting_jobs_starts_none_though_one_still_runs(hall: Hall) -> None:
    """Two daemons of one dead disk left each other their long jobs, and these ran again."""
    other = WorkerViews("d2", hall.workers, hall.capacity, hall.clock, 3_600.0)
    assert not hall.views.starts_jobs("d2"), "nothing is known of it"
    for is_barred in False, True, False:
        other.may_start = lambda is_barred=is_barred: not is_barred  # type: ignore[misc]
        other.look()
        assert hall.views.starts_jobs("d2") is not is_barred
        assert hall.views.begins("d2", ""), "it has its share until its jobs have ended"


def test_who_could_not_be_reached_a_moment_ago_is_tried_with_one_job_first(hall: Hall) -> None:
    breaker = hall.register()
    breaker.unreachable(hall.clock.mono_s(), hall.clock.mono_s())
    back = hall.come_back()
    assert not back.free("mail", hall.clock.mono_s())
    hall.clock.advance(60)
    assert back.free("mail", hall.clock.mono_s()) == 1
    assert hall.come_back().free("mail", hall.clock.mono_s()) == 4, "that is long ago"


def test_who_moved_begins_anew_however_near_the_failure(hall: Hall) -> None:
    hall.register().unreachable(hall.clock.mono_s(), hall.clock.mono_s())
    moved = hall.register(WorkerSpec(name="w", id="w", url="http://there:80/", max_jobs=4))
    assert moved.free("mail", hall.clock.mono_s()) == 4


def test_a_view_is_said_anew_when_it_changes_and_each_hour(hall: Hall) -> None:
    breaker = hall.register()
    first = hall.views.look()
    assert (hall.views.look(), hall.views.of("w", ["d1", "d2"])) == (first, {"d1": WELL})
    breaker.unreachable(hall.clock.mono_s(), hall.clock.mono_s())
    hall.clock.advance(1)
    second = hall.views.look()
    (seen,) = hall.views.of("w", ["d1"]).values()
    assert second.supersedes(first)
    assert (seen.state, seen.since_ms) == ("unreachable", hall.clock.wall_ms())
    hall.clock.advance(1)
    assert hall.views.look() == second
    breaker.complain("answers 405", hall.clock.mono_s())
    breaker.back_off(hall.clock.mono_s(), hall.clock.mono_s(), 30, why="it answered 429")
    third = hall.views.look()
    (seen,) = hall.views.of("w", ["d1"]).values()
    assert (seen.state, seen.complaint, seen.why) == ("backed_off", "answers 405", "it answered 429")
    assert seen.until_ms == hall.clock.wall_ms() + 30_000
    hall.clock.advance(1)
    assert hall.views.look() == third, "when its pause ends is said once"
    breaker.answered(hall.clock.mono_s() + 30)
    assert hall.views.of("w", ["d1"]) != {"d1": WELL}
    last = hall.views.look()
    assert hall.views.of("w", ["d1"]) == {"d1": WELL}
    hall.clock.advance(3_601)
    assert hall.views.look().supersedes(last)
    hall.clock.advance(86_401)
    assert [setting.name for setting in hall.views.stale()] == ["d1"]


def test_nothing_is_claimed_for_a_worker_that_this_daemon_may_not_connect_to() -> None:
    hall = Hall("10.1.0.0/16")
    near = WorkerSpec(name="near", id="near", url="http://10.1.0.9:80/", max_jobs=4)
    far = WorkerSpec(name="far", id="far", url="http://10.2.0.9:80/", max_jobs=4)
    for card in (near, far):
        hall.workers.register(card)
    assert [worker.id for worker, _ in hall.capacity.posting()] == ["near"]
    hall.views.look()
    (seen,) = hall.views.of("far", ["d1"]).values()
    assert (seen.state, seen.why) == ("unreachable", "10.2.0.9 is in none of runner.worker_networks")
    hall.workers.register(WorkerSpec(name="far", id="far", url="http://10.1.0.7:80/", max_jobs=4))
    assert [worker.id for worker, _ in hall.capacity.posting()] == ["far", "near"], "it moved"
    hall.views.look()
    assert hall.views.of("far", ["d1"]) == {"d1": WELL}


def test_a_daemon_says_where_it_is_reached_and_a_loopback_address_only_on_its_machine(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(name: str, url: str) -> None:
        other = WorkerViews(name, hall.workers, hall.capacity, hall.clock, 3_600.0)
        other.url = url
        other.look()

    hall.views.url = "http://127.0.0.1:7420"
    hall.views.look()
    said("d2", "https://jqd.example.org")
    said("d3", "")
    monkeypatch.setattr(views_module, "machine", lambda: "another")
    said("d4", "http://[::1]:7420")
    monkeypatch.undo()
    daemons = ["d2", "d1", "d3", "d4", "unheard of"]
    assert hall.views.urls(daemons, None) == ["https://jqd.example.org", "http://127.0.0.1:7420"]
    assert hall.views.urls(daemons, "127.0.0.1") == hall.views.urls(daemons, None)
    assert hall.views.urls(daemons, "10.0.0.1") == ["https://jqd.example.org"]


def test_a_departure_is_said_at_the_next_look_however_short_ago_there_was_none(hall: Hall) -> None:
    before = hall.views.look().body
    hall.workers.departures.note("daemon", "d2", died=True)
    first = hall.views.look().body
    assert first != before, "a daemon that stops in a moment has said it"
    hall.workers.departures.note("daemon", "d3", died=True)
    assert hall.views.look().body == first, "but a fleet that leaves makes no view for each"
    hall.clock.advance(views_module.GONE_EVERY_S)
    assert hall.views.look().body != first


def test_a_tenant_that_registers_a_thousand_workers_leaves_the_others_their_connections() -> None:
    """Connections were shared by registered workers: each web hook of every tenant had one job at a time then."""
    connections = Connections(1_024, lambda: 0.0, lambda: None)

    def worker(tenant: str, name: str) -> Worker:
        return Worker(name=name, id=name, url=f"http://{name}:80/", max_jobs=500, registered_at_ms=0, tenant=tenant)

    other, acme = worker("other", "hook"), [worker("acme", f"w{place}") for place in range(1_000)]
    workers = {"other": 1, "acme": len(acme)}
    assert connections.free_for(other, workers) == 512
    assert connections.free_for(acme[0], workers) == 128, "what a fleet that has nothing to do leaves is not lost"
    for one in acme:
        while connections.free_for(one, workers):
            connections.begin((one.tenant, one.endpoint))
    assert connections.free_for(other, workers) == 512
    assert connections.taken == 512
    for _ in range(512):
        connections.begin((other.tenant, other.endpoint))
    connections.end((other.tenant, other.endpoint))
    assert (connections.free_for(acme[-1], workers), connections.free_for(other, workers)) == (0, 1)


def test_of_fewer_connections_than_tenants_each_may_have_one() -> None:
    connections = Connections(1, lambda: 0.0, lambda: None)
    url = "http://hook:80/"
    fleet = [Worker(name="w", id=t, url=url, max_jobs=5, registered_at_ms=0, tenant=t) for t in ("a", "b", "c")]
    counts = {worker.tenant: 1 for worker in fleet}
    assert [connections.free_for(worker, counts) for worker in fleet] == [1, 1, 1]


def test_a_broken_connection_of_one_tenants_worker_isolates_no_other_tenants_at_the_same_host() -> None:
    """Behind one gateway a worker waited a second in two for what another tenant's did."""
    hall = Hall()
    mine = hall.register()
    theirs = msgspec.structs.replace(hall.workers.register(CARD), id="t", tenant="acme")
    breaker = hall.capacity.breaker(theirs)
    site = hall.capacity.isolate(theirs.place)
    assert (breaker.site, mine.site) == (site, None)
    assert hall.capacity.isolate(("", theirs.endpoint)) is mine.site is not site
