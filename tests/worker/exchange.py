"""One ASGI request, played without a server: what is sent is seen piece by piece, and the client may hang up."""

import threading
from typing import Any

import msgpack
import msgspec
import trio

from jqd import App
from jqd.worker.service import Service, ServiceConfig

PATIENCE_S = 60.0  # for a thread to be scheduled on a busy machine


class Exchange:
    """A request to `service`; start `run` in a nursery."""

    def __init__(
        self,
        service: Service,
        body: bytes,
        headers: dict[str, str] | None = None,
        method: str = "POST",
        query: str = "",
    ) -> None:
        self.service = service
        told = {"content-type": "application/msgpack"} if headers is None else headers
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": "/",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in told.items()],
        }
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.done = False
        self._unpacker = msgpack.Unpacker()
        self._into, self._out_of = trio.open_memory_channel[dict[str, Any]](10)
        self._into.send_nowait({"type": "http.request", "body": body, "more_body": False})
        self._sent, self._seen = trio.open_memory_channel[bytes](1000)

    async def run(self) -> "Exchange":
        """The whole request."""
        await self.service(self.scope, self._out_of.receive, self._send)
        self._sent.close()
        return self

    def hang_up(self) -> None:
        """The client goes away."""
        self._into.send_nowait({"type": "http.disconnect"})

    async def next_outcomes(self) -> list[dict[str, Any]]:
        """The outcomes of the next piece of the answer."""
        self._unpacker.feed(await self._seen.receive())
        return list(self._unpacker)

    @property
    def body(self) -> Any:
        """The whole answer, decoded: a list of outcomes, or a problem."""
        whole = b"".join(self.pieces)
        if "json" in self.headers["content-type"]:
            return msgspec.json.decode(whole)
        unpacker = msgpack.Unpacker()
        unpacker.feed(whole)
        values = list(unpacker)
        return values if self.status == 200 else values[0]

    @property
    def by_id(self) -> dict[str, dict[str, Any]]:
        """job_id → outcome."""
        return {outcome["job_id"]: outcome for outcome in self.body}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        assert self.status, "a body before the start"
        assert not self.done, "a body after the last"
        self.done = not message.get("more_body", False)
        if message["body"]:
            self.pieces.append(message["body"])
            await self._sent.send(message["body"])


def packed(*jobs: dict[str, Any]) -> bytes:
    """A batch as a daemon posts it."""
    return msgspec.msgpack.encode({"batch_id": "b-1", "jobs": list(jobs), "some": "news"})


async def run_batch(app: App | Service, *jobs: dict[str, Any], config: ServiceConfig | None = None) -> Exchange:
    """Post a batch and wait for the whole answer."""
    service = app if isinstance(app, Service) else Service(app.jobs, config)
    try:
        return await Exchange(service, packed(*jobs)).run()
    finally:
        if service is not app:
            service.close()


class Gate:
    """A job that stands still until the test lets it go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.ran: list[Any] = []

    def __call__(self, argument: Any) -> Any:
        self.ran.append(argument)
        self.begun.release()
        assert self.go.wait(PATIENCE_S)
        return argument

    async def wait_begun(self) -> None:
        assert await trio.to_thread.run_sync(self.begun.acquire, True, PATIENCE_S)


def gated() -> tuple[App, Gate]:
    app, gate = App(), Gate()
    app.job("gate")(lambda argument, /: gate(argument))
    app.job("echo")(lambda argument, /: argument)
    return app, gate


def jobs(name: str, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"job_id": f"{name}-{n}", "name": name, "argument": n} | more for n in range(count)]
