"""Listening to this daemon: its counters each second, and what happens here to the jobs that a filter names."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import trio

from jqd.domain.dates import iso
from jqd.domain.errors import NotYet, StoreAway, StoreRefused
from jqd.domain.joblog import TAGGED, Row
from jqd.domain.tenant import bare
from jqd.service.event_stream import Listener
from jqd.service.find import resolve
from jqd.service.services import Services
from jqd.store import JobView

LISTENERS_MAX = 16  # at once: each looks at every row, half a microsecond; of 20,000 jobs a second these have four each
TENANT_MAX = 4  # of a tenant
KEPT = 4  # of them for who sees all tenants: however many listen, an operator can look what goes on
COUNT_S = 1.0


class Event(NamedTuple):
    """Something to be told."""

    kind: str
    """`counters`, `job` or `dropped`."""
    told: Mapping[str, Any]


Say = Callable[[Sequence[Event]], Awaitable[bool]]
"""Tells some; whether there is anybody to tell more."""


async def listener_for(
    services: Services, *, name: str | None, job_id: str | None, event: str | None, tag: str | None
) -> Listener:
    """Who hears of these jobs. `job_id`: the daemon's or its pusher's. Raises NotFound, NotYet, StoreAway."""
    if (most := _full(services)) is not None:
        raise NotYet(f"{most} listen here already, which is the most; try again, or at another daemon")
    knows = services.principal.can_access if services.principal.is_bound else None
    job_id = None if job_id is None else await resolve(services, job_id)
    tenant = services.principal.tenant if services.principal.is_bound else None
    return Listener(knows=knows, tenant=tenant, jobtype=name, job_id=job_id, event=event, tag=tag)


def _full(services: Services) -> int | str | None:
    """How many listen already where no more may."""
    if len(services.listeners) >= LISTENERS_MAX:
        return LISTENERS_MAX
    if not services.principal.is_bound:
        return None
    bound = [each.tenant for each in services.listeners if each.tenant is not None]
    if bound.count(services.principal.tenant) >= TENANT_MAX:
        return f"{TENANT_MAX} of this tenant"
    return f"{LISTENERS_MAX - KEPT} of tenants" if len(bound) >= LISTENERS_MAX - KEPT else None


async def listen(services: Services, mine: Listener, say: Say, *, counts: bool, jobs: bool, for_s: float) -> None:
    """Tell what comes, and each second at least nothing, until nobody listens or the time is over."""
    if _full(services) is not None:
        return  # others were quicker: it ends as it begins, and is asked for again
    with ExitStack() as stack:
        services.listeners.append(mine)
        stack.callback(services.listeners.remove, mine)
        if jobs:
            stack.enter_context(services.control.heard(mine.receive))
        now_s = trio.current_time()
        next_s, end_s = now_s, now_s + for_s if for_s else math.inf
        while True:
            with trio.move_on_at(min(next_s, end_s)):
                await mine.bell.wait()
            now_s, events = trio.current_time(), await _jobs(services, mine)
            if now_s >= next_s:
                next_s = now_s + COUNT_S
                events += [await _counters(services)] if counts else []
            # The token that somebody came with may be revoked: a stream may outlast it by days.
            if services.tokens.ended(services.principal.token) or not await say(events) or now_s >= end_s:
                return


async def _jobs(services: Services, mine: Listener) -> list[Event]:
    rows, dropped = mine.take()
    events = [Event("job", _told(row)) for row in rows if await _fits(services, mine, row)]
    return [*events, Event("dropped", {"count": dropped})] if dropped else events


async def _fits(services: Services, mine: Listener, row: Row) -> bool:
    """Of a cancel of what the store had not yet nobody says whose job it was; of an end not which tags it has."""
    is_told = "jobtype" in row or (mine.jobtype is None and mine.knows is None)
    if is_told and (mine.tag is None or row["event"] in TAGGED):
        return True
    try:
        view = await services.store.get_job(str(row["job_id"]))
    except (StoreAway, StoreRefused):
        return False  # it cannot be said whether it was meant
    if not isinstance(view, JobView) or not services.principal.can_access(view.jobtype):
        return False
    return mine.jobtype in (None, bare(view.jobtype)) and (mine.tag is None or mine.tag in view.tags)


def _told(row: Row) -> Mapping[str, Any]:
    """A row of the job log in the words of the interface."""
    at = str(row["ts"]).replace("+00:00", "Z")
    first = {"event": row["event"], "at": at, "daemon": row["daemon"], "job_id": row["job_id"]}
    named = {"name": row["jobtype"]} if "jobtype" in row else {}
    return {**first, **named, **{name: value for name, value in row.items() if name not in (*first, "ts", "jobtype")}}


async def _counters(services: Services) -> Event:
    told: dict[str, Any] = {"at": iso(services.clock.wall_ms()), "daemon": services.control.sharers()[0]}
    if services.principal.is_bound:
        return Event("counters", told)  # those of the store are of all tenants together
    try:
        told["store"] = (await services.store.stats())._asdict()
    except (StoreAway, StoreRefused) as error:
        told |= {"store": None, "store_error": str(error)}
    return Event("counters", told)
