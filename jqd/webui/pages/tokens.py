"""Pages of tokens: the list, and forms to create and to revoke a token. The secret of a new token is shown once."""

from typing import Any

from quart import Response

from jqd.client import Conflict, Invalid, NotFound, TimedOut, Unavailable, Unreachable
from jqd.client.errors import took_nothing
from jqd.domain.tokens import NOTE_LENGTH_MAX, Role
from jqd.domain.units import duration_s
from jqd.webui.config import NOTE
from jqd.webui.forms import Fault, faults_of, typed, with_unread
from jqd.webui.refusals import Refused
from jqd.webui.rights import MASTER
from jqd.webui.visit import Addresses, Question, Visit

PAGE_TOKENS = 100
FIELDS = ("role", "of", "scopes", "note", "expires")
POINTERS = {f"/{name}": name for name in FIELDS} | {"/tenant": "of", "/expires_in": "expires"}
NEW = dict.fromkeys(FIELDS, "") | {"role": Role.PUSH.value}
DONE = {
    "revoke": "It is revoked, with all that was derived from it: it lets nobody in any more.",
    "not-reached": "It is revoked. Some daemons could not be told: they let nobody in by it once they reach the store.",
}


def register(ui: Addresses) -> None:
    @ui.page("/tokens", nav="Tokens", needs=MASTER, takes=("cursor", "done"), is_shared=False)
    async def show(visit: Visit) -> Response:
        answer, links = await visit.listed("/v1/tokens", PAGE_TOKENS)
        return visit.render(
            "tokens.html",
            tokens=answer.get("tokens", []),
            login=NOTE,
            done=DONE.get(visit.done, ""),
            command=visit.command("jqd", "tokens"),
            **links,
        )

    @ui.page("/token", needs=MASTER, is_shared=False)
    async def new(visit: Visit) -> Response:
        return _form(visit, NEW)

    @ui.page("/token/confirm", needs=MASTER, takes=("id",))
    async def confirm(visit: Visit) -> Response:
        token_id = visit.query.get("id", "")
        row = next((row for row in await visit.api.client.tokens() if row["token_id"] == token_id), None)
        if row is None:
            raise NotFound(f"there is no valid token {token_id[:64]!r}", status=404)
        whose = f" of {row['tenant']}" if row["tenant"] else ""
        note = f", {row['note']!r}" if row["note"] else ""
        warning = f"Who uses it (role {row['role']}{whose}{note}) is refused from then on, and so is who uses a token "
        warning += "that was derived from it: logins, too. It cannot be taken back."
        title, back = f"Revoke token {token_id}?", visit.link("/tokens")
        return visit.ask(Question(title, warning, "Revoke", "token", "/token/revoke", {"id": token_id}, back))

    @ui.act("/token/create")
    async def create(visit: Visit) -> Response:
        visit.expect_right(MASTER)
        return await _create(visit, typed(visit.form, *FIELDS))

    @ui.act("/token/revoke")
    async def revoke(visit: Visit) -> Response:
        not_reached = await visit.api.client.revoke_token(visit.form.get("id", ""))
        return visit.go("/tokens", done="not-reached" if not_reached else "revoke")


async def _create(visit: Visit, typed: dict[str, str]) -> Response:
    """Create the token described in the form, and return the page with its secret. Each form creates at most one token,
    because reloading the page sends the form again."""
    faults = dict[str, Fault]()
    body: dict[str, Any] = {"role": typed["role"], "note": typed["note"]}
    if typed["of"]:
        body["tenant"] = typed["of"]
    if typed["scopes"]:
        body["scopes"] = typed["scopes"].splitlines()
    try:
        if typed["expires"]:
            body["expires_in"] = duration_s(typed["expires"])
    except ValueError as error:
        faults["expires"] = Fault(str(error))
    mark = visit.form.get("once", "")
    if not faults and not visit.session.strike_mark(mark):
        raise Refused(
            "this form was sent already, and its token may be made, or it was opened too long ago",
            "A secret is shown once: if it is lost, revoke its token in the list, and open a new form.",
        )
    status, once, is_unknown = 422, "", False
    try:
        made = await visit.api.post("/v1/tokens", with_unread(body, faults))
    except Invalid as error:
        faults = faults_of(error, POINTERS, typed) | faults
    except Conflict as error:
        faults = {"": Fault(str(error))}
    except (Unreachable, TimedOut, Unavailable) as error:
        was_sent = not faults  # with faults the API is only asked for more faults, and makes nothing
        is_unknown = was_sent and not took_nothing(error)
        if was_sent and not is_unknown:
            visit.session.restore_mark(mark)
            once = mark
        status, faults = 503, faults | {"": Fault(str(error))}
    else:
        return visit.render("token_made.html", made=made)
    return _form(visit, typed, faults=faults, status=status, once=once, is_unknown=is_unknown)


def _form(
    visit: Visit,
    typed: dict[str, str],
    *,
    faults: dict[str, Fault] | None = None,
    status: int = 200,
    once: str = "",
    is_unknown: bool = False,
) -> Response:
    """Return the page with the form as it was typed. If the form has no faults, it also shows the command that does the
    same.

    `once`: mark that lets the form be carried out once; empty: issue a new one. `is_unknown`: warn that the token may
    have been created.
    """
    flags = {"of": typed["of"], "note": typed["note"], "expires": typed["expires"]}
    command = "" if faults else visit.command("jqd", "tokens", "create", typed["role"], **flags)
    return visit.render(
        "token.html",
        status=status,
        typed=typed | {"note": typed["note"][:NOTE_LENGTH_MAX]},
        faults=faults or {},
        roles=[role.value for role in Role],
        once=once or visit.session.issue_mark(),
        is_unknown=is_unknown,
        command=command,
    )
