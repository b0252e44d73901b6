"""Pausing jobtypes, one or all of a tenant, at this daemon for all: what runs goes on, what waits is not begun."""

from collections.abc import Mapping
from typing import NamedTuple

from jqd.domain.dates import iso
from jqd.domain.errors import Denied, Fault, Invalid
from jqd.domain.job import is_name
from jqd.domain.pauses import BAN, HALT, PAUSE, all_of, body_of
from jqd.domain.settings import NIL
from jqd.domain.shares import Share
from jqd.domain.tenant import annotate, bare, tenant_of
from jqd.service.services import Desk
from jqd.service.settings import expect_room, say, told
from jqd.service.wait_reason import Cause, Hitch

HALTED = Share("paused tenants", 1_000, remedy="resume some")  # each look goes through them
PAUSED = Share(
    "paused jobtypes", 1_000, remedy="resume some"
)  # each look of a worker that takes any type names them to the store


async def pause(desk: Desk, jobtype: str) -> int:
    """Begin no jobs of that type; the instant in ms since which that holds. Raises Invalid, Conflict, NotYet."""
    if not is_name(jobtype):
        why = f"the name of a jobtype must be 1 to 128 printable characters, not {jobtype[:64]!r}"
        raise Invalid(why, [Fault("/name", why)])
    await told(desk)
    own, since_ms = desk.own(jobtype), list[int]()

    def make() -> Mapping[tuple[str, str], bytes]:
        if own not in desk.pauses.names:
            expect_room(PAUSED, desk.principal.tenant, map(tenant_of, desk.pauses.names))
        # Said once more where it is so already: it may be resumed elsewhere, and this comes after that.
        by = desk.pauses.by.get(own, "") if own in desk.pauses.names else desk.principal.token
        since_ms.append(desk.pauses.since_ms.get(own, desk.clock.wall_ms()))
        return {(PAUSE, own): body_of(since_ms[0], by)}

    await say(desk, make)
    return since_ms[0]  # by now somebody else may have resumed it


async def resume(desk: Desk, jobtype: str) -> bool:
    """Begin jobs of that type again; whether it was paused, as far as is known here. Raises NotYet."""
    await told(desk)
    own = desk.own(jobtype)
    was_paused = own in desk.pauses.names
    await say(desk, lambda: {(PAUSE, own): NIL})  # also where nothing is known of a pause that was said elsewhere
    return was_paused


async def halt(desk: Desk) -> int:
    """Begin no jobs of the principal's tenant; the instant in ms since which that holds. Raises Conflict, NotYet."""
    await told(desk)
    own, since_ms, who = all_of(desk.principal.tenant), list[int](), _token_of(desk)

    def make() -> Mapping[tuple[str, str], bytes]:
        known = desk.halts.since_ms.get(own)
        if known is None:  # whoever paused it has it: so who runs jqd finds room, however many pause themselves
            expect_room(HALTED, tenant_of(who), (tenant_of(desk.halts.by.get(one, "")) for one in desk.halts.names))
        by = who if known is None or not tenant_of(who) else desk.halts.by.get(own, "")
        since_ms.append(desk.clock.wall_ms() if known is None else known)
        return {(HALT if tenant_of(who) else BAN, own): body_of(since_ms[0], by)}

    await say(desk, make, act="tenant pause")
    return since_ms[0]


async def proceed(desk: Desk) -> bool:
    """Begin jobs of the principal's tenant again; whether it was paused. Raises Denied, NotYet."""
    await told(desk)
    own = all_of(desk.principal.tenant)
    was_paused, who = own in desk.halts.names, _token_of(desk)

    def make() -> Mapping[tuple[str, str], bytes]:
        if own in desk.halts.names and tenant_of(who) and not tenant_of(desk.halts.by.get(own, "")):
            raise Denied("this tenant was paused by who runs this jqd, and is resumed there")
        return {(kind, own): NIL for kind in ((HALT,) if tenant_of(who) else (HALT, BAN))}

    await say(desk, make, act="tenant resume")
    return was_paused


def _token_of(desk: Desk) -> str:
    """What the principal came with, annotated where it is a tenant's own."""
    token = desk.tokens.get(desk.principal.token)
    return annotate(token.tenant if token is not None else "", desk.principal.token)


class Halted(NamedTuple):
    """A tenant that is paused."""

    tenant: str
    since_ms: int
    by: str


def halted(desk: Desk) -> list[Halted]:
    """Those that exist for whom the desk acts."""
    every = (
        Halted(tenant_of(own), since_ms, bare(desk.halts.by.get(own, "")))
        for own, since_ms in sorted(desk.halts.since_ms.items())
    )
    return [one for one in every if desk.principal.sees(one.tenant)]


def why_paused(desk: Desk, jobtype: str) -> Hitch | None:
    """What is to be said of jobs that wait for somebody to resume their type. `jobtype`: as jqd knows it."""
    tenant, name = tenant_of(jobtype), bare(jobtype)
    spoken = f"jqd --tenant {tenant}" if tenant and desk.principal.sees_all else "jqd"
    if (since_ms := desk.pauses.since_ms.get(jobtype)) is not None:
        by, what, command = desk.pauses.by.get(jobtype, ""), f"{name!r} is", f"{spoken} types resume {name}"
    elif (since_ms := desk.halts.since_ms.get(all_of(tenant))) is not None:
        by, command = bare(desk.halts.by.get(all_of(tenant), "")), f"{spoken} types resume --all"
        what = f"all jobs of tenant {tenant!r} are" if tenant else "all jobs without a tenant are"
    else:
        return None
    if not desk.principal.looks:
        return Hitch(Cause.PAUSED, f"{what} paused since {iso(since_ms)}", since_ms)
    why = f"{what} paused{f' by {by}' if by else ''} since {iso(since_ms)}: `{command}`"
    return Hitch(Cause.PAUSED, why, since_ms, by=by)
