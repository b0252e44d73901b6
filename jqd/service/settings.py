"""Saves settings. A setting is on this daemon's disk before it takes effect here; then it is sent to all daemons.

Acts with a token are written to the audit log first: an act that cannot be written there is not done.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import trio

from jqd.domain.audit import Doer, is_full, note_of, of_rules
from jqd.domain.dates import iso
from jqd.domain.errors import Conflict, Invalid, NotYet, Overloaded
from jqd.domain.pauses import STOPS
from jqd.domain.record import Lane, encode_rules
from jqd.domain.settings import Setting, SettingTable
from jqd.domain.shares import Share
from jqd.domain.tenant import bare
from jqd.domain.tokens import Role
from jqd.service.services import Services

LOADED_S = 5.0  # how long a request waits while the daemon starts: reading gigabytes of journal takes seconds
UNLOADED = "this daemon still reads what its journal says of workers; try again in a moment"
REFRESH_S = 1.0  # wait for settings from the store, which answers in some milliseconds
REFRESHES = 2  # the second comes 0.1 s later: a setting just saved at another daemon is on its way to the store
FULL_S = 60  # the audit log drops its oldest notes once in this time
MIB = 1 << 20
RULES_BYTES_MAX = 64 * MIB  # of all: each daemon keeps them in memory and journal, and each partition of the store has
# them. 10,000 workers that name ten jobtypes each take some 5 MiB
TENANT_BYTES_MAX = 8 * MIB  # of one tenant but "", without its tokens: 1,000 workers of ten jobtypes take some 0.5 MiB
TENANTS_BYTES_MAX = 40 * MIB  # of all tenants but "": so that one has 8 MiB, beside these and tokens

T = TypeVar("T")
Note = Callable[[], Awaitable[None]]
Make = Callable[[], Mapping[tuple[str, str], bytes]]
"""Returns what to save: (kind, name) → body, nil to delete. Called under the lock of `save`."""


async def save(services: Services, make: Make, *, bounded: bool = True, act: str = "", what: str = "") -> None:
    """Save the settings that `make` returns, all or none. When this returns they are on disk and in effect at this
    daemon. The store gets them when it answers, and the other daemons get them from the store.

    `make`: returns (kind, name) → body. `bounded`: refuse settings above the size limits, and acts for which the audit
    log has no room. `act`, `what`: the act and its object for the audit log, if they cannot be derived from the
    settings. Raises NotYet, JournalRefused, Invalid for too many bytes, Overloaded for too many acts, and what `make`
    raises."""
    settings, journal = services.workers.settings, services.journal
    await _wait_for(settings.loaded, UNLOADED)
    async with settings.saying:
        wanted = make()
        acts = [(act, what)] if what else of_rules(wanted.items(), act)
        bodies = _with_notes(services, wanted, acts, bounded=bounded)
        made = settings.make(bodies, now_ms=services.clock.wall_ms(), origin=journal.ids.journal)
        if made:
            if bounded:
                _refuse_more(settings, made, services.principal.tokens_tenant)
            position = journal.write(Lane.RULES, len(made), encode_rules(made))
            await journal.wsync(position, shielded=True)
            settings.take(made)


async def learn(services: Services, saved: Iterable[Setting]) -> None:
    """Save here the settings that another process of the same `jqd serve` has saved. When this returns, those that are
    newer than this process's own are on disk and in effect here. Raises NotYet, JournalRefused."""
    settings, journal = services.workers.settings, services.journal
    await _wait_for(settings.loaded, "this daemon still reads its journal")
    news = [setting for setting in saved if setting.supersedes(settings.get(*setting.key))]
    if news:
        await journal.wsync(journal.write(Lane.RULES, len(news), encode_rules(news)), shielded=True)
        settings.take(news)


def _with_notes(
    services: Services, bodies: Mapping[tuple[str, str], bytes], acts: Sequence[tuple[str, str]], *, bounded: bool
) -> Mapping[Any, bytes]:
    who = services.principal
    if not who.token:
        return bodies
    doer, now_ms = Doer(who.token, who.role, who.tenant, who.tokens_tenant), services.clock.wall_ms()
    operates = who.may(Role.OPERATOR)
    if acts and bounded and is_full(services.workers.settings, who.tokens_tenant, operates=operates):
        raise Overloaded("nothing was done: more was changed in a minute than can be noted", retry_after_s=FULL_S)
    first = services.workers.settings.number()
    return {**bodies, **dict(note_of(doer, *each, now_ms, first + place) for place, each in enumerate(acts))}


def _refuse_more(settings: SettingTable, made: list[Setting], by: str) -> None:
    """Raise Invalid if the settings would take too many bytes. `by`: the tenant of the token; for "" no tenant's limit
    counts.

    Notes of the audit log do not count: nobody can delete them, and they have a limit of their own.
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
            raise Invalid.at("", why)


def expect_revision(services: Services, what: str, kind: str, name: str, revision: int | None) -> None:
    """Raise Conflict if a setting was changed since the client saw it. `revision`: what the client saw; 0: that the
    setting did not exist; None: not checked.

    `what`: the setting's noun for the message.
    """
    setting = services.workers.settings.get(kind, name)
    now = 0 if setting is None or setting.is_deleted else setting.revision
    if revision in (None, now):
        return
    became = f"was changed at {iso(setting.at_ms)}" if setting is not None and now else "is not there any more"
    if not revision:
        became = "is there already"
    raise Conflict.at("", f"{what} {bare(name)[:64]!r} {became}, so nothing was set: look at it again")


def revision_of(services: Services, kind: str, name: str) -> int:
    """Return the revision of a setting, also of a deleted one; 0 if it never existed."""
    setting = services.workers.settings.get(kind, name)
    return setting.revision if setting is not None else 0


def expect_room(share: Share, tenant: str, tenants: Iterable[str]) -> None:
    """Raise Conflict if a tenant may have no further object of a kind. `share`: the limit. `tenants`: the owner of each
    existing object."""
    if why := share.why_no_more(tenant, Counter(tenants)):
        raise Conflict.at("", why)


async def wait_loaded(services: Services) -> None:
    """Wait until this daemon knows all settings that were saved anywhere. Raises NotYet."""
    why = "this daemon has not heard from the store since it began, so it may not know what was said at other ones"
    await _wait_for(services.workers.settings.synced, f"{why}; try again when the store is back, or at another daemon")


async def refresh(services: Services) -> None:
    """Fetch settings that other daemons saved a moment ago, if the store answers within REFRESH_S."""
    with trio.move_on_after(REFRESH_S):
        await services.workers.settings.look_again().wait()


async def get_or_refresh(services: Services, find: Callable[[], T | None]) -> T | None:
    """Return what `find` finds in this daemon's settings. If that is None, fetch newer settings from the store and call
    `find` again, as another daemon may have just saved the setting. Fetches are shared, ten a second at most, so this
    may take a moment."""
    found = find()
    with trio.move_on_after(REFRESH_S):
        for _ in range(REFRESHES):
            if found is not None:
                break
            await services.workers.settings.look_again().wait()
            found = find()
    return found


async def _wait_for(event: trio.Event, why: str) -> None:
    with trio.move_on_after(LOADED_S):
        await event.wait()
    if not event.is_set():  # not by the scope: after a stall it may be cancelled although the event was set
        raise NotYet(why)


def noting(services: Services, act: str, what: str) -> Note:
    """Return a function that, when it is first awaited, writes to the audit log that the caller did `act` (a word) to
    the object `what`; awaited again it does nothing. Await it before each change."""
    is_written = False

    async def note() -> None:
        nonlocal is_written
        if not is_written:
            await record(services, act, what)
            is_written = True

    return note


async def record(services: Services, act: str, what: str) -> None:
    """Write an act on jobs to the audit log, on disk. Raises NotYet, Invalid, JournalRefused, Overloaded.

    Only acts of operators are written. What pushers and workers do with their own jobs is in the job log.
    """
    if not services.principal.token or not services.principal.may(Role.OPERATOR) or services.principal.scopes:
        return
    settings, journal = services.workers.settings, services.journal
    await _wait_for(settings.loaded, UNLOADED)
    # Without the lock of `save`, so that hundreds of acts on jobs share a sync and hold up nobody.
    bodies = _with_notes(services, {}, [(act, services.qualified_name(what))], bounded=True)
    made = settings.make(bodies, now_ms=services.clock.wall_ms(), origin=journal.ids.journal)
    position = journal.write(Lane.RULES, len(made), encode_rules(made))
    await journal.wsync(position, shielded=True)
    settings.take(made)


def describe(wanted: Any) -> str:
    """Return, as JSON, the fields of a filter that are set."""
    fields = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value}
    return json.dumps(fields, ensure_ascii=False, default=str)
