"""Pausing jobtypes, at this daemon for all: what runs goes on, what waits is not begun."""

from collections.abc import Mapping

from jqd.desk.desk import Desk
from jqd.desk.hitch import Cause, Hitch
from jqd.desk.rules import expect_room, say, told
from jqd.words.dates import iso
from jqd.words.errors import Fault, Invalid
from jqd.words.job import is_name
from jqd.words.pauses import PAUSE, body_of
from jqd.words.rules import NIL
from jqd.words.shares import Share
from jqd.words.tenant import bare, tenant_of

PAUSED = Share("paused jobtypes", 1_000)  # each look of a worker that takes any type names them to the store


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


def why_paused(desk: Desk, jobtype: str) -> Hitch | None:
    """What is to be said of jobs that wait for somebody to resume their type. `jobtype`: as jqd knows it."""
    since_ms, name = desk.pauses.since_ms.get(jobtype), bare(jobtype)
    if since_ms is None:
        return None
    by = desk.pauses.by.get(jobtype, "")
    tenant = tenant_of(jobtype) if desk.principal.sees_all else ""
    command = f"jqd --tenant {tenant} types resume {name}" if tenant else f"jqd types resume {name}"
    why = f"{name!r} is paused{f' by {by}' if by else ''} since {iso(since_ms)}: `{command}`"
    return Hitch(Cause.PAUSED, why, since_ms, by=by)
