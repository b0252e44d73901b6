"""What is said to daemons in a chaos run: two constraints and two schedules at its beginning, and a jobtype that is
paused and resumed."""

import itertools
import random
from typing import Any

import httpx2
import trio

from jqd.domain.dates import instant_ms, iso
from jqd.domain.errors import StoreError
from jqd.domain.jobid import partition_of_name
from jqd.store import EdgeStore, JobView
from tests.chaos.cluster import Cluster, History
from tests.chaos.worker import COUNTED, RATED

EVERY_S = {"fast": 1.0, "slow": 3.0}
MISSED = "all"  # so each date is to be fired, however late
PAUSED = "other"  # of the jobtypes
LIMITED = (*RATED, *COUNTED)
LIMITS: dict[str, tuple[tuple[str, str], dict[str, Any]]] = {
    "rated": (RATED, {"rate": {"limit": 30, "per_s": 1.0}}),
    "counted": (COUNTED, {"concurrency": 4}),
}
"""Constraints: of which jobtypes, and what they allow: more than comes, so that what piled up is done in the end."""
PAUSE_S, PAUSES_S = (2.0, 4.0), (4.0, 8.0)
CALL_S = 8.0
AGAIN_S = 0.2


class Words:
    """Whoever says them asks one daemon after the other until one has taken it."""

    def __init__(self, cluster: Cluster, history: History, http: httpx2.AsyncClient, source: random.Random) -> None:
        self._cluster, self._history, self._http, self._source = cluster, history, http, source
        self._dates: dict[str, list[int]] = {}

    async def plan(self, seconds: float, now_ms: float) -> None:
        """While all is well: constraints; schedules whose dates come for so long."""
        for name, (jobtypes, said) in LIMITS.items():
            await self._say("PUT", f"/v1/constraints/{name}", {"match": f"job.name in {list(jobtypes)}", **said})
            self._history.add("limit", name=name, jobtypes=jobtypes, **said)
        for number, (name, every_s) in enumerate(EVERY_S.items(), 1):
            until_ms = round(now_ms + seconds * 1000)
            job = {"name": "plain", "argument": {"n": -number, "plan": "ok", "ms": 0, "pad": ""}}
            said = {"every": every_s, "missed": MISSED, "job": job, "until": iso(until_ms)}
            answer = await self._say("PUT", f"/v1/schedules/{name}", said)
            first_ms = instant_ms(answer.json()["next"][0])
            self._dates[name] = list(range(first_ms, until_ms + 1, round(every_s * 1000)))
            self._history.add("schedule", name=name, n=-number)

    async def pause_now_and_then(self, end_t: float) -> None:
        """Until then; in the end it is resumed."""
        while trio.current_time() < end_t:
            await trio.sleep(self._source.uniform(*PAUSES_S))
            t0 = self._history.add("pause_invoke", name=PAUSED)
            answer = await self._say("POST", f"/v1/types/{PAUSED}/pause", None)
            self._history.add("pause", name=PAUSED, t0=t0, daemon=self._daemon_of(answer))
            await trio.sleep(self._source.uniform(*PAUSE_S))
            self._history.add("resume_invoke", name=PAUSED)
            await self._say("POST", f"/v1/types/{PAUSED}/resume", None)

    async def last_look(self, store: EdgeStore) -> None:
        """What became of each date."""
        for name, at_ms in ((name, at_ms) for name, dates in self._dates.items() for at_ms in dates):
            date = f"{name}@{iso(at_ms)}"
            job_id, state = None, "unknown"
            try:
                job_id = await store.resolve(date)
                view = await store.get_job(job_id) if job_id else None
                state = view.state.value if isinstance(view, JobView) else "unknown"
            except StoreError as error:
                state = f"unreadable: {error}"
            server = partition_of_name(date, len(self._cluster.servers))
            self._history.add("date", name=date, at_ms=at_ms, job=job_id, state=state, server=server)

    async def are_fired(self) -> bool:
        """Whether all daemons say that no date is left."""
        for url in self._cluster.urls:
            try:
                rows = (await self._http.get(f"{url}/v1/schedules", timeout=CALL_S)).raise_for_status().json()
            except httpx2.HTTPError:
                return False
            if any(row["next"] for row in rows["schedules"]):
                return False
        return True

    async def _say(self, method: str, path: str, body: Any) -> httpx2.Response:
        for url in itertools.cycle(self._source.sample(self._cluster.urls, len(self._cluster.urls))):
            try:
                answer = await self._http.request(method, url + path, json=body, timeout=CALL_S)
            except httpx2.TransportError:
                answer = None  # nobody knows; it is said again
            if answer is not None and answer.is_success:
                return answer
            await trio.sleep(AGAIN_S)
        raise AssertionError("the cycle has no end")

    def _daemon_of(self, answer: httpx2.Response) -> str:
        urls = self._cluster.urls
        return next(f"daemon-{i}" for i, url in enumerate(urls) if str(answer.url).startswith(url))
