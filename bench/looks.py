"""How long lists, counts and pages take with a million jobs waiting, 100,000 ended and 10,000 dead, by any filter.

The store is filled by its own methods, as daemons fill it; then a daemon is asked over HTTP, and a web UI before it.
Each look is asked in turns with all others. What goes on by a cursor is one look for each of its answers, and of some
the whole way is told, too. `cpu` is the processor time of daemon and store for one answer, which says more than the
clock on a machine with other work.
"""

import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import redis
import trio

from bench.processes import serve
from bench.result import Result, percentile
from bench.ui import ui
from jqd.domain.clock import SystemClock
from jqd.domain.job import PRIORITY_MAX, PRIORITY_MIN, Fate, Held, Job, Outcome
from jqd.domain.jobid import IdSource, journal_number
from jqd.domain.record import Lane
from jqd.domain.tenant import annotate
from jqd.store import RedisStore, StoreConfig, open_embedded, open_store

P95_MS_MAX = 100.0
ENDED, DEAD, RETRYING, SCHEDULED = 10, 100, 200, 500  # of so many waiting jobs one is …
TURNS = 12  # of all looks
PAGES = 3  # answers of one look in a turn, where it goes on by a cursor
LOOK_S = 2.0  # for all turns of one look: what is so slow needs no more of them
UI_TURNS = 7
UI_EVERY_S = 1.0  # pages share answers that are younger
CALL, CLAIM = 500, 100
JOURNAL = "0123456789abcdef0123456789abcdef"
NAMES = ("mail", "resize", "report", "sync", "bill", "index", "import", "notify")
TENANTS = ("", "", "", "", "", "", "acme", "globex")
RARE = "rare"  # the tag of a few of the oldest jobs, and a type with a few dead jobs
PLACES = ("parser", "gateway", "cache", "mailer", "shard", "proxy", "ledger", "queue", "vault", "router")
FAULTS = ("is down", "was refused", "timed out", "is full", "lost the lock", "gave nonsense")
KINDS = ("KeyError", "ValueError", "OSError", "TimeoutError", "RuntimeError")
PATTERNS = [f"{kind}: {place} {fault}" for kind in KINDS for place in PLACES for fault in FAULTS]
ARGUMENT = msgspec.msgpack.encode({"user": 4711, "text": "x" * 180})
HOUR_MS = 3_600_000


@dataclass
class Look:
    """One question, and how long its answers took."""

    name: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)
    tenant: str = ""
    body: dict[str, Any] | None = None
    waits_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    rows: int = 0
    looked: int = 0

    def ask(self, client: httpx2.Client, cpu: Callable[[], float], pages: int = PAGES) -> float:
        """Ask, and go on by cursors; returns the seconds of all answers together."""
        cursor, began_s = "", time.perf_counter()
        self.rows = self.looked = 0
        for _ in range(pages):
            used_ms, at_s = cpu(), time.perf_counter()
            told = self._told(client, cursor)
            self.waits_ms.append((time.perf_counter() - at_s) * 1e3)
            self.cpu_ms.append(cpu() - used_ms)
            self.rows += next((len(each) for each in told.values() if isinstance(each, list)), told.get("matched", 0))
            self.looked += told.get("looked", 0)
            cursor = told.get("cursor") or ""
            if not cursor or ("limit" in self.params and self.rows):
                break
        return time.perf_counter() - began_s

    def _told(self, client: httpx2.Client, cursor: str) -> dict[str, Any]:
        headers = {"jqd-tenant": self.tenant} if self.tenant else {}
        at = {"cursor": cursor} if cursor else {}
        if self.body is not None:
            answer = client.post(self.path, json=self.body | at, headers=headers)
        else:
            answer = client.get(self.path, params=self.params | at, headers=headers)
        answer.raise_for_status()
        told: dict[str, Any] = answer.json()
        return told


def looks() -> list[Look]:
    """All that is asked."""
    jobs: list[tuple[str, dict[str, Any]]] = [
        ("all", {}),
        *(
            (state, {"state": state})
            for state in ("waiting", "scheduled", "retrying", "running", "succeeded", "failed")
        ),
        ("type", {"name": "mail"}),
        ("type+failed", {"name": RARE, "state": "failed"}),
        ("type+retrying", {"name": "mail", "state": "retrying"}),
        ("no such type", {"name": "nobody"}),
        ("no such tag", {"tag": "nobody"}),
        ("rare tag", {"tag": RARE}),
        ("tag+waiting", {"tag": RARE, "state": "waiting"}),
        ("tag+succeeded", {"tag": "nobody", "state": "succeeded"}),
        ("error", {"error": "vault lost the lock"}),
        ("error+failed", {"error": "no such text", "state": "failed"}),
        ("error_like", {"error_like": PATTERNS[7] + " for user 12", "state": "failed"}),
        ("code", {"code": "failed", "state": "failed"}),
        ("search", {"search": "nowhere to be found"}),
        ("since", {"since": 4_000_000_000}),
    ]
    found = [Look(f"jobs {name}", "/v1/jobs", {"limit": 50, **params}) for name, params in jobs]
    found.append(Look("jobs 1000 failed", "/v1/jobs", {"limit": 1_000, "state": "failed"}))
    for name, params in (("all", {}), ("failed", {"state": "failed"}), ("tag", {"tag": RARE})):
        found.append(Look(f"jobs {name}, tenant", "/v1/jobs", {"limit": 50, **params}, "globex"))
    for name, params in (("all", {}), ("type", {"name": "mail"}), ("text", {"error": "vault"})):
        found.append(Look(f"errors {name}", "/v1/errors", params))
    found.append(Look("errors retrying", "/v1/errors", {"state": "retrying"}))
    found.append(Look("errors tenant", "/v1/errors", {}, "globex"))
    for name, act, body in (
        ("retry failed", "retry", {"state": "failed"}),
        ("delete error", "delete", {"state": "failed", "error_like": PATTERNS[7] + " for user 12"}),
        ("cancel type", "cancel", {"name": "mail"}),
        ("cancel tag", "cancel", {"tag": RARE}),
    ):
        found.append(Look(f"count {name}", f"/v1/jobs/{act}", body={**body, "dry_run": True}))
    found += [Look(path, f"/v1/{path}") for path in ("types", "stats", "workers", "daemons", "schedules", "tenants")]
    found += [Look("handlers", "/v1/handlers"), Look("constraints", "/v1/constraints"), Look("history", "/v1/history")]
    return found


UI_PAGES = {
    "now": "/",
    "jobs": "/jobs",
    "jobs failed": "/jobs?state=failed",
    "jobs tag": f"/jobs?tag={RARE}",
    "errors": "/errors",
    "types": "/types",
    "tenants": "/tenants",
    "bulk": "/bulk?act=retry&state=failed&before=2100-01-01T00:00:00Z",
}


def run(jobs: int) -> Result:
    """`jobs`: how many wait."""
    return trio.run(_run, jobs)


async def _run(jobs: int) -> Result:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".jqd-bench-", dir=Path.cwd())))
        url = await stack.enter_async_context(open_embedded(directory))
        began_s = time.monotonic()
        async with open_store(StoreConfig(url)) as store:
            await _Filler(store, jobs).fill()
        filled_s = time.monotonic() - began_s
        return await trio.to_thread.run_sync(_measure, directory / "data", url, jobs, filled_s)


class _Filler:
    """Fills a store as daemons do."""

    def __init__(self, store: RedisStore, jobs: int) -> None:
        self._store, self._jobs = store, jobs
        self._clock = SystemClock()
        self._ids = IdSource(journal=journal_number(JOURNAL), salt=7, clock=self._clock)
        self._at = dict.fromkeys(Lane, 0)
        self._numbers = itertools.count()

    async def fill(self) -> None:
        store = self._store
        await store.look(fresh=True)
        owner = await store.reserve_sysid("bench", True, through=True)
        ended, dead, retrying = (self._jobs // each for each in (ENDED, DEAD, RETRYING))
        await self._push(ended + dead + retrying)
        fates = [Fate.SUCCEEDED] * ended + [Fate.DEAD] * dead + [Fate.RETRY] * retrying
        random.Random(7).shuffle(fates)
        left = iter(fates)
        while waiting := (await store.list_types()):
            types = [row.jobtype for row in waiting if row.counts.waiting]
            if not types:
                break
            for jobtype in types:
                held = await store.get_waiting_jobs(
                    owner, jobtype, CLAIM, priority_min=PRIORITY_MIN, priority_max=PRIORITY_MAX, bytes_max=1 << 20
                )
                outcomes = [self._outcome(each, fate) for each, fate in zip(held, left, strict=False)]
                await store.apply_outcomes(JOURNAL, *self._range(Lane.OUTCOMES, len(outcomes)), outcomes)
        await self._push(self._jobs)
        await self._push(self._jobs // SCHEDULED, 24 * HOUR_MS)
        await store.release_sysid(owner)

    async def _push(self, jobs: int, delay_ms: int = 0) -> None:
        for at in range(0, jobs, CALL):
            ids, now_ms = self._ids.take(min(CALL, jobs - at)).ids(), self._clock.wall_ms()
            made = [self._job(job_id, now_ms, now_ms + delay_ms if delay_ms else 0) for job_id in ids]
            await self._store.apply_jobs(JOURNAL, *self._range(Lane.JOBS, len(made)), made)

    def _job(self, job_id: str, now_ms: int, eligible_at_ms: int) -> Job:
        number = next(self._numbers)
        name, tenant = NAMES[number % len(NAMES)], TENANTS[number // len(NAMES) % len(TENANTS)]
        tags = (RARE,) if number in range(40, 45) else (f"batch-{number % 977}",) if number % 10 == 0 else ()
        return Job(
            job_id,
            annotate(tenant, name) if tenant else RARE if number % 2_003 == 5 else name,
            ARGUMENT,
            created_at_ms=now_ms,
            eligible_at_ms=eligible_at_ms,
            priority=number % 3,
            tags=tags,
        )

    def _outcome(self, held: Held, fate: Fate) -> Outcome:
        job, number, now_ms = held.job, next(self._numbers), self._clock.wall_ms()
        made = Outcome(
            job.id,
            held.fence,
            fate,
            job.jobtype,
            job.priority,
            held.attempt,
            started_at_ms=now_ms,
            finished_at_ms=now_ms,
        )
        if fate is Fate.SUCCEEDED:
            return made
        line = f"{PATTERNS[number * 7919 % len(PATTERNS)]} for user {number}"
        frames = "".join(
            f'  File "/srv/app/{place}.py", line {number % 97}, in run\n    go()\n' for place in PLACES[:6]
        )
        message = f"Traceback (most recent call last):\n{frames}{line}"
        delay_ms = 24 * HOUR_MS if fate is Fate.RETRY and number % 2 else 0
        return msgspec.structs.replace(made, status=500, reason="other", message=message, delay_ms=delay_ms)

    def _range(self, lane: Lane, count: int) -> tuple[int, int]:
        start = self._at[lane]
        self._at[lane] += count
        return start, self._at[lane]


def _measure(data: Path, store_url: str, jobs: int, filled_s: float) -> Result:
    asked, wholes_s = looks(), {}
    settings = {"JQD_STORE__URL": store_url, "JQD_PRESSURE__WAITING_JOBS_MAX": "100000000"}
    with (
        serve(data, settings) as (url, daemon),
        httpx2.Client(base_url=url, headers={"accept": "application/json"}, timeout=120) as client,
    ):
        _wait_through(client)
        server = redis.Redis.from_url(store_url)
        cpu = partial(_cpu_ms, daemon.pid, int(server.info("server")["process_id"]))
        for look in asked:  # scripts are loaded, and what is remembered is
            look.ask(client, cpu, 1)
            look.waits_ms.clear()
            look.cpu_ms.clear()
        for _ in range(TURNS):
            for look in asked:
                if sum(look.waits_ms) < LOOK_S * 1e3:
                    look.ask(client, cpu)
        for look in asked:
            if look.name in ("errors all", "count retry failed", "jobs tag+succeeded"):
                wholes_s[look.name] = replace(look, waits_ms=[], cpu_ms=[]).ask(client, cpu, 10_000)
        pages = _ui_waits_ms(url)
    _print(asked, pages)
    rows = {look.name: look.waits_ms for look in asked} | {f"page {name}": waits for name, waits in pages.items()}
    p95s_ms = {name: percentile(waits_ms, 0.95) for name, waits_ms in rows.items()}
    slowest = max(p95s_ms, key=lambda name: p95s_ms[name])
    slow = sum(p95_ms > P95_MS_MAX for p95_ms in p95s_ms.values())
    figures = {"jobs": float(jobs), "fill_s": filled_s, "looks": float(len(rows)), "slow": float(slow)}
    figures |= {"worst_p95_ms": p95s_ms[slowest], "worst_ms": max(map(max, rows.values()))}
    figures |= {f"whole {name} s": seconds for name, seconds in wholes_s.items()}
    return Result("looks", figures, ok=not slow)


def _cpu_ms(*pids: int) -> float:
    """Return what all threads of these processes have used."""
    tasks = (path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(path.read_text().split()[0]) for path in tasks) / 1e6


def _wait_through(client: httpx2.Client) -> None:
    deadline_s = time.monotonic() + 60
    while not client.get("/readyz/run").json()["ready"]:
        assert time.monotonic() < deadline_s, "the daemon does not come through"
        time.sleep(0.1)


def _ui_waits_ms(url: str) -> dict[str, list[float]]:
    waits_ms: dict[str, list[float]] = {name: [] for name in UI_PAGES}
    with ui(url) as page_url, httpx2.Client(base_url=page_url, timeout=120, follow_redirects=True) as client:
        for name in _turns(UI_TURNS + 1):
            began_s = time.perf_counter()
            client.get(UI_PAGES[name]).raise_for_status()
            waits_ms[name].append((time.perf_counter() - began_s) * 1e3)
    return {name: waits[1:] for name, waits in waits_ms.items()}


def _turns(turns: int) -> Iterator[str]:
    for _ in range(turns):
        began_s = time.monotonic()
        yield from UI_PAGES
        time.sleep(max(0.0, UI_EVERY_S - (time.monotonic() - began_s)))


def _print(asked: list[Look], pages: dict[str, list[float]]) -> None:
    print(
        f"{'look':<26} {'p50':>8} {'p95':>8} {'max ms':>8} {'cpu ms':>7} {'rows':>7} {'looked at':>10}", file=sys.stderr
    )
    told = [
        (one.name, one.waits_ms, f"{percentile(one.cpu_ms, 0.5):>7.1f} {one.rows:>7,} {one.looked or '':>10}")
        for one in asked
    ]
    for name, waits, more in [*told, *((f"page {name}", waits, "") for name, waits in pages.items())]:
        three = " ".join(f"{ms:>8.1f}" for ms in (percentile(waits, 0.5), percentile(waits, 0.95), max(waits)))
        print(f"{name:<26} {three} {more}", file=sys.stderr)
