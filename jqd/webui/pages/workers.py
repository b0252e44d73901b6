"""Pages of workers and handlers: what runs jobs, how each daemon judges a worker, and the code or URL that runs a
jobtype."""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from quart import Response

from jqd.client import AsyncClient
from jqd.client.path import path_of
from jqd.webui.api import together
from jqd.webui.rights import LOOK, SOURCE
from jqd.webui.values import cut, link
from jqd.webui.visit import Addresses, Question, Visit

PAGE_WORKERS = 50
PAGE_HANDLERS = 50
DAEMONS_MAX = 10  # columns of the table: a store has a few daemons
STATES = {
    "ok": "succeeded",
    "silent": "retrying",
    "unknown": "retrying",
    "trouble": "failed",
    "backed_off": "retrying",
    "unreachable": "failed",
    "token_ended": "failed",
}
"""Health of a worker → job state in whose colour it is shown."""
CODE = (
    ("Before all", "before"),
    ("Before each batch", "beforeEach"),
    ("For each job", "body"),
    ("After each batch", "afterEach"),
)
VERSION = re.compile(r".+@[0-9]+")  # the id of a handler's version, which no worker may have
DONE = {
    "unregister": "It is forgotten everywhere. What it has in flight is still waited for.",
    "delete": "The handler is deleted with all its versions. What they have in flight is still waited for.",
}


def register(ui: Addresses) -> None:
    @ui.page("/workers", nav="Workers & handlers", needs=SOURCE, takes=("cursor", "handlers", "done"))
    async def show(visit: Visit) -> Response:
        api, cursor, cursor_next = visit.api, visit.query.get("cursor", ""), visit.query.get("handlers", "")
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "handlers": partial(api.get, "/v1/handlers", limit=PAGE_HANDLERS, cursor=cursor_next or None),
            "ready": api.ready,
        }
        if visit.has(LOOK):
            calls["workers"] = partial(api.get, "/v1/workers", limit=PAGE_WORKERS, cursor=cursor or None)
        found = {"workers": dict[str, Any](), **await together(**calls)}
        workers, handlers = found["workers"].get("workers", []), found["handlers"].get("handlers", [])
        next_workers, next_handlers = found["workers"].get("cursor") or "", found["handlers"].get("cursor") or ""
        return visit.render(
            "workers.html",
            workers=[(row, bool(VERSION.fullmatch(row["worker_id"]))) for row in workers],
            handlers=handlers,
            sees_workers=visit.has(LOOK),
            needs=LOOK.whom,
            states=STATES,
            daemons=sorted({seen["daemon"] for row in workers for seen in row.get("seen") or ()})[:DAEMONS_MAX],
            broken=[each for each in found["ready"].get("warnings") or () if str(each).startswith("handler ")],
            gone=found["workers"].get("gone") or [],
            newest="/workers" if cursor else "",
            older=visit.link("/workers", cursor=next_workers) if next_workers else "",
            newest_handlers="/workers" if cursor_next else "",
            older_handlers=visit.link("/workers", handlers=next_handlers) if next_handlers else "",
            done=DONE.get(visit.done, ""),
            call=link("/v1/workers", limit=PAGE_WORKERS, cursor=cursor),
            command=visit.command("jqd", "workers"),
        )

    @ui.page("/worker/confirm", needs=SOURCE, takes=("id",))
    async def confirm(visit: Visit) -> Response:
        worker_id = visit.query.get("id", "")
        warning = "It gets no job any more, until it registers anew. What it has in flight is still waited for."
        title, fields = f"Unregister worker {worker_id}?", {"id": worker_id}
        question = Question(title, warning, "Unregister", "unregister", "/worker/unregister", fields, "/workers")
        return visit.ask(question)

    ui.acts("/worker", key="id", to="/workers", unregister=AsyncClient.unregister)

    @ui.page("/handler", needs=SOURCE, takes=("name", "version", "done"))
    async def show_handler(visit: Visit) -> Response:
        name, version = visit.query.get("name", ""), visit.query.get("version", "")
        row = await visit.api.get(path_of("handlers", name), version=version or None)
        return visit.render(
            "handler.html",
            row=row,
            code=[(title, cut(row[field])) for title, field in CODE if row.get(field)],
            call=link(path_of("handlers", name), version=version),
            command=visit.command("jqd", "handlers", "get", of=(name,), version=version),
        )

    warning = "All its versions are deleted for good. What they have in flight is still waited for."
    ui.deletes("handler", AsyncClient.delete_handler, warning, to="/workers", needs=SOURCE)
