"""Runs an ASGI application on this HTTP server. A worker uses it for its own endpoint."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from jqd.http.exchange import App, Exchange

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]


def from_asgi(app: AsgiApp) -> App:
    """Wrap an ASGI application as an application of this server."""

    async def serve(exchange: Exchange) -> None:
        channel = _Channel(exchange)
        await app(_scope(exchange), channel.receive, channel.send)

    return serve


class _Channel:
    """The `receive` and `send` functions of an ASGI application for one request."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._end_received = False

    async def receive(self) -> Message:
        """Return the next part of the body as an ASGI message. After the end of the body, wait until the client leaves,
        and return `http.disconnect`."""
        exchange = self._exchange
        if self._end_received:
            await exchange.wait_left()
            return {"type": "http.disconnect"}
        piece = b"" if exchange.whole else await exchange.read()
        if piece is None:
            self._end_received = True
            return {"type": "http.disconnect"}
        self._end_received = exchange.whole
        return {"type": "http.request", "body": piece, "more_body": not self._end_received}

    async def send(self, message: Message) -> None:
        """Handle an ASGI message: send the head of the response, or a part of its body. Raises RuntimeError for any
        other message."""
        match message["type"]:
            case "http.response.start":
                pairs = message.get("headers", ())
                headers = [
                    (bytes(name).decode("latin-1").lower(), bytes(value).decode("latin-1")) for name, value in pairs
                ]
                self._exchange.begin(message["status"], headers)
            case "http.response.body":
                await self._exchange.send(message.get("body", b""), more=message.get("more_body", False))
            case other:
                raise RuntimeError(f"an answer is one start and its pieces of a body; {other} is out of place")


def _scope(exchange: Exchange) -> dict[str, Any]:
    head, wire = exchange.head, exchange.wire
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.0" if head.http_1_0 else "1.1",
        "method": head.method,
        "scheme": wire.scheme,
        "path": head.path,
        "raw_path": head.raw_path,
        "query_string": head.query,
        "root_path": "",
        "headers": head.headers,
        "client": wire.client,
        "server": wire.server,
        "extensions": {},
    }
