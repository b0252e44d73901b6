"""Who changed what: notes that are rules of a kind of their own, so that every daemon has them, and its journal.

Only what was done with a token is noted: of all else nobody knows who did it.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from jqd.words.rules import NIL, Rule, Rules
from jqd.words.tenant import bare, tenant_of

AUDIT = "audit"  # a kind of rule; its name begins with the date
KEPT_S = 90 * 86_400.0
KEPT_MAX = 10_000  # the newest: some 4 MB in each daemon
WHAT_LENGTH_MAX = 300  # characters of what was meant
PASSED = frozenset({AUDIT, "worker", "options", "fired", "view"})  # kinds that programs say again and again


class Note(msgspec.Struct, frozen=True, array_like=True):
    """One act. Never more of it than names."""

    at_ms: int
    token: str
    """The id of the token that it was done with."""
    role: str
    act: str
    """Like `schedule set`, `job cancel`."""
    what: str
    """The name, the id, or the filter."""
    tenant: str = ""
    """Whose that is."""


class Doer(NamedTuple):
    """Who does something, for its note."""

    token: str
    role: str
    tenant: str


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Note)


def note_of(doer: Doer, act: str, what: str, now_ms: int, place: int) -> tuple[tuple[str, str], bytes]:
    """Key and body of such a rule. `place`: among those of the same moment, from the same journal."""
    told = what if len(what) <= WHAT_LENGTH_MAX else f"{what[:WHAT_LENGTH_MAX]}…"
    note = Note(now_ms, doer.token, doer.role, act, bare(told), tenant_of(what) or doer.tenant)
    return (AUDIT, f"{now_ms:016d}.{place:x}"), _encoder.encode(note)


def of_rules(doer: Doer, said: Iterable[tuple[tuple[str, str], bytes]], act: str) -> list[tuple[str, str]]:
    """What is to be noted of rules that are about to be said: act and name of each."""
    return [
        (act or f"{kind} {'delete' if body == NIL else 'set'}", name)
        for (kind, name), body in said
        if kind not in PASSED
    ]


def notes(rules: Rules) -> list[tuple[str, Note]]:
    """Those that are known here, by their names, the newest first."""
    found = []
    for rule in sorted(rules.all(AUDIT), key=lambda rule: rule.name, reverse=True):
        try:
            found.append((rule.name, _decoder.decode(rule.body)))
        except msgspec.MsgspecError:
            continue  # of a newer jqd, which shows it
    return found


def stale(rules: Rules, now_ms: int) -> list[Rule]:
    """Those that nobody keeps any more."""
    found = sorted(rules.all(AUDIT), key=lambda rule: rule.name)
    over = len(found) - KEPT_MAX
    return [rule for n, rule in enumerate(found) if n < over or is_old(rule, now_ms)]


def is_old(rule: Rule, now_ms: int) -> bool:
    """Whether its time is over."""
    return rule.kind == AUDIT and now_ms - rule.at_ms > KEPT_S * 1000
