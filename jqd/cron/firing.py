"""Fires dates of schedules: journals the job of a date, and the setting which says that this date was fired.

One sync brings both to disk. Any daemon may fire any date, and two may fire the same one at the same time: the job's id
is made of the schedule's name and the date, and the store lets only one job have an id. docs/adr/0044 has the reason of
each step; tests/cron/test_firing_model.py shows what goes wrong without it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import msgspec
from msgspec import Raw, structs

from jqd.cron.decide import Firing
from jqd.cron.schedules import ComingSince, FiredDate, KnownSchedule, Schedules, fired_setting
from jqd.domain.charge import Charge
from jqd.domain.dates import iso
from jqd.domain.errors import NotFound, NotYet
from jqd.domain.job_spec import JobSpec
from jqd.domain.jobid import partition_of_name
from jqd.domain.log import get_logger
from jqd.domain.record import Lane, encode_rules
from jqd.domain.settings import Setting
from jqd.domain.tenant import bare, tenant_of
from jqd.service.batch import Batch
from jqd.service.cancel import cancelled_to, write_cancels
from jqd.service.find import Coming, exists, find, resolve
from jqd.service.frames import write
from jqd.service.id_reservations import confirm_ids, reserve_ids
from jqd.service.principal import Principal
from jqd.service.push import expect_open
from jqd.service.services import Services
from jqd.tenants.quota_service import reserve_owed

# Well below the store's `name_reserve_s`: a name that was reserved longer ago may belong to another job by now.
GIVEN_S = 10.0
TAKEN = "another job has the id {!r}, and has not come to the store yet"
COMING_S = 600.0  # a job that has not come to the store for this time was lost with its daemon's disk
TAKEN_S = 90.0  # if a name is reserved for this time and its job has not come, the daemon that journaled it is down

_encoder = msgspec.msgpack.Encoder()
_fields_decoder = msgspec.msgpack.Decoder(dict[str, Raw])
_job_decoder = msgspec.msgpack.Decoder(JobSpec)


async def last_runs(services: Services, one: KnownSchedule, steady_s: float) -> bool:
    """Return whether the job that a schedule pushed last has not ended.

    `steady_s`: how long the job's partition of the store has answered without a break or a restart. Raises StoreAway,
    StoreRefused.
    """
    job_id = one.fired.job_id
    if not job_id:
        return False
    try:
        services = _of(services, one)
        view = await find(services, await resolve(services, bare(job_id)), named=True)
        # The job may have been purged between the two calls, which then look as if it had not come to the store yet.
        if not isinstance(view, Coming):
            one.coming = None
        else:
            one.coming = one.coming or ComingSince(services.clock.boot_s(), services.journal.end)
            is_lost = _is_late(one.fired, view) or _is_lost(services, one.coming, job_id, steady_s)
            if is_lost or await resolve(services, bare(job_id)) != view.id:
                return False
    except NotFound:
        return False
    return not view.state.is_final


def _is_lost(services: Services, coming: ComingSince, job_id: str, steady_s: float) -> bool:
    """Return whether a job has been on its way to the store for so long that the journal which had it must be lost.

    Time in which the store could not be reached does not count. While this daemon's own journal may still bring the
    job, it is not lost.
    """
    home = partition_of_name(job_id, services.partitions)
    if services.journal.read_point(Lane.CHANGES, home) < coming.end:
        return False
    return min(services.clock.boot_s() - coming.since_s, steady_s) > COMING_S


def _is_late(fired: FiredDate, view: Coming) -> bool:
    """Return whether the last job was deleted, and `view` only shows that its name was reserved again.

    The store gives an unused name, with a new id, to whoever asks for it. So the name was reserved again if the id of
    `view` is not the id in `fired`. If `fired` has no id, as another job had the name, it was reserved again if `view`
    was created more than GIVEN_S after the date was fired."""
    if fired.given:
        return view.id != fired.given
    return view.created_at_ms > fired.at_ms + GIVEN_S * 1000


async def fire(services: Services, firings: Sequence[Firing], is_current: Callable[[str], bool]) -> dict[str, str]:
    """Fire dates whose jobs belong to one partition of the store. Schedules that were changed meanwhile are left out.
    Returns schedule → why it has to wait.

    `is_current`: takes the store's life (one run of its server) in which the jobs' names were reserved. Returns whether
    that life still lasts, and the partition reported a moment ago what other daemons fired: after a restart the store
    may give the names to other jobs. Raises Closed, StoreAway, StoreRefused, JournalRefused, NotYet; it is safe to call
    this again, since each date is fired once."""
    expect_open(services, under_pressure=False)  # also under pressure: a date that is skipped does not come again
    wait: dict[str, str] = {}
    for tenant in dict.fromkeys(tenant_of(each.one.name) for each in firings):
        same = [each for each in firings if tenant_of(each.one.name) == tenant]
        wait |= await _fire(_of(services, same[0].one), same, is_current)
    return wait


async def _fire(services: Services, firings: Sequence[Firing], is_current: Callable[[str], bool]) -> dict[str, str]:
    with ExitStack() as charges:
        charge, over = await _within(services, firings, charges)
        return over | await _fire_all(
            services, [each for each in firings if each.one.name not in over], charge, is_current
        )


async def _within(
    services: Services, firings: Sequence[Firing], charges: ExitStack
) -> tuple[dict[str, Charge], dict[str, str]]:
    """Reserve room in the tenant's quota for each job. Returns schedule → its charge, and for those without room
    schedule → why it waits."""
    charge: dict[str, Charge] = {}
    over: dict[str, str] = {}
    for each in firings:
        if each.step.fires:
            kept = await reserve_owed(services, services.principal.tenant, 1, len(each.one.schedule.packed_job))
            if isinstance(kept, str):
                over[each.one.name] = kept
            else:
                charge[each.one.name] = charges.enter_context(kept)
    return charge, over


async def _fire_all(
    services: Services, firings: Sequence[Firing], charge: Mapping[str, Charge], is_current: Callable[[str], bool]
) -> dict[str, str]:
    jobs = [each for each in firings if each.step.fires]
    stops = {each.job_id: await _stop(services, each.one) for each in jobs if each.step.replaces}
    asked_at_s = services.clock.boot_s()
    agreed = await reserve_ids(services, _batch(jobs), dated=True) if jobs else None
    refused = [jobs[place] for place in (agreed.refused if agreed else ())]
    unsure = {each.one.name: TAKEN.format(bare(each.job_id)) for each in refused if not await _stands(services, each)}
    # No other task runs between here and the write. The process may have been stopped for a while before.
    if not is_current(agreed.life if agreed else "") or services.clock.boot_s() - asked_at_s > GIVEN_S:
        raise NotYet("the store did not say in time what other daemons fired")
    if any(services.feature(Schedules).known.get(each.one.name) is not each.one for each in firings):
        return {}  # changed, or fired by another, meanwhile
    done = [each for each in firings if each.one.name not in unsure]
    if agreed is not None and agreed.jobs:
        written = write(services, agreed.array, agreed.jobs, agreed.changes, life=agreed.life)
        services.control.entered(written.job_ids, agreed.jobs, services.principal.tenant)
        for place, each in enumerate(jobs):
            if place not in agreed.known and place not in agreed.refused:
                home = partition_of_name(each.job_id, services.partitions)
                charge[each.one.name].taken([home], len(each.one.schedule.packed_job))
    if not done:
        return unsure
    # The job before is cancelled only together with the write of the one that replaces it.
    taken = (each.job_id for place, each in enumerate(jobs) if agreed is not None and place not in agreed.refused)
    if up_to := {job_id: number for each in taken for job_id, number in stops.get(each, {}).items()}:
        write_cancels(services, up_to)
    now_ms, given = services.clock.wall_ms(), agreed.ids if agreed else {}
    # The job is before its `fired` setting in the journal, and one sync covers both. If a crash cuts the end of the
    # journal off, the setting is lost first, and the date is fired again under the same id.
    fired = [(each.one, fired_body(each, now_ms, given)) for each in done]
    await note(services, [fired_setting(one.name, date, now_ms=now_ms, after=one.setting) for one, date in fired])
    for each in done:
        services.feature(Schedules).counts["fired"] += each.step.fires
        services.feature(Schedules).counts["skipped"] += each.step.skipped
        _log_fired(each)
    if agreed is not None and agreed.jobs:
        await confirm_ids(services, agreed, written.position, callbacks=written.callbacks)
    return unsure


async def note(services: Services, settings: Sequence[Setting]) -> None:
    """Write settings to the journal, sync it, and apply them at this daemon."""
    position = services.journal.write(Lane.RULES, len(settings), encode_rules(settings))
    await services.journal.wsync(position, shielded=True)
    services.workers.settings.take(settings)


def _of(services: Services, one: KnownSchedule) -> Services:
    tenant = tenant_of(one.name)
    return services.as_principal(Principal(tenant)) if tenant else services


def _batch(firings: Sequence[Firing]) -> Batch:
    items = []
    for each in firings:
        fields = {
            **_fields_decoder.decode(each.one.schedule.packed_job),
            "job_id": bare(each.job_id),
            "run_at": iso(each.one.run_at_ms(each.step.through_ms)),
        }
        items.append(Raw(_encoder.encode(fields)))
    return Batch(False, len(items), _encoder.encode(items), [_job_decoder.decode(item) for item in items])


def fired_body(each: Firing, now_ms: int, given: Mapping[str, str]) -> FiredDate:
    """Return the new body of the schedule's setting `fired` after the step in `each`.

    `given`: a job's own id → the id that the store gave the job, also for dates that another daemon fired: both daemons
    write a setting for the date, and either of the two may win."""
    before, step = each.one.fired, each.step
    after = structs.replace(
        before, through_ms=step.through_ms, skipped=before.skipped + step.skipped, watched=step.watched
    )
    if not step.fires:
        return after
    job_id, date_ms, count = each.job_id, step.through_ms, before.fired + 1
    return structs.replace(
        after, job_id=job_id, date_ms=date_ms, at_ms=now_ms, fired=count, given=given.get(bare(job_id), "")
    )


async def _stands(services: Services, each: Firing) -> bool:
    """Return whether another job has the id that this date's job needs, as far as this daemon knows.

    An id that has been reserved for TAKEN_S without a job counts as taken by another job.
    """
    if await exists(services, bare(each.job_id)):
        return True
    now_s, one = services.clock.boot_s(), each.one
    one.taken_at_s = one.taken_at_s or now_s
    return now_s - one.taken_at_s > TAKEN_S


async def _stop(services: Services, one: KnownSchedule) -> Mapping[str, int]:
    """Return which jobs to cancel so that a schedule's last job stops: job id → last generation to cancel. Empty if
    that job has ended."""
    try:
        view = await find(services, await resolve(services, bare(one.fired.job_id)), named=True)
    except NotFound:
        get_logger("schedules").debug("schedules.gone", job_id=one.fired.job_id)  # it has ended and was deleted
        return {}
    return {} if view.state.is_final else (await cancelled_to(services, [view]))[0]


def _log_fired(each: Firing) -> None:
    note = {"name": each.one.name, "date": iso(each.step.through_ms), "skipped": each.step.skipped}
    log = get_logger("schedules")
    if each.step.fires:
        log.info("schedules.fired", **note, job_id=each.job_id)
    elif each.step.skipped:
        log.info("schedules.skipped", **note)
