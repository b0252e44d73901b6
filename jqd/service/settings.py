"""Saying rules: journaled and synced before they hold here, then told to all. All of them together are bounded."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import trio

from jqd.domain.audit import Doer, is_full, note_of, of_rules
from jqd.domain.errors import Conflict, Fault, Invalid, NotYet, Overloaded
from jqd.domain.pauses import STOPS
from jqd.domain.record import Lane, encode_rules
from jqd.domain.settings import Setting, SettingTable
from jqd.domain.shares import Share, counted
from jqd.service.services import Services

LEARNED_S = 5.0  # a request waits no longer at the start: reading gigabytes of journal takes seconds, an answer of a
# store that is there less than one
LOOK_S = 1.0  # for looks at the store after what is not known here: it takes some milliseconds where the store is there
LOOKS = 2  # the second one 0.1 s later: what another daemon has just taken is on its way to the store
FULL_S = 60  # so often the oldest notes of who did what are dropped
MIB = 1 << 20
RULES_BYTES_MAX = 64 * MIB  # of all: every daemon keeps them in memory, its journal and each store hold them, too.
# 10,000 workers that name ten jobtypes each take some 5 MiB
TENANT_BYTES_MAX = 8 * MIB  # of one tenant but "", without its tokens: 1,000 workers of ten jobtypes take some 0.5 MiB
TENANTS_BYTES_MAX = 40 * MIB  # of all but "", which has 8 MiB for itself beside these and their tokens

T = TypeVar("T")
Make = Callable[[], Mapping[tuple[str, str], bytes]]
"""(kind, name) → body of what is to be said, nil to delete; called when nobody else is saying anything."""


async def save(services: Services, make: Make, *, bounded: bool = True, act: str = "", what: str = "") -> None:
    """Say rules, all or none. They are on disk when this returns, and hold here.

    The store learns of them when it is there, the other daemons soon after. `bounded`: refuse what would be too much,
    or more than can be noted. Who does it with a token is noted with it: `act`, where the rules do not tell; `what` it
    is about, where there are none. Raises NotYet, JournalRefused, Invalid for too much, and what `make` raises.
    """
    settings, journal = services.workers.settings, services.journal
    await _learned(settings.loaded, "this daemon still reads what its journal says of workers; try again in a moment")
    async with settings.saying:
        said = _with_notes(services, make(), act, what, bounded=bounded)
        made = settings.make(said, now_ms=services.clock.wall_ms(), origin=journal.ids.journal)
        if made:
            if bounded:
                _refuse_more(settings, made, services.principal.tokens_tenant)
            position = journal.write(Lane.RULES, len(made), encode_rules(made))
            await journal.wsync(position, shielded=True)
            settings.take(made)


def _with_notes(
    services: Services, said: Mapping[tuple[str, str], bytes], act: str, what: str, *, bounded: bool
) -> Mapping[Any, bytes]:
    who = services.principal
    if not who.token:
        return said
    doer, now_ms = Doer(who.token, who.role, who.tenant, who.tokens_tenant), services.clock.wall_ms()
    acts = [(act, what)] if what else of_rules(said.items(), act)
    if acts and bounded and is_full(services.workers.settings, who.tokens_tenant):
        raise Overloaded("nothing was done: more was changed in a minute than can be noted", retry_after_s=FULL_S)
    first = services.workers.settings.number()
    return {**said, **dict(note_of(doer, *each, now_ms, first + place) for place, each in enumerate(acts))}


def _refuse_more(settings: SettingTable, made: list[Setting], by: str) -> None:
    """Raises Invalid. `by`: whose token says it; who runs jqd is not bound by what a tenant may have.

    Notes of who did what, which nobody can delete, have a limit of their own and count for none.
    """
    for named, growth in settings.growths([setting for setting in made if setting.kind not in STOPS]).items():
        tenant = named if by else ""
        have, most, whose = settings.size_bytes, RULES_BYTES_MAX, "all registrations, handlers and options of jobtypes"
        tenants = have - settings.sizes[""]
        if tenant and settings.sizes[tenant] + growth > TENANT_BYTES_MAX:
            have, most, whose = settings.sizes[tenant], TENANT_BYTES_MAX, f"those of tenant {tenant!r}"
        elif tenant and tenants + growth > TENANTS_BYTES_MAX:
            have, most, whose = tenants, TENANTS_BYTES_MAX, 'those of all tenants but ""'
        if growth > 0 and have + growth > most:
            why = (
                f"{whose} together may take {most / MIB:g} MiB, and this one would make that"
                f" {(have + growth) / MIB:.1f}; delete workers or handlers that are not needed, or register under the"
                " ids of those that are there"
            )
            raise Invalid(why, [Fault("", why)])


def expect_room(share: Share, tenant: str, tenants: Iterable[str]) -> None:
    """Raise Conflict where a tenant cannot have one more. `tenants`: whose those are that there are."""
    if why := share.why_no_more(tenant, counted(tenants)):
        raise Conflict(why, [Fault("", why)])


async def wait_loaded(services: Services) -> None:
    """Wait until all is known here that was said anywhere, for what goes on from there. Raises NotYet."""
    why = "this daemon has not heard from the store since it began, so it may not know what was said at other ones"
    await _learned(services.workers.settings.told, f"{why}; try again when the store is back, or at another daemon")


async def refresh(services: Services) -> None:
    """Know what others said a moment ago, before it is changed, if a store answers in LOOK_S."""
    with trio.move_on_after(LOOK_S):
        await services.workers.settings.look_again().wait()


async def get_or_refresh(services: Services, find: Callable[[], T | None]) -> T | None:
    """What `find` finds here, or when the store was asked anew: another daemon may have heard of it a moment ago.

    Who asks for what there is not waits a little: looks are shared by all who wait, and there are ten a second at most.
    """
    found = find()
    with trio.move_on_after(LOOK_S):
        for _ in range(LOOKS):
            if found is not None:
                break
            await services.workers.settings.look_again().wait()
            found = find()
    return found


async def _learned(event: trio.Event, why: str) -> None:
    with trio.move_on_after(LEARNED_S):
        await event.wait()
    if not event.is_set():  # a process that stood still is late, also where nothing is waited for
        raise NotYet(why)
