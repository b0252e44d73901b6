"""A stand-in for the daemon's HTTP API, for tests of the SDK: it keeps jobs in a dict and posts them to workers.

    async with open_daemon() as daemon:
        daemon.script("POST", "/v1/workers", Answer(404))     # the next such request gets this, then all is as ever
        ... daemon.url, daemon.seen, daemon.jobs, daemon.workers

It answers the calls the SDK makes in the shapes of the interface, with MessagePack. No journal, no store, no back-off:
a job that asks for a retry is posted again at once. What it must never be used for is saying how the daemon behaves.
"""

from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, unquote

import httpx2
import msgpack
import msgspec
import trio

from jqd.http import bind, from_asgi, serve_http, url_of

Message = MutableMapping[str, Any]
CREATED_AT = "2026-01-31T12:00:00+00:00"
DELIVER_TIMEOUT_S = 30.0  # for one batch: no test lets a job take longer


@dataclass(frozen=True, slots=True)
class Answer:
    """A scripted answer."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it arrived, its body decoded."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Record:
    """One job and how it stands."""

    def __init__(self, job_id: str, pushed: dict[str, Any]) -> None:
        self.job_id = job_id
        self.pushed = pushed
        self.state = "waiting"
        self.attempts = 0
        self.outcome: dict[str, Any] = {}
        self.result: Any = None
        self.ended = trio.Event()

    def end(self, state: str) -> None:
        """Nothing more will happen to the job."""
        self.state = state
        self.ended.set()

    def told(self) -> dict[str, Any]:
        """What `GET /v1/jobs/{id}` says."""
        told = {"job_id": self.job_id, "name": self.pushed["name"], "state": self.state, "attempts": self.attempts}
        told |= {"priority": self.pushed.get("priority", 0), "max_retry": self.pushed.get("max_retry", 5)}
        told |= {"created_at": CREATED_AT, "finished_at": self.outcome.get("finished_at"), "history": []}
        told |= {"error": self.outcome.get("error"), "message": self.outcome.get("message")}
        return told | ({"result": self.result} if self.pushed.get("keep_result") else {})


class ScriptedDaemon:
    """What `open_daemon` yields; `url` is where it listens."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self.jobs: dict[str, Record] = {}
        self.workers: dict[str, dict[str, Any]] = {}
        self.daemons: list[str] = []
        """Those of its store, as the answer to a registration names them; empty: itself alone."""
        self.urls: list[str] = []
        """Where they are reached."""
        self.registered = trio.Event()
        """Set by a registration; replace it to wait for the next."""
        self.unregistered = trio.Event()
        self._scripts: dict[tuple[str, str], deque[Answer]] = {}
        self._work = trio.Event()
        self._numbers: Counter[str] = Counter()

    def script(self, method: str, path: str, *answers: Answer) -> None:
        """Give these answers to the next requests for `path`, in order, instead of the usual ones."""
        self._scripts.setdefault((method, path), deque()).extend(answers)

    def counted(self, method: str, path: str) -> int:
        """How many such requests have come."""
        return sum(seen.method == method and seen.path == path for seen in self.seen)

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Any) -> None:
        """ASGI."""
        if scope["type"] != "http":
            raise NotImplementedError("http only")
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode()))
        decoded = msgspec.msgpack.decode(body) if body else None
        seen = Seen(scope["method"], scope["path"], query, headers, decoded)
        self.seen.append(seen)
        scripted = self._scripts.get((seen.method, seen.path))
        raw_path = scope["raw_path"].decode()
        answer = scripted.popleft() if scripted else await self._answer(seen, raw_path)
        content = b"" if answer.body is None else msgspec.msgpack.encode(answer.body)
        out = [(b"content-type", b"application/msgpack"), (b"content-length", b"%d" % len(content))]
        out += [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": out})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, seen: Seen, raw_path: str) -> Answer:
        parts = [unquote(part) for part in raw_path.strip("/").split("/")]
        match seen.method, parts:
            case "POST", ["v1", "jobs"]:
                answer = self._push_list(seen.body) if isinstance(seen.body, list) else self._push(seen.body)
                if "ack" in answer.body:
                    answer.body["ack"] = seen.query.get("ack", "fsync")
                return answer
            case "GET", ["v1", "jobs", job_id]:
                return await self._get(job_id, float(seen.query.get("wait", 0)))
            case "GET", ["v1", "jobs", job_id, "result"]:
                return self._result(job_id, consume="consume" in seen.query)
            case "DELETE", ["v1", "jobs", job_id]:
                return self._cancel(job_id)
            case "POST", ["v1", "workers"]:
                return self._register(seen.body)
            case "DELETE", ["v1", "workers", worker_id]:
                self.unregistered.set()
                return Answer(204) if self.workers.pop(worker_id, None) else _problem(404, "no such worker")
            case "GET", ["v1", "workers"]:
                return Answer(200, {"workers": [{"worker_id": key} | card for key, card in self.workers.items()]})
            case "GET", ["v1", "stats"]:
                return Answer(200, {"jobs": len(self.jobs)})
            case "GET", ["readyz"]:
                return Answer(200, {"push": True, "run": bool(self.workers)})
        return _problem(404, f"no {seen.method} {seen.path} here")

    # ------------------------------------------------------------ jobs

    def _push(self, pushed: Any) -> Answer:
        if not isinstance(pushed, dict) or not isinstance(pushed.get("name"), str):
            return _problem(422, "a job has a name", [{"pointer": "/name", "detail": "is required"}])
        job_id = pushed.get("job_id") or self._number("job")
        known = self.jobs.get(job_id)
        if known is not None:
            if known.pushed == pushed:
                return Answer(200, {"job_id": job_id, "duplicate": True})
            return _problem(409, f"job {job_id} exists with other content")
        self.jobs[job_id] = Record(job_id, pushed)
        self._work.set()
        return Answer(201, {"job_id": job_id, "ack": "fsync"})

    def _push_list(self, pushed: list[Any]) -> Answer:
        answers = [self._push(job) for job in pushed]
        job_ids = [answer.body.get("job_id") for answer in answers]
        errors = [
            {"index": index, "pointer": f"/{index}/name", "detail": answer.body["detail"]}
            for index, answer in enumerate(answers)
            if answer.status > 299
        ]
        return (
            Answer(207, {"job_ids": job_ids, "errors": errors})
            if errors
            else Answer(201, {"job_ids": job_ids, "ack": "fsync"})
        )

    async def _get(self, job_id: str, wait_s: float) -> Answer:
        record = self.jobs.get(job_id)
        if record is None:
            return _problem(404, f"no job {job_id}")
        with trio.move_on_after(wait_s):
            await record.ended.wait()
        return Answer(200, record.told())

    def _result(self, job_id: str, *, consume: bool) -> Answer:
        record = self.jobs.get(job_id)
        if record is None:
            return _problem(404, f"no job {job_id}")
        result = record.result
        if consume:
            record.result = None
        return Answer(200, {"result": result})

    def _cancel(self, job_id: str) -> Answer:
        record = self.jobs.get(job_id)
        if record is None:
            return _problem(404, f"no job {job_id}")
        if record.ended.is_set():
            return _problem(409, f"job {job_id} has ended")
        if record.state == "running":
            return Answer(202)
        record.end("cancelled")
        return Answer(204)

    # ------------------------------------------------------------ workers

    def _register(self, card: dict[str, Any]) -> Answer:
        worker_id = card.pop("worker_id", None) or self._number("worker")
        self.workers[worker_id] = card
        self.registered.set()
        self._work.set()
        return Answer(201, {"worker_id": worker_id, "daemons": self.daemons or [self.url], "urls": self.urls})

    async def run(self) -> None:
        """Post waiting jobs to workers until cancelled."""
        async with httpx2.AsyncClient(trust_env=False, timeout=DELIVER_TIMEOUT_S) as http:
            while True:
                await self._work.wait()
                self._work = trio.Event()
                for worker_id, card in list(self.workers.items()):
                    names = [job if isinstance(job, str) else job["name"] for job in card["jobs"]]
                    fit = [r for r in self.jobs.values() if r.state in ("waiting", "retrying")]
                    batch = [record for record in fit if record.pushed["name"] in names][: card["batch"]]
                    if not batch:
                        continue
                    self._work.set()
                    try:
                        await self._deliver(http, card["url"], batch)
                    except httpx2.HTTPError:
                        # Gone or refusing: what it had may be done by another worker, or by this one once it returns.
                        self.workers.pop(worker_id, None)
                        for record in batch:
                            if record.state == "running":
                                record.state = "waiting"

    async def _deliver(self, http: httpx2.AsyncClient, url: str, batch: list[Record]) -> None:
        """Post one batch and take its outcomes. Raises httpx2.HTTPError."""
        jobs = []
        for record in batch:
            record.state, record.attempts = "running", record.attempts + 1
            pushed = record.pushed
            job = {"job_id": record.job_id, "id": record.job_id, "name": pushed["name"], "attempt": record.attempts}
            job |= {"argument": pushed.get("argument"), "timeout": pushed.get("timeout", 30.0)}
            jobs.append(job | {"max_retry": pushed.get("max_retry", 5), "created_at": CREATED_AT})
        body = msgspec.msgpack.encode({"batch_id": self._number("batch"), "jobs": jobs})
        answer = await http.post(url, content=body, headers={"content-type": "application/msgpack"})
        answer.raise_for_status()
        unpacker = msgpack.Unpacker(max_buffer_size=0)
        unpacker.feed(answer.content)
        for outcome in unpacker:
            self._take(self.jobs[outcome["job_id"]], outcome)

    def _take(self, record: Record, outcome: dict[str, Any]) -> None:
        if outcome["type"] == "started":
            return
        if outcome["type"] == "refused":
            record.state, record.attempts = "waiting", record.attempts - 1
            return
        record.outcome = outcome
        if outcome["type"] == "success":
            record.result = outcome["result"] if record.pushed.get("keep_result") else None
            record.end("succeeded")
        elif outcome["should_retry"] and record.attempts <= record.pushed.get("max_retry", 5):
            record.state = "retrying"
        else:
            record.end("failed")

    def _number(self, what: str) -> str:
        self._numbers[what] += 1
        return f"{what}-{self._numbers[what]}"


def _problem(status: int, detail: str, errors: list[dict[str, Any]] | None = None) -> Answer:
    body = {"type": "about:blank", "title": "Refused", "status": status, "detail": detail}
    return Answer(status, body | ({"errors": errors} if errors else {}))


@asynccontextmanager
async def open_daemon() -> AsyncIterator[ScriptedDaemon]:
    """A scripted daemon on a free port of the loopback, posting jobs to workers that register."""
    daemon = ScriptedDaemon()
    listener = bind("127.0.0.1:0")
    daemon.url = url_of(listener)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_http, from_asgi(daemon), listener, stopped=trio.sleep_forever))
        nursery.start_soon(daemon.run)
        yield daemon
        nursery.cancel_scope.cancel()
