"""GET /metrics at an edge without a daemon behind it."""

import time
from typing import Any

import trio
from prometheus_client.parser import text_string_to_metric_families

from jqd.metrics.api import KINDS
from jqd.metrics.config import MetricsConfig
from jqd.metrics.meter import Meter
from jqd.store import TypeView
from jqd.store.counts import Counts
from tests.api.edge import Edge

PLAIN, (OPEN,) = KINDS


async def scrape(edge: Edge) -> dict[tuple[str, ...], float]:
    told = await edge.call("GET", "/metrics")
    assert (told.status, told.headers["content-type"]) == (200, PLAIN)
    return {
        (one.name, *one.labels.values()): one.value
        for family in text_string_to_metric_families(told.raw.decode())
        for one in family.samples
    }


def with_config(edge: Edge, config: MetricsConfig) -> Meter:
    services = edge.services
    meter = services.features[Meter] = Meter(services.workers.settings, edge.clock, config)
    return meter


async def test_the_store_is_told_by_type_and_state() -> None:
    edge = Edge()
    pushed_ms = edge.clock.wall_ms() - 90_000
    edge.store.types = [TypeView("mail", Counts(waiting=3, failed=2, blocked=1), pushed_ms), TypeView("scan")]
    told = await scrape(edge)
    assert told["jqd_jobs", "waiting", "mail"] == 3
    assert told["jqd_jobs", "failed", "mail"] == 2
    assert told["jqd_jobs", "blocked", "mail"] == 1
    assert told["jqd_oldest_ready_age_seconds", "mail"] == 90
    assert told["jqd_oldest_ready_age_seconds", "scan"] == 0
    assert told["jqd_jobs_stalled", "no_worker", "mail"] == 3
    assert (told["jqd_store_up",], told["jqd_store_memory_bytes",]) == (1, 7)
    assert told["process_resident_memory_bytes",] > 1e6


async def test_a_store_that_is_away_is_told_and_nothing_of_its_jobs() -> None:
    edge = Edge()
    edge.store.away = True
    told = await scrape(edge)
    assert told["jqd_store_up",] == 0
    assert not any(key[0] == "jqd_jobs" for key in told)


async def test_types_beyond_the_most_are_other_and_tenants_are_told_apart() -> None:
    edge = Edge()
    names = ["b", "acme\x1fb", "c", "a"]
    edge.store.types = [TypeView(name, Counts(waiting=number)) for number, name in enumerate(names, 1)]
    with_config(edge, MetricsConfig(types_max=2))
    told = await scrape(edge)
    assert {key[2]: value for key, value in told.items() if key[:2] == ("jqd_jobs", "waiting")} == {
        "a": 4,
        "b": 3,
        "other": 3,
    }
    with_config(edge, MetricsConfig(tenants=True))
    told = await scrape(edge)
    assert (told["jqd_jobs", "waiting", "acme", "b"], told["jqd_jobs", "waiting", "", "b"]) == (2, 1)


async def test_the_types_of_one_tenant_push_out_no_others() -> None:
    edge = Edge()
    names = [*(f"acme\x1f!{place}" for place in range(9)), "mail", "scan"]
    edge.store.types = [TypeView(name, Counts(waiting=1)) for name in names]
    with_config(edge, MetricsConfig(types_max=4))
    told = await scrape(edge)
    waiting = {key[2]: value for key, value in told.items() if key[:2] == ("jqd_jobs", "waiting")}
    assert waiting == {"!0": 1, "!1": 1, "mail": 1, "scan": 1, "other": 7}


async def test_who_asks_for_openmetrics_gets_it() -> None:
    told = await Edge().call("GET", "/metrics", accept="application/openmetrics-text;version=1.0.0,*/*;q=0.1")
    assert told.headers["content-type"] == OPEN
    assert told.raw.endswith(b"# EOF\n")


async def test_a_thousand_types_hold_up_nobody() -> None:
    """Some 40,000 samples are written in steps of half a millisecond, between which others run."""
    edge = Edge()
    names = [f"type-{number:04}" for number in range(1_000)]
    edge.store.types = [TypeView(name, Counts(waiting=1)) for name in names]
    meter = with_config(edge, MetricsConfig(types_max=1_000))
    for name in names:
        meter.tally.pushed["", name] = 1
    meter.tally.settle()
    for row in meter.totals.rows.values():
        row.started = row.ended[0] = 1
    steps: list[float] = []
    over = trio.Event()

    async def others() -> None:
        began_s = time.thread_time()
        while not over.is_set():
            await trio.lowlevel.checkpoint()
            steps.append(time.thread_time() - began_s)
            began_s = time.thread_time()

    samples: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        samples += (await edge.call("GET", "/metrics")).raw.splitlines()
        over.set()
    assert len(samples) > 40_000
    # A busy machine makes some steps long; a page that is written at once has nearly all its time in one of them.
    long = [step for step in steps if step > 0.005]
    assert sum(long) < sum(steps) / 4, [round(step * 1000, 1) for step in sorted(steps)[-8:]]
