"""The audit over HTTP: GET of /v1/audit."""

import re
from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.decode import read_query
from jqd.api.message import answer_rows
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant
from jqd.domain import audit
from jqd.domain.job_spec import Date
from jqd.http import Request, Response
from jqd.service.job_filter import instant_of
from jqd.service.listing import no_cursor
from jqd.service.services import Services

NOTES, NOTES_MAX = 100, 1_000  # in one answer
CURSOR = re.compile(r"[0-9]{16}\.[0-9a-f]+")  # the name of a note: its date, and its place among those of that moment


class AuditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of the audit."""

    token: str = ""
    """Its id."""
    act: str = ""
    """Stands in the act: `token`, `jobs delete`."""
    since: Date | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=NOTES_MAX, description=f"a whole number from 1 to {NOTES_MAX}")] = NOTES
    cursor: str = ""
    """That another page ended with; empty: from the newest on."""


class Note(Struct, frozen=True):
    """One act that was noted."""

    at: Instant | None
    token: str
    """Its id; `root`: the daemon's own; `master_key`: the setting."""
    role: str
    act: str
    what: str
    """Name, id or filter."""
    tenant: str
    """Whose that is."""


class Notes(Struct, frozen=True):
    """A page of notes, the newest first."""

    notes: Sequence[Note]
    cursor: str


async def list_notes(parts: ApiContext, request: Request) -> Response:
    """`GET /v1/audit?token&act&since&limit&cursor` → 200 {notes, cursor}: who changed what with a token.

    Raises Invalid.
    """
    query = read_query(request, AuditQuery)
    if query.cursor and CURSOR.fullmatch(query.cursor) is None:
        raise no_cursor(query.cursor)
    since_ms = 0 if query.since is UNSET else instant_of("since", query.since)
    found = _found(
        parts.services, token=query.token, act=query.act, since_ms=since_ms, before=query.cursor, limit=query.limit
    )
    rows = (Note(iso(one.at_ms), one.token, one.role, one.act, one.what, one.tenant) for _, one in found)
    return await answer_rows(request, Notes([], found[-1][0] if len(found) == query.limit else ""), rows)


def _found(
    services: Services, *, token: str = "", act: str = "", since_ms: int = 0, before: str = "", limit: int
) -> list[tuple[str, audit.Note]]:
    """The newest notes that fit, of the service's principal. `before`: the name of one; later ones are left out."""
    fit = []
    for name, note in audit.notes(services.workers.settings, before):
        if not services.principal.can_see(note.tenant) or note.at_ms < since_ms:
            continue
        if (token and note.token != token) or (act and act not in note.act):
            continue
        fit.append((name, note))
        if len(fit) == limit:
            break
    return fit
