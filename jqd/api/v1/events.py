"""GET /v1/events: job events and counters of this daemon, as server-sent events."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.decode import YES, Flag, read_query
from jqd.domain import json_ext
from jqd.http import Request, Response, Write
from jqd.service import events
from jqd.service.events import Event

SSE = "text/event-stream"
RETRY = b"retry: 2000\n\n"  # milliseconds until a browser that lost the connection connects again
LISTEN_S_MAX = 86_400.0  # of one stream; then the client has to ask again

_encode = msgspec.json.Encoder().encode


class EventsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which events are sent, and for how long."""

    name: str | UnsetType = UNSET
    job_id: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    event: Literal["entered", "ingested", "started", "ended", "cancelled"] | UnsetType = UNSET
    jobs: Flag = "0"
    """Send events of all jobs, if no filter is given."""
    counters: Flag = "1"
    seconds: Annotated[float, Meta(ge=0, le=LISTEN_S_MAX, description=f"0 to {LISTEN_S_MAX:.0f} seconds")] = 0.0
    """The stream ends after so long; 0: it does not end by itself."""


async def listen(parts: ApiContext, request: Request) -> Response:
    """`GET /v1/events?name&job_id&tag&event&jobs&counters&seconds` → a stream. Raises Invalid, NotFound, NotYet."""
    query = read_query(request, EventsQuery)
    name, job_id, tag, event = (each or None for each in (query.name, query.job_id, query.tag, query.event))
    listener = await events.listener_for(parts.services, name=name, job_id=job_id, event=event, tag=tag)
    if request.method == "HEAD":
        return Response(200, content_type=SSE)
    listen_to = partial(
        events.listen,
        parts.services,
        listener,
        counts=query.counters in YES,
        jobs=query.jobs in YES or any((name, job_id, tag, event)),
        for_s=query.seconds,
    )

    async def stream(write: Write) -> str | None:
        await write(RETRY)
        await listen_to(partial(_write_events, write))
        return None

    return Response(200, content_type=SSE, headers={"cache-control": "no-store"}, stream=stream)


async def _write_events(write: Write, some: Sequence[Event]) -> bool:
    return await write(
        b"".join(
            b"event: %b\ndata: %b\n\n" % (each.kind.encode(), _encode(json_ext.show(each.fields))) for each in some
        )
    )
