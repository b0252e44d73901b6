"""Requests of a `Client` that a function answers, in place of connections."""

from collections.abc import Callable

import httpx2

from jqd.client.transport import LostError, Request, Response, SilentError, UnreachedError

UNREACHED = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class Handled:
    """A `Transport` for handlers as `httpx2.MockTransport` has them: they answer, or raise an error of httpx2."""

    def __init__(self, handler: Callable[[httpx2.Request], httpx2.Response]) -> None:
        self._handler = handler

    def send(self, request: Request) -> Response:
        asked = httpx2.Request(
            request.method, request.url + request.target, headers=request.headers, content=request.body
        )
        try:
            answer = self._handler(asked)
        except UNREACHED as error:
            raise UnreachedError(str(error)) from error.__cause__
        except httpx2.TimeoutException as error:
            raise SilentError(str(error)) from error.__cause__
        except httpx2.TransportError as error:
            raise LostError(str(error)) from error.__cause__
        return Response(answer.status_code, dict(answer.headers), answer.content)

    def close(self) -> None:
        return
