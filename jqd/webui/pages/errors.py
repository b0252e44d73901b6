"""Errors: why jobs failed, the most frequent reason first; from each to its jobs, and to an act on exactly these."""

from typing import TYPE_CHECKING, Any

from quart import Response
from werkzeug.exceptions import BadRequest

from jqd.webui.pages.bulk import FILTER
from jqd.webui.values import link
from jqd.webui.visit import Visit, looked_at

if TYPE_CHECKING:
    from jqd.webui.app import Ui

STATES = ("failed", "retrying")
ROWS_MAX = 50  # reasons on one page: each has two forms, and 200 of them took as long as all else
TEXTS_SHOWN_MAX = 10  # of one reason


def register(ui: "Ui") -> None:
    @ui.page("/errors", nav="Errors", takes=(*FILTER, "cursor", "looked"))
    async def show(visit: Visit) -> Response:
        which = visit.asked(*FILTER)
        state = which.get("state", "failed")
        if state not in STATES:
            raise BadRequest(f"errors are of jobs that are {' or '.join(STATES)}, not {state!r}")
        cursor = visit.query.get("cursor", "")
        answer = await visit.api.get("/v1/errors", cursor=cursor or None, **which)
        cursor_next, looked = answer.get("cursor") or "", looked_at(visit, answer)
        flags = {name: each for name, each in which.items() if name not in ("since", "before")}
        return visit.render(
            "errors.html",
            rows=[_row(visit, row, which, state) for row in answer["errors"][:ROWS_MAX]],
            others=answer["others"] + sum(row["count"] for row in answer["errors"][ROWS_MAX:]),
            looked=looked,
            of=answer.get("of"),
            state=state,
            states=STATES,
            which=which,
            newest=visit.link("/errors", **which) if cursor else "",
            older=visit.link("/errors", **which, cursor=cursor_next, looked=str(looked)) if cursor_next else "",
            call=link("/v1/errors", cursor=cursor, **which),
            command=visit.command("jqd", "errors", **flags),
        )


def _row(visit: Visit, row: dict[str, Any], which: dict[str, str], state: str) -> dict[str, Any]:
    """Return a reason with the filter that means just its jobs."""
    texts = list(row.get("texts") or ())
    narrowed = {name: each for name, each in which.items() if name not in ("error_is", "error_like")}
    # By the pattern also where one text was seen: there may be others among those not looked at yet.
    such = {"error_like": row["pattern"]} if row.get("pattern") else {"error_is": row["error"]}
    # Names are each tenant's own: who sees all tenants means the one of this row.
    of = {"tenant": row.get("tenant") or ""} if visit.me.all_tenants else {}
    return {
        **row,
        "title": row.get("pattern") or row["error"],
        "texts": texts[:TEXTS_SHOWN_MAX] if len(texts) > 1 else [],
        "fields": {**narrowed, "state": state, "name": row["name"], **such, **of},
    }
