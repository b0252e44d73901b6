"""What plain jobs are pushed in a chaos run, cancelled and looked at."""

import itertools
import random
import time
from typing import Any

import httpx2
import msgspec
import trio

from jqd.domain.jobid import partition_of_name
from tests.chaos.cluster import TIMEOUT_S, Cluster, History
from tests.chaos.words import LIMITED
from tests.chaos.worker import COUNTED, USUAL, digest
from tests.chaos.workload import CALL_S, MAX_RETRY, MSGPACK, PUSH_S, Settings

BATCH = 10  # jobs of one push
WORK_MS = {"slow": (20, 100, 400), **dict.fromkeys(COUNTED, (50, 150))}
OWN = "own-"  # how ids begin that a pusher chose
NAMED_SHARE = 0.3  # of the pushes go with one more, of a job with such an id
LIMITED_SHARE = 0.1  # of the jobs are of a jobtype that a constraint limits
CANCEL_SHARE, CANCEL_SHARE_STRUCK = 0.02, 0.12  # of the jobs; while something is wrong it pays to ask more
READS_PER_S = 8


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


def _told(job: dict[str, Any]) -> dict[str, Any]:
    """A job as the history tells it."""
    argument = job["argument"]
    fields = {"n": argument["n"], "sha": digest(argument), "plan": argument["plan"]}
    fields |= {"name": job["name"], "delay_s": job.get("delay", 0), "priority": job["priority"]}
    return fields | {"key": job.get("job_id")}
