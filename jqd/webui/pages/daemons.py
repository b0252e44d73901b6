"""Daemons: who shares the store, what is wrong, and how far the daemon that is asked has come with its journal."""

from functools import partial
from typing import TYPE_CHECKING, Any

from quart import Response
from werkzeug.exceptions import BadRequest

from jqd.webui.api import together
from jqd.webui.rights import LOOK_AT_ALL
from jqd.webui.values import link
from jqd.webui.visit import Visit

if TYPE_CHECKING:
    from jqd.webui.app import Ui

PAGE_DAEMONS = 100  # a store has a few
DONE = {
    "drain": "It begins no job any more; what runs goes on, and pushes are taken.",
    "resume": "It begins jobs again.",
}
"""What the page says after an act."""
RECORDS = {"rules": "settings"}
LIMITS = {"journal_bytes": "bytes of the journal", "lag_s": "seconds that its event loop is late"}
"""What the API calls otherwise than people do."""


def register(ui: "Ui") -> None:
    @ui.page("/daemons", nav="Daemons", needs=LOOK_AT_ALL, takes=("cursor", "done"))
    async def show(visit: Visit) -> Response:
        api, cursor = visit.api, visit.query.get("cursor", "")
        found = await together(
            daemons=partial(api.get, "/v1/daemons", limit=PAGE_DAEMONS, cursor=cursor or None),
            stats=partial(api.get, "/v1/stats"),
            ready=api.ready,
        )
        stats, cursor_next = found["stats"], found["daemons"].get("cursor") or ""
        return visit.render(
            "daemons.html",
            daemons=found["daemons"].get("daemons", []),
            gone=found["daemons"].get("gone") or [],
            newest="/daemons" if cursor else "",
            older=visit.link("/daemons", cursor=cursor_next) if cursor_next else "",
            stats=stats,
            journal=stats.get("journal") or {},
            lanes=_lanes(stats.get("lanes") or {}),
            limits=_limits(stats.get("pressure") or {}),
            ready=found["ready"],
            done=DONE.get(visit.done, ""),
            call=link("/v1/daemons", limit=PAGE_DAEMONS, cursor=cursor),
            command=visit.command("jqd", "daemons"),
        )

    @ui.act("/daemons/drain")
    async def drain(visit: Visit) -> Response:
        await visit.api.client.drain(_daemon(visit))
        return visit.go("/daemons", done="drain")

    @ui.act("/daemons/resume")
    async def resume(visit: Visit) -> Response:
        await visit.api.client.resume_daemon(_daemon(visit))
        return visit.go("/daemons", done="resume")


def _daemon(visit: Visit) -> str:
    daemon = visit.form.get("daemon", "")
    if not daemon:
        raise BadRequest("which daemon? Its name is missing from the form")
    return daemon


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
