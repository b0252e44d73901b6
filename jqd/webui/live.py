"""What pages are made of beside themselves: their streams, and the files of `static/`. These are served under the hash
of what they hold, so that browsers keep them for ever.

A stream brings the page that it is of at each tick of its feed, as a request would show it then; the browser takes
the live part out of it. What cannot be brought so (a refusal, a login that is over) is a bare tick: the part then asks
for itself, and is answered as any request is.
"""

import hashlib
from collections.abc import AsyncIterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

import trio
from quart import Response, request
from werkzeug.exceptions import NotFound, UnprocessableEntity

from jqd.webui.api import counting
from jqd.webui.feed import QUIET_S, Feeds
from jqd.webui.rights import ANYBODY
from jqd.webui.visit import STREAM, Visit

if TYPE_CHECKING:
    from jqd.webui.app import Ui

FOR_EVER = "public, max-age=31536000, immutable"  # the URL changes with the file
EVENTS = "text/event-stream"
OK = 200
BARE_CALLS = 3  # of a part that asks for itself at a tick: none of ours counts them
TICK = b"event: tick\ndata: now\n\n"
LAST_TICK = b"retry: 5000\n" + TICK
STILL_THERE = b": still there\n\n"
STREAM_S = 3 * QUIET_S  # ticks are more frequent; without one it is written to all the same, to see that it is read
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
HASH_CHARS = 16  # of a SHA-256: enough to tell versions of one file apart


class Asset(NamedTuple):
    body: bytes
    content_type: str
    url: str


@cache
def load_assets() -> dict[str, Asset]:
    """Return all that browsers may ask for, by name."""
    found = {}
    for file in files("jqd.webui").joinpath("static").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in TYPES:
            body = file.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:HASH_CHARS]
            found[file.name] = Asset(body, TYPES[suffix], f"/static/{digest}/{file.name}")
    return found


def register(ui: "Ui") -> None:
    @ui.page(STREAM, needs=ANYBODY, takes=("page",), is_shared=False)
    async def stream(visit: Visit) -> Response:
        feeds, url = ui.feeds, visit.query.get("page", "")
        if url:
            _visit_of(ui, url, visit)  # now, while it can be refused
        if request.method == "HEAD":
            return Response("", content_type=EVENTS)
        if feeds is None or feeds.is_closing or not feeds.has_room(visit.session):
            return Response("too many pages are open\n", status=503, content_type="text/plain; charset=utf-8")

        answer = Response(_events(ui, feeds, visit, url), content_type=EVENTS)
        answer.timeout = None
        return answer

    async def asset(digest: str, name: str) -> Response:
        found = ui.assets.get(name)
        if found is None or found.url != f"/static/{digest}/{name}":
            raise NotFound
        return Response(found.body, content_type=found.content_type, headers={"cache-control": FOR_EVER})

    ui.app.add_url_rule("/static/<digest>/<name>", "asset", asset)


async def _events(ui: "Ui", feeds: Feeds, visit: Visit, url: str) -> AsyncIterator[bytes]:
    async with feeds.listen_for(visit.session, visit.api) as feed:

        def is_over() -> bool:
            return feeds.is_closing or feed.is_over or ui.sessions.is_over(visit.session)

        yield b"retry: 2000\n\n"
        seen, calls = feed.ticks, 0 if url else BARE_CALLS  # what others are shown, too, as far as is known
        while not is_over():
            with trio.move_on_after(STREAM_S) as waited:
                await feed.wait_tick(seen)
            if waited.cancelled_caught:
                yield STILL_THERE
                continue
            event, made, turn = TICK, 0, feeds.pace.turn(calls)
            try:
                while turn.left_s > 0 and not is_over():
                    if turn.wait_s >= QUIET_S:
                        yield b"event: pace\ndata: %d\n\n" % round(turn.wait_s)
                    with trio.move_on_after(min(turn.left_s, QUIET_S)):
                        await feeds.closing.wait()
                seen = feed.ticks
                if not is_over():
                    with counting() as asked:
                        event = await _event(ui, _visit_of(ui, url, visit)) if url else TICK
                    calls = made = BARE_CALLS if event is TICK else asked.calls
            finally:
                turn.end(made)
            yield event


def last_tick() -> Response:
    """Answer an open page whose login is over: its live parts ask at a tick, and are led to the login; the extension
    of htmx that holds the stream follows no other answer, and would ask for ever."""
    return Response(LAST_TICK, content_type=EVENTS)


def _visit_of(ui: "Ui", url: str, asking: Visit) -> Visit:
    """Return a visit of a page by whoever asks for its stream. Raises UnprocessableEntity, Refused."""
    path, _, given = url.partition("?")
    page, query = ui.declared.get(path), parse_qsl(given, keep_blank_values=True)
    if page is None or not page.is_shared or len(query) != len(dict(query)):
        raise UnprocessableEntity(f"there is no stream of {url[:64]!r}")
    visit = Visit(ui, path, dict(query), {}, asking.session)
    visit.expect_tenant()
    return visit


async def _event(ui: "Ui", visit: Visit) -> bytes:
    """Return the page as it is now, or a tick."""
    try:
        await ui.check(visit.session)
        answer = await ui.answer(visit, ui.declared[visit.path])
    except Exception as error:  # noqa: BLE001 - the part that asks then is told what it is, or it is logged there
        ui.end_session(error, visit.session)
        return TICK
    if answer.status_code != OK:
        return TICK
    lines = (await answer.get_data(as_text=False)).splitlines()  # of bytes: at \r, \n and both, as in a stream
    return b"".join(b"data: %s\n" % line for line in lines) + b"\n"
