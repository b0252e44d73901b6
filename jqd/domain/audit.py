"""Audit notes: who changed what. They are settings of a kind of their own, so every daemon and its journal has them.
The name of each begins with the date. Only acts with a token are noted."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from operator import attrgetter, itemgetter
from typing import NamedTuple

import msgspec
import trio

from jqd.domain.array_split import Steps
from jqd.domain.settings import AUDIT, NIL, Setting, SettingTable
from jqd.domain.tenant import annotate, bare, tenant_of

KEPT_S = 90 * 86_400.0
KEPT_MAX = 5_000  # of a tenant, the newest, some 2 MB in each daemon: nobody's acts push out those of another
ALL_MAX = 100_000  # of all tenants but "", some 30 MB in each daemon, and 60 MB at worst. Where there are more, those
# that have most of them keep fewer
FULL_PART = 2  # so many times what is kept of a tenant there may be of it, until the oldest are dropped, once a minute:
# then no more is done for it
OTHERS_PART = 1.5  # of acts of who may not operate: a token that derives others keeps no operator from a pause
IN_A_ROW = 1_000  # notes looked at once a minute, until others have their turn: a millisecond
WHAT_BYTES_MAX = 300  # of what was meant
PASSED = frozenset({AUDIT, "worker", "options", "fired", "view"})  # kinds that programs say again and again


class Note(msgspec.Struct, frozen=True, array_like=True):
    """One act, by names alone."""

    at_ms: int
    token: str
    """Its id."""
    role: str
    act: str
    """Like `schedule set`, `job cancel`."""
    what: str
    """Name, id or filter."""
    tenant: str = ""
    """The tenant of the token."""


class Doer(NamedTuple):
    """The token behind an act, for its note."""

    token: str
    role: str
    tenant: str
    """The tenant whose jobs and settings the act changes."""
    counts_for: str
    """Whose note it is: of who runs jqd, also where he speaks for a tenant."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Note)


def read_notes(settings: SettingTable) -> None:
    """Have unreadable notes refused by the setting table."""
    settings.read(AUDIT, lambda setting: _decoder.decode(setting.body))


def note_of(doer: Doer, act: str, what: str, now_ms: int, place: int) -> tuple[tuple[str, str], bytes]:
    """Return key and body of a note. `place`: among notes of the same moment, from the same journal."""
    data = what.encode()
    text = what if len(data) <= WHAT_BYTES_MAX else f"{data[:WHAT_BYTES_MAX].decode(errors='ignore')}…"
    note = Note(now_ms, doer.token, doer.role, act, bare(text), tenant_of(what) or doer.tenant)
    return (AUDIT, annotate(doer.counts_for, f"{now_ms:016d}.{place:x}")), _encoder.encode(note)


def is_full(settings: SettingTable, tenant: str, *, operates: bool) -> bool:
    """Return whether a tenant has so many notes that the oldest must go before one more of who may operate, or not."""
    part = FULL_PART if operates else OTHERS_PART
    return settings.notes[tenant] >= part * (kept_of_each(settings.notes) if tenant else KEPT_MAX)


def kept_of_each(there: Mapping[str, int]) -> int:
    """Return how many notes of each tenant but "" are kept at most. `there`: tenant → how many it has.

    Those that have fewer lose none, so that nobody's acts push out those of another.
    """
    return _part_of_each([count for tenant, count in there.items() if tenant and count > 0], ALL_MAX)


def _part_of_each(counts: Iterable[int], most: int) -> int:
    """Return how many each may keep, KEPT_MAX at most, so that all together keep `most`, and whoever has fewer all."""
    there, left = sorted(counts), most
    for place, count in enumerate(there):
        part = left // (len(there) - place)
        if min(count, KEPT_MAX) > part:
            return max(part, 1)
        left -= min(count, KEPT_MAX)
    return KEPT_MAX


def of_rules(settings: Iterable[tuple[tuple[str, str], bytes]], act: str) -> list[tuple[str, str]]:
    """Return acts and names to be noted for settings that are about to be saved."""
    acts = (
        (act or f"{kind} {'delete' if body == NIL else 'set'}", name)
        for (kind, name), body in settings
        if kind not in PASSED
    )
    return list(dict.fromkeys(acts))  # two rules of one name may be one act


def newest(
    settings: SettingTable, most: int, before: str, tenants: Collection[str] | None, fits: Callable[[Note], bool]
) -> Steps[list[tuple[str, Note]]]:
    """Return the newest notes that fit, with their dates, the newest first. `before`: later ones are left out;
    `tenants`: of whom notes are looked at; None: of all."""
    known, first = settings.all(AUDIT), list[tuple[str, Note]]()
    while piece := [*islice(known, IN_A_ROW)]:
        last = first[-1][0] if len(first) == most else ""
        named = ((bare(one.name), one) for one in piece if tenants is None or tenant_of(one.name) in tenants)
        its = [(at, one) for at, one in named if last < at and (not before or at < before) and not one.is_deleted]
        read = [(at, note) for at, one in its if fits(note := _decoder.decode(one.body))]
        if read:
            first = sorted(first + read, key=itemgetter(0), reverse=True)[:most]
        yield
    return first


async def stale(settings: SettingTable, now_ms: int) -> list[Setting]:
    """Yield notes past their time or number, of each tenant the oldest first, with pauses for other tasks."""
    kept = kept_of_each(settings.notes)
    full = {tenant for tenant, count in settings.notes.items() if count > (kept if tenant else KEPT_MAX)}
    gone, many = list[Setting](), defaultdict[str, list[Setting]](list)
    known = [*settings.all(AUDIT)]
    for at in range(0, len(known), IN_A_ROW):
        if at:
            await trio.lowlevel.checkpoint()
        for setting in known[at : at + IN_A_ROW]:
            if is_old(setting, now_ms):
                gone.append(setting)
            elif full and (tenant := tenant_of(setting.name)) in full:
                many[tenant].append(setting)
    for tenant, its in many.items():
        gone += await _surplus(its, kept if tenant else KEPT_MAX)
    return gone


async def _surplus(its: list[Setting], most: int) -> list[Setting]:
    """Return the oldest of one tenant's notes beyond `most`: of the acts, by token, that it has most of. So nobody
    washes an act out by thousands of others."""
    its.sort(key=attrgetter("name"))  # of one tenant that is by date
    alike = defaultdict[tuple[str, str], list[Setting]](list)
    for at in range(0, len(its), IN_A_ROW):
        await trio.lowlevel.checkpoint()
        for setting in its[at : at + IN_A_ROW]:
            note = _decoder.decode(setting.body)
            alike[note.token, note.act].append(setting)
    if len(alike) > most:
        return its[:-most]
    part = _part_of_each(map(len, alike.values()), most)
    return [setting for one in alike.values() for setting in one[:-part]]


def is_old(setting: Setting, now_ms: int) -> bool:
    """Return whether a note is past its time."""
    return setting.kind == AUDIT and now_ms - setting.at_ms > KEPT_S * 1000
