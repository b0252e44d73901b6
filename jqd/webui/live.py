"""Serves the event streams that renew open pages, and the files of `static/`. The URL of each file has the hash of its
content, so that browsers keep it for ever.

At each tick of its feed (feed.py) a stream renders its page again and sends it; the browser takes the live part out of
it. If the page cannot be rendered (the login has ended, say), the stream sends an event without the page, a bare tick.
The browser then requests the live part by itself, and gets the usual answer to such a request.
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
BARE_CALLS = 3  # calls assumed for a part that the browser requests at a bare tick, as they are not counted
TICK = b"event: tick\ndata: now\n\n"
LAST_TICK = b"retry: 5000\n" + TICK
STILL_THERE = b": still there\n\n"
STREAM_S = 3 * QUIET_S  # after so long without a tick, write to the stream to see whether it is still read
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
HASH_CHARS = 16  # of a SHA-256: enough to tell versions of one file apart


class Asset(NamedTuple):
    body: bytes
    content_type: str
    url: str


@cache
def load_assets() -> dict[str, Asset]:
    """Read the files of `static/` once; return them by name."""
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
            _visit_of(ui, url, visit)  # check it before the answer begins
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
        seen, calls = feed.ticks, 0 if url else BARE_CALLS  # 0: at first assume that others show the same page
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
    """Return the answer to the event stream of a page whose login is over: one event without content. The page then
    requests its parts, and those requests are redirected to the login. A redirect of the stream itself would not work:
    htmx does not follow it, and would reconnect for ever."""
    return Response(LAST_TICK, content_type=EVENTS)


def _visit_of(ui: "Ui", url: str, asking: Visit) -> Visit:
    """Return a visit of the page at `url`, with the session of `asking`, the visit that opened the event stream. Raises
    UnprocessableEntity, Refused."""
    path, _, given = url.partition("?")
    page, query = ui.declared.get(path), parse_qsl(given, keep_blank_values=True)
    if page is None or not page.is_shared or len(query) != len(dict(query)):
        raise UnprocessableEntity(f"there is no stream of {url[:64]!r}")
    visit = Visit(ui, path, dict(query), {}, asking.session)
    visit.expect_tenant()
    return visit


async def _event(ui: "Ui", visit: Visit) -> bytes:
    """Render a page, and return the event that contains it. If that fails, return an event without content (TICK)."""
    try:
        await ui.check(visit.session)
        answer = await ui.answer(visit, ui.declared[visit.path])
    except Exception as error:  # noqa: BLE001 - the request after the tick meets it again, and handles it
        ui.end_session(error, visit.session)
        return TICK
    if answer.status_code != OK:
        return TICK
    lines = (await answer.get_data(as_text=False)).splitlines()  # bytes split at \r, \n and both, as event streams do
    return b"".join(b"data: %s\n" % line for line in lines) + b"\n"
