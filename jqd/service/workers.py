"""Registers and unregisters workers, at this daemon for all."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from jqd.domain.errors import Conflict, Denied, Invalid, JournalRefused, NotFound
from jqd.domain.job_spec import TypeOptions
from jqd.domain.tenant import bare, tenant_of
from jqd.domain.tokens import Role, is_token_id
from jqd.runner import Worker, WorkerSpec
from jqd.runner.departures import Gone, shown
from jqd.runner.handler import code_for, is_version
from jqd.runner.registry import KIND, body_of, no_more
from jqd.service.services import Services
from jqd.service.settings import get_or_refresh, save


async def register(
    services: Services, spec: WorkerSpec, *, options: Mapping[str, TypeOptions] | None = None, peer: str | None
) -> Worker:
    """Take a registration or its repetition; what changes is on disk when this returns, and reaches all daemons.

    `options`: of jobtypes; new ones hold from now on, whoever pushes. `peer`: the address it came from. Raises Invalid,
    NotYet, JournalRefused.
    """
    if spec.id is not None and is_version(spec.id):
        why = f"worker_id must not end in @ and a number, as {spec.id[:64]!r} does: versions of handlers are called so"
        raise Invalid.at("/worker_id", why)
    _refuse_foreign(services, spec.jobs)
    who = services.principal
    checked = partial(services.workers.check, spec, options=options, peer=peer, tenant=who.tenant)
    token = who.token if is_token_id(who.token) else ""

    def check() -> Worker:
        """Check whether the principal may replace the worker: a registration without an id replaces one of the same
        name and URL."""
        worker = msgspec.structs.replace(checked(), scopes=who.scopes, token=token)
        known = services.workers.get(worker.id)
        if known is not None and not covers(services, known):
            quoted = repr(bare(known.id)[:64])
            raise Denied(f"worker {quoted} takes jobs that this token is not for; register under another id and name")
        return worker

    check()
    await services.workers.judge(spec.url, peer)
    worker = check()
    if not services.workers.is_registered(worker):
        try:
            worker = await _save(services, check)
        except JournalRefused:
            services.workers.reached(worker.id)  # a full disk silences no worker: its last registration holds on
            raise
    services.workers.repeated(worker.id)
    return worker


def covers(services: Services, worker: Worker) -> bool:
    """Return whether the token's scopes cover all jobs of a worker: else it would get others' jobs by that worker's
    name."""
    return not services.principal.scopes or (
        not worker.takes_any and all(map(services.principal.can_access, worker.jobs or ()))
    )


def _refuse_foreign(services: Services, jobs: Sequence[str] | None) -> None:
    """Raise Denied for a worker of jobs outside the token's scopes."""
    if not services.principal.scopes:
        return
    foreign = (
        ["*"]
        if jobs is None
        else [name for name in jobs if not services.principal.can_access(services.qualified_name(name))]
    )
    if foreign:
        raise Denied(f"this token is for {', '.join(services.principal.scopes)}; not for jobs {foreign[0][:64]!r}")


async def _save(services: Services, check: Callable[[], Worker]) -> Worker:
    """Save a registration, unless the same was saved while this one waited."""
    checked: list[Worker] = []

    def make() -> Mapping[tuple[str, str], bytes]:
        worker = check()
        checked.append(worker)
        if services.workers.is_registered(worker):
            return {}
        known = services.workers.get(worker.id)
        before = known.options if known is not None else {}
        new = {name: given for name, given in worker.options.items() if before.get(name) != given}
        return {(KIND, worker.id): body_of(worker), **services.options.bodies(new, worker.id)}

    await save(services, make)
    return checked[0]


async def unregister(services: Services, worker_id: str) -> None:
    """Forget a worker everywhere; jobs in flight are still waited for.

    Raises NotFound, Conflict, NotYet, JournalRefused.
    """
    worker = await get_or_refresh(services, lambda: services.workers.get(services.qualified_name(worker_id)))
    if worker is None or not covers(services, worker):
        raise NotFound(f"there is no worker {worker_id[:64]!r}")
    if worker.handler:
        why = f"{worker_id!r} is a version of handler {bare(worker.handler)!r}; delete that handler, or set it anew"
        raise Conflict.at("", why)
    by_hand = services.principal.may(Role.OPERATOR)  # workers leave by themselves again and again
    await save(services, partial(no_more, [worker.id]), act="worker delete", what=worker.id if by_hand else "")


def seen_by(services: Services) -> Iterator[Worker]:
    """Return the workers that the principal can see."""
    return (worker for worker in services.workers.list() if services.principal.can_see(worker.tenant))


def gone(services: Services) -> list[Gone]:
    """Return the workers that went away within the last day and have not come back, as far as the principal can see
    them; none where its token is for some jobtypes only, as it is not known what they took."""
    if services.principal.scopes:
        return []
    rows = services.control.gone("worker")
    return shown(
        one
        for one in rows
        if services.workers.get(one.row.name) is None and services.principal.can_see(tenant_of(one.row.name))
    )


def unneeded_options(services: Services) -> dict[tuple[str, str], bytes]:
    """Return settings that delete options of jobtypes which no worker and no handler has named for long."""
    named = {jobtype for worker in services.workers.list() for jobtype in worker.jobs or ()}
    named.update(name for name, handler in services.workers.handlers().items() if code_for(handler))
    return services.options.unneeded(named, services.clock.mono_s())
