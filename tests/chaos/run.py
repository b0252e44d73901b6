"""One chaos run: a workload on a cluster while a nemesis strikes, then healing, draining, and a last look at every
job."""

import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import redis
import trio

from jqd.domain.errors import StoreError
from jqd.store import EdgeStore, JobView, PartitionedStore, open_store
from jqd.store.keys import Keys
from tests.chaos.check import check
from tests.chaos.cluster import HEAL_S, RENEW_S, TIMEOUT_S, Cluster, History, in_thread
from tests.chaos.flow_check import check as check_flows
from tests.chaos.flow_traffic import Flows
from tests.chaos.history import Event, load
from tests.chaos.nemesis import CALM_S, LEASE_S, WIPE, Strike, plan
from tests.chaos.plain import Plain
from tests.chaos.verdict import Verdict
from tests.chaos.workload import CALL_S, MAX_RETRY, POLL_S, Settings, Workload
from tests.directories import short_directory
from tests.stalls import STALL_S
from tests.store.places import check_places

UNLIMITED = httpx2.Limits()  # who waits for a paused daemon must not keep others from theirs
Make = Callable[[Settings, Cluster, History, httpx2.AsyncClient], Workload]
WORKLOADS: Mapping[str, tuple[Make, Callable[[Iterable[Event]], Verdict]]] = {
    "jobs": (Plain, check),
    "flows": (Flows, check_flows),
}
"""What is pushed, and who judges it."""


class Nemesis:
    """Strikes as planned. A target that is still being mended is left alone."""

    def __init__(self, cluster: Cluster, strikes: list[Strike]) -> None:
        self._cluster = cluster
        self._strikes = strikes

    async def run(self) -> None:
        """Returns when the last fault is over."""
        began_t = trio.current_time()
        async with trio.open_nursery() as nursery:
            for strike in self._strikes:
                await trio.sleep(max(0.0, began_t + strike.at_s - trio.current_time()))
                if strike.kind == WIPE:
                    await self._wait_for_calm()
                    await self._cluster.strike(strike)
                elif strike.target not in self._cluster.struck:
                    self._cluster.struck.add(strike.target)  # now: what was held up by a wipe comes all at once
                    nursery.start_soon(self._cluster.strike, strike)

    async def _wait_for_calm(self) -> None:
        """Until nothing has been struck for some time: what was started again may take longer than planned."""
        calm_t = trio.current_time()
        while trio.current_time() < calm_t + CALM_S / 2:
            await trio.sleep(POLL_S)
            if self._cluster.struck:
                calm_t = trio.current_time()


async def chaos(settings: Settings, directory: Path) -> list[str]:
    """Run it, its history goes to `directory`. Returns what is wrong beside the history: who fell, who ended badly."""
    problems: list[str] = []
    history = History(directory)
    make, _ = WORKLOADS[settings.workload]
    with short_directory() as base, _closing(history):
        cluster = Cluster(base, history, random.Random(settings.seed + 2), *settings.size)
        try:
            async with trio.open_nursery() as nursery, httpx2.AsyncClient(trust_env=False, limits=UNLIMITED) as http:
                for edge in cluster.edges:
                    await nursery.start(edge.run)
                await cluster.start()
                await _introduce(settings, cluster, history, http)
                work = make(settings, cluster, history, http)
                await work.prepare()
                async with trio.open_nursery() as running:
                    strikes = plan(settings.seed, settings.seconds, *settings.size)
                    running.start_soon(work.run, settings.seconds)
                    running.start_soon(Nemesis(cluster, strikes).run)
                history.add("healed")
                problems += [f"{name} ended by itself" for name in cluster.fallen()]
                async with _open(cluster) as store:
                    if await _drain(store, cluster, http, work):
                        history.add("drained")
                    if await work.once_more() and await _drain(store, cluster, http, work):
                        history.add("rested")
                    await _last_look(store, history, work)
                problems += await in_thread(partial(_misplaced, cluster))
                codes = await cluster.stop()
                problems += [
                    f"the loop of a daemon stood still: {step}" for step in cluster.steps if step.seconds > STALL_S
                ]
                problems += [f"exit codes {codes}, 0 wanted"] if any(codes) else []
                nursery.cancel_scope.cancel()
        finally:
            cluster.end()
            for log in base.glob("*.log"):
                (directory / log.name).write_bytes(log.read_bytes())
                problems += [f"{log.name} holds a traceback"] if b"Traceback" in log.read_bytes() else []
    return problems


async def _introduce(settings: Settings, cluster: Cluster, history: History, http: httpx2.AsyncClient) -> None:
    """Note what a reader of the history must know, once every daemon runs and has all workers."""
    history.add(
        "config", lease_s=LEASE_S, renew_s=RENEW_S, timeout_s=TIMEOUT_S, max_retry=MAX_RETRY, heal_s=HEAL_S,
        seed=settings.seed, seconds=settings.seconds, rate=settings.rate, workload=settings.workload,
    )  # fmt: skip
    history.add("clock", wall_ms=time.time() * 1000)
    for i, url in enumerate(cluster.urls):
        while len(stats := (await http.get(f"{url}/v1/workers")).json()["workers"]) < settings.workers:
            assert len(stats) <= settings.workers
            await trio.sleep(POLL_S)
        history.add("daemon_is", name=f"daemon-{i}", sysid=(await _stats(http, url))["daemon"])


async def _drain(store: EdgeStore, cluster: Cluster, http: httpx2.AsyncClient, work: Workload) -> bool:
    """Until nothing waits and no daemon holds anything. False: it takes too long, and the checker says so."""
    last = await work.last_words()
    with trio.move_on_after(HEAL_S + 5.0) as patience:
        ended = 0
        while not (await _is_quiet(store, cluster, http, last) and await work.is_over(store)):
            await trio.sleep(POLL_S)
            if (now := await _ended(store)) > ended:  # the work that was left goes on
                ended, patience.deadline = now, trio.current_time() + HEAL_S + 5.0
    return not patience.cancelled_caught


@asynccontextmanager
async def _open(cluster: Cluster) -> AsyncIterator[EdgeStore]:
    """The whole store, as this process looks into it."""
    async with AsyncExitStack() as stack:
        parts = [await stack.enter_async_context(open_store(part)) for part in cluster.store.parts()]
        for store in parts:
            await store.look(fresh=False)
        yield parts[0] if len(parts) == 1 else PartitionedStore(parts, servers=len(parts))


async def _ended(store: EdgeStore) -> int:
    try:
        told = await store.stats()
    except StoreError:
        return 0
    return told.ended + told.dead


async def _is_quiet(store: EdgeStore, cluster: Cluster, http: httpx2.AsyncClient, last: list[str]) -> bool:
    try:
        for job_id in last:
            view = await store.get_job(job_id)
            if not isinstance(view, JobView) or not view.state.is_final:
                return False
        told = await store.stats()
    except StoreError:
        return False
    held = [(await _stats(http, url))["runner"]["in_flight"] for url in cluster.urls]
    return not (told.unreachable or told.waiting or told.scheduled or told.running or any(held))


async def _stats(http: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    try:
        answer = await http.get(f"{url}/v1/stats", headers={"accept": "application/json"}, timeout=CALL_S)
        return answer.raise_for_status().json()  # type: ignore[no-any-return]
    except httpx2.HTTPError:
        return {"runner": {"in_flight": 1, "workers": []}}  # it cannot be said that it is quiet


async def _last_look(store: EdgeStore, history: History, work: Workload) -> None:
    """Every job as the store has it."""
    await work.last_look(store)
    told = await store.stats()
    history.add(
        "census", waiting=told.waiting, scheduled=told.scheduled, running=told.running, ended=told.ended, dead=told.dead
    )


def _misplaced(cluster: Cluster) -> list[str]:
    """What is wrong with where jobs lie in the store: each in one place, in hands, sets and pages that are known."""
    wrong = []
    for part in cluster.store.parts():
        with redis.Redis.from_url(part.url) as client:
            try:
                check_places(client, Keys(part.prefix, part.partition))
            except AssertionError as error:
                wrong.append(f"jobs do not lie where they should in {part.url}: {error}"[:1_000])
    return wrong


@contextmanager
def _closing(history: History) -> Iterator[None]:
    try:
        yield
    finally:
        history.close()


def run(settings: Settings, directory: Path) -> tuple[Verdict, list[str]]:
    """Run, check. Returns the verdict and what is wrong beside it."""
    directory.mkdir(parents=True, exist_ok=True)
    problems = trio.run(chaos, settings, directory)
    _, judge = WORKLOADS[settings.workload]
    return judge(load(directory)), problems
