"""Streams this daemon's counters each second, and the events of jobs that a filter names."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import trio

from jqd.domain.dates import iso
from jqd.domain.errors import NotYet, StoreAway, StoreRefused
from jqd.domain.joblog import TAGGED, Row
from jqd.domain.tenant import bare
from jqd.service.find import resolve
from jqd.service.rates import shown
from jqd.service.services import Services
from jqd.service.waiters import Listener
from jqd.store import JobView

LISTENERS_MAX = 16  # at once: each examines every row in half a microsecond; 20,000 jobs a second make 80,000 rows
TENANT_MAX = 4  # listeners of one tenant
KEPT = 4  # of LISTENERS_MAX, for principals who see all tenants: an operator can always look
COUNT_S = 1.0


class Event(NamedTuple):
    kind: str
    """`counters`, `job` or `dropped` (how many events were dropped because the client was too slow)."""
    fields: Mapping[str, Any]


Send = Callable[[Sequence[Event]], Awaitable[bool]]
"""Sends events to the client. Returns False when the client has disconnected."""


async def listener_for(
    services: Services, *, name: str | None, job_id: str | None, event: str | None, tag: str | None
) -> Listener:
    """Return a listener for the events that match all given filters (None: any). `job_id`: the daemon's or the pusher's
    own.

    Raises NotFound, NotYet if the number of listeners is at its limit, StoreAway.
    """
    if (most := _full(services)) is not None:
        raise NotYet(f"{most} listen here already, which is the most; try again, or at another daemon")
    can_access = services.principal.can_access if services.principal.is_bound else None
    job_id = None if job_id is None else await resolve(services, job_id)
    tenant = services.principal.tenant if services.principal.is_bound else None
    return Listener(can_access=can_access, tenant=tenant, jobtype=name, job_id=job_id, event=event, tag=tag)


def _full(services: Services) -> int | str | None:
    """Return the limit that forbids one more listener, as a number or a text; None if one more is allowed."""
    if len(services.listeners) >= LISTENERS_MAX:
        return LISTENERS_MAX
    if not services.principal.is_bound:
        return None
    bound = [each.tenant for each in services.listeners if each.tenant is not None]
    if bound.count(services.principal.tenant) >= TENANT_MAX:
        return f"{TENANT_MAX} of this tenant"
    return f"{LISTENERS_MAX - KEPT} of tenants" if len(bound) >= LISTENERS_MAX - KEPT else None


async def listen(services: Services, listener: Listener, send: Send, *, counts: bool, jobs: bool, for_s: float) -> None:
    """Send events as they happen, and counters each second, until the client disconnects or the time is over.

    `counts`: send counters. `jobs`: send events of jobs. `for_s`: the time in seconds; 0: unlimited.
    """
    if _full(services) is not None:
        return  # others were quicker: the stream ends at once, and the client asks again
    with ExitStack() as stack:
        services.listeners.append(listener)
        stack.callback(services.listeners.remove, listener)
        if jobs:
            stack.enter_context(services.control.listening(listener.receive))
        now_s = trio.current_time()
        next_s, end_s = now_s, now_s + for_s if for_s else math.inf
        while True:
            with trio.move_on_at(min(next_s, end_s)):
                await listener.ready.wait()
            now_s, (rows, dropped) = trio.current_time(), listener.take()
            events = [Event("job", _fields_of(row)) for row in rows if await _fits(services, listener, row)]
            events += [Event("dropped", {"count": dropped})] if dropped else []
            if now_s >= next_s:
                next_s = now_s + COUNT_S
                events += [await _counters(services)] if counts else []
            # The principal's token may be revoked meanwhile: a stream may outlast it by days.
            if services.tokens.ended(services.principal.token) or not await send(events) or now_s >= end_s:
                return


async def _fits(services: Services, listener: Listener, row: Row) -> bool:
    """Return whether a row of the job log matches the listener. If the row lacks the jobtype or tags, they are looked
    up."""
    is_named = "jobtype" in row or (listener.jobtype is None and listener.can_access is None)
    if is_named and (listener.tag is None or row["event"] in TAGGED):
        return True
    try:
        view = await services.store.get_job(str(row["job_id"]))
    except (StoreAway, StoreRefused):
        return False  # without the store it is not known whether the row matches
    if not isinstance(view, JobView) or not services.principal.can_access(view.jobtype):
        return False
    return listener.jobtype in (None, bare(view.jobtype)) and (listener.tag is None or listener.tag in view.tags)


def _fields_of(row: Row) -> Mapping[str, Any]:
    """Return a row of the job log with the field names that the HTTP API uses."""
    at = str(row["ts"]).replace("+00:00", "Z")
    first = {"event": row["event"], "at": at, "daemon": row["daemon"], "job_id": row["job_id"]}
    named = {"name": row["jobtype"]} if "jobtype" in row else {}
    return {**first, **named, **{name: value for name, value in row.items() if name not in (*first, "ts", "jobtype")}}


async def _counters(services: Services) -> Event:
    counters: dict[str, Any] = {"at": iso(services.clock.wall_ms()), "daemon": services.control.sharers()[0]}
    if services.principal.is_bound:
        return Event("counters", counters)  # the store's counters are of all tenants together
    try:
        counters["store"] = shown(services, await services.store.stats())
    except (StoreAway, StoreRefused) as error:
        counters |= {"store": None, "store_error": str(error)}
    return Event("counters", counters)
