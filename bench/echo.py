"""An application that says what it heard, behind a door by name: `python -m bench.echo lean|hypercorn`."""

import sys
from functools import partial
from typing import Any

import hypercorn
import hypercorn.trio
import trio

from jqd.http import Request, Response, bind, serve_http, url_of

KIND = (b"content-type", b"application/msgpack")


async def echo(asked: Request) -> Response:
    """The least that can be done with a request."""
    body = asked.read_nowait()
    while not asked.whole and (piece := await asked.read()) is not None:
        body += piece
    return Response(201, body, KIND[1].decode())


async def echo_asgi(scope: Any, receive: Any, send: Any) -> None:
    """The same for a server of ASGI, as bare as can be."""
    if scope["type"] != "http":
        raise NotImplementedError("http only")  # by which a server knows that there is no lifespan
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    headers = [KIND, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _serve(name: str) -> None:
    listener = bind("127.0.0.1:0")
    print(url_of(listener), flush=True)
    if name == "lean":
        await serve_http(echo, listener, stopped=trio.sleep_forever)
        return
    config = hypercorn.Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.keep_alive_max_requests = 1_000_000_000
    await hypercorn.trio.serve(echo_asgi, config, mode="asgi")


if __name__ == "__main__":
    trio.run(partial(_serve, sys.argv[1]))
