"""Firing schedules: the job of a date and the note that this date was fired reach the disk together.

Any daemon may fire any date, and two may at once: the job's id is made of schedule and date, and the store gives a name
to one job. Each step here has its reason in docs/adr/0044, and a planted mistake in tests/cron/test_firing_model.py.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import msgspec
from msgspec import Raw, structs

from jqd.cron.decide import Firing, Last
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
from jqd.store import JobView
from jqd.tenants.quota_service import reserve_owed

GIVEN_S = 10.0  # well below the store's `name_reserve_s`: a name reserved longer ago may be another job's by now
TAKEN = "another job has the id {!r}, and has not come to the store yet"
COMING_S = 600.0  # a last job that lies in a journal only for longer was lost with its daemon's disk
TAKEN_S = 90.0  # a name reserved for so long without a job belongs to a job in a journal that is away

_encoder = msgspec.msgpack.Encoder()
_fields_decoder = msgspec.msgpack.Decoder(dict[str, Raw])
_job_decoder = msgspec.msgpack.Decoder(JobSpec)


async def last_of(services: Services, one: KnownSchedule, steady_s: float) -> Last | None:
    """The state of the job that a schedule pushed last. `steady_s`: for so long its partition has answered without a
    break, in one life. Raises StoreAway, StoreRefused."""
    job_id = one.fired.job_id
    if not job_id:
        return None
    try:
        services = _of(services, one)
        view = await find(services, await resolve(services, bare(job_id)), named=True)
        # Between the two calls it may have been purged: a job that just got its name is not in the store either.
        if not isinstance(view, Coming):
            one.coming = None
        else:
            one.coming = one.coming or ComingSince(services.clock.boot_s(), services.journal.end)
            is_lost = _is_late(one.fired, view) or _is_lost(services, one.coming, job_id, steady_s)
            if is_lost or await resolve(services, bare(job_id)) != view.id:
                return Last(0)
    except NotFound:
        return Last(0)
    if not view.state.is_final:
        return Last(None)
    return Last(view.outcome.finished_at_ms if isinstance(view, JobView) and view.outcome else 0)


def _is_lost(services: Services, coming: ComingSince, job_id: str, steady_s: float) -> bool:
    """Return whether a job has been on its way for longer than a journal takes that is there. While the store was away,
    nothing could come to it; and what this daemon's journal may still have is not lost."""
    home = partition_of_name(job_id, services.partitions)
    if services.journal.read_point(Lane.CHANGES, home) < coming.end:
        return False
    return min(services.clock.boot_s() - coming.since_s, steady_s) > COMING_S


def _is_late(fired: FiredDate, view: Coming) -> bool:
    """Return whether the date's name was reserved again for a push that never comes: a store does so if it has no such
    job.

    The setting has no id if another job had that name.
    """
    if fired.given:
        return view.id != fired.given
    return view.created_at_ms > fired.at_ms + GIVEN_S * 1000


async def fire(services: Services, firings: Sequence[Firing], is_current: Callable[[str], bool]) -> dict[str, str]:
    """Fire dates whose jobs live in one partition. Dates that are outdated by now are left for the next round.

    Returns the schedules that have to wait, and why. `is_current`: whether that partition said a moment ago what other
    daemons fired, and is in the same life still: in another one it may give the jobs' names to others. Raises Closed;
    StoreAway, StoreRefused, JournalRefused, NotYet: a repetition fires each date once.
    """
    expect_open(services, under_pressure=False)  # a skipped date does not come again
    wait: dict[str, str] = {}
    for tenant in dict.fromkeys(tenant_of(each.one.name) for each in firings):
        its = [each for each in firings if tenant_of(each.one.name) == tenant]
        wait |= await _fire(_of(services, its[0].one), its, is_current)
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
    """Return, by schedule, what those that fire cost the tenant's quota, and why the others wait for it."""
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
    # From here to the write no other task runs. The process may have stood still before.
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
    # The last job is cancelled where its successor is written, or nowhere.
    taken = (each.job_id for place, each in enumerate(jobs) if agreed is not None and place not in agreed.refused)
    if up_to := {job_id: number for each in taken for job_id, number in stops.get(each, {}).items()}:
        write_cancels(services, up_to)
    now_ms, given = services.clock.wall_ms(), agreed.ids if agreed else {}
    # The job stands before its `fired` setting and one sync covers both: a torn tail loses the setting first.
    fired = [(each.one, _fired(each, now_ms, given)) for each in done]
    await note(services, [fired_setting(one.name, its, now_ms=now_ms, after=one.revision) for one, its in fired])
    for each in done:
        services.feature(Schedules).counts["fired"] += each.step.fires
        services.feature(Schedules).counts["skipped"] += each.step.skipped
        _log_fired(each)
    if agreed is not None and agreed.jobs:
        await confirm_ids(services, agreed, written.position, callbacks=written.callbacks)
    return unsure


async def note(services: Services, settings: Sequence[Setting]) -> None:
    """Write settings that have their revisions, sync them with all that was written before, and let them hold here."""
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


def _fired(each: Firing, now_ms: int, given: Mapping[str, str]) -> FiredDate:
    """Return the setting that notes a fired date. `given`: names of jobs → ids that the store has them under, also of
    dates that another daemon fired: either of
    two settings of one date may stay."""
    before, step = each.one.fired, each.step
    after = structs.replace(before, through_ms=step.through_ms, skipped=before.skipped + step.skipped)
    if not step.fires:
        return after
    job_id, date_ms, count = each.job_id, step.through_ms, before.fired + 1
    return structs.replace(
        after, job_id=job_id, date_ms=date_ms, at_ms=now_ms, fired=count, given=given.get(bare(job_id), "")
    )


async def _stands(services: Services, each: Firing) -> bool:
    """Return whether another job has the date's id, as far as is known."""
    if await exists(services, bare(each.job_id)):
        return True
    now_s, one = services.clock.boot_s(), each.one
    one.taken_at_s = one.taken_at_s or now_s
    return now_s - one.taken_at_s > TAKEN_S


async def _stop(services: Services, one: KnownSchedule) -> Mapping[str, int]:
    """Return up to which generation the last job of a schedule is to be cancelled, if it has not ended."""
    try:
        view = await find(services, await resolve(services, bare(one.fired.job_id)), named=True)
    except NotFound:
        get_logger("schedules").debug("schedules.gone", job_id=one.fired.job_id)  # it has ended, and is deleted
        return {}
    return {} if view.state.is_final else (await cancelled_to(services, [view]))[0]


def _log_fired(each: Firing) -> None:
    note = {"name": each.one.name, "date": iso(each.step.through_ms), "skipped": each.step.skipped}
    log = get_logger("schedules")
    if each.step.fires:
        log.info("schedules.fired", **note, job_id=each.job_id)
    else:
        log.info("schedules.skipped", **note)
