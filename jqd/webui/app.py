"""The web UI as a Quart application: finds the session and the page of a request, and answers errors.

Each page is a file in `pages/`, with a `register(ui)` that declares its handlers by `ui.page` and `ui.act`.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from secrets import token_urlsafe
from typing import Any
from urllib.parse import urlsplit

import jinja2
import trio
from quart import Response, g, request
from quart_trio import QuartTrio
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge, UnprocessableEntity, UnsupportedMediaType

from jqd.client import AsyncClient, Forbidden, JqdClientError, TimedOut, Unavailable, Unreachable
from jqd.domain.clock import Clock, SystemClock
from jqd.domain.dates import ago, lasting
from jqd.domain.log import get_logger
from jqd.webui import live, login, pages, values
from jqd.webui.api import UNAUTHORIZED, Answers, Api, has_ended, note_call
from jqd.webui.config import BODY_BYTES_MAX, FIELDS_MAX, LOGIN_BYTES_MAX, UiConfig
from jqd.webui.feed import Feeds
from jqd.webui.refusals import INTERNAL_ERROR, LoginNeeded, OtherLogin, Refused, refusal_of
from jqd.webui.security import FRESH, HEADERS, is_own_form, is_own_host, local_path
from jqd.webui.sessions import Me, Session, Sessions
from jqd.webui.threads import THREADS_MAX, BoundedClient
from jqd.webui.visit import STREAM, Addresses, Handler, Page, Visit

BODY_TIMEOUT_S = 30  # for a form to arrive
AGAIN_S = 5  # after so long a browser reloads a page that found no daemon
PAGES_MAX = 100  # rendered pages kept for visitors with the same rights, up to some 200 KB each
LOOKS = ("GET", "HEAD", "OPTIONS")
MULTIPART = "multipart/form-data"  # Quart itself limits its fields
FORMS = ("application/x-www-form-urlencoded", MULTIPART, "")
AWAY = (Unreachable, TimedOut, Unavailable)

ClientFactory = Callable[[str | None], AsyncClient]
"""Makes an API client with the given token; None: a client without a token."""

_log = get_logger("webui")


def client_factory(config: UiConfig) -> ClientFactory:
    threads = trio.CapacityLimiter(THREADS_MAX)
    return lambda token: BoundedClient(list(config.urls), token, threads)


def create_app(config: UiConfig, connect: ClientFactory | None = None, clock: Clock | None = None) -> "Ui":
    """Return the UI; its attribute `app` is the Quart application. `connect`: makes the API clients; None: they ask the
    daemons in `config`."""
    return Ui(config, connect or client_factory(config), clock or SystemClock())


class Ui(Addresses):
    """The UI of one process: the application, the sessions, and the caches that all pages share."""

    def __init__(self, config: UiConfig, connect: ClientFactory, clock: Clock) -> None:
        super().__init__()
        self.config = config
        self.connect = connect
        self.answers, self._pages = Answers(clock), Answers(clock, PAGES_MAX)
        self._mark = token_urlsafe()
        """Placeholder in rendered pages that visitors share. Each visitor's own form token replaces it."""
        self.sessions = Sessions(clock)
        self.assets = live.load_assets()
        self.feeds: Feeds | None = None
        """None until the server has started."""
        self._open_api = Api(connect(config.token), self.answers, "open")
        self._open: Session | None = None
        self.app = QuartTrio("jqd.webui", static_folder=None, template_folder=None)
        self.app.config.update(MAX_CONTENT_LENGTH=BODY_BYTES_MAX, BODY_TIMEOUT=BODY_TIMEOUT_S, RESPONSE_TIMEOUT=None)
        self.app.after_request(_secured)
        self.app.register_error_handler(Exception, self._failed)
        self.app.before_serving(self._begin)
        self.app.after_serving(self._end)
        for part in (live, login, *pages.ALL):
            part.register(self)

    # ------------------------------------------------------------ what pages declare

    def add_page(self, path: str, page: Page) -> None:
        self.app.add_url_rule(path, f"GET {path}", partial(self._show, page), methods=["GET"])

    def add_act(self, path: str, handler: Handler, *, needs_login: bool) -> None:
        self.app.add_url_rule(path, f"POST {path}", partial(self._do, handler, needs_login), methods=["POST"])

    def render(self, template: str, **data: Any) -> str:
        found = _templates().get_template(template)
        return found.render(now=datetime.now(UTC), navigation=self.navigation, **data)

    # ------------------------------------------------------------ who asks

    async def _show(self, page: Page) -> Response:
        visit = await self._visit(page.needs_login, {})
        for name in visit.query:
            if len(request.args.getlist(name)) > 1:
                raise UnprocessableEntity(f"{name!r} stands in the address more than once: say it once")
        return await self.answer(visit, page)

    async def answer(self, visit: Visit, page: Page) -> Response:
        """Check that the visitor may see a page and that the query has only known parameters; return the page,
        rendered. Raises Refused, JqdClientError, HTTPException."""
        if page.needs_login:
            visit.expect_right(page.needs)
        visit.expect(page.takes)
        is_shared = page.is_shared and "done" not in visit.query  # only who did something sees the note about it
        return await (self._shared(visit, page.handler) if is_shared else page.handler(visit))

    async def _shared(self, visit: Visit, handler: Handler) -> Response:
        """Return the page as it was rendered within the last second for a visitor with the same rights; if it was not,
        render it now. So 500 equal open pages are rendered once a second."""

        async def render() -> dict[str, Any]:
            visit.form_token, own = self._mark, visit.form_token
            try:
                answer = await handler(visit)
            finally:
                visit.form_token = own  # an error page is not shared
            return {"body": await answer.get_data(), "status": answer.status_code, "headers": [*answer.headers.items()]}

        session = visit.session
        found = await self._pages.get((session.api.identity, session.is_open, visit.url), render)
        body = found["body"].replace(self._mark.encode(), session.form_token.encode())
        headers = Headers((name, value) for name, value in found["headers"] if name.lower() != "content-length")
        return Response(body, status=found["status"], headers=headers)

    async def _do(self, handler: Handler, needs_login: bool) -> Response:
        if not is_own_form(request.headers, self.config.scheme, self.config.public_origin):
            raise Refused(
                "this form was not sent by a page of this UI: open the page, and send it from there (a script has to "
                "send the UI's address as Origin)"
            )
        if needs_login:
            await self._visit(needs_login, {})  # check the login before reading the body
        elif request.content_length is None or request.content_length > LOGIN_BYTES_MAX:
            raise RequestEntityTooLarge("this form is longer than a token and an address are")
        if request.mimetype not in FORMS:
            raise UnsupportedMediaType(
                f"this page takes forms, and {request.mimetype[:64]!r} is none: programs use the API"
            )
        content = await request.get_data(cache=True, as_text=False, parse_form_data=False)
        if content.count(b"&") >= FIELDS_MAX and request.mimetype != MULTIPART:
            raise RequestEntityTooLarge(f"this form has more than {FIELDS_MAX} fields")
        sent = await request.form
        g.is_read = True
        form = sent.to_dict()
        for name in form:
            if len(sent.getlist(name)) > 1:
                raise UnprocessableEntity(f"{name[:64]!r} stands in the form more than once: say it once")
        visit = await self._visit(needs_login, form)
        if needs_login and not visit.session.owns_form(form.get("form_token", "")):
            raise Refused("this form is of another login: load the page anew, and send it again")
        try:
            return await handler(visit)
        finally:
            if needs_login:  # without a login nothing is changed, and nobody may empty what all pages share
                self.answers.forget()
                self._pages.forget()

    async def _visit(self, needs_login: bool, form: dict[str, str]) -> Visit:
        session = self.sessions.find(request.cookies.get(self.cookie, ""))
        if session is None:
            session = await self._open_session() if needs_login else None
            if session is None or session.is_open:
                self._expect_own_host()
        visit = g.visit = Visit(self, request.path, request.args.to_dict(), form, session)
        if needs_login and session is None:
            raise LoginNeeded
        if session is not None:
            opened_by = request.headers.get("jqd-form-token")  # sent by an open page that renews a part of it
            if opened_by is not None and not session.is_open and not session.owns_form(opened_by):
                raise OtherLogin
            await self.check(session)
        visit.expect_tenant()
        return visit

    async def check(self, session: Session) -> None:
        """Ask the API whether the token of a login is still valid, at most once in CHECK_S. Raises JqdClientError if it
        is not, or no daemon answers."""
        if not session.is_open and self.sessions.is_due(session):
            note_call()
            await session.api.client.me()  # not by a shared answer, which would not prove this token valid

    def end_session(self, error: Exception, session: Session) -> bool:
        """End the session if an API error means that its login is over. Returns whether the session was ended; never
        True without a login (`Session.is_open`)."""
        is_over = has_ended(error) and not session.is_open
        if is_over:
            self.sessions.end(session)
        return is_over

    def _expect_own_host(self) -> None:
        """Refuse a request with an unknown `Host`, if the UI may be used without a login. Raises Refused."""
        if self.config.may_be_open and not is_own_host(request.host, self.config.names):
            raise Refused(f"this UI does not go by the name {request.host}: say `jqd ui --host NAME` to have it do so")

    async def _open_session(self) -> Session | None:
        """Return the session that all visitors share if the UI needs no login; None if it needs one."""
        if not self.config.may_be_open:
            return None
        try:
            me = Me.of(await self._open_api.get("/v1/me"))
        except Forbidden as error:
            if error.status != UNAUTHORIZED or self.config.token:
                raise
            return None
        if self._open is None or self._open.me != me:
            self._open = Session(self._open_api, me, is_open=True)
        return self._open

    def close_streams(self) -> None:
        """End the event streams of open pages, so that a shutdown does not wait for them."""
        if self.feeds is not None:
            self.feeds.close()

    @property
    def cookie(self) -> str:
        """Name of the session cookie. It contains the port, because all ports of a host share cookies. With TLS it has
        the prefix `__Host-`: then neither other hosts nor connections without TLS can set it."""
        return f"{'__Host-' if self.config.is_secret else ''}jqd_ui_{self.config.address.port}"

    # ------------------------------------------------------------ when something is wrong

    async def _failed(self, error: Exception) -> Response:
        visit: Visit = g.get("visit") or await self._in_passing(error)
        looks = request.method == "GET"
        target = visit.url if looks else _opened_at()  # after a form its page is opened, and the form is not sent again
        match error:
            case LoginNeeded():
                had_login = self.cookie in request.cookies or "hx-request" in request.headers
                return _to_login(visit, next=target, why="ended" if had_login else "")
            case JqdClientError() if visit.has_session and self.end_session(error, visit.session):
                return _to_login(visit, next=target, why="ended")
            case OtherLogin():
                return live.last_tick() if visit.path == STREAM else Response("", 204, {"hx-refresh": "true"})
            case JqdClientError() if isinstance(error, AWAY):
                silent = not isinstance(error, Unavailable)
                about_daemons = {"why": str(error), "urls": self.config.urls, "again": target, "tries": looks}
                answer = visit.render("away.html", status=503, silent=silent, **about_daemons)
                if looks:
                    answer.headers["refresh"] = str(AGAIN_S)  # works without scripts
                return answer
        refusal = refusal_of(error, request.method, request.path)
        if refusal is None:
            _log.error("webui.failed", path=request.path, exc_info=error)
            refusal = INTERNAL_ERROR
        return visit.render("refused.html", status=refusal.status, refusal=refusal)

    async def _in_passing(self, error: Exception) -> Visit:
        """Return a visit for a request that failed before it reached a page, so that the error page can show the links
        to all pages."""
        session = self.sessions.find(request.cookies.get(self.cookie, ""))
        if session is None and isinstance(error, HTTPException) and is_own_host(request.host, self.config.names):
            with suppress(JqdClientError):  # without a daemon the page has no links
                session = await self._open_session()
        return Visit(self, request.path, request.args.to_dict(), {}, session)

    async def _begin(self) -> None:
        _templates()  # load them now: an update may replace the files
        self.feeds = Feeds(self.app.nursery)

    async def _end(self) -> None:
        await login.revoke_all(self.sessions.all())
        self.sessions.close()
        self._open_api.close()


@cache
def _templates() -> jinja2.Environment:
    """Load all templates once; return the environment, which all UIs of this process share."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("jqd.webui"),
        autoescape=True,
        finalize=values.visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.globals.update(asset=lambda name: live.load_assets()[name].url, log_chars_max=values.LOG_CHARS_MAX)
    shown = (ago, lasting, values.number, values.value, values.word, values.cut, values.cause)
    found.filters.update({each.__name__: each for each in shown}, exact=values.exact)
    for name in found.list_templates():
        found.get_template(name)
    return found


async def _secured(answer: Response) -> Response:
    for name, value in HEADERS.items():
        answer.headers[name] = value
    answer.headers.setdefault("cache-control", FRESH)
    if request.method not in LOOKS and request.http_version.startswith("1") and not g.get("is_read"):
        # A connection with an unread body cannot take another request.
        answer.headers["connection"] = "close"
    return answer


def _opened_at() -> str:
    """Return the path of the page from which htmx sent a form, so that a login leads back to it."""
    try:
        at = urlsplit(request.headers.get("hx-current-url", ""))
    except ValueError:
        return "/"
    return local_path(f"{at.path}?{at.query}" if at.query else at.path) if at.netloc == request.host else "/"


def _to_login(visit: Visit, **query: str) -> Response:
    """Redirect to the login page. If htmx requested only a part of a page, redirect the whole page."""
    answer = visit.go("/login", **query)
    if "hx-request" in request.headers:
        if visit.path == STREAM:
            return live.last_tick()
        answer.headers["hx-redirect"] = answer.headers["location"]
        answer.status_code = 204  # htmx would follow a redirect, and put the login page into the part
    return answer
