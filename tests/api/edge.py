"""The edge with stand-ins behind it, and a client that speaks ASGI to it directly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import trio

from jqd.api import Api, ApiConfig, ApiContext, Authenticator
from jqd.api.path_match import RouteTable
from jqd.api.problems import Details
from jqd.api.route import Document
from jqd.domain.job import State
from jqd.domain.jobid import parse_id
from jqd.features import HOOKS
from jqd.http import ListenerConfig
from jqd.routes import ROUTES
from jqd.runner import WorkerRegistry
from jqd.service import Services
from jqd.store import JobView
from jqd.testing.clock import ManualClock
from tests.api.behind_asgi import to_asgi
from tests.api.fake_runner import FakeControl, FakeRunner
from tests.api.fakes import FakeJournal, FakeStore

INTERNAL = re.compile(rb"(acme|other|beta)(\x1f|\\u001f)[ -~]")  # a name as jqd knows it, with a tenant of these tests
MSGPACK, JSON = "application/msgpack", "application/json"

TABLE = RouteTable(ROUTES)


@dataclass
class Answer:
    """What came back, decoded."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        if not self.raw:
            return None
        return json.loads(self.raw) if "json" in self.headers["content-type"] else msgspec.msgpack.decode(self.raw)


@dataclass
class Edge:
    """An Api over fakes, and how to talk to it."""

    config: ApiConfig = field(default_factory=ApiConfig)

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.client: tuple[str, int] | None = ("127.0.0.1", 1)
        self.journal = FakeJournal(self.clock)
        self.store = FakeStore()
        self.runner = FakeRunner()
        self.workers = WorkerRegistry(None, clock=self.clock)
        self.control = FakeControl(self.journal)
        journal, store, runner, control = map(_as_any, (self.journal, self.store, self.runner, self.control))
        services = self.services = Services(
            self.config, journal, store, runner, self.workers, control, self.clock, HOOKS
        )
        self.api = Api(ApiContext(self.config, services, Authenticator(services.tokens)), ROUTES)

    def add(self, state: State, **fields: Any) -> str:
        """A job the store knows, in `state`; returns its id."""
        job_id = fields.pop("id", None) or self.journal.ids.take(1).first
        parts = parse_id(job_id)
        assert parts is not None
        defaults: dict[str, Any] = {
            "jobtype": "mail",
            "name": "",
            "priority": 0,
            "max_retry": 5,
            "timeout": 30.0,
            "keep_result": False,
            "created_at_ms": parts.at_ms,
            "tags": (),
            "attempts": 0,
            "eligible_at_ms": 0,
            "started_at_ms": 0,
            "daemon": "",
            "outcome": None,
            "history": [],
            "cancel_asked": False,
            "result": None,
        }
        self.store.views[job_id] = JobView(id=job_id, state=state, **{**defaults, **fields})
        return job_id

    def move(self, job_id: str, state: State, **fields: Any) -> None:
        """Change what the store holds of a job."""
        self.store.views[job_id] = msgspec.structs.replace(self.store.views[job_id], state=state, **fields)

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str | None = MSGPACK,
        accept: str | None = None,
        headers: Mapping[str, str] | None = None,
        chunks: Iterable[bytes] | None = None,
        gone: trio.Event | None = None,
    ) -> Answer:
        """One request through ASGI. `body`: bytes as they are, anything else encoded as `kind`.

        `chunks` instead of a body comes in these pieces. `gone`: when set, the client disconnects.
        """
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode() if kind == JSON else msgspec.msgpack.encode(body)
        given = {"host": "localhost"}
        if body is not None or chunks is not None:
            if kind is not None:
                given["content-type"] = kind
            if body is not None:
                given["content-length"] = str(len(body))
        if accept is not None:
            given["accept"] = accept
        given |= headers or {}
        parts = list(chunks) if chunks is not None else [body or b""]
        messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        messages[-1]["more_body"] = False
        return await self.exchange(method, path, given, messages, trio.Event() if gone is None else gone)

    async def exchange(
        self, method: str, path: str, headers: Mapping[str, str], messages: list[Any], gone: trio.Event
    ) -> Answer:
        """Run the application on these messages; a disconnect comes when `gone` is set."""
        raw, _, query = path.partition("?")
        target = unquote(raw)  # as servers do
        scope: Any = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": target,
            "raw_path": quote(raw, safe="/%").encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()],
            "client": self.client,
            "server": ("127.0.0.1", 7420),
            "extensions": {},
            "state": {},
        }
        pending = list(messages)
        answer = Answer(0, {}, b"")

        async def receive() -> Any:
            if pending:
                await trio.lowlevel.checkpoint()
                return pending.pop(0)
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await trio.lowlevel.checkpoint()
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                answer.raw += message.get("body", b"")

        await to_asgi(self.api, ListenerConfig(request_s=self.config.request_s))(scope, receive, send)
        if answer.status:
            expect_typed(method, quote(raw, safe="/%"), answer)
        if not INTERNAL.search(b"".join(message.get("body", b"") for message in messages)):
            assert not (found := INTERNAL.search(answer.raw)), f"{method} {path} tells {found}: show names bare"
        return answer


def expect_typed(method: str, raw_path: str, answer: Answer) -> None:
    """The route table says which statuses a call has besides errors, and of which type its answer is."""
    decode = msgspec.json.decode if "json" in answer.headers.get("content-type", "") else msgspec.msgpack.decode
    route, _ = TABLE.match(raw_path).get(method, (None, {}))
    kinds: Any = Details if route is None else (route.refusal, Details)
    if route is not None and (answer.status < 400 or answer.status in route.answers):
        kinds = route.answers[answer.status]
    if method == "HEAD" or kinds is None or not answer.raw:
        assert method in ("HEAD", "OPTIONS") or not (kinds or answer.raw)
        return
    if isinstance(kinds, Document):
        assert answer.headers["content-type"] in (kinds.kind, *kinds.also)
        return
    several = kinds if isinstance(kinds, tuple) else (kinds,)
    body = decode(answer.raw, type=dict[str, msgspec.Raw])
    for kind in several:
        with suppress(msgspec.ValidationError):
            decode(answer.raw, type=kind)
            assert set(body) <= set(getattr(kind, "__struct_encode_fields__", body)), kind
            return
    raise AssertionError(f"{method} {raw_path} answered {answer.status} with what is no {several}: {body}")


def _as_any(fake: Any) -> Any:
    """What a fake leaves out is not asked for by the edge."""
    return fake
