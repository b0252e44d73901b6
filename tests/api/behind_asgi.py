"""The edge behind ASGI messages, as tests speak to it: no socket, no listener, all else as behind the door."""

import math
from collections.abc import Awaitable, Callable
from urllib.parse import quote

import trio

from jqd.http.asgi import AsgiApp, Message, Receive, Send
from jqd.http.config import ListenerConfig
from jqd.http.connection import TOO_SLOW, problem_answer
from jqd.http.exchange import BODILESS
from jqd.http.request import Request, RequestHead, Response, Stream

HTTP_1 = ("1.0", "1.1")
Core = Callable[[Request], Awaitable[Response | None]]


def to_asgi(core: Core, config: ListenerConfig, closing: Callable[[], bool] = lambda: False) -> AsgiApp:
    """An application of ours as ASGI servers call it. A request has the time here that our own door gives it.

    `closing`: whether the server closes, so that what has no end of its own is to end.
    """

    async def serve(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"http is spoken here, not {scope['type']}")
        asked = _AsgiRequest(scope, receive, config, closing)
        answer: Response | None = None
        with asked.scope:
            answer = await core(asked)
        if asked.scope.cancelled_caught:
            answer = problem_answer(408, TOO_SLOW)
        if asked.refusal:
            answer = problem_answer(400, asked.refusal)
        if answer is not None:
            await asked.send(answer, send)

    return serve


class _AsgiRequest(Request):
    """Over what an ASGI server says."""

    def __init__(self, scope: Message, receive: Receive, config: ListenerConfig, closing: Callable[[], bool]) -> None:
        path: str = scope["path"]
        raw: bytes | None = scope.get("raw_path")
        raw_path = quote(path) if raw is None else raw.partition(b"?")[0].decode("latin-1")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        heading = RequestHead(scope["method"], path, raw_path, scope["query_string"], headers)
        client = scope.get("client")
        super().__init__(heading, str(client[0]) if client else None)
        self.refusal = ""
        """Why its body is none."""
        self._closes = scope["http_version"] in HTTP_1
        self._receive = receive
        self._closing = closing
        self._config = config
        self._received = 0
        self._began_s: float | None = None
        """When somebody began to read it: while a request waits in line, it is we who are slow."""
        self.scope = trio.CancelScope()

    async def read(self) -> bytes | None:
        """See Request."""
        if self._began_s is None:
            self._began_s = trio.current_time()
            self.scope.deadline = self._due_s()
        message = await self._receive()
        # What came whole as its time ran out would be taken, and then its client be told that it was not.
        await trio.lowlevel.checkpoint_if_cancelled()
        if message["type"] == "http.disconnect":
            return None
        piece: bytes = message.get("body", b"")
        self._received += len(piece)
        self.whole = not message.get("more_body", False)
        self.scope.deadline = math.inf if self.whole else self._due_s()
        said = self.heading.headers.get("content-length")
        if self.whole and said is not None and said.isdecimal() and said.lstrip("0") != str(self._received or ""):
            self.refusal = f"the body has {self._received} bytes, Content-Length said {said[:20]}; nothing was taken"
            return None
        return piece

    async def wait_left(self) -> None:
        """See Request."""
        while (await self._receive())["type"] != "http.disconnect":
            continue  # a server may repeat the end of the body

    async def send(self, answer: Response, send: Send) -> None:
        """Give a whole answer. What is left of a body is not read: in HTTP/1 the connection ends with the answer."""
        fields = answer.fields()
        headers = [(name.encode(), value.encode("latin-1")) for name, value in fields if name != "connection"]
        if self._closes and (not self.whole or "connection" in answer.headers):
            headers.append((b"connection", b"close"))
        if answer.status not in BODILESS and answer.stream is None:
            headers.append((b"content-length", b"%d" % len(answer.body)))
        whole = False
        try:
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            if answer.stream is not None:
                await self._stream(answer.stream, send)
            await send({"type": "http.response.body", "body": answer.body})
            whole = True
        finally:
            for tell in () if whole else answer.lost:
                tell()

    async def _stream(self, stream: Stream, send: Send) -> None:
        """Let the pieces of a body be written, and notice meanwhile that the client leaves."""
        left = trio.Event()

        async def watch() -> None:
            await self.wait_left()
            left.set()

        async def write(piece: bytes) -> bool:
            if piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            return not (left.is_set() or self._closing())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            why = await stream(write)
            nursery.cancel_scope.cancel()
        if why:
            raise RuntimeError(why)

    def _due_s(self) -> float:
        config, began_s = self._config, trio.current_time() if self._began_s is None else self._began_s
        return began_s + min(config.request_s, config.body_grace_s + self._received / config.body_rate)
