"""Follows one job: its events as a stream, and the log of its last attempt."""

from functools import partial
from typing import Any

import msgspec
import trio

from jqd.api.context import ApiContext
from jqd.api.v1.events import RETRY, SSE
from jqd.api.v1.job_views import iso, job_brief
from jqd.api.v1.responses import JobLog
from jqd.domain import json_ext
from jqd.domain.errors import JqdError
from jqd.domain.job import Exit, State
from jqd.domain.tenant import bare
from jqd.http import Request, Response, Write
from jqd.service import Services
from jqd.service.find import find, resolve
from jqd.service.job_events import (
    OVER,
    START,
    WATCH_MS,
    Lines,
    Missed,
    News,
    Seen,
    check_room,
    news_of,
    read_seen,
    watching,
)
from jqd.service.leases import Progress
from jqd.service.waiters import Watched
from jqd.store import NO_LOG, JobView

LAST = "last-event-id"
QUIET_S = 15.0  # after so long without events a comment is sent: proxies close a stream that is silent for a minute
COMMENT = b": still here\n\n"

_encode = msgspec.json.Encoder().encode


async def follow(parts: ApiContext, request: Request, job_id: str) -> Response:
    """State, progress and printed lines as server-sent events, at any daemon, until the job has ended."""
    services, last = parts.services, request.headers.get(LAST, "")
    found = await resolve(services, job_id)
    named = found != job_id
    known = await find(services, found, named=named, given=job_id)
    view = known if isinstance(known, JobView) else None
    if last == OVER and view is not None and view.state.is_final:
        return Response(204)
    check_room(services)
    if request.method == "HEAD":
        return Response(200, content_type=SSE)

    async def stream(write: Write) -> None:
        try:
            with watching(services, found, view, named=named) as (watched, next_bell):
                teller = _Teller(services, watched, read_seen(last) or START)
                await write(RETRY)
                await teller.write_events(write, next_bell)
        except JqdError as error:  # other listeners took the last place after `check_room`
            await write(_block("end", "", {"reason": "full", "detail": str(error), "reconnect": True}))

    return Response(200, content_type=SSE, headers={"cache-control": "no-store"}, stream=stream)


async def get_log(parts: ApiContext, request: Request, job_id: str) -> JobLog:
    """The last lines that the job's last attempt printed."""
    services = parts.services
    found = await resolve(services, job_id)
    known = await find(services, found, named=found != job_id, given=job_id)
    (log,) = await services.store.watch_logs([(found, 0, 0)], WATCH_MS)
    log = log or NO_LOG
    attempts = known.attempts if isinstance(known, JobView) else 0
    return JobLog(job_id, known.state, attempts, log.text, log.start)


class _Teller:
    """Writes the stream of a job's events for one listener."""

    def __init__(self, services: Services, watched: Watched, seen: Seen) -> None:
        self._services, self._watched, self._seen = services, watched, seen

    async def write_events(self, write: Write, next_bell: Any) -> None:
        """Send events until the job has ended or the client has left."""
        quiet_s = trio.current_time() + QUIET_S
        while True:
            bell = next_bell()
            piece, end = b"" if self._is_hidden else self._news(), self._end()
            now_s = trio.current_time()
            if piece or end or now_s >= quiet_s:
                quiet_s = now_s + QUIET_S
                if not await write(piece + end or COMMENT) or end:
                    return
            with trio.move_on_at(quiet_s):
                await bell.wait()

    @property
    def _is_hidden(self) -> bool:
        """Whether the job was replaced by a job that the principal may not see. The listener is then told that the job
        was deleted."""
        view = self._watched.view
        return view is not None and not self._services.principal.can_access(view.jobtype)

    def _news(self) -> bytes:
        """Return the new events as bytes. They are made once for all listeners that have seen the same events."""
        shared_events, seen = self._watched.shared_events, self._seen
        if seen not in shared_events:
            news = news_of(self._watched, seen)
            shared_events[seen] = (
                b"".join(map(partial(_event, self._services, self._watched), news)),
                (news[-1].seen if news else seen),
            )
        piece: bytes
        piece, self._seen = shared_events[seen]
        return piece

    def _end(self) -> bytes:
        """Return the event that ends the stream and says why; empty if the stream goes on."""
        services, watched = self._services, self._watched
        view = watched.view
        if services.tokens.ended(services.principal.token):
            return _block("end", "", {"reason": "revoked", "reconnect": False})
        if watched.is_gone or self._is_hidden:
            return _block("end", OVER, {"reason": "deleted", "reconnect": False})
        if view is not None and view.state.is_final and watched.is_looked_at:
            return _block("end", OVER, {"reason": "ended", "state": view.state, "reconnect": False})
        if services.pulls.is_closed:
            return _block("end", "", {"reason": "draining", "reconnect": True})
        return b""


def _event(services: Services, watched: Watched, news: News) -> bytes:
    what, seen = news
    if isinstance(what, Progress):
        return _block("progress", seen.text, {"done": what.done, "message": what.message, "at": iso(what.at_ms)})
    if isinstance(what, Lines):
        return _block("log", seen.text, {"lines": what.lines, "start": what.start, "dropped": what.dropped})
    if what is None:
        return _block("state", seen.text, {"job_id": watched.job_id, "state": State.WAITING, "attempts": 0})
    if isinstance(what, JobView):
        return _block("state", seen.text, job_brief(services, what))
    return _block("state", seen.text, _failed(watched, what))


def _failed(watched: Watched, missed: Missed) -> dict[str, Any]:
    """Return the event of a failed attempt after which another attempt began before the listener looked."""
    last, view = missed.outcome, watched.view
    return {
        "job_id": watched.job_id if view is None else bare(view.name) or view.id,
        "state": State.RETRYING,
        "attempts": last.attempt,
        "started_at": iso(last.started_at_ms),
        "finished_at": iso(last.finished_at_ms),
        "worker": bare(last.worker) or None,
        "code": Exit.of_status(last.status).code,
        "exitcode": last.status,
        "message": last.message or None,
    }


def _block(kind: str, event_id: str, data: Any) -> bytes:
    head = f"event: {kind}\nid: {event_id}\n" if event_id else f"event: {kind}\n"
    return b"%bdata: %b\n\n" % (head.encode(), _encode(json_ext.show(data)))
