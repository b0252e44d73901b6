"""Page Audit: who changed what with which token, the newest first. The filter is the query of its URL."""

from quart import Response

from jqd.webui.rights import OPERATE
from jqd.webui.visit import Addresses, Visit

PAGE_NOTES = 100  # notes on a page: two screens
FILTER = ("token", "act", "since")


def register(ui: Addresses) -> None:
    @ui.page("/audit", nav="Audit", needs=OPERATE, takes=(*FILTER, "cursor"))
    async def show(visit: Visit) -> Response:
        which = visit.asked(*FILTER)
        answer, links = await visit.listed("/v1/audit", PAGE_NOTES, which)
        return visit.render(
            "audit.html",
            notes=answer.get("notes", []),
            which=which,
            command=visit.command("jqd", "audit", by=which.get("token"), act=which.get("act")),
            **links,
        )
