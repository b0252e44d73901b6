"""Audit: who changed what with a token, the newest first. The filter is the page's query."""

from typing import TYPE_CHECKING

from quart import Response

from jqd.webui.rights import OPERATE
from jqd.webui.values import link
from jqd.webui.visit import Visit

if TYPE_CHECKING:
    from jqd.webui.app import Ui

PAGE_NOTES = 100  # two screens
FILTER = ("token", "act", "since")


def register(ui: "Ui") -> None:
    @ui.page("/audit", nav="Audit", needs=OPERATE, takes=(*FILTER, "cursor"))
    async def show(visit: Visit) -> Response:
        which, cursor = visit.asked(*FILTER), visit.query.get("cursor", "")
        answer = await visit.api.get("/v1/audit", limit=PAGE_NOTES, cursor=cursor or None, **which)
        cursor_next = answer.get("cursor") or ""
        return visit.render(
            "audit.html",
            notes=answer.get("notes", []),
            which=which,
            newest=visit.link("/audit", **which) if cursor else "",
            older=visit.link("/audit", **which, cursor=cursor_next) if cursor_next else "",
            call=link("/v1/audit", limit=PAGE_NOTES, cursor=cursor, **which),
            command=visit.command("jqd", "audit", by=which.get("token"), act=which.get("act")),
        )
