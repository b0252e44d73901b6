"""Pauses a jobtype or all jobs of a tenant, and drains daemons: then no such job is started, and running ones go on."""

from collections.abc import Mapping
from typing import NamedTuple

from jqd.domain.errors import Denied, Invalid, NotFound, NotYet
from jqd.domain.job import is_name, why_no_place
from jqd.domain.pauses import BAN, DRAIN, HALT, PAUSE, Pauses, all_of, body_of
from jqd.domain.settings import NIL
from jqd.domain.shares import Share
from jqd.domain.tenant import annotate, bare, tenant_of
from jqd.service.services import Services
from jqd.service.settings import expect_room, save, wait_loaded

HALTED = Share("paused tenants", 1_000, remedy="resume some")  # each search for work goes through them
PAUSED = Share("paused jobtypes", 1_000, remedy="resume some")  # a worker of any type names them to the store each time
THIS = "this"
"""In a request: the name that stands for the daemon which gets the request."""

Bodies = Mapping[tuple[str, str], bytes]


async def pause(services: Services, jobtype: str, reason: str = "") -> int:
    """Pause a jobtype. Returns the date since which it is paused (Unix ms). Raises Invalid, Conflict, NotYet."""
    if not is_name(jobtype):
        raise Invalid.at("/name", f"the name of a jobtype must be 1 to 128 printable characters, not {jobtype[:64]!r}")
    if why := why_no_place(jobtype):
        raise Invalid.at("/name", f"the name of a jobtype {why}")
    if not reason.isprintable():
        raise Invalid.at("/reason", "a reason is one line of printable characters")
    await wait_loaded(services)
    own, since_ms = services.qualified_name(jobtype), list[int]()

    def make() -> Bodies:
        if own not in services.pauses.names:
            expect_room(PAUSED, services.principal.tenant, map(tenant_of, services.pauses.names))
        return {(PAUSE, own): _again(services, services.pauses, own, since_ms, reason)}

    await save(services, make)
    return since_ms[0]  # by now somebody else may have resumed it


def _again(services: Services, pauses: Pauses, own: str, since_ms: list[int], reason: str = "") -> bytes:
    """Return the body of the setting that pauses the jobtype `own`, and append to `since_ms` since when it is paused.
    If it is paused already, its date and author stay, and so does its reason if `reason` is empty. The setting is saved
    all the same, as another daemon may have resumed the jobtype."""
    by = pauses.by.get(own, "") if own in pauses.names else services.principal.token
    since_ms.append(pauses.since_ms.get(own, services.clock.wall_ms()))
    return body_of(since_ms[0], by, reason or pauses.reasons.get(own, ""))


async def resume(services: Services, jobtype: str) -> bool:
    """Resume a jobtype. Returns whether it was paused, as far as this daemon knows. Raises NotYet."""
    await wait_loaded(services)
    own = services.qualified_name(jobtype)
    was_paused = own in services.pauses.names
    await save(services, lambda: {(PAUSE, own): NIL})  # always: another daemon may just have paused it
    return was_paused


async def drain(services: Services, name: str) -> tuple[str, int]:
    """Drain a daemon: it starts no jobs until it is resumed, even after a restart.

    Returns its name, and since when it is drained (Unix ms). Raises NotFound, NotYet.
    """
    await wait_loaded(services)
    daemon, since_ms = _daemon(services, name), list[int]()
    await save(services, lambda: {(DRAIN, daemon): _again(services, services.drains, daemon, since_ms)})
    return daemon, since_ms[0]  # by now somebody else may have resumed it


async def resume_daemon(services: Services, name: str) -> tuple[str, bool]:
    """Let a drained daemon start jobs again. Returns its name, and whether it was drained. Raises NotFound, NotYet."""
    await wait_loaded(services)
    daemon = name if name in services.drains.names else _daemon(services, name)
    was_drained = daemon in services.drains.names
    await save(services, lambda: {(DRAIN, daemon): NIL})
    return daemon, was_drained


def _daemon(services: Services, name: str) -> str:
    for peer in services.control.daemons():
        if peer.sysid == name or (peer.is_this and name == THIS):
            return peer.sysid
    if name == THIS:
        raise NotYet("this daemon has no name in its store yet, and begins no job; try again when the store is there")
    raise NotFound(f"there is no daemon {name[:64]!r} here; `jqd daemons` lists those of this store")


async def halt(services: Services) -> int:
    """Pause all jobs of the principal's tenant. Returns the date since which they are paused (Unix ms). Raises
    Conflict, NotYet."""
    await wait_loaded(services)
    own, since_ms, who = all_of(services.principal.tenant), list[int](), _token_of(services)

    def make() -> Bodies:
        known = services.halts.since_ms.get(own)
        if known is None:  # counted by who pauses: operators find room, however many tenants pause themselves
            expect_room(
                HALTED, tenant_of(who), (tenant_of(services.halts.by.get(each, "")) for each in services.halts.names)
            )
        by = who if known is None or not tenant_of(who) else services.halts.by.get(own, "")
        since_ms.append(services.clock.wall_ms() if known is None else known)
        return {(HALT if tenant_of(who) else BAN, own): body_of(since_ms[0], by)}

    await save(services, make, act="tenant pause")
    return since_ms[0]


async def proceed(services: Services) -> bool:
    """Resume the jobs of the principal's tenant. Returns whether they were paused. Raises Denied, NotYet."""
    await wait_loaded(services)
    own = all_of(services.principal.tenant)
    was_paused, who = own in services.halts.names, _token_of(services)

    def make() -> Bodies:
        if is_barred(services, services.principal.tenant) and tenant_of(who):
            raise Denied("this tenant was paused by who runs this jqd, and is resumed there")
        return {(kind, own): NIL for kind in ((HALT,) if tenant_of(who) else (HALT, BAN))}

    await save(services, make, act="tenant resume")
    return was_paused


def is_barred(services: Services, tenant: str) -> bool:
    """Return whether a tenant was paused by the operator of this jqd: then the tenant's own tokens cannot resume it."""
    own = all_of(tenant)
    return own in services.halts.names and not tenant_of(services.halts.by.get(own, ""))


def _token_of(services: Services) -> str:
    """Return the id of the principal's token, prefixed with the tenant that the token belongs to."""
    token = services.tokens.get(services.principal.token)
    return annotate(token.tenant if token is not None else "", services.principal.token)


class Halted(NamedTuple):
    """A paused tenant."""

    tenant: str
    since_ms: int
    by: str


def halted(services: Services) -> list[Halted]:
    """Return the paused tenants that the principal can see."""
    every = (
        Halted(tenant_of(own), since_ms, bare(services.halts.by.get(own, "")))
        for own, since_ms in sorted(services.halts.since_ms.items())
    )
    return [one for one in every if services.principal.can_see(one.tenant)]
