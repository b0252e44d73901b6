"""Derived tokens: whoever has a token makes one that ends sooner, with the same rights or fewer, for a browser or a
colleague. It is valid while all above it are, so revoking one revokes what was derived from it (docs/adr/0054)."""

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from jqd.domain.errors import Conflict, Denied
from jqd.domain.tenant import annotate
from jqd.domain.tokens import DEPTH_MAX, MAY, TOKEN, Role, Token, body_of, draw, hash_of
from jqd.service.principal import is_within
from jqd.service.services import Services
from jqd.service.settings import save
from jqd.tenants.tokens import SCOPED, Note, Scopes, TokenMade, expect_sense, expect_token_room

TTL_S, TTL_S_MAX = 12 * 3_600.0, 30 * 86_400.0  # a working day; a month is the longest that a browser stays logged in
# Valid at once: from a token that was made, and as many again from what was derived from it, of which one has ten. Each
# has a slot, which the next one takes when it has ended: some 60 kB, however often somebody logs in and out.
SLOTS, BELOW_MAX = 100, 10


class DerivedWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A derived token as a client asks for it."""

    ttl: Annotated[
        float,
        Meta(gt=0, le=TTL_S_MAX, description=f"a number of seconds above 0, up to {TTL_S_MAX / 86_400:.0f} days"),
    ] = TTL_S
    note: Note = ""
    role: Role | None = None
    """None: that of who asks."""
    scopes: Scopes = ()
    replace_oldest: bool = False
    """Where as many are valid as may be: end the oldest that was derived from the same one with this note."""


async def derive(services: Services, wish: DerivedWanted) -> TokenMade:
    """Derive a token from that of who asks; it is on disk when this returns, and holds at all daemons soon.

    Raises Invalid, Denied, Conflict, NotYet, JournalRefused.
    """
    who = services.principal
    if not who.token:
        raise Conflict("this call came with no token, so there is none to derive one from; here it needs none")
    parent = services.tokens.get(who.token)
    if parent is None and not who.may(Role.MASTER):
        raise Denied("a key of the configuration derives no token: it would outlive a change of the key")
    role, scopes = wish.role or who.role, wish.scopes or who.scopes
    _expect_no_more(who.role, who.scopes, role, scopes)
    expect_sense(role, wish.note, scopes)
    now_ms = services.clock.wall_ms()
    until_ms = now_ms + round(wish.ttl * 1000)
    if parent is not None and parent.until_ms:
        until_ms = min(until_ms, parent.until_ms)
    token_id, secret, text = draw()
    token = Token(hash_of(secret), role, who.tenant, scopes, wish.note, now_ms, who.token, until_ms)

    def make() -> Mapping[tuple[str, str], bytes]:
        if parent is None:
            expect_token_room(services, who.tenant)
            return {(TOKEN, token_id): body_of(token)}
        slot = _find_slot(services, wish)
        before = services.tokens.in_slot(slot)
        kept_ms = before.last_ms if before is not None else 0
        body = replace(token, parent=who.token, token_id=token_id, slot=slot, kept_ms=kept_ms)
        return {(TOKEN, slot): body_of(body)}

    await save(services, make, act="token derive", what=annotate(who.tenant, token_id))
    return TokenMade(token_id, text, replace(token, parent=who.token if parent is not None else ""))


def _expect_no_more(role: Role, scopes: tuple[str, ...], wanted: Role, wanted_scopes: tuple[str, ...]) -> None:
    """Raise Denied for rights that a token of this role with these scopes has not."""
    if not MAY[wanted] <= MAY[role]:
        raise Denied(f"a token of the role {role} derives none of the role {wanted}, which may do more")
    if wanted in SCOPED and not is_within(wanted_scopes, scopes):
        raise Denied(f"this token is for {' '.join(scopes)} only; scopes name others")


def _find_slot(services: Services, wish: DerivedWanted) -> str:
    """Return the slot for a token that is derived from that of who asks. Raises Denied, Conflict."""
    tokens, token_id = services.tokens, services.principal.token
    line = [*tokens.line(token_id)]
    if len(line) > DEPTH_MAX:
        raise Denied(f"{DEPTH_MAX} tokens in a row were derived from another, which is as many as may be")
    slots = [f"{line[-1]}-{'-' * (len(line) > 1)}{number}" for number in range(SLOTS)]
    had = {slot: one for slot in slots if (one := tokens.in_slot(slot)) is not None}
    valid = {slot: one for slot, one in had.items() if not tokens.ended(one.token_id)}
    mine = {slot: one for slot, one in valid.items() if one.parent == token_id}
    try:
        _expect_room(services, line, valid.values())
    except Conflict:
        same = [slot for slot, one in mine.items() if one.note == wish.note]
        if not wish.replace_oldest or not same:
            raise
        return min(same, key=lambda slot: valid[slot].made_at_ms)
    # By chance, of as many as there are, for another daemon may choose one in the same moment: the later of two has it.
    return secrets.choice([slot for slot in slots if slot not in valid])


def _expect_room(services: Services, line: Sequence[str], valid: Collection[Token]) -> None:
    """Raise Conflict where the last token of a line derives no more. `valid`: those that share its slots."""
    below = [one for one in valid if line[-2:][0] in services.tokens.line(one.token_id)]
    most, whose = (SLOTS, line[-1]) if len(line) == 1 else (BELOW_MAX, line[-2])
    if len(below) >= most or len(valid) >= SLOTS:
        why = (
            f"{most} tokens that were derived from {whose} are valid, or {SLOTS} of all that were derived from such"
            " ones: revoke some, ask for shorter ones, or use another token"
        )
        raise Conflict.at("", why)
    if below or len(line) > 1:  # the first of each that was made is sure, whatever others of its tenant have
        expect_token_room(services, services.principal.tenant, derived=True)
