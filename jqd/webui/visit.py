"""`Visit` is one request of a browser, with its session, query and form, and the ways to answer it. `Addresses` has the
methods by which pages declare the URLs and forms that they answer."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from quart import Response, redirect
from werkzeug.exceptions import BadRequest, UnprocessableEntity

from jqd.client import AsyncClient
from jqd.client.path import path_of
from jqd.domain.tenant import IN_WORDS, is_tenant
from jqd.webui import rights, values
from jqd.webui.api import Api
from jqd.webui.refusals import Refused
from jqd.webui.rights import LOOK, Right
from jqd.webui.sessions import Me, Session

if TYPE_CHECKING:
    from jqd.webui.app import Ui

STREAM = "/live"
STREAM_CHARS_MAX = 7_000  # hypercorn reads heads of 16 KiB, proxies before it lines of 8


class Visit:
    """A request of a browser, as the handler of a page gets it. `query` and `form` hold text as the browser sent it."""

    def __init__(
        self, ui: "Ui", path: str, query: Mapping[str, str], form: Mapping[str, str], session: Session | None
    ) -> None:
        self.ui = ui
        self.path = path
        self.query = query
        self.form = form
        self._session = session
        self.form_token = session.form_token if session is not None else ""
        """Secret that every form of this page contains, see `Session.form_token`."""
        tenant = form.get("tenant", query.get("tenant"))
        self.tenant = tenant
        """Tenant that the URL or the form names; None: none. All calls, links and forms of this page are for it."""

    @property
    def session(self) -> Session:
        assert self._session is not None, "the page needs a login, and is declared as one that does not"
        return self._session

    @property
    def has_session(self) -> bool:
        return self._session is not None

    @property
    def api(self) -> Api:
        return self.session.api if self.tenant is None else self.session.api.speaking_for(self.tenant)

    @property
    def me(self) -> Me:
        """Tenant, role and scopes of the session. If the URL or the form names a tenant, that tenant replaces the
        session's."""
        me = self.session.me
        return me if self.tenant is None else me._replace(tenant=self.tenant, all_tenants=False)

    def meet(self, row: Mapping[str, Any]) -> None:
        """Make the tenant of an object that the page shows (`row`: a job, say) the tenant of this visit, as names on
        the page belong to it. Does nothing if a tenant is set, or the login is not for all tenants."""
        if self.tenant is None and self.me.all_tenants and row.get("tenant"):
            self.tenant = row["tenant"]

    def may(self, act: str) -> bool:
        """Return whether this login may do an act (a key of `rights.ACTS`)."""
        return self.has(rights.ACTS[act])

    def sees(self, path: str) -> bool:
        """Return whether this login may see the page at `path`. If so, the head of each page links to it."""
        return rights.may(self.session.me.role, self.session.me.tenant, self.ui.declared[path].needs)

    def has(self, right: rights.Right) -> bool:
        return rights.may(self.me.role, self.me.tenant, right)

    def expect_right(self, right: rights.Right) -> None:
        """Check that this login has the right that a page requires. Raises Refused."""
        me = self.me
        if self.has(right):
            return
        if right.is_of_all and me.tenant:
            why = f"this page is of all tenants together, and not of {me.tenant} alone"
        else:
            why = f"this page is for {right.whom}; you are logged in as {me.role}"
        raise Refused(why, rights.remedy(me.tenant, right))

    def expect_tenant(self) -> None:
        """Check the tenant that the URL or the form names. Raises Refused if this login cannot act for it,
        UnprocessableEntity if it is no valid name."""
        if self.tenant and not is_tenant(self.tenant):
            raise UnprocessableEntity(f"the name of a tenant is {IN_WORDS}, not {self.tenant[:64]!r}")
        me = self._session.me if self._session is not None else None
        if me is None or self.tenant is None or me.all_tenants or self.tenant == me.tenant:
            return
        whose = f"the tenant {me.tenant}" if me.tenant else "no tenant"
        of = f"the tenant {self.tenant}" if self.tenant else "no tenant"
        raise Refused(
            f"this page is of {of}, and you are logged in for {whose}",
            "Leave `tenant` out of its address, or log in with a token of that tenant, or of all.",
        )

    def owns(self, row: Mapping[str, Any]) -> bool:
        """Return whether an object that the page shows (`row`: a constraint, say) belongs to this visit's tenant. Only
        then can it be changed by its name, for other tenants may have the same name."""
        return (row.get("tenant") or "") == self.me.tenant

    @property
    def url(self) -> str:
        """The URL of this page. Its live parts are requested there again."""
        return values.link(self.path, **self.query)

    @cached_property
    def done(self) -> str:
        """Name of the act that has just redirected to this URL, from its query. Empty if the URL is opened again, or no
        act redirected to it."""
        done = self.query.get("done", "")
        return done if done and self.session.take_done(self.url) else ""

    @property
    def stream(self) -> str:
        """The URL of the event stream that renews this page. For a page with a very long URL it is that of a stream
        whose events have no content: the browser then requests the parts of the page."""
        url = values.link(STREAM, page=self.url)
        return url if len(url) <= STREAM_CHARS_MAX else STREAM

    def link(self, path: str, /, **query: Any) -> str:
        """Return a URL of this UI for the tenant of this visit, unless `query` names a tenant."""
        return values.link(path, **query, **({} if "tenant" in query else {"tenant": self.tenant}))

    def link_of(self, path: str) -> str:
        """Return the URL of a page for its link in the head. It names the tenant of this visit only if the login may
        see the page for this tenant."""
        return self.link(path) if self.has(self.ui.declared[path].needs) else self.link(path, tenant=None)

    def of_row(self, path: str, row: Mapping[str, Any], /, **query: Any) -> str:
        """Return a URL of this UI for the tenant that an object (`row`: a job, say) belongs to."""
        whose = row.get("tenant") if self.tenant is None and self.me.all_tenants else None
        return self.link(path, **query, tenant=whose or self.tenant)

    def command(self, *words: str, of: Sequence[str] = (), **flags: Any) -> str:
        """Return a `jqd` command line for the tenant of this visit, quoted for a shell: `words`, `flags` that have a
        value, then the names and ids in `of`."""
        program, *others = words
        speaks = () if self.tenant is None else (f"--tenant={self.tenant}",)
        return values.command(program, *speaks, *others, of=of, **flags)

    def expect(self, takes: Collection[str]) -> None:
        """Check that the page knows all parameters of the query: a mistyped filter would select too much. Raises
        UnprocessableEntity."""
        for name in self.query:
            if name not in takes:
                known = ", ".join(takes)
                raise UnprocessableEntity(f"this page knows no {name!r} in its address; it knows {known or 'nothing'}")

    def asked(self, *names: str) -> dict[str, str]:
        """Return the named query parameters that are not blank."""
        return {name: self.query[name].strip() for name in names if self.query.get(name, "").strip()}

    def named(self, key: str) -> str:
        """Return the value of `key` in the form, or without a form in the query. Raises BadRequest if it is empty."""
        named = (self.form or self.query).get(key, "")
        if not named:
            raise BadRequest(f"which one? Its {key} is missing from the {'form' if self.form else 'address'}")
        return named

    async def listed(
        self, call: str, limit: int | None, which: Mapping[str, str] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Request one page of a list, at the cursor in the query. Returns the API's answer, and the links to the first
        and the next page for the template. `which`: the filter. Raises BadRequest, JqdClientError."""
        cursor, which = self.query.get("cursor", ""), which or {}
        answer = await self.api.get(call, limit=limit, cursor=cursor or None, **which)
        further = {"cursor": str(answer.get("cursor") or "")}
        more: dict[str, Any] = {}
        if "looked" in self.ui.declared[self.path].takes:
            more = {"looked": _looked_at(self, answer), "of": answer.get("of")}
            further["looked"] = str(more["looked"])
        return answer, more | {
            "newest": self.link(self.path, **which) if cursor else "",
            "older": self.link(self.path, **which, **further) if further["cursor"] else "",
            "call": values.link(call, limit=limit, cursor=cursor, **which),
        }

    def render(self, template: str, *, status: int = 200, **data: Any) -> Response:
        ways = {"link": self.link, "of_row": self.of_row}
        return Response(
            self.ui.render(template, visit=self, **ways, **data),
            status=status,
            content_type="text/html; charset=utf-8",
        )

    def ask(self, question: "Question") -> Response:
        return self.render("sure.html", question=question)

    def go(self, path: str, **query: Any) -> Response:
        """Answer a form with a redirect to a page. If `query` has `done`, the page shows once what was done."""
        url = self.link(path, **query)
        if "done" in query:
            self.session.note_done(url)
        return redirect(url, code=303)  # type: ignore[return-value]


class Question(NamedTuple):
    """A page that asks a person to confirm an act which cannot be undone. The form on it does the act."""

    title: str
    warning: str
    verb: str
    """Text of the button."""
    right: str
    """The act, as a key of `rights.ACTS`."""
    act: str
    """Path that the form is sent to."""
    fields: dict[str, str]
    back: str
    """URL that the person returns to without confirming."""


Handler = Callable[[Visit], Awaitable[Response]]
Call = Callable[[AsyncClient, str], Awaitable[object]]


class Page(NamedTuple):
    """A declared page. The fields are arguments of `Addresses.page`."""

    handler: Handler
    needs: Right
    takes: Sequence[str]
    needs_login: bool
    is_shared: bool


class Addresses(ABC):
    """Base of `Ui`, in which pages declare which URLs and forms they answer."""

    def __init__(self) -> None:
        self.navigation: list[tuple[str, str]] = []
        """Title and path of each page that the head of every page links to."""
        self.declared: dict[str, Page] = {}
        """Path → page."""

    @abstractmethod
    def add_page(self, path: str, page: Page) -> None:
        """Route GET of a path to a page."""

    @abstractmethod
    def add_act(self, path: str, handler: Handler, *, needs_login: bool) -> None:
        """Route POST of a path to a handler."""

    def page(
        self,
        path: str,
        *,
        nav: str = "",
        needs: Right = LOOK,
        takes: Sequence[str] = (),
        needs_login: bool = True,
        is_shared: bool = True,
    ) -> Callable[[Handler], Handler]:
        """Return a decorator for the handler that answers GET of a path. `nav`: title of the page's link in the head of
        each page; empty: no link. `needs`: the right to see the page. `takes`: its query parameters, besides `tenant`.
        `is_shared`: visitors with the same rights may get the same rendered page (never a page that needs no login)."""
        if nav:
            self.navigation.append((nav, path))
        takes = (*takes, "tenant") if needs_login else takes

        def declare(handler: Handler) -> Handler:
            page = self.declared[path] = Page(handler, needs, takes, needs_login, needs_login and is_shared)
            self.add_page(path, page)
            return handler

        return declare

    def act(self, path: str, *, needs_login: bool = True) -> Callable[[Handler], Handler]:
        """Return a decorator for the handler of forms sent to a path. Only forms of this UI's own pages are
        accepted."""

        def declare(handler: Handler) -> Handler:
            self.add_act(path, handler, needs_login=needs_login)
            return handler

        return declare

    def acts(self, path: str, *, key: str = "name", to: str = "", **calls: Call) -> None:
        """Declare a form at PATH/NAME for each of `calls` (NAME → client call). The form makes its call for the thing
        (a schedule, say) whose name or id is in the field `key`. Then it redirects to `to`, by default to the page of
        that thing, where a message says what was done."""

        async def do(act: str, call: Call, visit: Visit) -> Response:
            named = visit.named(key)
            await call(visit.api.client, named)
            return visit.go(to, done=act) if to else visit.go(path, **{key: named}, done=act)

        for act, call in calls.items():
            self.act(f"{path}/{act}")(partial(do, act, call))

    def deletes(self, what: str, call: Call, warning: str, *, to: str, needs: Right = LOOK) -> None:
        """Declare two paths for a kind of thing (`what`): the page that asks whether to delete one by its name, and the
        form that deletes it and redirects to `to`."""

        @self.page(f"/{what}/confirm", needs=needs, takes=("name",))
        async def confirm(visit: Visit) -> Response:
            name = visit.query.get("name", "")
            await visit.api.get(path_of(f"{what}s", name))
            title, back = f"Delete {what} {name}?", visit.link(f"/{what}", name=name)
            return visit.ask(Question(title, warning, "Delete", "remove", f"/{what}/delete", {"name": name}, back))

        self.acts(f"/{what}", to=to, delete=call)


def _looked_at(visit: Visit, answer: dict[str, Any]) -> int:
    """Return how many jobs were examined for this page of a list and all pages before it. Raises BadRequest."""
    try:
        return values.count_of(visit.query.get("looked", "0")) + int(answer.get("looked", 0))
    except ValueError:
        raise BadRequest("looked is a whole number: how many jobs the pages before this one looked at") from None
