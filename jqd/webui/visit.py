"""One request of a browser, as pages see it: whose it is, what it names, and how to answer; and how pages declare which
requests they answer."""

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
    """What a page's handler gets. `query` and `form` hold text, as the browser sent it."""

    def __init__(
        self, ui: "Ui", path: str, query: Mapping[str, str], form: Mapping[str, str], session: Session | None
    ) -> None:
        self.ui = ui
        self.path = path
        self.query = query
        self.form = form
        self._session = session
        self.form_token = session.form_token if session is not None else ""
        """What forms of its page send."""
        tenant = form.get("tenant", query.get("tenant"))
        self.tenant = tenant
        """Whom it speaks for, where the address or the form names one: all calls, links and forms then do."""

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
        """The tenant, role and scopes whose rights this visit has."""
        me = self.session.me
        return me if self.tenant is None else me._replace(tenant=self.tenant, all_tenants=False)

    def meet(self, row: Mapping[str, Any]) -> None:
        """Speak for the tenant of this row from now on: what its page names is of that tenant, too."""
        if self.tenant is None and self.me.all_tenants and row.get("tenant"):
            self.tenant = row["tenant"]

    def may(self, act: str) -> bool:
        """Return whether the API would let this session act so, by its role."""
        return self.has(rights.ACTS[act])

    def sees(self, path: str) -> bool:
        """Return whether this login may look at a page, which the head of each page then names."""
        return rights.may(self.session.me.role, self.session.me.tenant, self.ui.declared[path].needs)

    def has(self, right: rights.Right) -> bool:
        return rights.may(self.me.role, self.me.tenant, right)

    def expect_right(self, right: rights.Right) -> None:
        """Raises Refused for a page that this role may not look at, or not of one tenant."""
        me = self.me
        if self.has(right):
            return
        if right.is_of_all and me.tenant:
            why = f"this page is of all tenants together, and not of {me.tenant} alone"
        else:
            why = f"this page is for {right.whom}; you are logged in as {me.role}"
        raise Refused(why, rights.remedy(me.tenant, right))

    def expect_tenant(self) -> None:
        """Raises Refused, UnprocessableEntity for a tenant in the address that this login cannot speak for."""
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
        """Return whether a row is of this session's tenant: only these can be changed by their names."""
        return (row.get("tenant") or "") == self.me.tenant

    @property
    def url(self) -> str:
        """Return the URL of this very page: what its live parts fetch."""
        return values.link(self.path, **self.query)

    @cached_property
    def done(self) -> str:
        """Return what the act did that led here; nothing where this address is opened again, or was made up."""
        done = self.query.get("done", "")
        return done if done and self.session.take_done(self.url) else ""

    @property
    def stream(self) -> str:
        """Return the URL of the stream that brings the live part of this page; one of ticks alone where it would be too
        long."""
        url = values.link(STREAM, page=self.url)
        return url if len(url) <= STREAM_CHARS_MAX else STREAM

    def link(self, path: str, /, **query: Any) -> str:
        """Return a URL of this UI that speaks for the same tenant, unless it names another."""
        return values.link(path, **query, **({} if "tenant" in query else {"tenant": self.tenant}))

    def link_of(self, path: str) -> str:
        """Return the URL of a page that the head names: of the same tenant, where that page is of one."""
        return self.link(path) if self.has(self.ui.declared[path].needs) else self.link(path, tenant=None)

    def of_row(self, path: str, row: Mapping[str, Any], /, **query: Any) -> str:
        """Return a URL of this UI that speaks for the tenant of a row."""
        whose = row.get("tenant") if self.tenant is None and self.me.all_tenants else None
        return self.link(path, **query, tenant=whose or self.tenant)

    def command(self, *words: str, of: Sequence[str] = (), **flags: Any) -> str:
        """Return a line for a shell that does the same, for the same tenant. `of`: what others named."""
        program, *others = words
        speaks = () if self.tenant is None else (f"--tenant={self.tenant}",)
        return values.command(program, *speaks, *others, of=of, **flags)

    def expect(self, takes: Collection[str]) -> None:
        """Raises UnprocessableEntity for a part of the address that this page does not know: one that is mistyped would
        choose more than was meant."""
        for name in self.query:
            if name not in takes:
                known = ", ".join(takes)
                raise UnprocessableEntity(f"this page knows no {name!r} in its address; it knows {known or 'nothing'}")

    def asked(self, *names: str) -> dict[str, str]:
        """Return those of the query that say something."""
        return {name: self.query[name].strip() for name in names if self.query.get(name, "").strip()}

    def named(self, key: str) -> str:
        """Return what the form or the address names by that key. Raises BadRequest where it names nothing."""
        named = (self.form or self.query).get(key, "")
        if not named:
            raise BadRequest(f"which one? Its {key} is missing from the {'form' if self.form else 'address'}")
        return named

    async def listed(
        self, call: str, limit: int | None, which: Mapping[str, str] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the page of a list that the address names, and what its template needs to lead to others. `which`: its
        filter. Raises BadRequest, JqdClientError."""
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
        """Answer a form: the browser shows that page next, which says once what is `done`."""
        url = self.link(path, **query)
        if "done" in query:
            self.session.note_done(url)
        return redirect(url, code=303)  # type: ignore[return-value]


class Question(NamedTuple):
    """A question to the person before what cannot be undone, and the form that a yes sends."""

    title: str
    warning: str
    verb: str
    """What stands on the button."""
    right: str
    """As `rights.py` calls it."""
    act: str
    """The path that the form goes to."""
    fields: dict[str, str]
    back: str
    """The URL of a no."""


Handler = Callable[[Visit], Awaitable[Response]]
Call = Callable[[AsyncClient, str], Awaitable[object]]


class Page(NamedTuple):
    """A page as its file declares it by `Addresses.page`."""

    handler: Handler
    needs: Right
    takes: Sequence[str]
    needs_login: bool
    is_shared: bool


class Addresses(ABC):
    """What is answered: each page declares it here."""

    def __init__(self) -> None:
        self.navigation: list[tuple[str, str]] = []
        """Title and path of the pages that the head of each page names."""
        self.declared: dict[str, Page] = {}
        """The pages by their paths."""

    @abstractmethod
    def add_page(self, path: str, page: Page) -> None:
        """Have a page answer GET of a path."""

    @abstractmethod
    def add_act(self, path: str, handler: Handler, *, needs_login: bool) -> None:
        """Have a handler answer POST of a path."""

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
        """Have a handler answer GET of a path. `nav`: its title among the pages that the head names. `needs`: who may
        look. `takes`: what may stand in its query, beside the tenant that is spoken for. `is_shared`: those with the
        same rights that look within a second get the same page, if they have to log in."""
        if nav:
            self.navigation.append((nav, path))
        takes = (*takes, "tenant") if needs_login else takes

        def declare(handler: Handler) -> Handler:
            page = self.declared[path] = Page(handler, needs, takes, needs_login, needs_login and is_shared)
            self.add_page(path, page)
            return handler

        return declare

    def act(self, path: str, *, needs_login: bool = True) -> Callable[[Handler], Handler]:
        """Have a handler answer forms that are sent to a path, from pages of this UI only."""

        def declare(handler: Handler) -> Handler:
            self.add_act(path, handler, needs_login=needs_login)
            return handler

        return declare

    def acts(self, path: str, *, key: str = "name", to: str = "", **calls: Call) -> None:
        """Have each act below a path make its call about what the form names by `key`. What is done is said at `to`, or
        at the path, of that one."""

        async def do(act: str, call: Call, visit: Visit) -> Response:
            named = visit.named(key)
            await call(visit.api.client, named)
            return visit.go(to, done=act) if to else visit.go(path, **{key: named}, done=act)

        for act, call in calls.items():
            self.act(f"{path}/{act}")(partial(do, act, call))

    def deletes(self, what: str, call: Call, warning: str, *, to: str, needs: Right = LOOK) -> None:
        """Have things of this kind deleted by their names, after a question; that it is done is said at `to`."""

        @self.page(f"/{what}/confirm", needs=needs, takes=("name",))
        async def confirm(visit: Visit) -> Response:
            name = visit.query.get("name", "")
            await visit.api.get(path_of(f"{what}s", name))
            title, back = f"Delete {what} {name}?", visit.link(f"/{what}", name=name)
            return visit.ask(Question(title, warning, "Delete", "remove", f"/{what}/delete", {"name": name}, back))

        self.acts(f"/{what}", to=to, delete=call)


def _looked_at(visit: Visit, answer: dict[str, Any]) -> int:
    """Return how many jobs this page and those before it were looked for among. Raises BadRequest."""
    try:
        return values.count_of(visit.query.get("looked", "0")) + int(answer.get("looked", 0))
    except ValueError:
        raise BadRequest("looked is a whole number: how many jobs the pages before this one looked at") from None
