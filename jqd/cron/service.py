"""Sets, finds, pauses and deletes schedules, at any daemon and for all of them. `firing.py` fires their dates."""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import islice
from typing import Any

import msgspec
from msgspec import structs

from jqd.cron.expression import UTC, Recurrence, faults
from jqd.cron.firing import note
from jqd.cron.schedules import (
    AHEAD_MS,
    NAME_LENGTH_MAX,
    KnownSchedule,
    Plan,
    Schedule,
    Schedules,
    body_of,
    forgotten,
    set_back,
)
from jqd.domain.dates import instant_ms, iso
from jqd.domain.errors import Fault, Invalid, NotFound
from jqd.domain.job import is_name, why_no_place
from jqd.domain.job_spec import JobSpec
from jqd.domain.msgpack_depth import NESTING_MAX, nests_deeper
from jqd.domain.settings import FIRED, NIL, SCHEDULE
from jqd.domain.shares import Share
from jqd.domain.tenant import tenant_of
from jqd.service.batch import Batch
from jqd.service.job_limits import expect_new_name
from jqd.service.job_limits import faults as job_faults
from jqd.service.push import expect_open, push
from jqd.service.services import Services
from jqd.service.settings import expect_revision, expect_room, get_or_refresh, refresh, save, wait_loaded

SCHEDULES = Share("schedules", 10_000)  # every daemon keeps them in memory: 10 MB, and a second when it starts
ARGUMENT_BYTES_MAX = 65_536  # for the argument of a schedule's job, which all daemons keep in memory
NEXT = 5  # how many dates are shown

_job_decoder = msgspec.msgpack.Decoder(JobSpec)


async def put(services: Services, name: str, plan: Plan, revision: int | None = None) -> bool:
    """Set a schedule; it is on disk when this returns. Returns True if it is new, False if it replaces one of that
    name.

    `revision`: set it only if the present one still has this revision. If `cron`, `every` and `tz` stay the same, dates
    that have come are still fired; otherwise only dates from now on are. A paused schedule stays paused. Raises
    Invalid, Conflict, NotYet, JournalRefused."""
    found = _name_faults(name) + _faults(services, plan)
    if found:
        raise Invalid(found[0].detail, found)
    await wait_loaded(services)
    await refresh(services)
    new: list[bool] = []
    own = services.qualified_name(name)

    def make() -> Mapping[tuple[str, str], bytes]:
        expect_revision(services, "schedule", SCHEDULE, own, revision)
        before = services.feature(Schedules).known.get(own)
        new.append(before is None)
        if before is None:
            expect_new_name("schedule", name)
            expect_room(SCHEDULES, services.principal.tenant, map(tenant_of, services.feature(Schedules).known))
        schedule = _merged(plan, before.schedule if before else None, services.feature(Schedules).now_ms())
        return {(SCHEDULE, own): body_of(schedule)}  # even if unchanged: another daemon may just have deleted it

    await save(services, make)
    await _set_back(services, own)
    return new[0]


async def delete(services: Services, name: str) -> None:
    """Delete a schedule: none of its dates is fired from now on. Jobs that it pushed stay.

    Raises NotFound, NotYet, JournalRefused.
    """
    await wait_loaded(services)
    await known(services, name)
    await save(services, lambda: {(SCHEDULE, find(services, name).name): NIL})
    fired = services.workers.settings.get(FIRED, services.qualified_name(name))
    if fired is not None and not fired.is_deleted:
        await note(services, [forgotten(fired, now_ms=services.clock.wall_ms())])


async def pause(services: Services, name: str) -> None:
    """Pause a schedule: none of its dates is fired until it is resumed. Raises NotFound; NotYet if this daemon does not
    know all settings yet; JournalRefused."""

    def paused(schedule: Schedule, now_ms: int) -> Schedule:
        return schedule if schedule.paused_at_ms else structs.replace(schedule, paused_at_ms=now_ms)

    await _change(services, name, paused)


async def resume(services: Services, name: str) -> None:
    """Resume a schedule: its dates from now on are fired, but none that passed during the pause.

    If dates were fired or skipped too early while the store's clock was ahead, they come again. Raises NotFound; NotYet
    if this daemon does not know all settings yet; JournalRefused.
    """

    def resumed(schedule: Schedule, now_ms: int) -> Schedule:
        is_ahead = schedule.since_ms > now_ms + AHEAD_MS
        if not schedule.paused_at_ms and not is_ahead:
            return schedule
        return structs.replace(schedule, paused_at_ms=0, since_ms=now_ms)

    await _change(services, name, resumed)
    await _set_back(services, services.qualified_name(name))


async def run_now(services: Services, name: str) -> str:
    """Push the schedule's job once, whatever its dates, even while it is paused. Returns the job's id.

    Raises NotFound, NotYet, Closed, JournalRefused.
    """
    expect_open(services)
    one = await known(services, name)
    item = one.schedule.packed_job
    batch = Batch(True, 1, b"\x91" + item, [_job_decoder.decode(item)])
    server = services.as_principal(services.principal._replace(is_server=True))
    return str((await push(server, batch)).job_ids[0])


async def known(services: Services, name: str) -> KnownSchedule:
    """Return a schedule; ask the store if this daemon does not know it, as another daemon may have just set it. Raises
    NotFound."""
    await get_or_refresh(services, partial(services.feature(Schedules).known.get, services.qualified_name(name)))
    return find(services, name)


def find(services: Services, name: str) -> KnownSchedule:
    """Return a schedule that this daemon knows, without asking the store. Raises NotFound."""
    one = services.feature(Schedules).known.get(services.qualified_name(name))
    if one is None:
        raise NotFound(f"there is no schedule {name[:64]!r}")
    return one


def next_dates(one: KnownSchedule, now_ms: int) -> list[int]:
    """Return the next NEXT dates (Unix ms) of a schedule; the first may have come already.

    There are none while the schedule is paused, or if this machine does not know its time zone.
    """
    if one.schedule.paused_at_ms or one.next_ms is None:
        return []
    when = one.schedule.when
    return [one.next_ms, *(_following(when, one.next_ms) if one.next_ms > now_ms else _dates(when, now_ms))]


def _dates(when: Recurrence, after_ms: int) -> tuple[int, ...]:
    return (*islice(when.dates(after_ms), NEXT - 1),)


_following = lru_cache(maxsize=SCHEDULES.most)(_dates)
"""Cached, since finding the next dates of a 29th of February takes 1 ms, and a list of all schedules needs
thousands."""


async def _change(services: Services, name: str, change: Callable[[Schedule, int], Schedule]) -> None:
    await wait_loaded(services)
    await refresh(services)
    await known(services, name)

    def make() -> Mapping[tuple[str, str], bytes]:
        before = find(services, name).schedule
        return {
            (SCHEDULE, services.qualified_name(name)): body_of(change(before, services.feature(Schedules).now_ms()))
        }

    await save(services, make)


async def _set_back(services: Services, own: str) -> None:
    """Let dates be fired again that were fired or skipped too early because the store's clock was ahead."""
    fired = services.workers.settings.get(FIRED, own)
    if fired is not None and (since := set_back(fired, now_ms=services.feature(Schedules).now_ms())) is not None:
        await note(services, [since])


def _merged(plan: Plan, before: Schedule | None, now_ms: int) -> Schedule:
    options = plan.own_fields()
    if plan.until is not None:
        options["until"] = iso(instant_ms(plan.until))
    if before is None:
        return Schedule(**options, anchor_ms=now_ms, since_ms=now_ms)
    same = (plan.cron, plan.every, plan.tz) == (before.cron, before.every, before.tz)
    same = same and before.since_ms <= now_ms + AHEAD_MS
    anchor_ms, since_ms = (before.anchor_ms, before.since_ms) if same else (now_ms, now_ms)
    return Schedule(**options, anchor_ms=anchor_ms, since_ms=since_ms, paused_at_ms=before.paused_at_ms)


def _name_faults(name: str) -> list[Fault]:
    if is_name(name) and len(name) <= NAME_LENGTH_MAX:
        return [Fault("/name", f"the name of a schedule {why}")] if (why := why_no_place(name)) else []
    why = f"the name of a schedule must be 1 to {NAME_LENGTH_MAX} printable characters, not {name[:64]!r}"
    return [Fault("/name", why)]


def _faults(services: Services, plan: Plan) -> list[Fault]:
    """Return what is wrong with a plan, apart from faults that decoding has found already."""
    job = plan.job
    fields: dict[str, Any] = dict(job.given())
    template = JobSpec(name=job.name, argument=job.argument, tags=job.tags, **fields)
    bytes_max = min(ARGUMENT_BYTES_MAX, services.config.job_bytes_max)
    found = [fault._replace(pointer=f"/job{fault.pointer}") for fault in job_faults(template, bytes_max)]
    if nests_deeper(bytes(job.argument), NESTING_MAX):
        found.append(Fault("/job/argument", f"an argument nests deeper than {NESTING_MAX} levels"))
    if (plan.cron is None) == (plan.every is None):
        what = "cron or every is required" if plan.cron is None else "cron and every exclude each other"
        return [*found, Fault("/cron", f"{what}; give one of them")]
    if plan.every is not None and plan.tz != UTC:
        found.append(Fault("/tz", "tz goes with cron: every so many seconds is the same in all time zones"))
    if plan.every is not None and plan.jitter >= plan.every:
        # With the default overlap each date would wait for the job before it, and none would ever be on time.
        found.append(Fault("/jitter", f"jitter must be below every, {plan.every:g} s, not {plan.jitter:g}"))
    now_ms = services.feature(Schedules).now_ms()
    wanted = Schedule(**plan.own_fields(), anchor_ms=now_ms)
    try:
        return [*found, *faults(wanted.when, now_ms)]
    except ValueError as error:
        endless = structs.replace(wanted, until=None)
        return [*found, *faults(endless.when, now_ms), Fault("/until", str(error))]
