"""An ASGI application that says what it heard, behind a server by name: `python -m bench.echo door|hypercorn`."""

import sys
from functools import partial
from typing import Any

import hypercorn
import hypercorn.trio
import trio

from jqd.doors import bind, serve_http, url_of


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The least an application can do with a request."""
    if scope["type"] != "http":
        raise NotImplementedError("http only")  # by which a server knows that there is no lifespan
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    headers = [(b"content-type", b"application/msgpack"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _serve(name: str) -> None:
    listener = bind("127.0.0.1:0")
    print(url_of(listener), flush=True)
    if name == "door":
        await serve_http(echo, listener, stopped=trio.sleep_forever)
        return
    config = hypercorn.Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.keep_alive_max_requests = 1_000_000_000
    await hypercorn.trio.serve(echo, config, mode="asgi")


if __name__ == "__main__":
    trio.run(partial(_serve, sys.argv[1]))
