"""Page Tenants: for each tenant its jobs by state, its quota, and what is paused. With a token of one tenant there is
only the row of this tenant."""

from functools import partial
from typing import Any

from quart import Response

from jqd.webui.pages.now import STATES
from jqd.webui.visit import Addresses, Visit

PAGE_TENANTS = 100
DONE = {"pause": "No job of it is begun until it is resumed; what runs goes on.", "resume": "Its jobs are begun again."}
WAITS = ("waiting", "scheduled", "retrying", "blocked")
"""States of jobs that count for the limit `queued` of a quota."""


def register(ui: Addresses) -> None:
    @ui.page("/tenants", nav="Tenants", takes=("cursor", "done"))
    async def show(visit: Visit) -> Response:
        answer, links = await visit.listed("/v1/tenants", PAGE_TENANTS)
        return visit.render(
            "tenants.html",
            tenants=[(row, _quota(row)) for row in answer.get("tenants", [])],
            states=STATES,
            done=DONE.get(visit.done, ""),
            command=visit.command("jqd", "tenants"),
            **links,
        )

    for act in DONE:
        ui.act(f"/tenants/{act}")(partial(_act, act))


async def _act(act: str, visit: Visit) -> Response:
    """Pause or resume a whole tenant: the session's own or, if its token is for all tenants, the one in the form."""
    await (visit.api.client.pause_all() if act == "pause" else visit.api.client.resume_all())
    return visit.go("/tenants", done=act)


def _quota(row: dict[str, Any]) -> list[tuple[str, float | None, float]]:
    """Return each limit of a tenant's quota: label, amount used (None: unknown), limit."""
    quota, rate = row.get("quota") or {}, row.get("per_minute") or {}
    queued = sum(row.get(state) or 0 for state in WAITS)
    used = {
        "rate": ("jobs a second", (rate.get("pushed") or 0) / 60),
        "bytes": ("bytes a second", None),
        "queued": ("jobs that wait", queued),
        "in_flight": ("jobs that have not ended", queued + (row.get("running") or 0)),
        "dead": ("dead jobs", row.get("failed") or 0),
    }
    return [(*used.get(name, (name, None)), limit) for name, limit in quota.items() if limit is not None]
