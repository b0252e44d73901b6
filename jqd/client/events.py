"""Reads a job's events as they happen, from any daemon that answers. Each event comes once, unless the daemons have
forgotten it.

    for event in client.events(job_id):
        print(event.kind, event.data)
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from jqd.client.errors import JqdClientError, TimedOut, Unavailable, Unreachable
from jqd.client.http import TRIES_MAX, Http
from jqd.client.path import job_path

QUIET_S = 45.0  # a daemon sends a sign of life every 15 s: after a longer silence the next daemon is asked
EVENT_CHARS_MAX = 1 << 20  # a log has 64 KiB, and a letter takes up to six characters: no event is longer


class JobEvent(NamedTuple):
    kind: str
    """`state`, `progress`, `log` or `end`."""
    data: dict[str, Any]


class JobEvents(Iterator[JobEvent]):
    """An iterator of a job's events. The last one, `end`, says whether the job ended or was deleted. Only one thread
    may iterate; any thread may call `close`."""

    def __init__(self, http: Http, job_id: str) -> None:
        self._http, self._job_id = http, job_id
        self._last = ""
        self._closed = threading.Event()
        self._events = self._follow()

    def __next__(self) -> JobEvent:
        return next(self._events)

    def close(self) -> None:
        """End the iteration. A thread that waits for the next event returns within 15 s."""
        self._closed.set()

    def _follow(self) -> Iterator[JobEvent]:
        tried = 0
        while not self._closed.is_set():
            try:
                for event in self._stream():
                    if event.kind != "end":
                        tried = 0
                        yield event
                    elif not event.data.get("reconnect"):
                        yield event
                        return
                raise Unreachable(f"{self._http.url} ended the stream of job {self._job_id} before its end", sent=True)
            except (Unreachable, TimedOut, Unavailable):
                tried += 1
                if self._closed.is_set():
                    return
                if tried > TRIES_MAX * len(self._http.urls):
                    raise
            self._http.leave(tried)

    def _stream(self) -> Iterator[JobEvent]:
        headers = {"last-event-id": self._last} if self._last else {}
        path = f"{job_path(self._job_id)}/events"
        return read_events(self._http, path, headers, QUIET_S, closed=self._closed, seen=self._note)

    def _note(self, event_id: str) -> None:
        self._last = event_id


def read_events(
    http: Http,
    path: str,
    headers: dict[str, str],
    quiet_s: float,
    *,
    closed: threading.Event | None = None,
    seen: Callable[[str], None] | None = None,
) -> Iterator[JobEvent]:
    """Yield the events of one stream of a daemon until the stream ends or `closed` is set. `quiet_s`: seconds without a
    line after which TimedOut is raised. `seen`: called with the id of each event."""
    kind, data = "", list[str]()
    for line in http.lines(path, headers, quiet_s):
        if closed is not None and closed.is_set():
            return
        field, _, value = line.partition(": ")
        if field == "event":
            kind = value
        elif field == "id" and seen is not None and value.isascii() and value.isprintable():  # it is sent as a header
            seen(value)
        elif field == "data":
            data.append(value)
            if sum(map(len, data)) > EVENT_CHARS_MAX:
                raise JqdClientError(f"{http.url} sends an event above {EVENT_CHARS_MAX} characters")
        elif not line and data:
            yield JobEvent(kind, _read(data))
            kind, data = "", []


def _read(data: list[str]) -> dict[str, Any]:
    try:
        return msgspec.json.decode("\n".join(data), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise JqdClientError(f"an event cannot be read: {error}; is it a jqd daemon?") from error
