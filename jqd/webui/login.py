"""Login by a token of the API. The UI exchanges it for a derived token of twelve hours, which stays in this process."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import trio
from quart import Response, redirect

from jqd.client import AsyncClient, Forbidden, Invalid, JqdClientError, WrongToken
from jqd.domain.log import get_logger
from jqd.webui.api import Api, has_ended
from jqd.webui.config import NOTE, SESSION_S
from jqd.webui.security import local_path
from jqd.webui.sessions import Me, Session
from jqd.webui.visit import Visit

if TYPE_CHECKING:
    from jqd.webui.app import Ui

AT_ONCE_MAX = 8  # logins under way at once: each makes two calls
REVOKE_S = 3.0  # for revoking a token, or those of all logins at a stop; others end within SESSION_S
REVOKED_AT_ONCE_MAX = 32  # at a stop: there may be 1,000 logins, each taking up to 0.1 s
ENDED = "Your login has ended: you logged out, its token is over or was revoked, or the UI was started anew."

_log = get_logger("webui")


def register(ui: "Ui") -> None:
    limiter = trio.CapacityLimiter(AT_ONCE_MAX)

    def ask(visit: Visit, *, why: str = "", status: int = 200) -> Response:
        target = local_path(visit.form.get("next") or visit.query.get("next", "/"))
        return visit.render("login.html", status=status, why=why, onward=target, urls=ui.config.urls)

    @ui.page("/login", needs_login=False, takes=("next", "why"))
    async def show(visit: Visit) -> Response:
        return ask(visit, why=ENDED if visit.query.get("why") == "ended" else "")

    @ui.act("/login", needs_login=False)
    async def log_in(visit: Visit) -> Response:
        token = visit.form.get("token", "").strip()
        if not token:
            return ask(visit, why="Type a token.", status=422)
        try:
            async with limiter:
                api, me = await _derive(ui, token)
        except (Forbidden, Invalid, WrongToken) as error:
            return ask(visit, why=f"This token lets nobody in: {error}", status=403)
        if visit.has_session:  # the browser's old login: the new cookie replaces its cookie
            await _revoke(visit.session.api.client, visit.session.me.token_id)
            ui.sessions.end(visit.session)
        session, surplus = ui.sessions.begin(api, me)
        for each in surplus:
            await _revoke(each.api.client, each.me.token_id)
            each.api.close()
        _log.info("webui.login", role=me.role, tenant=me.tenant)
        answer = redirect(local_path(visit.form.get("next", "/")), code=303)
        answer.set_cookie(
            ui.cookie,
            session.session_id,
            max_age=int(SESSION_S),
            httponly=True,
            samesite="Lax",
            secure=ui.config.is_secret,
            path="/",
        )
        return answer  # type: ignore[return-value]

    @ui.act("/logout")
    async def log_out(visit: Visit) -> Response:
        if not visit.session.is_open:
            await _revoke(visit.session.api.client, visit.session.me.token_id)
            ui.sessions.end(visit.session)
        answer = visit.go("/login")
        answer.delete_cookie(ui.cookie, path="/", secure=ui.config.is_secret)
        return answer


async def _derive(ui: "Ui", token: str) -> tuple[Api, Me]:
    """Derive a token for the login from `token`, which the visitor typed. Returns an API client that uses the derived
    token, and its rights. Raises JqdClientError."""
    asking = ui.connect(token)
    try:
        derived = await asking.derive_token(ttl=SESSION_S, note=NOTE, replace_oldest=True)
    finally:
        asking.client.close()
    client = ui.connect(str(derived["token"]))
    try:
        me = Me.of(await client.me())
    except BaseException:  # also if the browser has gone
        await _revoke(client, derived["token_id"])
        client.client.close()
        raise
    return Api(client, ui.answers, me.identity), me


async def _revoke(client: AsyncClient, token_id: str, by_s: float | None = None) -> None:
    """Revoke a login's token, even if the browser has disconnected. If that fails, or no daemon answers by `by_s`
    (trio's clock), log it: the token expires by itself."""
    by_s = trio.current_time() + REVOKE_S if by_s is None else by_s
    with trio.CancelScope(deadline=by_s, shield=True) as trying:
        try:
            await client.in_thread(partial(client.client.revoke_token, token_id), abandon=True)
        except JqdClientError as error:
            if not has_ended(error):
                _log.warning("webui.token_left", token=token_id, why=str(error))
    if trying.cancelled_caught:
        _log.warning("webui.token_left", token=token_id, why=f"no answer within {REVOKE_S:g} s")


async def revoke_all(sessions: Iterable[Session]) -> None:
    """Revoke the tokens of all these sessions. Gives up after REVOKE_S."""
    limiter, by_s = trio.CapacityLimiter(REVOKED_AT_ONCE_MAX), trio.current_time() + REVOKE_S

    async def one(session: Session) -> None:
        async with limiter:
            await _revoke(session.api.client, session.me.token_id, by_s)

    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(one, session)
