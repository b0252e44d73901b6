"""The HTTP application of the API: it checks the head of a request, reads the body, and calls the handler of the route.
It turns all errors into responses."""

from collections.abc import Sequence
from typing import NamedTuple

import trio
from msgspec import Struct

from jqd.api.auth import AUTHORIZATION, ApiKeys
from jqd.api.config import ApiConfig
from jqd.api.context import ApiContext
from jqd.api.decode import read_query
from jqd.api.head_limits import check_head
from jqd.api.large_bodies import AT_ONCE_BYTES, answer_any, packed_body
from jqd.api.lists import ListLimit
from jqd.api.message import refuse
from jqd.api.path_match import Found, RouteTable
from jqd.api.problems import Problem, as_problem
from jqd.api.route import NoQuery, Refuse, Route
from jqd.domain import media
from jqd.domain.errors import JqdError
from jqd.domain.log import get_logger
from jqd.domain.results import REPORT_BYTES_MAX
from jqd.domain.tokens import is_token_id
from jqd.http import (
    SOME_BYTES,
    BodyBudget,
    Foreign,
    Guard,
    LargeBodyQueue,
    Owner,
    Refused,
    Request,
    RequestHead,
    Response,
    Urgency,
    by_address,
    log_internal_error,
)
from jqd.service import find, job_events

ELSEWHERE = "jobs are pushed with POST /v1/jobs, and docs/use/HTTP.md has all"
NATIVE = "/v1/"
PATH_CHARS_MAX = 100  # characters of a path shown in an error
TOKEN_S = 1.0  # between checks whether a waiting caller's token was revoked: it must end within 5 s


class Admission(Struct, gc=False):
    """What the API knows of a request from its head: the route, and how large the body may be."""

    found: Found
    """All routes of this path, by method."""
    route: Route | None
    """The route of this path and method; None if there is none."""
    names: dict[str, str]
    """Path parameter → its value."""
    bytes_max: int = -1
    """The most bytes that the body may have. A negative number: the head is not checked yet."""


class Call(NamedTuple):
    """A request that was admitted, with its route."""

    route: Route
    names: dict[str, str]
    parts: ApiContext
    """The context that acts for the caller."""
    request: Request


class Api:
    """The HTTP application: it finds the route of a request, checks the caller, and calls the route's handler."""

    def __init__(self, parts: ApiContext, routes: Sequence[Route]) -> None:
        self.table = RouteTable(routes)
        self._surfaces: dict[str, Refuse] = {_root(route.path): route.refuse for route in reversed(routes)}
        self._surfaces["/"] = refuse
        self._parts = parts
        self._large = LargeBodyQueue()
        self._lists = ListLimit()
        self._bodies = BodyBudget(parts.config.bodies_bytes_max, self._whose_body, self._large.owners.are_several)
        parts.bodies = self._bodies
        self._log = get_logger("api")
        self._take_keys(parts.config)

    async def __call__(self, request: Request) -> Response | None:
        """Answer one request; return None if its client has left before the answer was complete."""
        admission: Admission = request.heading.admission or self._admit(request.heading)
        try:
            try:
                parts, route = self._let_in(request, admission), admission.route
                if route is None:
                    return self._unrouted(request, admission)  # without its body, which the server discards
                body = await self._bodies.read(request, admission.bytes_max)
                if body is None:
                    self._log.info("api.disconnected", path=request.path)
                    return None
                request.body = body
                if body and "content-type" not in request.headers:
                    parts.guard.check_type(request.headers, has_body=True, plain=request.plain)
            except (Problem, Refused) as error:
                response = self._render(request, admission, error)
                response.headers["connection"] = "close"  # as the rest of the body is not read
                return response
            call = Call(route, admission.names, parts, request)
            if route.method == "GET":  # it changes nothing, so it may be cancelled if its client leaves
                with request.while_there() as work:
                    response = await self._serve(call)
                if not work.cancelled_caught:
                    return response
                self._log.debug("api.left", path=request.path)
                return None
            if route.polls or route.lists or len(request.body) > SOME_BYTES:
                return await self._serve(call)
            return await self._answer(call)
        finally:
            self._bodies.release(request)

    def _let_in(self, request: Request, admission: Admission) -> ApiContext:
        """Check the limits of a request's head and its token before the body is read. Return the context that acts for
        the token's principal. `admission`: what the API knows of the head; for an unknown route no token is checked.

        Raises Refused if the declared body is too large or a foreign web page may have sent the request; Problem for
        any other head that breaks a limit, and for a token that is invalid or may not call the route.
        """
        route, parts = admission.route, self._parts
        if admission.bytes_max < 0:
            self._check(request.heading, admission)
        if route is None:
            return parts
        request.plain = route.plain
        who = parts.auth.principal(request.headers, route)  # for each request, as tokens may be revoked
        return parts if who is parts.services.principal else parts.as_principal(who)

    def whose(self, asked: Request) -> str:
        """Return the owner of a request, for fair shares: its token's tenant, or else the client's address. Also
        remembers who sends requests other than health checks: while these are several, large bodies are processed more
        slowly."""
        header = asked.heading.headers.get(AUTHORIZATION)
        tenant = self._parts.auth.tenant(header) if header else ""
        owner = f"tenant {tenant}" if tenant else by_address(asked)
        route = self._admit(asked.heading).route
        if route is None or not route.watched:
            self._large.owners.note(owner)
        return owner

    def _whose_body(self, request: Request) -> Owner:
        """Return the owner of a request's body. Memory for workers' reports is counted apart from that for pushes of
        the same owner."""
        route = self._admit(request.heading).route
        return self.whose(request), route is not None and route.method != "GET" and bool(route.urgency)

    def urgent(self, asked: Request) -> Urgency:
        """Return how urgent a request is, by its route."""
        route = self._admit(asked.heading).route
        return Urgency.NOT if route is None else route.urgency

    def change(self, config: ApiConfig, guard: Guard) -> None:
        """Put new limits and keys of a reloaded configuration into force, from the next request on."""
        self._parts.config = self._parts.services.config = config
        self._parts.guard = guard
        self._take_keys(config)
        self._bodies.bytes_max = config.bodies_bytes_max

    def _take_keys(self, config: ApiConfig) -> None:
        self._parts.auth = self._parts.auth._replace(keys=ApiKeys(config.master_key, config.client_key))

    async def watch(self, partition: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Wake long polls and event streams that wait for jobs of one partition, whenever these jobs change. Runs as
        long as the daemon."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(find.watch, self._parts.services, partition)
            nursery.start_soon(job_events.watch, self._parts.services, partition)
            task_status.started()

    def _admit(self, heading: RequestHead) -> Admission:
        """Return the `Admission` for a head. It is stored in the head, which later requests with equal heads share."""
        admission: Admission | None = heading.admission
        if admission is None:
            found = self.table.match(heading.raw_path)
            route, names = found.get("GET" if heading.method == "HEAD" else heading.method, (None, {}))
            admission = heading.admission = Admission(found, route, names)
        return admission

    def _check(self, heading: RequestHead, admission: Admission) -> None:
        """Check a head against the limits, so that bad requests are refused before their bodies are read. Done once for
        all requests with equal heads.

        Raises Problem, Refused.
        """
        config, route = self._parts.config, admission.route
        bytes_max = config.array_bytes_max if route is not None and route.any_size else config.job_bytes_max
        if route is not None and route.urgency is Urgency.ANY_SIZE:
            bytes_max = max(bytes_max, REPORT_BYTES_MAX)
        if heading.method in ("GET", "HEAD"):  # their bodies are ignored, and health checks need no token
            bytes_max = SOME_BYTES
        self._parts.guard.check(heading.path, heading.headers, plain=() if route is None else route.plain)
        check_head(heading, bytes_max, is_native=heading.path.startswith(NATIVE))
        admission.bytes_max = bytes_max

    def _unrouted(self, request: Request, admission: Admission) -> Response:
        """Return the response to an unknown path, to a method that the path does not support, or to OPTIONS."""
        found = admission.found
        if not found:
            path = _short(request.heading.raw_path)
            hint = f"did you mean '/v1{path}'?" if self.table.match(f"/v1{request.heading.raw_path}") else ELSEWHERE
            return self._render(request, admission, Problem(404, f"there is no path '{path}'; {hint}"))
        allowed = {"allow": ", ".join(sorted({*found, *(("HEAD",) if "GET" in found else ()), "OPTIONS"}))}
        if request.method == "OPTIONS":
            return Response(200, headers=allowed)
        taken = ", ".join(sorted(found))
        detail = f"{request.method} is nothing that '{_short(request.heading.raw_path)}' takes; it takes {taken}"
        if request.path == "/":  # most likely a person in a browser
            detail += f"; {ELSEWHERE}"
        response = self._render(request, admission, Problem(405, detail))
        response.headers.update(allowed)
        return response

    def _render(self, request: Request, admission: Admission, error: JqdError) -> Response:
        """Return an error in the format of the API (jqd's own or a compatible one) to which the path belongs. Errors of
        the guard have the same format in all."""
        if isinstance(error, Foreign):
            return refuse(request, error)
        if admission.route is not None:
            return admission.route.refuse(request, error)
        return self._surfaces.get(_root(request.path), refuse)(request, error)

    async def _serve(self, call: Call) -> Response:
        """Answer a call that needs care: a long poll, a list, or a call with a large body."""
        route, request = call.route, call.request
        if route.polls:
            return await self._poll(call)
        if route.lists:
            request.breathe = self._large.breathe
            try:
                with self._lists.place(self.whose(request), by_address(request)):
                    return await self._sized(call)
            except Problem as error:
                return route.refuse(request, error)
        return await self._sized(call)

    async def _sized(self, call: Call) -> Response:
        """Answer a call that may have a large body. A large body first waits until its owner may have another one
        processed (`LargeBodyQueue`)."""
        request = call.request
        size = len(request.body)
        if size <= SOME_BYTES or call.route.urgency is Urgency.ANY_SIZE:
            return await self._answer(call)
        request.breathe, owner = self._large.breathe, self.whose(request)
        if self._large.counts(owner, size):
            async with self._large.turn(owner, size):
                response = await self._answer(call)
        else:
            response = await self._answer(call)
        self._large.note(owner, request.held_s)
        return response

    async def _poll(self, call: Call) -> Response:
        """Answer a long poll. If the client closes its sending side, the poll ends early and is answered, because the
        client may still read. If the token becomes invalid, the answer is 401."""
        answered: list[Response] = []
        request, services = call.request, call.parts.services
        tokens, token = services.tokens, services.principal.token

        async def watch() -> None:
            await request.wait_left()
            nursery.cancel_scope.cancel()

        async def follow() -> None:
            while True:
                await trio.sleep(TOKEN_S)
                if tokens.ended(token):
                    nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            if is_token_id(token):
                nursery.start_soon(follow)
            answered.append(await self._answer(call))
            nursery.cancel_scope.cancel()
        if answered:
            return answered[0]
        if tokens.ended(token):
            return call.route.refuse(request, Problem(401, "this token was revoked, or is over, since the call began"))
        request.hurried = True
        return await self._answer(call)

    async def _answer(self, call: Call) -> Response:
        """Call the route's handler, and return its answer. All errors become responses here."""
        route, names, parts, request = call
        try:
            if route.query is NoQuery and request.heading.query:
                read_query(request, NoQuery)  # refuses any parameter; other routes read their own query
            is_value = len(request.body) > AT_ONCE_BYTES and media.language_of(request.media_type()) is not None
            if is_value and not route.any_size:  # routes of any size read their body in pieces
                request.packed = await packed_body(parts, request)
            answer = await route.handler(parts, request, **names)
            if isinstance(answer, Response):
                return answer
            status, value = answer if isinstance(answer, tuple) else (route.status, answer)
            return await answer_any(parts, value, request.answer_language(), status)
        except JqdError as error:
            return route.refuse(request, self._internal_error(error) if as_problem(error).status == 500 else error)
        except Exception as error:  # noqa: BLE001 - an internal error is logged and answered; other requests go on
            return route.refuse(request, self._internal_error(error))

    def _internal_error(self, error: BaseException) -> Problem:
        """Log an internal error, and return the problem for the client, which contains the id of the log's entry."""
        fault = log_internal_error(self._log, "api.failed", error)
        return Problem(500, f"an internal error; the daemon's log tells more under the id {fault}", fault=fault)


def _root(path: str) -> str:
    """Return the beginning of a path, which decides to which API it belongs: `/worker` → `/worker`, `/job/7/polling` →
    `/job/`."""
    pieces = path.split("/", 2)
    return f"/{pieces[1]}/" if len(pieces) > 2 else path


def _short(path: str) -> str:
    return path if len(path) <= PATH_CHARS_MAX else f"{path[:PATH_CHARS_MAX]}…"
