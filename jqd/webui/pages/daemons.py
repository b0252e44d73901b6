"""Page Daemons: the daemons that share the store, their troubles, and how much of its journal the asked daemon has
applied to the store."""

from functools import partial
from typing import Any

from quart import Response

from jqd.client import AsyncClient
from jqd.webui.api import together
from jqd.webui.rights import LOOK_AT_ALL
from jqd.webui.visit import Addresses, Visit

PAGE_DAEMONS = 100  # daemons on a page: a store has a few
DONE = {
    "drain": "It begins no job any more; what runs goes on, and pushes are taken.",
    "resume": "It begins jobs again.",
}
"""Act → message that the page shows after it."""
RECORDS = {"rules": "settings"}
LIMITS = {"journal_bytes": "bytes of the journal", "lag_s": "seconds that its event loop is late"}
"""The API's name of a limit → label on the page."""


def register(ui: Addresses) -> None:
    @ui.page("/daemons", nav="Daemons", needs=LOOK_AT_ALL, takes=("cursor", "done"))
    async def show(visit: Visit) -> Response:
        found = await together(
            daemons=partial(visit.listed, "/v1/daemons", PAGE_DAEMONS),
            stats=partial(visit.api.get, "/v1/stats"),
            ready=visit.api.ready,
        )
        stats, (daemons, links) = found["stats"], found["daemons"]
        return visit.render(
            "daemons.html",
            daemons=daemons.get("daemons", []),
            gone=daemons.get("gone") or [],
            stats=stats,
            journal=stats.get("journal") or {},
            lanes=_lanes(stats.get("lanes") or {}),
            limits=_limits(stats.get("pressure") or {}),
            ready=found["ready"],
            done=DONE.get(visit.done, ""),
            command=visit.command("jqd", "daemons"),
            **links,
        )

    ui.acts("/daemons", key="daemon", to="/daemons", drain=AsyncClient.drain, resume=AsyncClient.resume_daemon)


def _lanes(answer: dict[str, Any]) -> list[tuple[str, int | None, int, int | None]]:
    """Return for each kind of record: its name, the journal position applied to the store, the journal's end, and the
    bytes between them. Position and bytes are None until the store was asked."""
    return [
        (
            RECORDS.get(name, name),
            each["applied"],
            each["end"],
            None if each["applied"] is None else max(0, each["end"] - each["applied"]),
        )
        for name, each in answer.items()
    ]


def _limits(answer: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the label of each limit at which pushes are refused, with its present value and the limit itself."""
    return [
        (LIMITS.get(name, name.replace("_", " ")), each)
        for name, each in answer.items()
        if isinstance(each, dict) and "limit" in each
    ]
