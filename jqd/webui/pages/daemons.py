"""Daemons: who shares the store, what is wrong, and how far the daemon that is asked has come with its journal."""

from functools import partial
from typing import Any

from quart import Response

from jqd.client import AsyncClient
from jqd.webui.api import together
from jqd.webui.rights import LOOK_AT_ALL
from jqd.webui.visit import Addresses, Visit

PAGE_DAEMONS = 100  # a store has a few
DONE = {
    "drain": "It begins no job any more; what runs goes on, and pushes are taken.",
    "resume": "It begins jobs again.",
}
"""What the page says after an act."""
RECORDS = {"rules": "settings"}
LIMITS = {"journal_bytes": "bytes of the journal", "lag_s": "seconds that its event loop is late"}
"""What the API calls otherwise than people do."""


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
    """Return of each kind of record: where its applying stands, where the journal ends, and the bytes between. Until
    the store was asked after it came back, the first is not known, nor the last."""
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
    """Return the limits at which pushes are refused, with what is reached of them."""
    return [
        (LIMITS.get(name, name.replace("_", " ")), each)
        for name, each in answer.items()
        if isinstance(each, dict) and "limit" in each
    ]
