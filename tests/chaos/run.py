"""One chaos run: traffic on a cluster while a nemesis strikes, then healing, draining, and a last look at every job."""

import itertools
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import redis
import trio

from jqd.domain.errors import StoreError
from jqd.domain.jobid import partition_of_name
from jqd.store import EdgeStore, JobView, PartitionedStore, open_store
from jqd.store.keys import Keys
from tests.chaos.check import Verdict, check
from tests.chaos.cluster import HEAL_S, RENEW_S, TIMEOUT_S, Cluster, History, in_thread
from tests.chaos.history import load
from tests.chaos.nemesis import CALM_S, LEASE_S, WIPE, Strike, plan
from tests.chaos.words import LIMITED, Words
from tests.chaos.worker import COUNTED, USUAL, digest
from tests.live.harness import short_directory
from tests.stalls import STALL_S
from tests.store.places import check_places

MSGPACK = {"content-type": "application/msgpack", "accept": "application/json"}
UNLIMITED = httpx2.Limits()  # who waits for a paused daemon must not keep others from theirs
BATCH = 10  # jobs of one push
WORK_MS = {"slow": (20, 100, 400), **dict.fromkeys(COUNTED, (50, 150))}
MAX_RETRY = 30  # what faults cost in attempts must not kill a job
OWN = "own-"  # how ids begin that a pusher chose
NAMED_SHARE = 0.3  # of the pushes go with one more, of a job with such an id
PUSH_S = 20.0  # a paused daemon answers when it goes on
CALL_S = 8.0
LIMITED_SHARE = 0.1  # of the jobs are of a jobtype that a constraint limits
CANCEL_SHARE, CANCEL_SHARE_STRUCK = 0.02, 0.12  # of the jobs; while something is wrong it pays to ask more
READS_PER_S = 8
FINAL_READS = 150  # over HTTP, beside the look at all of them in the store
LOOKERS = 8
POLL_S = 0.25


@dataclass(frozen=True)
class Settings:
    """What a run is like. `seconds` of faults; starting and draining come on top."""

    seed: int
    seconds: float
    rate: int = 220
    daemons: int = 3
    workers: int = 4
    servers: int = 1

    @property
    def size(self) -> tuple[int, int, int]:
        """Of the cluster."""
        return self.daemons, self.workers, self.servers


class Traffic:
    """Pushes at a steady rate, whoever answers; cancels some jobs and looks at others."""

    def __init__(self, settings: Settings, cluster: Cluster, history: History, http: httpx2.AsyncClient) -> None:
        self.acked: list[str] = []
        self.problems: list[str] = []
        self._rate = settings.rate
        self._source = random.Random(settings.seed + 1)
        self._cluster, self._history, self._http = cluster, history, http
        self._n, self._pushes, self._turn = itertools.count(1), itertools.count(1), itertools.count()

    async def run(self, seconds: float) -> None:
        """Until `seconds` are over and every request has been answered or given up."""
        end_t = trio.current_time() + seconds
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look, end_t)
            due_t = trio.current_time()
            while trio.current_time() < end_t:
                nursery.start_soon(self._push, nursery)
                if self._source.random() < NAMED_SHARE:
                    nursery.start_soon(self._push_named, nursery, end_t)
                due_t += BATCH / self._rate
                await trio.sleep(max(0.0, due_t - trio.current_time()))

    async def last_words(self) -> list[str]:
        """One more batch to each daemon: when it has ended, all that was pushed there before is in the store."""
        before = len(self.acked)
        async with trio.open_nursery() as nursery:
            for _ in self._cluster.daemons:
                await self._push(nursery)
        return self.acked[before::BATCH]

    async def _push(self, nursery: trio.Nursery) -> None:
        """One batch; when its daemon is not there, new jobs to the next one."""
        for _ in self._cluster.daemons:
            jobs = self._jobs()
            i = next(self._turn) % len(self._cluster.daemons)
            taken = await self._push_once(i, [_told(job) for job in jobs], msgspec.msgpack.encode(jobs))
            if taken is not None:
                return self._taken(taken, nursery)

    async def _push_once(self, i: int, told: list[dict[str, Any]], body: bytes) -> list[str] | None:
        """Ids of what was taken; empty when nobody knows, None when nothing was sent."""
        number = next(self._pushes)
        for job in told:
            job["server"] = partition_of_name(job["key"] or job["name"], len(self._cluster.servers))
        self._history.add("push_invoke", push=number, daemon=f"daemon-{i}", jobs=told)
        try:
            answer = await self._http.post(
                f"{self._cluster.urls[i]}/v1/jobs", content=body, headers=MSGPACK, timeout=PUSH_S
            )
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            self._history.add("push_fail", push=number, why=repr(error))
            return None
        except httpx2.TransportError as error:
            self._history.add("push_info", push=number, why=repr(error))
            return []
        if answer.status_code not in (200, 201):
            kind = "push_fail" if 400 <= answer.status_code < 500 else "push_info"
            self._history.add(kind, push=number, why=f"{answer.status_code} {answer.text[:200]}")
            return []
        body_told = answer.json()
        ids: list[str] = body_told.get("job_ids") or [body_told["job_id"]]
        self._history.add("push_ok", push=number, ids=ids)
        return ids

    def _taken(self, ids: list[str], nursery: trio.Nursery, *, cancel: bool = True) -> None:
        self.acked += ids
        share = CANCEL_SHARE_STRUCK if self._cluster.struck else CANCEL_SHARE
        for job_id in ids if cancel else ():
            if self._source.random() < share:
                nursery.start_soon(self._cancel, job_id)

    async def _push_named(self, nursery: trio.Nursery, end_t: float) -> None:
        """One job under an id of the pusher's own, here and there, until somebody says that it was taken."""
        job = self._jobs()[0]
        job["job_id"] = f"{OWN}{job['argument']['n']}"
        known = False
        times = self._source.choice((1, 1, 1, 1, 2, 3))  # some pushers forget that they were told
        while times and trio.current_time() < end_t:
            i = self._source.randrange(len(self._cluster.daemons))
            taken = await self._push_once(i, [_told(job)], msgspec.msgpack.encode(job))
            if taken and not known:
                known = True
                # A cancelled job that is pushed again runs: that is what its pusher wants.
                self._taken(taken, nursery, cancel=times == 1)
            times -= bool(taken)
            await trio.sleep(self._source.uniform(0.1, 1.0))

    def _jobs(self) -> list[dict[str, Any]]:
        source, jobs = self._source, []
        for _ in range(BATCH):
            name = source.choice(LIMITED if source.random() < LIMITED_SHARE else USUAL)
            plan_ = source.choices(("ok", "retry", "failed"), (0.94, 0.04, 0.02))[0]
            ms = source.choice(WORK_MS.get(name, (0, 0, 0, 20)))
            argument = {"n": next(self._n), "plan": plan_, "ms": ms, "pad": "x" * source.randrange(200)}
            job = {"name": name, "argument": argument, "priority": source.randrange(3), "max_retry": MAX_RETRY}
            job |= {"timeout": TIMEOUT_S}
            if source.random() < 0.05:
                job["delay"] = round(source.uniform(0.5, 6.0), 3)
            jobs.append(job)
        return jobs

    async def _cancel(self, job_id: str) -> None:
        """Somebody else than its pusher wants it cancelled, at once or a little later."""
        await trio.sleep(self._source.choice((0.0, 0.0, 0.3, 1.0)))
        url = self._source.choice(self._cluster.urls)
        self._history.add("cancel_invoke", job=job_id, daemon=self._name(url))
        try:
            answer = await self._http.delete(f"{url}/v1/jobs/{job_id}", timeout=CALL_S)
        except httpx2.TransportError as error:
            self._history.add("cancel_info", job=job_id, why=repr(error))
            return
        if answer.status_code == 204:
            self._history.add("cancel_ok", job=job_id)
        elif answer.status_code == 404:
            self._history.add("read", job=job_id, t0=time.monotonic(), state="unknown", daemon=self._name(url))
        else:
            self._history.add("cancel_info", job=job_id, why=f"{answer.status_code}")

    async def _look(self, end_t: float) -> None:
        while trio.current_time() < end_t:
            await trio.sleep(1 / READS_PER_S)
            if self.acked:
                # Mostly of late: what ended long ago is seldom looked at, and never changes.
                job_id = self.acked[max(0, len(self.acked) - 1 - int(self._source.expovariate(1 / 500)))]
                await self.read(self._source.choice(self._cluster.urls), job_id)

    async def read(self, url: str, job_id: str) -> None:
        """Note how a job stands, if the daemon can say."""
        t0 = time.monotonic()
        try:
            answer = await self._http.get(f"{url}/v1/jobs/{job_id}", timeout=CALL_S)
        except httpx2.TransportError:
            return  # nothing was told, so nothing can be wrong
        if answer.status_code in (200, 404):
            state = answer.json()["state"] if answer.status_code == 200 else "unknown"
            self._history.add("read", job=job_id, t0=t0, state=state, daemon=self._name(url))

    def _name(self, url: str) -> str:
        return f"daemon-{self._cluster.urls.index(url)}"


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
    with short_directory() as base, _closing(history):
        cluster = Cluster(base, history, random.Random(settings.seed + 2), *settings.size)
        try:
            async with trio.open_nursery() as nursery, httpx2.AsyncClient(trust_env=False, limits=UNLIMITED) as http:
                for edge in cluster.edges:
                    await nursery.start(edge.run)
                await cluster.start()
                traffic = Traffic(settings, cluster, history, http)
                await _introduce(settings, cluster, history, http)
                words = Words(cluster, history, http, random.Random(settings.seed + 3))
                await words.plan(settings.seconds, time.time() * 1000)
                async with trio.open_nursery() as running:
                    strikes = plan(settings.seed, settings.seconds, *settings.size)
                    running.start_soon(traffic.run, settings.seconds)
                    running.start_soon(words.pause_now_and_then, trio.current_time() + settings.seconds)
                    running.start_soon(Nemesis(cluster, strikes).run)
                history.add("healed")
                problems += [f"{name} ended by itself" for name in cluster.fallen()]
                await _drain(cluster, history, http, await traffic.last_words(), words)
                await _last_look(cluster, history, traffic, words)
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
        seed=settings.seed, seconds=settings.seconds, rate=settings.rate,
    )  # fmt: skip
    history.add("clock", wall_ms=time.time() * 1000)
    for i, url in enumerate(cluster.urls):
        while len(stats := (await http.get(f"{url}/v1/workers")).json()["workers"]) < settings.workers:
            assert len(stats) <= settings.workers
            await trio.sleep(POLL_S)
        history.add("daemon_is", name=f"daemon-{i}", sysid=(await _stats(http, url))["daemon"])


async def _drain(cluster: Cluster, history: History, http: httpx2.AsyncClient, last: list[str], words: Words) -> None:
    """Until nothing waits and no daemon holds anything, or it takes too long: the checker says so then."""
    async with _open(cluster) as store:
        with trio.move_on_after(HEAL_S + 5.0) as patience:
            ended = 0
            while not (await words.are_fired() and await _is_quiet(store, cluster, http, last)):
                await trio.sleep(POLL_S)
                if (now := await _ended(store)) > ended:  # the work that was left goes on
                    ended, patience.deadline = now, trio.current_time() + HEAL_S + 5.0
            history.add("drained")


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
    held = [(await _stats(http, url))["runner"]["in_hand"] for url in cluster.urls]
    return not (told.unreachable or told.waiting or told.scheduled or told.running or any(held))


async def _stats(http: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    try:
        answer = await http.get(f"{url}/v1/stats", headers={"accept": "application/json"}, timeout=CALL_S)
        return answer.raise_for_status().json()  # type: ignore[no-any-return]
    except httpx2.HTTPError:
        return {"runner": {"in_hand": 1, "workers": []}}  # it cannot be said that it is quiet


async def _last_look(cluster: Cluster, history: History, traffic: Traffic, words: Words) -> None:
    """Every acknowledged job as the store has it, a few also as daemons tell it."""
    ids = iter(traffic.acked)
    async with _open(cluster) as store:

        async def look() -> None:
            for job_id in ids:
                try:
                    own = job_id.startswith(OWN)
                    view = await store.get_job((await store.resolve(job_id) or job_id) if own else job_id)
                except StoreError as error:
                    history.add("final", job=job_id, state=f"unreadable: {error}")
                else:
                    state = view.state.value if isinstance(view, JobView) else repr(view)
                    history.add("final", job=job_id, state=state)

        async with trio.open_nursery() as nursery:
            for _ in range(LOOKERS):
                nursery.start_soon(look)
            nursery.start_soon(words.last_look, store)
        told = await store.stats()
    history.add(
        "census", waiting=told.waiting, scheduled=told.scheduled, running=told.running, ended=told.ended, dead=told.dead
    )
    step = max(1, len(traffic.acked) // FINAL_READS)
    for job_id, url in zip(traffic.acked[::step], itertools.cycle(cluster.urls), strict=False):
        await traffic.read(url, job_id)


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


def _told(job: dict[str, Any]) -> dict[str, Any]:
    """A job as the history tells it."""
    argument = job["argument"]
    fields = {"n": argument["n"], "sha": digest(argument), "plan": argument["plan"]}
    fields |= {"name": job["name"], "delay_s": job.get("delay", 0), "priority": job["priority"]}
    return fields | {"key": job.get("job_id")}


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
    return check(load(directory)), problems
