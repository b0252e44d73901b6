"""The audit log: it notes who changed what, for acts of callers with a token. Each note is saved as a setting
(settings.py), so all daemons and their journals have it. The setting's name consists of the tenant and the date."""

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
KEPT_MAX = 5_000  # newest notes kept of a tenant, some 2 MB in each daemon
ALL_MAX = 100_000  # notes kept of all tenants but "", some 30 MB in each daemon, and 60 MB at worst. If there are more,
# the tenants with the most notes keep fewer
FULL_PART = 2  # a tenant with this many times the notes that it may keep gets its acts refused, until the oldest notes
# are dropped, which happens once a minute
OTHERS_PART = 1.5  # the same for acts of callers who may not operate: they cannot keep an operator from an act
IN_A_ROW = 1_000  # notes examined before other tasks have their turn: a millisecond
WHAT_BYTES_MAX = 300  # bytes kept of an act's object
PASSED = frozenset({AUDIT, "worker", "options", "fired", "view"})  # kinds of settings that programs save all the time


class Note(msgspec.Struct, frozen=True, array_like=True):
    """A note of one act: who did what to which object. The content of the object is not noted."""

    at_ms: int
    token: str
    """The token's id."""
    role: str
    act: str
    """What was done, such as `schedule set` or `job cancel`."""
    what: str
    """The act's object: a name, an id or a filter."""
    tenant: str = ""
    """The tenant whose jobs or settings were changed."""


class Doer(NamedTuple):
    """Who does something, for the note: the caller's token, and the tenants concerned."""

    token: str
    role: str
    tenant: str
    """The tenant whose jobs and settings the act changes."""
    counts_for: str
    """The tenant against whose limit of notes the note counts. For operators of jqd itself it is "", even if they act
    for another tenant."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Note)


def read_notes(settings: SettingTable) -> None:
    """Register the decoder of notes at the setting table, so that the table refuses unreadable notes."""
    settings.read(AUDIT, lambda setting: _decoder.decode(setting.body))


def note_of(doer: Doer, act: str, what: str, now_ms: int, place: int) -> tuple[tuple[str, str], bytes]:
    """Return the key and the body of the setting for a note. `place`: a number that distinguishes notes of the same
    journal and millisecond."""
    data = what.encode()
    text = what if len(data) <= WHAT_BYTES_MAX else f"{data[:WHAT_BYTES_MAX].decode(errors='ignore')}…"
    note = Note(now_ms, doer.token, doer.role, act, bare(text), tenant_of(what) or doer.tenant)
    return (AUDIT, annotate(doer.counts_for, f"{now_ms:016d}.{place:x}")), _encoder.encode(note)


def is_full(settings: SettingTable, tenant: str, *, operates: bool) -> bool:
    """Return whether a tenant has so many notes that its acts are refused until the oldest notes are dropped.
    `operates`: whether the caller is an operator, for whom the limit is higher."""
    part = FULL_PART if operates else OTHERS_PART
    return settings.notes[tenant] >= part * (kept_of_each(settings.notes) if tenant else KEPT_MAX)


def kept_of_each(there: Mapping[str, int]) -> int:
    """Return how many notes each tenant (except "") may keep, given how many notes each tenant has now.

    Only tenants with more notes than this lose some, so no tenant's acts push out the notes of another tenant.
    """
    return _part_of_each([count for tenant, count in there.items() if tenant and count > 0], ALL_MAX)


def _part_of_each(counts: Iterable[int], most: int) -> int:
    """Return the largest limit per owner, at most KEPT_MAX, with which all owners together keep at most `most` notes.
    `counts`: how many notes each owner has."""
    there, left = sorted(counts), most
    for place, count in enumerate(there):
        part = left // (len(there) - place)
        if min(count, KEPT_MAX) > part:
            return max(part, 1)
        left -= min(count, KEPT_MAX)
    return KEPT_MAX


def of_rules(settings: Iterable[tuple[tuple[str, str], bytes]], act: str) -> list[tuple[str, str]]:
    """Return the (act, object) pairs to note for settings that are about to be saved. Settings of the kinds in PASSED
    are left out. `act`: the name of the act; if empty, it is made from each setting's kind."""
    acts = (
        (act or f"{kind} {'delete' if body == NIL else 'set'}", name)
        for (kind, name), body in settings
        if kind not in PASSED
    )
    return list(dict.fromkeys(acts))  # one act may save two settings of one name


def newest(
    settings: SettingTable, most: int, before: str, tenants: Collection[str] | None, fits: Callable[[Note], bool]
) -> Steps[list[tuple[str, Note]]]:
    """Return (date, note) of the `most` newest notes for which `fits` is true, newest first. `before`: only notes with
    earlier dates; empty: all. `tenants`: only notes that count against the limits of these tenants; None: all."""
    known, first = settings.all(AUDIT), list[tuple[str, Note]]()
    while piece := [*islice(known, IN_A_ROW)]:
        last = first[-1][0] if len(first) == most else ""
        dated = ((bare(each.name), each) for each in piece if tenants is None or tenant_of(each.name) in tenants)
        due = [(at, each) for at, each in dated if last < at and (not before or at < before) and not each.is_deleted]
        read = [(at, note) for at, each in due if fits(note := _decoder.decode(each.body))]
        if read:
            first = sorted(first + read, key=itemgetter(0), reverse=True)[:most]
        yield
    return first


async def stale(settings: SettingTable, now_ms: int) -> list[Setting]:
    """Return the notes to drop: notes that are too old, and notes above their tenant's limit. Lets other tasks run in
    between."""
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
    for tenant, notes in many.items():
        gone += await _surplus(notes, kept if tenant else KEPT_MAX)
    return gone


async def _surplus(notes: list[Setting], most: int) -> list[Setting]:
    """Return the notes of one tenant that exceed the limit `most`. They are the oldest notes of the most frequent
    combinations of token and act, so nobody can push out the note of one act by thousands of other acts."""
    notes.sort(key=attrgetter("name"))  # for one tenant this is by date
    alike = defaultdict[tuple[str, str], list[Setting]](list)
    for at in range(0, len(notes), IN_A_ROW):
        await trio.lowlevel.checkpoint()
        for setting in notes[at : at + IN_A_ROW]:
            note = _decoder.decode(setting.body)
            alike[note.token, note.act].append(setting)
    if len(alike) > most:
        return notes[:-most]
    part = _part_of_each(map(len, alike.values()), most)
    return [setting for several in alike.values() for setting in several[:-part]]


def is_old(setting: Setting, now_ms: int) -> bool:
    """Return whether a setting is a note that is older than KEPT_S."""
    return setting.kind == AUDIT and now_ms - setting.at_ms > KEPT_S * 1000
