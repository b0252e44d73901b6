"""Page Jobs: the jobs that match a filter, newest first. The filter is in the URL, so that a link leads to the same
list."""

from quart import Response

from jqd.webui.pages.bulk import FILTER, command_of, offered
from jqd.webui.pages.now import STATES
from jqd.webui.visit import Addresses, Visit

PAGE_JOBS = 50  # jobs on a page: a screen or two
CODES = ("retry", "ok", "failed", "error")


def register(ui: Addresses) -> None:
    @ui.page("/jobs", nav="Jobs", takes=(*FILTER, "cursor", "looked", "done"))
    async def show(visit: Visit) -> Response:
        which = visit.asked(*FILTER)
        answer, links = await visit.listed("/v1/jobs", PAGE_JOBS, which)
        return visit.render(
            "jobs.html",
            jobs=answer.get("jobs", []),
            in_parts=answer.get("in_parts"),
            which=which,
            states=STATES,
            codes=CODES,
            offers=offered(which),
            command=command_of(visit, "jobs", which),
            **links,
        )
