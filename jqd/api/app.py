"""The ASGI application: the hot call in front, every other route through quart-trio behind it.

Every request is read whole first (intake.py). `answer` is free of ASGI, so that another listener can stand before it.
"""

import difflib
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

import trio
from quart import Response as QuartResponse
from quart import request as quart_request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from jqd.api import acts, bulk, jobs, lightjq, listing, polls, status, workers
from jqd.api.intake import Disconnected, Receive, Room, Send, head_of, read_request, replay, send_response
from jqd.api.message import Request, Response, problem_answer
from jqd.api.parts import Parts
from jqd.api.problems import Problem, as_problem
from jqd.api.push import push
from jqd.doors import say_fault
from jqd.words.errors import Foreign, JqdError
from jqd.words.log import get_logger

Handler = Callable[..., Awaitable[Response]]
HOT_PATH = "/v1/jobs"
SLASH = "\ue000"  # of Unicode's private use: stands for one inside of an id while routes are matched
TOLD_MAX = 100  # characters of a path that is told: enough to know it by
_NAME, _ID = re.compile(r"<\w+>"), re.compile(r"^(/v1/jobs/|/v1/workers/|/job/)[^/]+(?=/)")
ANY_SIZE = frozenset({HOT_PATH, "/done"})  # arrays of jobs, and results, may be larger than one job


class Route(NamedTuple):
    """What is served, and the names its query may have; None: any, they are passed over."""

    method: str
    path: str
    handler: Handler
    query: tuple[str, ...] | None = ()


ROUTES = [
    Route("POST", HOT_PATH, push, ("ack", "replicas", "atomic")),
    Route("GET", "/v1/jobs", listing.list_jobs, listing.FILTERS),
    Route("POST", "/v1/jobs/cancel", bulk.cancel_many),
    Route("POST", "/v1/jobs/retry", bulk.retry_many),
    Route("POST", "/v1/jobs/clean", bulk.clean),
    Route("GET", "/v1/jobs/<job_id>", jobs.get_job, ("wait",)),
    Route("GET", "/v1/jobs/<job_id>/result", jobs.get_result, ("wait", "consume")),
    Route("DELETE", "/v1/jobs/<job_id>", jobs.delete_job, ("purge",)),
    Route("PATCH", "/v1/jobs/<job_id>", acts.edit),
    Route("POST", "/v1/jobs/<job_id>/retry", acts.retry),
    Route("POST", "/v1/jobs/<job_id>/run-now", acts.run_now),
    Route("GET", "/v1/types", listing.list_types),
    Route("GET", "/v1/daemons", listing.list_daemons),
    Route("POST", "/v1/workers", workers.register),
    Route("GET", "/v1/workers", workers.list_workers),
    Route("DELETE", "/v1/workers/<worker_id>", workers.unregister),
    Route("GET", "/v1/stats", status.stats),
    Route("GET", "/livez", status.livez),
    Route("GET", "/readyz", status.readyz),
    Route("GET", "/readyz/push", status.readyz_push),
    Route("GET", "/readyz/run", status.readyz_run),
    # LightJQ's own interface has no answer for a query that is wrong.
    Route("POST", "/job", lightjq.push_job, None),
    Route("GET", "/job/<job_id>", lightjq.get_job, None),
    Route("DELETE", "/job/<job_id>", lightjq.delete_job, None),
    Route("GET", "/job/<job_id>/polling", lightjq.poll_job, None),
    Route("POST", "/worker", lightjq.register, None),
    Route("DELETE", "/worker", lightjq.unregister, None),
    Route("POST", "/done", lightjq.done, None),
]
PATHS = list(dict.fromkeys(_NAME.sub("{id}", route.path) for route in ROUTES))
QUERIES = {route.handler: route.query for route in ROUTES}


class Api:
    """The edge as one ASGI callable."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._room = Room(parts.config.bodies_bytes_max)
        self._log = get_logger("api")
        self._quart = self._build()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one connection's scope (http, websocket or lifespan)."""
        if scope["type"] != "http":
            await self._quart(scope, receive, send)
            return
        with self._room.part() as take:
            await self._serve(scope, receive, send, take)

    async def watch(self, partition: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look for what long polls wait for in one partition of the store; runs as long as the daemon."""
        await polls.watch(self._parts, partition, task_status=task_status)

    async def _serve(self, scope: Any, receive: Receive, send: Send, take: Callable[[int], None]) -> None:
        config, guard = self._parts.config, self._parts.guard
        bytes_max = config.array_bytes_max if scope["path"] in ANY_SIZE else config.job_bytes_max
        head = head_of(scope)
        try:
            guard.check(head.path, head.headers)
            request = await read_request(scope, receive, take, bytes_max=bytes_max, within_s=config.request_s)
            guard.check_type(head.headers, has_body=bool(request.body))
        except Disconnected:
            self._log.info("api.disconnected", path=scope["path"])
            return
        except (Foreign, Problem) as error:
            response = _render(head, error)
            if scope["http_version"].startswith("1"):
                response.headers["connection"] = "close"  # what is left of the body is not read
            await send_response(send, response)
            return
        if request.path == HOT_PATH and request.method == "POST":
            await send_response(send, await self.answer(push, request))
        else:
            path = _segmented(scope)
            inner: Any = {**scope, "path": path, "state": {"request": request, "slashes": path != scope["path"]}}
            await self._quart(inner, replay(receive), send)

    async def answer(self, handler: Handler, request: Request, **names: str) -> Response:
        """Call one handler; every error becomes its answer here and nowhere else."""
        try:
            request.check_query(QUERIES[handler])
            return await handler(self._parts, request, **names)
        except JqdError as error:
            problem = as_problem(error)
            return _render(request, self._mistake(error) if problem.status == 500 else problem)
        except Exception as error:  # noqa: BLE001 - a mistake of ours is told and logged; it ends one answer only
            return _render(request, self._mistake(error))

    def _mistake(self, error: BaseException) -> Problem:
        """What a client is told of a mistake of ours: the id under which the log has it."""
        fault = say_fault(self._log, "api.failed", error)
        return Problem(500, f"a mistake of ours; the daemon's log tells more under the id {fault}", fault=fault)

    def _build(self) -> QuartTrio:
        app = QuartTrio("jqd.api", static_folder=None)
        app.config["RESPONSE_TIMEOUT"] = None  # long polls bound themselves
        app.url_map.merge_slashes = False  # to write a path another way than it came is to redirect it
        for method, rule, handler, _ in ROUTES:
            app.add_url_rule(rule, f"{method} {rule}", self._view(handler), methods=[method])
        app.register_error_handler(HTTPException, self._http_error)
        return app

    def _view(self, handler: Handler) -> Callable[..., Awaitable[QuartResponse]]:
        async def view(**names: str) -> QuartResponse:
            if quart_request.scope["state"]["slashes"]:
                names = {name: value.replace(SLASH, "/") for name, value in names.items()}
            return _to_quart(await self.answer(handler, _request(), **names))

        return view

    async def _http_error(self, error: HTTPException) -> QuartResponse:
        """What Quart itself refuses: no such path, a wrong method, a mistake of ours."""
        problem = Problem(error.code or 500, _refused(error, _request()))
        if problem.status >= 500:
            problem = self._mistake(getattr(error, "original_exception", None) or error)
        response = _to_quart(_render(_request(), problem))
        for name, value in error.get_headers():
            if name.lower() == "allow":
                response.headers[name] = value
        return response


def _refused(error: HTTPException, request: Request) -> str:
    """What was asked for that there is not, and what there is."""
    path = request.path if len(request.path) <= TOLD_MAX else f"{request.path[:TOLD_MAX]}…"
    if isinstance(error, MethodNotAllowed):
        taken = sorted({*(error.valid_methods or ())} - {"HEAD", "OPTIONS"})
        return f"{request.method} is nothing that '{path}' takes; it takes {', '.join(taken)}"
    if isinstance(error, NotFound):
        close = difflib.get_close_matches(_ID.sub(r"\1{id}", request.path[:TOLD_MAX]), PATHS, n=1, cutoff=0.7)
        meant = (
            f"did you mean '{close[0]}'?" if close else "jobs are pushed with POST /v1/jobs, and docs/HTTP.md has all"
        )
        return f"there is no path '{path}'; {meant}"
    return error.description or "the request was refused"


def _segmented(scope: Any) -> str:
    """The path, with a %2F inside of one of its segments as SLASH: a pusher's own job id may hold one."""
    raw: bytes = scope.get("raw_path") or b""
    path: str = scope["path"]
    if b"%2f" not in raw.lower() or SLASH in path:
        return path
    return "/".join(unquote(part.decode("latin-1")).replace("/", SLASH) for part in raw.partition(b"?")[0].split(b"/"))


def _request() -> Request:
    """The request under way behind Quart, as it was read in front of it."""
    request: Request = quart_request.scope["state"]["request"]
    return request


def _render(request: Request, problem: Problem | Foreign) -> Response:
    """An error in the words of the surface the request was made to; what the guard says is the same on all."""
    if isinstance(problem, Foreign):
        return problem_answer(Problem(problem.status, str(problem)), request.answer_language())
    return lightjq.adapt(request, problem) or problem_answer(problem, request.answer_language())


def _to_quart(response: Response) -> QuartResponse:
    rendered = QuartResponse(response.body, status=response.status, headers=response.headers)
    if response.content_type:
        rendered.content_type = response.content_type
    else:
        del rendered.headers["content-type"]
    return rendered
