"""What each request at a host and port counts there, from when that is asked until it has left."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from jqd.runner.crash_isolation import COMPANY_LOSSES, SETTLE_S, TURN_LOSSES, TURN_S, CrashIsolation
from jqd.runner.crash_site import IsolatedRequest, Site
from jqd.runner.delivery import Delivery
from jqd.runner.worker import Worker

SEND_S = 5.0

# ------------------------------------------------ where it begins


@dataclass
class Posted:
    """What crash isolation reads of a delivery."""

    worker: Worker
    missing: dict[str, Any]
    sent_at_s: float | None = None
    isolated: IsolatedRequest | None = None
    losses: int = 0


def posted(path: str, jobs: int, sent_at_s: float | None = None, *, losses: int = 0) -> Posted:
    worker = Worker(name="w", id=path, url=f"http://h/{path}", max_jobs=9, registered_at_ms=0)
    return Posted(worker, dict.fromkeys(map(str, range(jobs))), sent_at_s, losses=losses)


def isolated_of(request: Posted) -> IsolatedRequest:
    assert request.isolated is not None
    return request.isolated


def test_a_site_knows_what_was_under_way_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each had entered when it was sent: what breaks together, and who is alone there."""
    monkeypatch.undo()
    first, later, waits = posted("a", 2, 1.0), posted("a", 1, 2.0), posted("b", 1)
    site = Site(cast("list[Delivery]", [first, later, waits]))
    assert (site.at_work, site.is_kept("http://h/a", 2.5)) == (3, False)
    assert not any(isolated_of(request).is_alone() for request in (first, later))
    burst = isolated_of(first).lost(3.0)
    assert isolated_of(later).lost(3.1) is burst
    for request in (first, later):
        isolated_of(request).fewer(len(request.missing))
        isolated_of(request).left(3.1)
    here, now_s = site._workers["http://h/a"], 3.1 + SETTLE_S
    assert here.admit_or_wait_s("suspect", 1, now_s, SEND_S) == 0
    assert here.admit_or_wait_s("other", 0, now_s, SEND_S) > 0


def test_who_is_alone_at_its_worker_has_company_at_another_url_there() -> None:
    """They may be paths of one process: whose job took it down is not known."""
    site = Site([])
    suspect, other = site.track("http://h/a"), site.track("http://h/b")
    other.entered(1, 0, 0.0)
    suspect.entered(1, 1, 1.0)
    assert not suspect.is_alone()
    for each in (other, suspect):
        each.fewer(1)
        each.left(2.0)
    suspect.entered(1, 1, 3.0)
    assert suspect.is_alone()
    assert not site.is_kept("http://h/b", 3.0), "the other goes on"


def test_who_is_sent_to_a_process_that_is_dying_does_not_pay_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suspect of another path of it, sent just after the first connection broke."""
    monkeypatch.undo()
    site = Site([])
    poison, other = site.track("http://h/a"), site.track("http://h/b")
    poison.entered(1, 2, 0.0)
    poison.lost(0.1)
    poison.fewer(1)
    poison.left(0.1)
    other.entered(1, 1, 0.1)
    assert not other.is_alone()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.floats(0, 10)), max_size=60))
def test_whoever_is_alone_was_so_from_the_beginning(moves: list[tuple[int, int, float]]) -> None:
    """At the host and port, not only at its worker."""
    site, now_s = Site([]), 0.0
    out: dict[int, tuple[IsolatedRequest, set[int]]] = {}  # request → all that were at work beside it
    for number, losses, seconds in moves:
        now_s += seconds
        if number in out:
            request, beside = out.pop(number)
            assert request.is_alone() <= (not beside)
            request.fewer(1)
            request.left(now_s)
        else:
            request = site.track(f"http://h/{number % 2}")
            request.entered(1, losses, now_s)
            for _, others in out.values():
                others.add(number)
            out[number] = request, {*out}
    assert site.at_work == len(out)


# ------------------------------------------------ who pays where two URLs are one process


class Process:
    """One process behind two URLs, with a job at each. Both have broken with it once."""

    def __init__(self) -> None:
        self.site, self.suspects = Site([]), CrashIsolation()
        self.running: dict[str, trio.CancelScope] = {}
        self.ends: dict[str, str] = {}

    async def job(self, path: str, takes_s: float, *, kills: bool) -> None:
        while path not in self.ends:
            suspicion = self.suspects.of(path)
            request = posted(path, 0, losses=suspicion.losses if suspicion else 0)
            request.missing = {path: None}
            stay = request.isolated = self.site.track(f"http://h/{path}")
            delivery = cast("Delivery", request)
            await stay.wait_admitted(delivery, self.suspects, SEND_S, trio.current_time, partial(trio.sleep, 0.05))
            stay.entered(1, request.losses, trio.current_time())
            with trio.CancelScope() as broke:
                self.running[path] = broke
                await trio.sleep(takes_s)
            if kills:
                for scope in self.running.values():
                    scope.cancel()
            del self.running[path]
            if not kills and not broke.cancelled_caught:
                self.ends[path] = "succeeded"
            elif (request.losses and stay.is_alone()) or request.losses + 1 >= COMPANY_LOSSES:
                self.ends[path] = "paid"
            else:
                self.suspects.lost([path], stay.lost(trio.current_time()))
            stay.fewer(1)
            stay.left(trio.current_time())


@pytest.mark.parametrize("kills_s", [0.1, 3.0])
@pytest.mark.parametrize("order", [("good", "killer"), ("killer", "good")])
def test_who_runs_beside_a_killer_at_another_url_of_its_process_does_not_pay_for_it(
    monkeypatch: pytest.MonkeyPatch, order: tuple[str, str], kills_s: float
) -> None:
    """Each was alone at its URL. They were sent in the same moment time and again, until both paid."""
    monkeypatch.undo()
    process = Process()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for path in order:
                kills = path == "killer"
                takes_s = kills_s if kills else 3 * kills_s
                nursery.start_soon(partial(process.job, path, takes_s, kills=kills))

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert process.ends == {"good": "succeeded", "killer": "paid"}


# ------------------------------------------------ who is waited for


class Walk:
    """Requests at two workers of one host and port, each in a task."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.site, self._nursery = Site([]), nursery
        self.waits: dict[int, tuple[Posted, trio.CancelScope]] = {}
        self.at_work: dict[int, IsolatedRequest] = {}

    def enter(self, number: int, losses: int = 1) -> None:
        request, scope = posted(f"{number % 2}", 2, losses=losses), trio.CancelScope()
        request.isolated = self.site.track(request.worker.url or "")
        self.waits[number] = request, scope
        self._nursery.start_soon(self._wait, number, request, scope)

    async def _wait(self, number: int, request: Posted, scope: trio.CancelScope) -> None:
        stay, delivery = isolated_of(request), cast("Delivery", request)
        with scope:
            await stay.wait_admitted(delivery, CrashIsolation(), SEND_S, trio.current_time, partial(trio.sleep, 0.1))
            stay.entered(1, request.losses, trio.current_time())
            self.at_work[number] = stay
        if number not in self.at_work:
            stay.left(trio.current_time())
        del self.waits[number]

    def leave(self, number: int) -> None:
        if (stay := self.at_work.pop(number, None)) is not None:
            stay.fewer(1)
            stay.left(trio.current_time())

    def move(self, number: int, kind: str, losses: int) -> None:
        waits = self.waits.get(number)
        match kind:
            case "enter" if waits is None and number not in self.at_work:
                self.enter(number, losses)
            case "leave":
                self.leave(number)
            case "cancel" if waits is not None:
                waits[1].cancel()

    @property
    def waited_for(self) -> list[int]:
        """By suspects, at the two workers."""
        return [self.site.track(f"http://h/{n}").worker.waiting for n in range(2)]


def walk(steps: Callable[[Walk], Any]) -> None:
    """The steps, in time that passes at once."""

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await steps(Walk(nursery))
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


moves_of = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["enter", "enter", "leave", "cancel"]),
        st.sampled_from([2, 2, 1, 0]),
        st.sampled_from([0.2, 0.2, 0.0, 1.0, 5.0]),
    ),
    min_size=5,
    max_size=30,
)


@given(moves_of)
def test_after_any_walk_nobody_is_waited_for(moves: list[tuple[int, str, int, float]]) -> None:
    async def steps(here: Walk) -> None:
        for number, kind, losses, seconds in moves:
            here.move(number, kind, losses)
            await trio.sleep(seconds)
            suspects = [request for request, _ in here.waits.values() if request.losses]
            nexts = [each for each in suspects if each.losses < TURN_LOSSES or each.isolated in here.site.turn]
            assert not seconds or len(nexts) <= sum(here.waited_for) <= len(suspects)
        for number in [*here.waits]:
            here.move(number, "cancel", 0)
        await trio.testing.wait_all_tasks_blocked()
        for number in [*here.at_work]:
            here.leave(number)
        assert (here.waits, here.waited_for, here.site.at_work, here.site.turn) == ({}, [0, 0], 0, set())
        assert not any(here.site.is_kept(f"http://h/{n}", trio.current_time() + 1e6) for n in range(2))

    walk(steps)


@pytest.mark.parametrize("losses", [TURN_LOSSES - 1, TURN_LOSSES])
def test_suspects_of_another_url_wait_no_longer_than_a_turn_and_ordinary_jobs_there_do_not(losses: int) -> None:
    async def steps(here: Walk) -> None:
        here.enter(0, losses)
        await trio.sleep(0.2)
        here.enter(1, losses)
        await trio.sleep(0.2)
        if losses < TURN_LOSSES:
            assert [*here.at_work] == [0, 1], "most were lost with a gateway, or as all were started again"
            return
        here.enter(3, 0)
        await trio.sleep(0.2)
        assert [*here.at_work] == [0, 3]
        here.leave(3)
        await trio.sleep(TURN_S)
        assert [*here.at_work] == [0, 1], "beside a long job"

    walk(steps)


async def test_of_many_urls_no_suspect_waits_longer_than_a_turn(autojump_clock: None) -> None:
    """Each waited for the turns of all others: of 50 URLs behind one gateway the last one for eight minutes."""
    site, sent_s, began_s = Site([]), list[float](), trio.current_time()

    async def send(path: str) -> None:
        request = posted(path, 1, losses=TURN_LOSSES)
        stay, delivery = site.track(f"http://h/{path}"), cast("Delivery", request)
        await stay.wait_admitted(delivery, CrashIsolation(), SEND_S, trio.current_time, partial(trio.sleep, 0.1))
        stay.entered(1, TURN_LOSSES, trio.current_time())
        sent_s.append(trio.current_time() - began_s)
        await trio.sleep(20.0)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(send, str(number))
    assert max(sent_s) < TURN_S + 0.2
