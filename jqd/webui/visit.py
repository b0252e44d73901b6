"""One request of a browser, as pages see it: who asks, what of, and how to answer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quart import Response, redirect

from jqd.webui import values
from jqd.webui.api import Api
from jqd.webui.rights import may
from jqd.webui.sessions import Me, Session

if TYPE_CHECKING:
    from jqd.webui.app import Ui


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

    @property
    def session(self) -> Session:
        assert self._session is not None, "the page needs a login, and is declared as one that does not"
        return self._session

    @property
    def has_session(self) -> bool:
        return self._session is not None

    @property
    def api(self) -> Api:
        return self.session.api

    @property
    def me(self) -> Me:
        return self.session.me

    def may(self, act: str) -> bool:
        """Return whether the API would let this session act so, by its role."""
        return may(self.me.role, act)

    def owns(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row is of this session's tenant: only these can be changed by their names."""
        return (row.get("tenant") or "") == self.me.tenant

    @property
    def url(self) -> str:
        """Return the URL of this very page: what its live parts fetch."""
        return values.link(self.path, **self.query)

    def asked(self, *names: str) -> dict[str, str]:
        """Return those of the query that say something."""
        return {name: self.query[name].strip() for name in names if self.query.get(name, "").strip()}

    def render(self, template: str, *, status: int = 200, **data: Any) -> Response:
        return Response(
            self.ui.render(template, visit=self, **data), status=status, content_type="text/html; charset=utf-8"
        )

    def go(self, path: str, **query: Any) -> Response:
        """Answer a form: the browser shows that page next."""
        return redirect(values.link(path, **query), code=303)  # type: ignore[return-value]
