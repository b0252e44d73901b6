"""Derived tokens: whoever has a token makes one that ends sooner, with the same rights or fewer, for a browser or a
colleague. It is valid while all above it are, so revoking one revokes what was derived from it (docs/adr/0054)."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from jqd.domain.errors import Conflict, Denied, Fault
from jqd.domain.tenant import annotate
from jqd.domain.tokens import DEPTH_MAX, MAY, TOKEN, Role, Token, body_of, draw, hash_of
from jqd.service.principal import is_within
from jqd.service.services import Services
from jqd.service.settings import save
from jqd.tenants.tokens import SCOPED, Note, Scopes, TokenMade, expect_sense, expect_token_room

TTL_S, TTL_S_MAX = 12 * 3_600.0, 30 * 86_400.0  # a working day; a month is the longest that a browser stays logged in
# Derived from one token, also by way of others, until they are forgotten, an hour after their end: some 25 kB. Each is
# a setting, so a token that only pushes must not fill what all settings may take.
DERIVED_MAX = 100


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
    token = Token(
        hash_of(secret),
        role,
        who.tenant,
        scopes,
        wish.note,
        now_ms,
        who.token,
        until_ms,
        parent=who.token if parent is not None else "",
    )

    def make() -> Mapping[tuple[str, str], bytes]:
        if token.parent:
            _expect_derivable(services, token.parent)
        expect_token_room(services, who.tenant)
        return {(TOKEN, token_id): body_of(token)}

    await save(services, make, act="token derive", what=annotate(who.tenant, token_id))
    return TokenMade(token_id, text, token)


def _expect_no_more(role: Role, scopes: tuple[str, ...], wanted: Role, wanted_scopes: tuple[str, ...]) -> None:
    """Raise Denied for rights that a token of this role with these scopes has not."""
    if not MAY[wanted] <= MAY[role]:
        raise Denied(f"a token of the role {role} derives none of the role {wanted}, which may do more")
    if wanted in SCOPED and not is_within(wanted_scopes, scopes):
        raise Denied(f"this token is for {' '.join(scopes)} only; scopes name others")


def _expect_derivable(services: Services, token_id: str) -> None:
    """Raise Denied below too many tokens, Conflict where too many were derived."""
    line = [*services.tokens.line(token_id)]
    if len(line) > DEPTH_MAX:
        raise Denied(f"{DEPTH_MAX} tokens in a row were derived from another, which is as many as may be")
    first = line[-1]
    if sum(first in services.tokens.line(one) for one, _ in services.tokens.derived()) >= DERIVED_MAX:
        why = (
            f"{DERIVED_MAX} tokens were derived from {first}; each counts until an hour after its end, also revoked:"
            " use those that are there, ask for shorter ones, or use another token"
        )
        raise Conflict(why, [Fault("", why)])
