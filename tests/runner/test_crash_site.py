"""What each request at a host and port counts there, from when that is asked until it has left."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from jqd.runner.crash_isolation import EMPTYING_S, SETTLE_S, CrashIsolation, Extent
from jqd.runner.crash_site import IsolatedRequest, Site
from jqd.runner.worker import Worker

SEND_S = 5.0

# ------------------------------------------------ where it begins


@dataclass
class Posted:
    """A request that is under way."""

    worker: Worker
    missing: dict[str, Any]
    sent_at_s: float | None = None
    set_out: bool = False
    isolated: IsolatedRequest | None = None


def posted(path: str, jobs: int, sent_at_s: float | None = None, *, set_out: bool = True) -> Posted:
    worker = Worker(name="w", id=path, url=f"http://h/{path}", max_jobs=9, registered_at_ms=0)
    return Posted(worker, dict.fromkeys(map(str, range(jobs))), sent_at_s, set_out)


def isolated_of(request: Posted) -> IsolatedRequest:
    assert request.isolated is not None
    return request.isolated


def test_a_site_knows_what_was_under_way_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each had entered when it was sent: what breaks together, what is spared, and who is alone there."""
    monkeypatch.undo()
    later, first, comes, waits = posted("b", 1, 2.0), posted("a", 2, 1.0), posted("a", 1), posted("b", 1, set_out=False)
    site = Site([later, first, comes, waits])
    assert (site.machine.at_work, site.is_kept("http://h/a", 2.5)) == (3, False)
    burst = isolated_of(first).lost(3.0)
    assert burst.spared, "the other one was at work, and has not broken"
    assert isolated_of(later).lost(3.1) is burst
    assert burst.is_shared, "both workers went down in one moment"
    for request in (first, later):
        isolated_of(request).fewer(len(request.missing))
        isolated_of(request).left(3.1)
    suspect, now_s = site.track("http://h/a"), 3.1 + SETTLE_S
    assert suspect.admit_or_wait_s(1, now_s, SEND_S, jobs=1, group=1, extent=Extent.ALL) == EMPTYING_S, (
        "one is about to come"
    )
    isolated_of(comes).left(now_s)
    assert suspect.admit_or_wait_s(1, now_s, SEND_S, jobs=1, group=1, extent=Extent.ALL) == 0
    assert isolated_of(waits).admit_or_wait_s(0, now_s, SEND_S, jobs=1, group=1, extent=Extent.OWN) > 0


# ------------------------------------------------ who is waited for


class Extents(CrashIsolation):
    """The extent of each job is what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.of_jobs: dict[str, Extent] = {}

    def extent(self, job_ids: Collection[str]) -> Extent:
        return max((self.of_jobs[job_id] for job_id in job_ids), default=Extent.OWN)


class Walk:
    """Requests of suspects at two workers of one host and port, each in a task, and a worker's long job beside them."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.site, self.suspects, self._nursery = Site([]), Extents(), nursery
        self.waits: dict[int, tuple[Posted, trio.CancelScope, int]] = {}
        self.at_work: dict[int, IsolatedRequest] = {}

    def enter(self, number: int, losses: int = 1, extent: Extent = Extent.OWN) -> None:
        request, scope = posted(f"{number % 2}", 0, set_out=False), trio.CancelScope()
        request.missing = {f"{number}": None, f"beside {number}": None}
        self.suspects.of_jobs |= {f"{number}": extent, f"beside {number}": Extent.OWN}
        request.isolated = self.site.track(request.worker.url or "")
        self.waits[number] = request, scope, losses
        self._nursery.start_soon(self._wait, number, request, losses, scope)

    async def _wait(self, number: int, request: Posted, losses: int, scope: trio.CancelScope) -> None:
        stay = isolated_of(request)
        with scope:
            await stay.wait_admitted(
                request, self.suspects, losses, SEND_S, trio.current_time, partial(trio.sleep, 0.1)
            )
            stay.entered(1, losses, trio.current_time())
            self.at_work[number] = stay
        if number not in self.at_work:
            stay.left(trio.current_time())
        del self.waits[number]

    def leave(self, number: int) -> None:
        if (stay := self.at_work.pop(number, None)) is not None:
            stay.fewer(1)
            stay.left(trio.current_time())

    def move(self, number: int, kind: str, extent: Extent, losses: int) -> None:
        waits, job_id = self.waits.get(number), f"{number}"
        match kind:
            case "enter" if waits is None and number not in self.at_work:
                self.enter(number, losses, extent)
            case "leave":
                self.leave(number)
            case "extent" if waits is not None:
                self.suspects.of_jobs[job_id] = extent
            case "withdraw" if waits is not None:
                waits[0].missing.pop(job_id, None)
            case "cancel" if waits is not None:
                waits[1].cancel()

    @property
    def of_all(self) -> int:
        """So many suspects that wait are to have all of the host and port to themselves."""
        waits = [request.missing for request, _, losses in self.waits.values() if losses]
        return sum(self.suspects.extent(missing) is Extent.ALL for missing in waits)

    @property
    def waited_for(self) -> list[int]:
        """At the host and port, and at its two workers."""
        return [self.site.machine.waiting, *(self.site.track(f"http://h/{n}")._own.waiting for n in range(2))]


def walk(steps: Callable[[Walk], Any]) -> None:
    """The steps, in time that passes at once."""

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await steps(Walk(nursery))
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("after", Extent)
@pytest.mark.parametrize("before", Extent)
def test_a_suspect_is_waited_for_where_its_extent_says_now(before: Extent, after: Extent) -> None:
    """It changes while it waits: another connection breaks, or the job that it is because of is withdrawn."""

    async def steps(here: Walk) -> None:
        here.enter(10, 0)  # a long job of another worker, and one of its own
        here.enter(11, 0)
        await trio.sleep(0.1)
        here.enter(0, extent=before)
        await trio.sleep(0.1)
        here.move(0, "extent", after, 1)
        await trio.sleep(0.2)
        assert here.waited_for == ([1, 0, 0] if after is Extent.ALL else [0, 1, 0])
        here.move(0, "cancel", after, 1)
        await trio.sleep(0.1)
        assert (here.waits, here.waited_for) == ({}, [0, 0, 0])

    walk(steps)


def test_a_suspect_that_stands_back_from_a_smaller_extent_is_counted_once() -> None:
    """Another worker's suspects are at work; what held all of the host and port was withdrawn from its request."""

    async def steps(here: Walk) -> None:
        here.enter(1, 2, Extent.PERHAPS)
        await trio.sleep(0.1)
        here.enter(0, 2, Extent.ALL)
        await trio.sleep(0.2)
        assert (here.waited_for, [*here.at_work]) == ([1, 0, 0], [1])
        here.suspects.of_jobs["beside 0"] = Extent.PERHAPS
        here.move(0, "withdraw", Extent.OWN, 0)
        await trio.sleep(0.2)
        assert here.waited_for == [0, 0, 0], "its worker need not become empty yet"
        here.move(0, "cancel", Extent.OWN, 0)
        await trio.sleep(0.1)
        assert (here.waits, here.waited_for) == ({}, [0, 0, 0])

    walk(steps)


moves_of = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["enter", "enter", "extent", "extent", "leave", "withdraw", "cancel"]),
        st.sampled_from(Extent),
        st.sampled_from([2, 2, 1, 0]),
        st.sampled_from([0.2, 0.2, 0.0, 1.0, 5.0]),
    ),
    min_size=5,
    max_size=30,
)


@given(moves_of)
def test_after_any_walk_nobody_is_waited_for(moves: list[tuple[int, str, Extent, int, float]]) -> None:
    async def steps(here: Walk) -> None:
        here.enter(9, 3, Extent.PERHAPS)  # else it comes seldom to that one stands back
        for number, kind, extent, losses, seconds in moves:
            here.move(number, kind, extent, losses)
            await trio.sleep(seconds)
            assert 0 <= min(here.waited_for) <= sum(here.waited_for) <= len(here.waits)
            assert not seconds or here.waited_for[0] == here.of_all
        for number in [*here.waits]:
            here.move(number, "cancel", Extent.OWN, 0)
        await trio.testing.wait_all_tasks_blocked()
        for number in [*here.at_work]:
            here.leave(number)
        assert (here.waits, here.waited_for, here.site.machine.at_work) == ({}, [0, 0, 0], 0)
        assert not any(here.site.is_kept(f"http://h/{n}", trio.current_time() + 1e6) for n in range(2))

    walk(steps)
