"""A scripted HTTP worker on trio: answers as its script says, and remembers what it was asked.

    async with open_worker(succeed) as worker:
        workers.register(Card(name="w", url=worker.url, max_jobs=4))
        …
        request = await worker.request(0)      # the first one, waited for
        request.jobs()[0]["argument"]

A script is an async function of a `Request` and a `Reply`. A well-behaved one uses `send`, or `begin`, `more` and
`finish`; a hostile one writes `raw` bytes, or ends the connection with `close` or `reset`.
"""

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import h11
import msgpack
import trio

IDLE_S = 30.0  # a connection nobody uses is closed, so that a forgotten client ends no test by hanging it
MSGPACK = "application/msgpack"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, complete."""

    method: str
    target: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    connection: int
    """Number of the connection it came on, 0 for the first."""

    def content(self) -> Any:
        """The body, decoded from MessagePack."""
        return msgpack.unpackb(self.body)

    def jobs(self) -> list[dict[str, Any]]:
        """The jobs of a native batch."""
        jobs: list[dict[str, Any]] = self.content()["jobs"]
        return jobs

    def job_ids(self) -> list[str]:
        """Their ids, in order."""
        return [job["job_id"] for job in self.jobs()]


class Reply:
    """The answer to one request, given by the script."""

    def __init__(self, connection: h11.Connection, stream: trio.SocketStream) -> None:
        self._connection = connection
        self._stream = stream
        self.broken = False
        """The script left HTTP: the connection is not used again."""

    async def send(
        self, status: int = 200, body: bytes = b"", headers: Sequence[tuple[str, str]] = (), *, kind: str = MSGPACK
    ) -> None:
        """A whole answer. `kind` is its content type, where it has a body."""
        fields = [("Content-Length", str(len(body))), *headers]
        if body:
            fields.append(("Content-Type", kind))
        await self._event(h11.Response(status_code=status, headers=fields))
        if body:
            await self._event(h11.Data(data=body))
        await self.finish()

    async def outcomes(self, *outcomes: Mapping[str, Any]) -> None:
        """A whole answer: these, one after another."""
        await self.send(200, b"".join(msgpack.packb(outcome) for outcome in outcomes))

    async def begin(self, status: int = 200, headers: Sequence[tuple[str, str]] = (), *, kind: str = MSGPACK) -> None:
        """The head of an answer whose body follows in chunks."""
        fields = [("Content-Type", kind), ("Transfer-Encoding", "chunked"), *headers]
        await self._event(h11.Response(status_code=status, headers=fields))

    async def more(self, data: bytes) -> None:
        """Some of the body."""
        await self._event(h11.Data(data=data))

    async def outcome(self, **fields: Any) -> None:
        """One outcome of the body."""
        await self.more(msgpack.packb(fields))

    async def finish(self) -> None:
        """The end of the body."""
        await self._event(h11.EndOfMessage())

    async def raw(self, data: bytes) -> None:
        """Bytes past all rules."""
        self.broken = True
        await self._stream.send_all(data)

    async def close(self) -> None:
        """End the connection as it is."""
        self.broken = True
        await self._stream.aclose()

    async def reset(self) -> None:
        """End it with RST: what the peer has not read is lost."""
        self.broken = True
        if self._stream.socket.fileno() >= 0:  # the peer may have ended it before
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await self._stream.aclose()

    async def _event(self, event: h11.Event) -> None:
        data = self._connection.send(event)
        if data:
            await self._stream.send_all(data)


Script = Callable[[Request, Reply], Awaitable[None]]


async def succeed(request: Request, reply: Reply) -> None:
    """Every job succeeds, its argument is its result."""
    jobs = request.jobs()
    await reply.outcomes(*({"job_id": j["job_id"], "type": "success", "result": j["argument"]} for j in jobs))


def answer(status: int, body: bytes = b"", *headers: tuple[str, str], kind: str = MSGPACK) -> Script:
    """A script that always answers the same."""

    async def script(request: Request, reply: Reply) -> None:
        await reply.send(status, body, headers, kind=kind)

    return script


def in_turn(*scripts: Script) -> Script:
    """Each request by the next script, those after the last by the last."""
    left = list(scripts)

    async def script(request: Request, reply: Reply) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(request, reply)

    return script


class ScriptedWorker:
    """A worker that does as told. `script` may be replaced at any time."""

    def __init__(self, script: Script, url: str) -> None:
        self.script = script
        self.url = url
        self.on_cancel: Script = answer(405)
        """How it answers a DELETE, which tells that a job was cancelled."""
        self.requests: list[Request] = []
        """All requests so far but DELETEs, as they were complete."""
        self.cancels: list[Request] = []
        self.connections = 0
        self.life = trio.CancelScope()
        """Cancelled, it dies: all its connections break, and it can be reached no more."""
        self._some = trio.Event()

    async def request(self, number: int) -> Request:
        """The request of this number (0 is the first), once it is here."""
        while len(self.requests) <= number:
            await self._some.wait()
        return self.requests[number]

    async def cancel(self, number: int) -> Request:
        """The DELETE of this number, once it is here."""
        while len(self.cancels) <= number:
            await self._some.wait()
        return self.cancels[number]

    async def listen(
        self, listener: trio.SocketListener, *, task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve what connects, for life."""
        with self.life:
            await trio.serve_listeners(self.serve, [listener], task_status=task_status)

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, until the peer, the script or time ends it."""
        number = self.connections
        self.connections += 1
        with trio.move_on_after(IDLE_S) as idle:
            try:
                connection = h11.Connection(h11.SERVER)
                while True:
                    request = await _read_request(connection, stream, number)
                    if request is None:
                        break
                    told = request.method == "DELETE"
                    (self.cancels if told else self.requests).append(request)
                    self._some.set()
                    self._some = trio.Event()
                    reply = Reply(connection, stream)
                    await (self.on_cancel if told else self.script)(request, reply)
                    if reply.broken or connection.our_state is not h11.DONE:
                        break
                    connection.start_next_cycle()
                    idle.deadline = trio.current_time() + IDLE_S
            except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
                return  # the peer went away, which peers may do
            finally:
                await trio.aclose_forcefully(stream)


@asynccontextmanager
async def open_worker(script: Script = succeed, *, host: str = "127.0.0.1") -> AsyncIterator[ScriptedWorker]:
    """A worker listening on a free port; everything of it ends with the block."""
    (listener,) = await trio.open_tcp_listeners(0, host=host)
    port = listener.socket.getsockname()[1]
    worker = ScriptedWorker(script, f"http://{host}:{port}/run")
    async with trio.open_nursery() as nursery:
        await nursery.start(worker.listen, listener)
        yield worker
        nursery.cancel_scope.cancel()


async def _read_request(connection: h11.Connection, stream: trio.SocketStream, number: int) -> Request | None:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some())
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
            return Request(head.method.decode(), head.target.decode("latin-1"), headers, bytes(body), number)
        else:  # ConnectionClosed, PAUSED
            return None
