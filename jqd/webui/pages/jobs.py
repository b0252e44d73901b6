"""Jobs: those that match a filter, newest first. The filter is the page's query, so that a link names what it shows."""

from typing import TYPE_CHECKING

from quart import Response

from jqd.webui.pages.bulk import FILTER, offered
from jqd.webui.pages.now import STATES
from jqd.webui.values import link
from jqd.webui.visit import Visit, looked_at

if TYPE_CHECKING:
    from jqd.webui.app import Ui

PAGE_JOBS = 50  # a screen or two
CODES = ("retry", "ok", "failed", "error")


def register(ui: "Ui") -> None:
    @ui.page("/jobs", nav="Jobs", takes=(*FILTER, "cursor", "looked", "done"))
    async def show(visit: Visit) -> Response:
        which = visit.asked(*FILTER)
        cursor = visit.query.get("cursor", "")
        answer = await visit.api.get("/v1/jobs", limit=PAGE_JOBS, cursor=cursor or None, **which)
        cursor_next, looked = answer.get("cursor") or "", looked_at(visit, answer)
        flags = {name: each for name, each in which.items() if name not in ("since", "before")}
        return visit.render(
            "jobs.html",
            jobs=answer.get("jobs", []),
            looked=looked,
            in_parts=answer.get("in_parts"),
            of=answer.get("of"),
            which=which,
            states=STATES,
            codes=CODES,
            offers=offered(which),
            newest=visit.link("/jobs", **which) if cursor else "",
            older=visit.link("/jobs", **which, cursor=cursor_next, looked=str(looked)) if cursor_next else "",
            call=link("/v1/jobs", limit=PAGE_JOBS, cursor=cursor, **which),
            command=visit.command("jqd", "jobs", **flags),
        )
