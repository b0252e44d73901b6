"""What pages are made of beside themselves: the stream of ticks, and the files of `static/`."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import trio
from quart import Response
from werkzeug.exceptions import NotFound

from jqd.webui.feed import QUIET_S
from jqd.webui.rights import ANYBODY
from jqd.webui.visit import Visit

if TYPE_CHECKING:
    from jqd.webui.app import Ui

FOR_EVER = "public, max-age=31536000, immutable"  # the URL changes with the file
PATH = "/live"
EVENTS = "text/event-stream"
TICK = b"event: tick\ndata: now\n\n"
LAST_TICK = b"retry: 5000\n" + TICK
STILL_THERE = b": still there\n\n"
HEARD_S = (
    3 * QUIET_S
)  # ticks are more frequent; a stream without one is written to all the same, to see that it is read


def register(ui: "Ui") -> None:
    @ui.page(PATH, needs=ANYBODY, is_shared=False)
    async def ticks(visit: Visit) -> Response:
        feeds = ui.feeds
        if feeds is None or feeds.is_closing or feeds.is_full:
            return Response("too many pages are open\n", status=503, content_type="text/plain; charset=utf-8")

        async def stream() -> AsyncIterator[bytes]:
            async with feeds.listen(visit.api) as feed:
                yield b"retry: 2000\n\n"
                while not (feeds.is_closing or feed.is_over or ui.sessions.is_over(visit.session)):
                    with trio.move_on_after(HEARD_S) as waited:
                        await feed.wait_tick()
                    yield STILL_THERE if waited.cancelled_caught else TICK

        answer = Response(stream(), content_type=EVENTS)
        answer.timeout = None
        return answer

    async def asset(digest: str, name: str) -> Response:
        found = ui.assets.get(name)
        if found is None or found.url != f"/static/{digest}/{name}":
            raise NotFound
        return Response(found.body, content_type=found.content_type, headers={"cache-control": FOR_EVER})

    ui.app.add_url_rule("/static/<digest>/<name>", "asset", asset)


def last_tick() -> Response:
    """Answer an open page whose login is over: its live parts ask at a tick, and are led to the login; the extension
    of htmx that holds the stream follows no other answer, and would ask for ever."""
    return Response(LAST_TICK, content_type=EVENTS)
