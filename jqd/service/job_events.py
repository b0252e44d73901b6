"""The events of one job for its listeners: each gets what is new since its last event.

    state ──▶ progress, log lines ──▶ … ──▶ end

A short text in every event (`Seen`) says how far its listener has read. A listener that reconnects, to any daemon,
sends this text and gets what is new since then. So no daemon keeps state for a listener that disconnected.

Workers may report to other daemons. So a loop for each partition reads all followed jobs from the store twice a second,
however many listeners there are. Without listeners it makes no call.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio

from jqd.domain.errors import Closed, NotFound, NotYet, Overloaded, StoreError
from jqd.domain.job import INTERRUPTED, SNOOZE, Outcome, State
from jqd.domain.jobid import partition_of
from jqd.service.find import find
from jqd.service.leases import Progress, read_progress
from jqd.service.services import Services
from jqd.service.waiters import Watched
from jqd.store import BRIEFS_MAX, JobView, Log, OnItsWay

OVER = "end"  # the position of a listener that got the job's end


class Seen(NamedTuple):
    """How far a listener has followed a job."""

    state: str = ""
    attempts: int = 0
    progress_ms: int = 0
    fence: int = 0
    """The fence of the attempt whose log was read."""
    log_end: int = 0
    """How many bytes of that log were read."""

    @property
    def text(self) -> str:
        return ".".join(map(str, self))


_SEEN = re.compile(r"([a-z]{0,16})\.(\d{1,10})\.(\d{1,16})\.(\d{1,16})\.(\d{1,16})", re.ASCII)
START = Seen()


def read_seen(text: str) -> Seen | None:
    """Parse the text form of a `Seen`; return None if the text is not valid."""
    found = _SEEN.fullmatch(text)
    return None if found is None else Seen(found[1], *map(int, found.groups()[1:]))


class Missed(NamedTuple):
    """An event for an attempt that failed while the listener was disconnected."""

    outcome: Outcome


class Lines(NamedTuple):
    """An event with lines that a job printed."""

    lines: list[str]
    start: int
    """How many bytes the job's attempt had printed before these lines."""
    dropped: int
    """How many bytes just before these lines were dropped."""


class News(NamedTuple):
    """One new event, and how far its listener has read after it."""

    what: JobView | Missed | Progress | Lines | None
    """What changed, or the whole job if its state changed; None: the job is on its way into the store."""
    seen: Seen


def news_of(watched: Watched, seen: Seen) -> list[News]:
    """Return the events that a listener has not got yet, in order. `seen`: how far it has read."""
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
    """Return the outcomes of attempts that failed since `seen`, as far as the job's history has them."""
    if not seen.state:
        return []
    reported = seen.attempts - (seen.state == State.RUNNING.value)
    is_latest = view.state in (State.RETRYING, State.FAILED)  # then the event of the state tells of the last attempt
    latest = view.attempts - (is_latest or view.state is State.RUNNING)
    spent = (attempt for attempt in view.history if attempt.reason not in (SNOOZE, INTERRUPTED))
    return [outcome for outcome in spent if reported < outcome.attempt <= latest]


def _lines(log: Log, seen: Seen) -> Lines:
    known = seen.log_end if seen.fence == log.fence and seen.log_end <= log.end else 0
    start = max(known, log.start)
    new = Log(log.fence, start, log.data[start - log.start :])
    return Lines(new.text.split("\n"), start, start - known)


LOOK_S = 0.5  # between two reads of the store: quick enough for a person who watches
WATCH_MS = 15_000  # how long one read tells workers that the job is watched: they ask every 5 s, and a read may fail
WATCHERS_MAX = 1_024  # streams at a daemon: each is a connection, and to wake all takes some 30 ms of the loop
KEPT = 128  # of WATCHERS_MAX, for principals who see all tenants: an operator can always watch
TENANT_MAX = 256  # streams of one tenant, so that it does not take all places
RETRY_S = 5  # the `Retry-After` of a refused stream: others leave as their jobs end


def check_room(services: Services) -> None:
    """Raise an error if no further listener may follow a job here: Closed at shutdown, NotYet if there are too many,
    Overloaded if there are too many of this tenant."""
    if services.pulls.is_closed:
        raise Closed("this daemon is shutting down; ask another one", full=False)
    whose = [tenant for watched in services.watched.values() for tenant in watched.bells.values()]
    if len(whose) >= WATCHERS_MAX:
        raise NotYet(f"{WATCHERS_MAX} follow jobs here already, which is the most; try again, or at another daemon")
    if not services.principal.is_bound:
        return
    if whose.count(services.principal.tenant) >= TENANT_MAX:
        detail = f"{TENANT_MAX} streams of this tenant follow jobs here already, which is the most: end one"
        raise Overloaded(detail, retry_after_s=RETRY_S)
    if len(whose) - whose.count(None) >= WATCHERS_MAX - KEPT:
        raise NotYet(f"{WATCHERS_MAX - KEPT} of tenants follow jobs here already; try again, or at another daemon")


@contextmanager
def watching(
    services: Services, job_id: str, view: JobView | None, *, named: bool
) -> Iterator[tuple[Watched, Callable[[], trio.Event]]]:
    """Follow a job during the block (`with`). Yields what is known of the job, and a function that returns a Trio
    event, which is set when the job changes next.

    Raises the errors of `check_room`."""
    check_room(services)
    watched = services.watched.setdefault(job_id, Watched(job_id, view, named=named))
    tenant = services.principal.tenant if services.principal.is_bound else None
    bell = trio.Event()
    watched.bells[bell] = tenant

    def next_bell() -> trio.Event:
        nonlocal bell
        if bell.is_set():
            del watched.bells[bell]
            bell = trio.Event()
            watched.bells[bell] = tenant
        return bell

    try:
        yield watched, next_bell
    finally:
        del watched.bells[bell]
        if not watched.bells and services.watched.get(job_id) is watched:
            del services.watched[job_id]


async def watch(services: Services, partition: int) -> None:
    """Read the followed jobs of one partition from the store every LOOK_S, until cancelled at shutdown."""
    try:
        while True:
            await trio.sleep(LOOK_S)
            some = _of(services, partition)
            for at in range(0, len(some), BRIEFS_MAX):
                await look(services, some[at : at + BRIEFS_MAX])
    finally:
        for each in _of(services, partition):
            each.ring()  # so that its listeners see that the daemon shuts down


def _of(services: Services, partition: int) -> list[Watched]:
    watched = services.watched.values()
    return [each for each in watched if partition_of(each.job_id, services.partitions) == partition]


async def look(services: Services, some: list[Watched]) -> None:
    """Read these jobs from the store, and wake the listeners of those that changed. If the store is away, do
    nothing."""
    known = [(each.job_id, each.log.fence, each.log.end) for each in some]
    try:
        views = await services.store.get_briefs([each.job_id for each in some])
        # After the views: so the log of a job that is seen as ended is complete.
        logs = await services.store.watch_logs(known, WATCH_MS)
    except StoreError:
        return  # other loops log that the store is away; the streams go on with what is known
    for each, view, log in zip(some, views, logs, strict=True):
        changed = await _take(services, each, view)
        if each.add(log) or changed or not each.is_looked_at:
            each.is_looked_at = True
            await each.wake()


async def _take(services: Services, watched: Watched, view: JobView | OnItsWay | None) -> bool:
    """Store a newly read state of a followed job in `watched`. Return whether a listener would see a difference.
    `view`: None: the store has no such job."""
    before = watched.view
    if isinstance(view, JobView):
        watched.view = view
    elif view is None:
        try:  # the job may be in this daemon's journal
            known = await find(services, watched.job_id, named=watched.named)
        except NotFound:
            watched.is_gone = True
            return True
        except (StoreError, NotYet):
            return False
        watched.view = known if isinstance(known, JobView) else None
    return _mark(watched.view) != _mark(before)


def _mark(view: JobView | None) -> object:
    return view and (view.state, view.attempts, view.progress, view.jobtype)
