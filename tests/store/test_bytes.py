"""No script that reads for lists reads more than some megabytes, however large the rows are.

Nothing is timed here: what scripts are given of hashes is weighed.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from jqd.domain.job import Fate, State
from jqd.store import JobView, StoreConfig
from jqd.testing import keyspace, lua
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench, outcome

MB = 1 << 20
BYTES_MAX = 4 * MB  # in one script: 2 MB, and the last few rows beyond
ERROR = msgspec.msgpack.encode("e" * 60_000)
SEVERAL = 100  # with such errors: more than a script may read


class Scale:
    """Weighs what scripts read."""

    def __init__(self) -> None:
        self.weights: list[int] = []
        """Bytes of each script."""

    def command(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def weighed(*words: Any) -> Any:
            found = real(*words)
            self.weights[-1] += sum(len(each or b"") for each in (found if isinstance(found, tuple) else (found,)))
            return found

        return weighed


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> Scale:
    scale = Scale()
    for name in ("HGET", "HMGET", "HGETALL", "HVALS"):
        monkeypatch.setitem(keyspace.READS, name, scale.command(keyspace.READS[name]))
    machine = lua.Machine()

    def run(*words: Any) -> object:
        scale.weights.append(0)
        return lua.Machine.run(machine, *words)

    monkeypatch.setattr(machine, "run", run)
    monkeypatch.setattr("jqd.testing.store.machine", lambda: machine)
    return scale


@pytest.fixture
async def bench(scale: Scale) -> StoreBench:
    clock = ManualClock()
    store = FakeStore(clock, StoreConfig(url="redis://fake"))
    await store.look(fresh=True)
    return StoreBench(store, clock)


async def fail_all(bench: StoreBench, fate: Fate, attempts: int = 1) -> None:
    owner = await bench.join()
    await bench.add(*(bench.make() for _ in range(SEVERAL)))
    for _ in range(attempts):
        bench.clock.advance(60)
        await bench.store.promote(SEVERAL)
        for each in await bench.claim(owner, bytes_max=100 * MB):
            more = {"error": ERROR, "status": 500, "delay_ms": 1_000, "finished_at_ms": bench.clock.wall_ms()}
            await bench.settle(outcome(each, fate, **more))


@pytest.mark.parametrize(
    ("fate", "asked"),
    [
        (Fate.RETRY, (State.RETRYING, None, "rare")),
        (Fate.RETRY, (None, "rare", None)),
        (Fate.DEAD, (State.FAILED, "rare", None)),
        (Fate.DEAD, (State.FAILED, "mail", "rare")),
        (Fate.DEAD, (None, None, "rare")),
    ],
)
async def test_a_filter_looks_at_few_large_outcomes_in_one_call(
    bench: StoreBench, scale: Scale, fate: Fate, asked: tuple[State | None, str | None, str | None]
) -> None:
    await fail_all(bench, fate)
    scale.weights.clear()
    page = await bench.store.list_jobs(*asked, 50, "", tried=True)
    assert (page.jobs, page.cursor) == ([], "")
    assert 0 < page.examined <= SEVERAL
    assert max(scale.weights) < BYTES_MAX


async def test_jobs_are_told_with_their_last_attempt_and_few_large_ones_with_each_call(
    bench: StoreBench, scale: Scale
) -> None:
    await fail_all(bench, Fate.RETRY, attempts=5)
    scale.weights.clear()
    page = await bench.store.list_jobs(State.RETRYING, None, None, 50, "")
    assert [(len(view.history), view.attempts, view.history[0].error) for view in page.jobs] == [(1, 5, ERROR)] * 50
    assert max(scale.weights) < BYTES_MAX
    some = [view.id for view in page.jobs[:20]]
    briefs = await bench.store.get_briefs(some)
    assert [len(view.history) for view in briefs if isinstance(view, JobView)] == [5] * 20
    assert max(scale.weights) < BYTES_MAX


async def test_jobs_from_a_chain_are_told_few_large_ones_with_each_call(bench: StoreBench, scale: Scale) -> None:
    large = b"\xc6\x00\x08\x00\x00".ljust(5 + (1 << 19), b"x")
    jobs = [await bench.push(argument=large) for _ in range(20)]
    scale.weights.clear()
    rows = await bench.store.list_links([job.id for job in jobs], 9)
    assert [row.job.id for row in rows if row] == [job.id for job in jobs]
    assert max(scale.weights) < BYTES_MAX


async def test_of_large_rows_that_are_next_few_are_read_for_their_dates(bench: StoreBench, scale: Scale) -> None:
    large = b"\xc6\x00\x08\x00\x00".ljust(5 + (1 << 19), b"x")
    pushed_ms, date_ms = bench.clock.wall_ms(), bench.clock.wall_ms() + 60_000
    arguments = {f"large{at:02}": large for at in range(20)} | {f"small{at}": b"\x01" for at in range(5)}
    for jobtype, argument in arguments.items():
        await bench.push(jobtype, argument=argument, eligible_at_ms=date_ms)
    bench.clock.advance(70)
    while (await bench.store.promote(100)).moved:
        continue
    scale.weights.clear()
    told = {view.jobtype: view.oldest_ms for view in await bench.store.list_types()}
    assert max(scale.weights) < BYTES_MAX
    assert {told[f"small{at}"] for at in range(5)} == {date_ms}
    assert {at_ms for name, at_ms in told.items() if name.startswith("large")} == {date_ms, pushed_ms}
