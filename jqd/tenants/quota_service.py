"""Sets and deletes quotas, for all daemons, and checks them at each push of a tenant that has one."""

from collections.abc import Mapping

import trio

from jqd.domain.charge import FREE, Charge
from jqd.domain.errors import Conflict, Fault, Invalid, NotFound, Overloaded, StoreError
from jqd.domain.log import get_logger
from jqd.domain.record import Lane
from jqd.domain.settings import NIL
from jqd.domain.tenant import IN_WORDS, is_tenant, tenant_of
from jqd.domain.tokens import Role
from jqd.service.services import Services
from jqd.service.settings import save, wait_loaded
from jqd.tenants.quotas import AGAIN_S, NO_JOBS, QUOTA, Numbers, Quota, Quotas, body_of

QUOTAS_MAX = 10_000  # each takes some hundred bytes in every daemon
LOOK_S = 1.0  # between two counts of the jobs in the store: a push that waits for one waits some milliseconds
OWED = "jobs that follow its others, or dates of its schedules, wait for it and go first"
ANSWER_S = 0.5  # how long a push waits for a count; then the last numbers are used, even if the store hangs


async def put(services: Services, tenant: str, quota: Quota) -> None:
    """Set a quota; all daemons apply it within about a second. Raises Invalid, Conflict, NotYet."""
    if not is_tenant(tenant):
        raise Invalid.at("/tenant", f"the name of a tenant is {IN_WORDS}, not {tenant[:64]!r}")
    if quota == Quota():
        raise Invalid("a quota has a limit: rate, bytes, queued, in_flight or dead", [Fault("", "give one of them")])
    await wait_loaded(services)

    def make() -> Mapping[tuple[str, str], bytes]:
        if tenant not in services.feature(Quotas).known and len(services.feature(Quotas).known) >= QUOTAS_MAX:
            raise Conflict.at("", f"there are {QUOTAS_MAX} quotas, and no more can be; delete some")
        return {} if services.feature(Quotas).known.get(tenant) == quota else {(QUOTA, tenant): body_of(quota)}

    await save(services, make)


async def delete(services: Services, tenant: str) -> None:
    """Delete a tenant's quota, so that it may push without limit. Raises NotFound, NotYet."""
    await wait_loaded(services)

    def make() -> Mapping[tuple[str, str], bytes]:
        if tenant not in services.feature(Quotas).known:
            raise NotFound(f"there is no quota of tenant {tenant[:64]!r}")
        return {(QUOTA, tenant): NIL}

    await save(services, make)


def exists(services: Services, tenant: str) -> bool:
    """Return whether a tenant has a quota that the principal may see.

    A principal of a tenant may see only the quota of that tenant; a principal without a tenant may see all quotas.
    """
    who = services.principal
    return tenant in services.feature(Quotas).known and (
        who.can_see(tenant) or (not who.tenant and who.may(Role.VIEWER))
    )


async def reserve(
    services: Services, jobs: int, size_bytes: int, *, retried: bool = False, changed: bool = False
) -> Charge:
    """Reserve room for a push in the quota of the principal's tenant; return FREE if the tenant has no quota.

    `retried`: the push is a retry, so the limit of dead jobs does not forbid it. `changed`: the push changes jobs that
    are counted already. Raises Overloaded, which names the limit that forbids the push.
    """
    tenant = services.principal.tenant
    if not await _bounded(services, tenant):
        return FREE
    waits = services.feature(Quotas).has_put_off(tenant) or services.control.waits_for_quota(tenant)
    # Jobs that were put off because of too many dead ones wait for retries, so these are let through.
    makes_room = retried and services.feature(Quotas).has_too_many_dead(tenant)
    if waits and not changed and not makes_room:
        limit, wait_s = OWED, float(AGAIN_S)
    else:
        daemons = _daemons(services)
        over = services.feature(Quotas).over(tenant, jobs, daemons, retried=retried, changed=changed)
        if over is None:
            return services.feature(Quotas).reserve(tenant, jobs, size_bytes, daemons, are_new=not changed)
        limit, wait_s = over
    why = _spent(tenant, limit)
    raise Overloaded(why if retried or changed else f"nothing was taken: {why}", retry_after_s=int(wait_s) + 1)


async def count_usage(services: Services) -> None:
    """Count the tenant's jobs in the store if the last count is old. To be called before many pushes reserve at the
    same time.

    Otherwise the first push would count the jobs while the other pushes use the old numbers.
    """
    await _bounded(services, services.principal.tenant)


async def reserve_owed(services: Services, tenant: str, jobs: int, size_bytes: int) -> Charge | str:
    """Reserve room for jobs that cannot be refused (followers, and jobs of schedules). If there is no room, note that
    they are put off, and return the reason why they have to wait."""
    if not await _bounded(services, tenant):
        return FREE
    over = services.feature(Quotas).over(tenant, jobs, _daemons(services), owed=True)
    if over is None:
        return services.feature(Quotas).reserve(tenant, jobs, size_bytes, _daemons(services))
    services.feature(Quotas).note_put_off(tenant)
    return _spent(tenant, over[0])


async def _bounded(services: Services, tenant: str) -> bool:
    """Return whether a tenant has a quota. If the quota limits numbers of jobs, first count the jobs in the store,
    unless the last count is recent."""
    quota = services.feature(Quotas).known.get(tenant)
    if quota is None:
        return False
    if quota.queued is not None or quota.in_flight is not None or quota.dead is not None:
        await _look(services)
    return tenant in services.feature(Quotas).known  # it may have been deleted meanwhile


def _daemons(services: Services) -> int:
    return services.workers.place(None)[1]


def _spent(tenant: str, limit: str) -> str:
    return f"the quota of tenant {tenant!r} is spent, {limit}"


async def _look(services: Services) -> None:
    """Count the jobs of each tenant in the store, at most once a second.

    If the store does not answer in time, the last numbers stay, and pushes made since then are added to them.
    """
    quotas, now_s = services.feature(Quotas), services.clock.mono_s()
    if now_s - quotas.looked_at_s < LOOK_S:
        return
    quotas.looked_at_s = now_s  # so that pushes that arrive meanwhile start no other count
    begun = [number for number in range(services.partitions) if number not in quotas.looking]
    quotas.look_begins(services.journal.written)  # not its synced end: a push may be answered before a sync
    counted = trio.Event()
    left = set(begun)

    async def look(number: int) -> None:
        try:
            await _ask(services, number)
        finally:
            left.discard(number)
            if not left:
                counted.set()

    for number in begun:
        quotas.looking[number] = now_s
        # In a system task: the answer is used whenever it comes, even if the push that asked is over.
        trio.lowlevel.spawn_system_task(look, number)
    with trio.move_on_after(ANSWER_S):
        if begun:
            await counted.wait()


async def _ask(services: Services, number: int) -> None:
    """Count the jobs of one partition of the store. If the partition does not answer, note that, and count its jobs
    another time."""
    quotas = services.feature(Quotas)
    applied = min(services.journal.read_point(lane, number) for lane in (Lane.JOBS, Lane.CHANGES))
    counts: dict[str, Numbers] = {}
    try:
        views = await services.store.list_types(number, dated=False)
        for view in views:
            tenant, jobs = tenant_of(view.jobtype), view.counts
            sums = counts.get(tenant, NO_JOBS)
            alive = sums.alive + jobs.queued + jobs.running
            counts[tenant] = Numbers(sums.waiting + jobs.queued, alive, sums.dead + jobs.failed)
    except StoreError as error:
        quotas.missed(number, str(error))
    except Exception as error:  # noqa: BLE001 - an internal error, which in a system task would end the daemon
        get_logger("quotas").exception("quotas.look_failed", partition=number)
        quotas.missed(number, repr(error))
    else:
        quotas.counted(number, counts, applied)
