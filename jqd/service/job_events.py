"""The events of one job for its listeners: what is new since each looked last. Pure.

state ──▶ progress, log lines ──▶ … ──▶ end

How far a listener has read is a short text (`Seen`), which travels with every event: a listener that comes back, to
whatever daemon, sends it and gets what is new since then. No daemon keeps the place of a listener.
"""

import re
from typing import NamedTuple

from jqd.domain.job import INTERRUPTED, SNOOZE, Outcome, State
from jqd.service.leases import Progress, read_progress
from jqd.service.watched import Watched
from jqd.store import JobView, Log

OVER = "end"  # what somebody has seen who was told of the end


class Seen(NamedTuple):
    """How far a listener has followed a job."""

    state: str = ""
    attempts: int = 0
    progress_ms: int = 0
    fence: int = 0
    """The fence of the attempt whose log was read."""
    log_end: int = 0
    """How many bytes of that."""

    @property
    def text(self) -> str:
        return ".".join(map(str, self))


_SEEN = re.compile(r"([a-z]{0,16})\.(\d{1,10})\.(\d{1,16})\.(\d{1,16})\.(\d{1,16})", re.ASCII)
START = Seen()


def read_seen(text: str) -> Seen | None:
    """Read how far a listener has seen; None: it is nothing that was sent here."""
    found = _SEEN.fullmatch(text)
    return None if found is None else Seen(found[1], *map(int, found.groups()[1:]))


class Missed(NamedTuple):
    """An attempt that failed while the listener was away."""

    outcome: Outcome


class Lines(NamedTuple):
    """The lines that a job printed."""

    lines: list[str]
    start: int
    """How many bytes its attempt had printed before."""
    dropped: int
    """How many lines just before these were dropped."""


class News(NamedTuple):
    """One new event, and how far a listener of it has followed."""

    what: JobView | Missed | Progress | Lines | None
    """The job as it is, None while it is on its way into the store; or something of it."""
    seen: Seen


def news_of(watched: Watched, seen: Seen) -> list[News]:
    """Return what is new, in order."""
    found: list[News] = []
    view, log = watched.view, watched.log
    state, attempts = (State.WAITING, 0) if view is None else (view.state, view.attempts)
    if (seen.state, seen.attempts) != (state.value, attempts):
        missed = [] if view is None else _missed(view, seen)
        seen = seen._replace(state=state.value, attempts=attempts)
        found += [News(Missed(outcome), seen) for outcome in missed]
        found.append(News(view, seen))
    progress = read_progress(view.progress) if view is not None and view.progress else None
    if progress is not None and progress.at_ms != seen.progress_ms:
        seen = seen._replace(progress_ms=progress.at_ms)
        found.append(News(progress, seen))
    if log.data and (seen.fence, seen.log_end) != (log.fence, log.end):
        lines = _lines(log, seen)
        seen = seen._replace(fence=log.fence, log_end=log.end)
        found.append(News(lines, seen))
    return found


def _missed(view: JobView, seen: Seen) -> list[Outcome]:
    """Return the failed attempts between what was seen and now, as far as they are kept."""
    if not seen.state:
        return []
    reported = seen.attempts - (seen.state == State.RUNNING.value)
    is_latest = view.state in (State.RETRYING, State.FAILED)  # that one tells of the last attempt itself
    latest = view.attempts - (is_latest or view.state is State.RUNNING)
    spent = (one for one in view.history if one.reason not in (SNOOZE, INTERRUPTED))
    return [one for one in spent if reported < one.attempt <= latest]


def _lines(log: Log, seen: Seen) -> Lines:
    known = seen.log_end if seen.fence == log.fence and seen.log_end <= log.end else 0
    start = max(known, log.start)
    new = Log(log.fence, start, log.data[start - log.start :])
    return Lines(new.text.split("\n"), start, start - known)
