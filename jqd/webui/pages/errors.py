"""Page Errors: the reasons why jobs failed, the most frequent first. Each links to its jobs, and to changes of exactly
these."""

from typing import Any

from quart import Response
from werkzeug.exceptions import BadRequest

from jqd.webui.pages.bulk import FILTER, command_of
from jqd.webui.visit import Addresses, Visit

STATES = ("failed", "retrying")
ROWS_MAX = 50  # reasons on one page: each has two forms, and 200 of them doubled the page's time
TEXTS_SHOWN_MAX = 10  # example texts of one reason


def register(ui: Addresses) -> None:
    @ui.page("/errors", nav="Errors", takes=(*FILTER, "cursor", "looked"))
    async def show(visit: Visit) -> Response:
        which = visit.asked(*FILTER)
        state = which.get("state", "failed")
        if state not in STATES:
            raise BadRequest(f"errors are of jobs that are {' or '.join(STATES)}, not {state!r}")
        answer, links = await visit.listed("/v1/errors", None, which)
        return visit.render(
            "errors.html",
            rows=[_row(visit, row, which, state) for row in answer["errors"][:ROWS_MAX]],
            others=answer["others"] + sum(row["count"] for row in answer["errors"][ROWS_MAX:]),
            state=state,
            states=STATES,
            which=which,
            command=command_of(visit, "errors", which),
            **links,
        )


def _row(visit: Visit, row: dict[str, Any], which: dict[str, str], state: str) -> dict[str, Any]:
    """Return a row of errors for the template, with the filter fields that select exactly its jobs."""
    texts = list(row.get("texts") or ())
    narrowed = {name: each for name, each in which.items() if name not in ("error_is", "error_like")}
    # Select by the pattern even if only one text was seen: jobs that were not examined yet may have others.
    such = {"error_like": row["pattern"]} if row.get("pattern") else {"error_is": row["error"]}
    # Each tenant has its own jobtypes: for a login of all tenants name the tenant of this row.
    of = {"tenant": row.get("tenant") or ""} if visit.me.all_tenants else {}
    return {
        **row,
        "title": row.get("pattern") or row["error"],
        "texts": texts[:TEXTS_SHOWN_MAX] if len(texts) > 1 else [],
        "fields": {**narrowed, "state": state, "name": row["name"], **such, **of},
    }
