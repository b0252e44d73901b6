"""Several partitions as one: they answer as one store that has all would, and what one of them lacks is told."""

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from jqd.domain.errors import StoreAway, StoreChanged, StoreRefused
from jqd.domain.jobid import partition_of
from jqd.domain.record import Lane
from jqd.domain.results import LargeResult
from jqd.store import (
    JobView,
    NameJournaled,
    NameState,
    NameWanted,
    PartitionedStore,
    Store,
    StoreStats,
    open_store,
)
from jqd.store.types import Page
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.store.parted import CONFIG, PARTS, Cluster, fake, name_in, parted
from tests.valkey import Valkey

STEPS = 60
WALKS = 25  # of the suite's form
REAL_PART = 10  # one walk in so many is done on a real server too: the contract holds the fake to it


# ---------------------------------------------------------------- as one


@pytest.fixture
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[tuple[list[Store], ManualClock]]:
    """Partitions of the kind that the test names."""
    clock = ManualClock()
    if request.param == "fake":
        yield [FakeStore(clock, CONFIG) for _ in range(PARTS)], clock
        return
    server: Valkey = request.getfixturevalue("fresh_valkey")
    config = dataclasses.replace(CONFIG, url=server.url, partitions=PARTS)
    async with AsyncExitStack() as stack:
        parts = [open_store(part, now_ms=clock.wall_ms) for part in config.parts()]
        yield [await stack.enter_async_context(part) for part in parts], clock


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each seed. The option is known only when this directory was named on the command line."""
    if metafunc.function is test_partitions_answer_as_one_store_would:
        count = metafunc.config.getoption("--spread-walks", None) or WALKS
        walks = [("fake", seed) for seed in range(count)] + [("real", seed) for seed in range(0, count, REAL_PART)]
        metafunc.parametrize(("stores", "seed"), walks, indirect=["stores"], ids=[f"{k}-{s}" for k, s in walks])


async def test_partitions_answer_as_one_store_would(stores: tuple[list[Store], ManualClock], seed: int) -> None:
    cluster = Cluster(*stores, seed)
    await cluster.begin()
    for step in range(STEPS):
        await cluster.step()
        if step % 6 == 5:
            await cluster.compare()
    assert {partition_of(job_id, PARTS) for job_id in cluster.pushed} == set(range(PARTS))


# ---------------------------------------------------------------- one of them is away


@pytest.fixture
async def fakes() -> Cluster:
    """See `parted`."""
    return await parted()


async def test_what_is_of_a_reachable_partition_goes_on(fakes: Cluster) -> None:
    here, there = fakes.make(name_in(0)), fakes.make(name_in(1))
    await fakes.add(here, there)
    fake(fakes, 1).away = "cable pulled"
    spread = fakes.spread
    view = await spread.get_job(here.id)
    assert isinstance(view, JobView)
    assert await spread.unfinished([here.id]) == [here.id]
    assert await spread.reserve_change(here.id) > 0
    assert await spread.resolve(name_in(2)) is None
    (given,) = await spread.reserve_names([wanted(fakes, name_in(0))])
    assert given.state is NameState.NEW
    assert await spread.wait_durable(where=[0, 2])
    assert await spread.delete_dead([here.id]) == []
    await spread.drop_result(here.id)


def wanted(cluster: Cluster, name: str) -> NameWanted:
    """A name, for a job that lives with it."""
    return NameWanted(name, cluster.make("mail", name=name).id, "d", False)


ASK: dict[str, Callable[[Cluster, str], Awaitable[object]]] = {
    "get_job": lambda cluster, job_id: cluster.spread.get_job(job_id),
    "get_jobs": lambda cluster, job_id: cluster.spread.get_jobs([job_id]),
    "get_briefs": lambda cluster, job_id: cluster.spread.get_briefs([job_id]),
    "watch_logs": lambda cluster, job_id: cluster.spread.watch_logs([(job_id, 1, 0)], 9),
    "unfinished": lambda cluster, job_id: cluster.spread.unfinished([cluster.pushed[0], job_id]),
    "delete_dead": lambda cluster, job_id: cluster.spread.delete_dead([cluster.pushed[0], job_id]),
    "get_piece": lambda cluster, job_id: cluster.spread.get_piece(LargeResult(f"{job_id}:x", 1, 1), 0),
    "drop_result": lambda cluster, job_id: cluster.spread.drop_result(job_id),
    "queue_place": lambda cluster, job_id: cluster.spread.queue_place(job_id),
    "reserve_change": lambda cluster, job_id: cluster.spread.reserve_change(job_id),
    "reserve_edit": lambda cluster, job_id: cluster.spread.reserve_edit(job_id, 0),
    "resolve_all": lambda cluster, job_id: cluster.spread.resolve_all([name_in(0), name_in(1)]),
    "resolve": lambda cluster, job_id: cluster.spread.resolve(name_in(1)),
    "reserve_names": lambda cluster, job_id: cluster.spread.reserve_names(
        [wanted(cluster, name_in(0)), wanted(cluster, name_in(1))]
    ),
    "free_names": lambda cluster, job_id: cluster.spread.free_names(
        [wanted(cluster, name_in(0)), wanted(cluster, name_in(1))]
    ),
    "confirm_names": lambda cluster, job_id: cluster.spread.confirm_names(
        [NameJournaled(name_in(1), job_id, "d", 1), NameJournaled(name_in(0), cluster.pushed[0], "d", 1)]
    ),
    "touch": lambda cluster, job_id: cluster.spread.touch([(cluster.pushed[0], 1), (job_id, 1)]),
    "release_entrusted": lambda cluster, job_id: cluster.spread.release_entrusted(
        [(cluster.pushed[0], 1), (job_id, 1)]
    ),
    "list_jobs": lambda cluster, job_id: cluster.spread.list_jobs(None, None, None, 10, ""),
    "list_types": lambda cluster, job_id: cluster.spread.list_types(),
    "clean_ended": lambda cluster, job_id: cluster.spread.clean_ended(0, 10),
    "wait_durable": lambda cluster, job_id: cluster.spread.wait_durable(),
}


def test_every_method_is_asked() -> None:
    methods = {name for name in vars(PartitionedStore) if not name.startswith("_")}
    assert set(ASK) == methods - {"durability_rule", "stats", "at", "seal"}, "these answer whatever is away"
    assert methods <= set(dir(Store))


@pytest.mark.parametrize("name", ASK)
async def test_what_concerns_one_that_is_away_says_so_and_which(fakes: Cluster, name: str) -> None:
    here, there = fakes.make(name_in(0)), fakes.make(name_in(1))
    await fakes.add(here, there)
    fake(fakes, 1).away = "cable pulled"
    with pytest.raises(StoreAway, match=r"^partition 1 of 3: .*cable pulled"):
        await ASK[name](fakes, there.id)
    if name == "confirm_names":  # whoever is there was told all the same
        assert await fakes.spread.resolve(name_in(0)) == here.id
    fake(fakes, 1).away = None
    await ASK[name](fakes, there.id)


async def test_numbers_tell_what_they_lack(fakes: Cluster) -> None:
    await fakes.add(*(fakes.make(name_in(number)) for number in (0, 1, 1, 2)))
    assert (await fakes.spread.stats())[:1] == (4,)
    assert (await fakes.spread.stats()).unreachable == ()
    fake(fakes, 1).away = "cable pulled"
    stats = await fakes.spread.stats()
    assert (stats.waiting, stats.unreachable) == (2, (1,))
    for store in fakes.stores:
        assert isinstance(store, FakeStore)
        store.away = "cable pulled"
    with pytest.raises(StoreAway, match=r"^partition 0 of 3"):
        await fakes.spread.stats()


async def test_memory_counts_once_for_each_server(fakes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, store in enumerate(fakes.stores):
        monkeypatch.setattr(store, "stats", partial(_memory, 100 + number))
    assert (await PartitionedStore(fakes.stores, servers=1).stats()).used_memory == 102
    assert (await PartitionedStore(fakes.stores, servers=2).stats()).used_memory == 102 + 101
    assert (await PartitionedStore(fakes.stores, servers=3).stats()).used_memory == 100 + 101 + 102


async def _memory(used: int) -> StoreStats:
    return StoreStats(0, 0, 0, 0, 0, 0, used)


async def test_an_error_is_told_as_what_it_is(fakes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several the first, and never a group: callers know errors."""
    errors = (StoreRefused("odd"), StoreChanged("another"), ZeroDivisionError("a bug"))
    for number, error in enumerate(errors):
        monkeypatch.setattr(fakes.stores[number], "list_types", _raises(error, turns=3 - number))
    with pytest.raises(StoreRefused, match=r"^partition 0 of 3: odd$") as refused:
        await fakes.spread.list_types()
    assert refused.value.__cause__ is errors[0]
    monkeypatch.setattr(fakes.stores[0], "list_types", _raises(StoreAway("no answer", "1.2.3.4: reset"), turns=0))
    with pytest.raises(StoreAway, match=r"^partition 0 of 3: no answer$") as away:
        await fakes.spread.list_types()
    assert away.value.in_full == "partition 0 of 3: no answer: 1.2.3.4: reset", "for logs, and who runs jqd"
    monkeypatch.setattr(fakes.stores[0], "list_types", fakes.one.list_types)
    with pytest.raises(StoreChanged, match=r"^partition 1 of 3: another$"):
        await fakes.spread.list_types()
    monkeypatch.setattr(fakes.stores[1], "list_types", fakes.one.list_types)
    with pytest.raises(ZeroDivisionError):
        await fakes.spread.list_types()


def _raises(error: Exception, *, turns: int) -> Callable[..., Awaitable[Any]]:
    """What fails so late that others have failed before."""

    async def fail(*_: object, **__: object) -> Any:
        for _turn in range(turns):
            await trio.lowlevel.checkpoint()
        raise error

    return fail


async def test_what_was_cleaned_is_told_before_what_could_not_be(fakes: Cluster) -> None:
    """Whoever asks until nothing is left meets the error then, and knows the number."""
    jobs = [fakes.make(name_in(number)) for number in (0, 1, 2)]
    await fakes.add(*jobs)
    await fakes.apply(Lane.CANCELS, [(job.id, job.id, job.id) for job in jobs])
    fakes.clock.advance(1)
    fake(fakes, 0).away = "cable pulled"
    assert (await fakes.spread.clean_ended(fakes.clock.wall_ms(), 10)).gone == 2
    with pytest.raises(StoreAway, match="partition 0"):
        await fakes.spread.clean_ended(fakes.clock.wall_ms(), 10)
    fake(fakes, 0).away = None
    assert (await fakes.spread.clean_ended(fakes.clock.wall_ms(), 10)).gone == 1


async def test_durable_is_what_all_say_or_those_that_matter(fakes: Cluster) -> None:
    assert await fakes.spread.wait_durable()
    fake(fakes, 2).durable = False
    assert not await fakes.spread.wait_durable()
    assert not await fakes.spread.wait_durable(where=frozenset({0, 2}))
    assert await fakes.spread.wait_durable(where=frozenset({0, 1}))


async def test_rules_are_told_of_each_where_they_differ(fakes: Cluster) -> None:
    setting = fakes.one.durability_rule
    assert fakes.spread.durability_rule == setting

    class Other(FakeStore):
        @property
        def durability_rule(self) -> str:
            return "at once"

    mixed = PartitionedStore([fakes.one, Other(fakes.clock), fakes.one], servers=3)
    assert mixed.durability_rule == f"partition 0, 2: {setting}; partition 1: at once"


# ---------------------------------------------------------------- pieces that end by time


class Busy:
    """A partition whose lists end by time: how many jobs each call tells at most."""

    seal = "known to the daemons"

    def __init__(self, ids: list[str], most: list[int]) -> None:
        self._ids, self._most = ids, iter(most)

    async def list_jobs(
        self, _state: None, _jobtype: None, _tag: None, limit: int, cursor: str, *_: Any, **__: Any
    ) -> Page:
        begin = int(cursor or 0)
        end = begin + min(limit, next(self._most, limit))
        jobs: list[Any] = [SimpleNamespace(id=each) for each in self._ids[begin:end]]
        return Page(jobs, str(end) if end < len(self._ids) else "", 500)


@pytest.mark.parametrize("most", [[40, 10, 40, 40], [40, 10, 5, 5, 40], [40, 1, 1, 1], [10, 30, 5]])
async def test_a_piece_that_is_shorter_when_it_is_fetched_again_repeats_nothing(most: list[int]) -> None:
    """What lies behind it was told, too, and comes with the next one."""
    ids = [f"{number:03}" for number in reversed(range(120))]
    one, other = Busy(ids[::2], most), Busy(ids[1::2], [])
    parts: list[Any] = [one, other]
    store, told, cursor = PartitionedStore(parts, servers=1), list[str](), ""
    for _ in range(60):
        page = await store.list_jobs(None, None, None, 40, cursor)
        told, cursor = [*told, *(view.id for view in page.jobs)], page.cursor
        if not cursor:
            break
    assert sorted(told, reverse=True) == ids
