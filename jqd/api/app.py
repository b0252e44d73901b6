"""The ASGI application: the hot call in front, every other route through quart-trio behind it.

One place reads bodies, with a limit and a deadline: a body that stalls, drips, lies about its length or is cut off is
answered or dropped here, and never reaches a component.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from quart import Response as QuartResponse
from quart import request as quart_request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from jqd.api import jobs, lightjq, status, workers
from jqd.api.message import Request, Response, problem_answer
from jqd.api.parts import Parts
from jqd.api.problems import Problem, as_problem
from jqd.api.push import push
from jqd.errors import JqdError
from jqd.log import get_logger

Handler = Callable[..., Awaitable[Response]]
HEADERS_MAX = 100  # more is no client of ours
TARGET_BYTES_MAX = 4_096  # path and query

ROUTES: list[tuple[str, str, Handler]] = [
    ("GET", "/v1/jobs/<job_id>", jobs.get_job),
    ("GET", "/v1/jobs/<job_id>/result", jobs.get_result),
    ("DELETE", "/v1/jobs/<job_id>", jobs.delete_job),
    ("POST", "/v1/workers", workers.register),
    ("GET", "/v1/workers", workers.list_workers),
    ("DELETE", "/v1/workers/<worker_id>", workers.unregister),
    ("GET", "/v1/stats", status.stats),
    ("GET", "/livez", status.livez),
    ("GET", "/readyz", status.readyz),
    ("GET", "/readyz/push", status.readyz_push),
    ("GET", "/readyz/run", status.readyz_run),
    ("POST", "/job", lightjq.push_job),
    ("GET", "/job/<job_id>", lightjq.get_job),
    ("DELETE", "/job/<job_id>", lightjq.delete_job),
    ("GET", "/job/<job_id>/polling", lightjq.poll_job),
    ("POST", "/worker", lightjq.register),
    ("DELETE", "/worker", lightjq.unregister),
    ("POST", "/done", lightjq.done),
]


class Disconnected(Exception):
    """The client went away before its request was whole. Nobody is left to answer."""


class Api:
    """The edge as one ASGI callable."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._log = get_logger("api")
        self._quart = self._build()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection's scope (http, websocket or lifespan)."""
        if scope["type"] == "http" and scope["path"] == "/v1/jobs" and scope["method"] == "POST":
            await self._hot(scope, receive, send)
        else:
            await self._quart(scope, receive, send)

    async def answer(self, handler: Handler, request: Request, **names: str) -> Response:
        """Call one handler; every error becomes its answer here and nowhere else."""
        try:
            check_target(request)
            return await handler(self._parts, request, **names)
        except JqdError as error:
            problem = as_problem(error)
            if problem.status == 500:
                self._log.error("api.failed", path=request.path, error=repr(error))
            return lightjq.adapt(request, problem) or problem_answer(problem, request.answer_language())

    async def _hot(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        request = Request("POST", scope["path"], scope["query_string"], headers, b"")
        try:
            body = await read_body(self._parts, headers, receive)
        except Disconnected:
            self._log.info("api.disconnected", path=request.path)
            return
        except Problem as problem:
            response = problem_answer(problem, request.answer_language())
            response.headers["connection"] = "close"
        else:
            request = Request("POST", scope["path"], scope["query_string"], headers, body)
            response = await self.answer(push, request)
        raw_headers = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in response.headers.items()]
        raw_headers.append((b"content-type", response.content_type.encode("latin-1")))
        raw_headers.append((b"content-length", str(len(response.body)).encode("latin-1")))
        await send({"type": "http.response.start", "status": response.status, "headers": raw_headers})
        await send({"type": "http.response.body", "body": response.body})

    def _build(self) -> QuartTrio:
        app = QuartTrio("jqd.api", static_folder=None)
        config = self._parts.config
        app.config["MAX_CONTENT_LENGTH"] = config.array_bytes_max
        app.config["BODY_TIMEOUT"] = config.request_s
        app.config["RESPONSE_TIMEOUT"] = None  # long polls bound themselves
        for method, rule, handler in ROUTES:
            app.add_url_rule(rule, f"{method} {rule}", self._view(handler), methods=[method])
        app.register_error_handler(HTTPException, self._http_error)
        return app

    def _view(self, handler: Handler) -> Callable[..., Awaitable[QuartResponse]]:
        async def view(**names: str) -> QuartResponse:
            request = await _from_quart()
            return _to_quart(await self.answer(handler, request, **names))

        return view

    async def _http_error(self, error: HTTPException) -> QuartResponse:
        """What Quart itself refuses: no such path, wrong method, too large, too slow."""
        request = Request(quart_request.method, quart_request.path, b"", _headers(), b"")
        problem = Problem(error.code or 500, error.description or "the request was refused")
        response = _to_quart(lightjq.adapt(request, problem) or problem_answer(problem, request.answer_language()))
        for name, value in error.get_headers():
            if name.lower() == "allow":
                response.headers[name] = value
        return response


async def read_body(parts: Parts, headers: dict[str, str], receive: Any) -> bytes:
    """The whole body within its limits. Raises Problem 408, 413, 415, or Disconnected."""
    limit = parts.config.array_bytes_max
    check_head(headers, limit)
    chunks: list[bytes] = []
    size = 0
    with trio.move_on_after(parts.config.request_s):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise Problem(413, f"the body is larger than {limit} bytes; push in smaller arrays")
            chunks.append(chunk)
            if not message.get("more_body"):
                break
        declared = headers.get("content-length")
        if declared is not None and declared.isdecimal() and int(declared) != size:
            raise Problem(400, f"the body has {size} bytes, Content-Length said {declared}; nothing was taken")
        return b"".join(chunks)
    raise Problem(408, f"the request was not complete after {parts.config.request_s:.0f} s; nothing was taken")


def check_head(headers: dict[str, str], limit: int) -> None:
    """Refuse by the headers what need not be read. Raises Problem 413, 415, 431."""
    if len(headers) > HEADERS_MAX:
        raise Problem(431, f"{len(headers)} headers; a request may have {HEADERS_MAX}")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise Problem(413, f"the body would have {declared} bytes; a request may have {limit}. Push in smaller arrays")
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Problem(415, f"Content-Encoding {encoding[:32]!r} is not taken; send the body as it is")


def check_target(request: Request) -> None:
    """Refuse an absurd path or query. Raises Problem 414."""
    if len(request.path) + len(request.query_string) > TARGET_BYTES_MAX:
        raise Problem(414, f"path and query are longer than {TARGET_BYTES_MAX} bytes")


def _headers() -> dict[str, str]:
    return {name.lower(): value for name, value in quart_request.headers.items()}


async def _from_quart() -> Request:
    headers = _headers()
    body = await quart_request.get_data()
    return Request(quart_request.method, quart_request.path, quart_request.query_string, headers, bytes(body))


def _to_quart(response: Response) -> QuartResponse:
    rendered = QuartResponse(response.body, status=response.status, headers=response.headers)
    if response.content_type:
        rendered.content_type = response.content_type
    else:
        del rendered.headers["content-type"]
    return rendered
