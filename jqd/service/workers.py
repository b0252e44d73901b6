"""Registers and unregisters workers, at this daemon for all daemons."""

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
    """Register a worker, or repeat its registration. When this returns, changes are on disk; then they reach all
    daemons.

    `options`: default options of jobtypes, for all pushers. `peer`: the client's address. Raises Invalid, Denied,
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
        """Check the worker and return it. Raise Denied if it would replace a worker that the token does not cover: one
        with the same id, or without an id one of the same name and URL."""
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
            services.workers.reached(worker.id)  # if the disk is full, its last registration stays valid
            raise
    services.workers.repeated(worker.id)
    return worker


def covers(services: Services, worker: Worker) -> bool:
    """Return whether the token's scopes cover all jobtypes of a worker. Otherwise the caller, in that worker's name,
    would get jobs outside its scopes."""
    return not services.principal.scopes or (
        not worker.takes_any and all(map(services.principal.can_access, worker.jobs or ()))
    )


def _refuse_foreign(services: Services, jobs: Sequence[str] | None) -> None:
    """Raise Denied if one of these jobtypes is outside the token's scopes. `jobs`: None means all jobtypes."""
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
    """Save a registration, unless an equal one was saved while this call waited for the lock. Return the worker."""
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
    """Delete a worker at all daemons. Its jobs in flight go on.

    Raises NotFound, Conflict, NotYet, JournalRefused.
    """
    worker = await get_or_refresh(services, lambda: services.workers.get(services.qualified_name(worker_id)))
    if worker is None or not covers(services, worker):
        raise NotFound(f"there is no worker {worker_id[:64]!r}")
    if worker.handler:
        why = f"{worker_id!r} is a version of handler {bare(worker.handler)!r}; delete that handler, or set it anew"
        raise Conflict.at("", why)
    by_hand = services.principal.may(Role.OPERATOR)  # workers that leave by themselves are not for the audit log
    await save(services, partial(no_more, [worker.id]), act="worker delete", what=worker.id if by_hand else "")


def seen_by(services: Services) -> Iterator[Worker]:
    """Return the workers that the principal can see."""
    return (worker for worker in services.workers.list() if services.principal.can_see(worker.tenant))


def gone(services: Services) -> list[Gone]:
    """Return the workers that disappeared within the last day and have not come back, as far as the principal can see
    them. If its token has scopes, none are returned, as the workers' jobtypes are no longer known."""
    if services.principal.scopes:
        return []
    rows = services.control.gone("worker")
    return shown(
        each
        for each in rows
        if services.workers.get(each.row.name) is None and services.principal.can_see(tenant_of(each.row.name))
    )


def unneeded_options(services: Services) -> dict[tuple[str, str], bytes]:
    """Return the settings that delete the options of jobtypes which no worker and no handler has named for a long
    time."""
    named = {jobtype for worker in services.workers.list() for jobtype in worker.jobs or ()}
    named.update(name for name, handler in services.workers.handlers().items() if code_for(handler))
    return services.options.unneeded(named, services.clock.mono_s())
