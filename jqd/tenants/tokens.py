"""Makes, lists and revokes tokens, at any daemon and for all of them. A secret is shown only once, in the answer to the
call that makes the token.

Whoever has a token can derive others from it, for a browser or a colleague. A *derived* token has the same rights or
fewer and ends sooner. It is valid only while the token that it was derived from is, so revoking a token revokes all
that were derived from it, directly or not (docs/adr/0054).
"""

import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from jqd.domain.errors import Conflict, Denied, Fault, Invalid, NotFound
from jqd.domain.job import Name, why_no_place
from jqd.domain.shares import PART, Share
from jqd.domain.tenant import IN_WORDS, NAME, annotate
from jqd.domain.tokens import DEPTH_MAX, MAY, NOBODYS, NOTE_LENGTH_MAX, TOKEN, Role, Token, body_of, draw, hash_of
from jqd.service.principal import is_within
from jqd.service.services import Services
from jqd.service.settings import MIB, expect_room, get_or_refresh, refresh, save

TOKENS = Share("tokens", 10_000)  # valid ones: every daemon keeps them in memory, some 3 MB
DERIVED = Share("derived tokens", 10_000, remedy="revoke some, or the token that they were derived from")
"""Derived tokens have a limit of their own: anyone with a token can derive some, and must not use up the limit for
tokens that masters make."""
# The bytes of all tenants' tokens, including revoked ones. One tenant may have a tenth: some 3,600 tokens without
# scopes, and some 1,000 derived ones. The two are a quarter of what all settings may take, so tenants cannot fill that.
KEPT_BYTES_MAX, DERIVED_BYTES_MAX = 12 << 20, 4 << 20
SURE_BYTES = 16 << 10  # what each tenant may have (some fifty tokens), whatever the others have
SCOPES_MAX = 100
SCOPED = (Role.PUSH, Role.WORKER)
DAYS_S_MAX = 10 * 366 * 86_400.0  # ten years: whoever asks for more has mistaken the unit

Scopes = Annotated[
    tuple[Name, ...],
    Meta(
        min_length=1,  # an empty array would mean all jobtypes, and a program that sends one probably means none
        max_length=SCOPES_MAX,
        description=f"1 to {SCOPES_MAX} jobtypes, each as it is or with a * at its end; leave it out for all",
    ),
]

Note = Annotated[str, Meta(max_length=NOTE_LENGTH_MAX, description=f"text of up to {NOTE_LENGTH_MAX} characters")]


class TokenWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token as a client asks for it."""

    role: Role
    tenant: (
        Annotated[
            str,
            Meta(
                pattern=rf"^({NAME})?$(?!\n)",
                description=f"a tenant ({IN_WORDS}), or empty for none",
            ),
        ]
        | None
    ) = None
    """None: the tenant of the request's token."""
    scopes: Scopes = ()
    note: Note = ""
    expires_in: (
        Annotated[float, Meta(gt=0, le=DAYS_S_MAX, description="a number of seconds, up to ten years")] | None
    ) = None


class TokenMade(NamedTuple):
    """A new token, with its id and with the text that its owner sends."""

    id: str
    text: str
    """The token's text, which its owner sends with requests; it is stored nowhere."""
    token: Token


async def create(services: Services, wish: TokenWanted) -> TokenMade:
    """Make a token. It is on disk when this returns, and valid at all daemons soon afterwards.

    Raises Invalid, Denied, Conflict, NotYet, JournalRefused.
    """
    who = services.principal
    expect_sense(wish.role, wish.note, wish.scopes)
    tenant = who.tenant if wish.tenant is None else wish.tenant
    if not who.can_see(tenant):
        raise Denied(f"a token of tenant {who.tenant!r} makes tokens of that tenant only")
    now_ms = services.clock.wall_ms()
    token_id, secret, text = draw()
    token = Token(
        hash_of(secret),
        wish.role,
        tenant,
        wish.scopes,
        wish.note,
        now_ms,
        who.token,
        now_ms + round(wish.expires_in * 1000) if wish.expires_in else 0,
    )

    def make() -> Mapping[tuple[str, str], bytes]:
        expect_token_room(services, tenant)
        return {(TOKEN, token_id): body_of(token)}

    await save(services, make, act="token create", what=annotate(tenant, token_id))
    return TokenMade(token_id, text, token)


def expect_sense(role: Role, note: str, scopes: Sequence[str]) -> None:
    """Raise Invalid if a token cannot have this note or these scopes, for example scopes with a role that sees all
    jobtypes."""
    if not note.isprintable() or not all(scope.isprintable() for scope in scopes):
        field = "note" if not note.isprintable() else "scopes"
        raise Invalid(f"{field} has printable characters only", [Fault(f"/{field}", "printable characters only")])
    if why := next(filter(None, map(why_no_place, scopes)), None):
        raise Invalid.at("/scopes", f"a jobtype {why}")
    if scopes and role not in SCOPED:
        why = f"scopes bound the roles {' and '.join(SCOPED)} only: a {role} sees all jobtypes; leave them out"
        raise Invalid.at("/scopes", why)


def seen_by(services: Services) -> Iterator[tuple[str, Token]]:
    """Yield (id, token) for each valid token that the principal may see."""
    return ((token_id, one) for token_id, one in services.tokens if services.can_see_token(token_id))


async def revoke(services: Services, token_id: str) -> None:
    """Revoke a token. It is invalid at this daemon when this returns, and at the others once they learn of it.

    Raises NotFound, NotYet, JournalRefused.
    """
    tokens, can_see = services.tokens, services.can_see_token
    token = await get_or_refresh(services, lambda: tokens.get(token_id) if can_see(token_id) else None)
    if token is None:
        raise NotFound(f"there is no token {token_id[:64]!r}")
    if token.revoked_at_ms:
        return
    if token.slot:
        await refresh(services)  # another daemon may have used its slot for another token

    def make() -> Mapping[tuple[str, str], bytes]:
        now_ms = services.clock.wall_ms()
        if services.tokens.get(token_id) is None:
            return {}  # another token has taken its slot meanwhile
        gone = msgspec.structs.replace(token, hash=NOBODYS, scopes=(), note="", revoked_at_ms=now_ms)
        return {(TOKEN, token.slot or token_id): body_of(gone)}

    await save(services, make, bounded=False, act="token revoke", what=annotate(token.tenant, token_id))


def expect_token_room(services: Services, tenant: str, *, derived: bool = False) -> None:
    """Raise Conflict if a tenant already has as many tokens, or bytes of tokens, as it may have. `derived`: whether the
    new token is derived from another; such tokens have limits of their own."""
    share, bytes_max = (DERIVED, DERIVED_BYTES_MAX) if derived else (TOKENS, KEPT_BYTES_MAX)
    expect_room(share, tenant, (one.tenant for _, one in services.tokens if bool(one.parent) is derived))
    if services.principal.tokens_tenant:
        _expect_bytes(_kept_bytes(services, derived=derived), tenant, share.what, bytes_max)


def _expect_bytes(kept: Counter[str], tenant: str, what: str, bytes_max: int) -> None:
    """Raise Conflict if a tenant's tokens, or those of all tenants together, take too many bytes.

    Tokens of no tenant are not counted: only the limit for all settings applies to them.
    """
    part = bytes_max // PART
    have, most, whose = kept[tenant], part, f"tenant {tenant!r}"
    if SURE_BYTES <= have < most:
        have, most, whose = kept.total() - kept[""], bytes_max - part, 'all tenants but ""'
    if have >= most:
        why = (
            f"the {what} of {whose} take more than {most / MIB:.1f} MiB, with those that are over or revoked; those"
            " that expire are forgotten an hour after that, others that are revoked are kept. Who runs jqd can make"
            " more, with a token of no tenant"
        )
        raise Conflict.at("", why)


def _kept_bytes(services: Services, *, derived: bool) -> Counter[str]:
    """Return tenant → bytes of its tokens that are still stored. `derived`: count only derived tokens, else only tokens
    that are not derived."""
    kept: Counter[str] = Counter()
    for setting in services.workers.settings.all(TOKEN):
        one = services.tokens.in_slot(setting.name) or services.tokens.get(setting.name)
        if one is not None and bool(one.parent) is derived:
            kept[one.tenant] += setting.size_bytes
    return kept


TTL_S, TTL_S_MAX = 12 * 3_600.0, 30 * 86_400.0  # a working day; a month is the longest that a browser stays logged in
# How many derived tokens are valid at the same time: SLOTS that were derived directly from a token that was made, and
# SLOTS more that were derived from those, of which each may have BELOW_MAX. Each is stored in a slot, which another one
# takes when it has ended. So they take some 60 kB, however often somebody logs in and out.
SLOTS, BELOW_MAX = 100, 10


class DerivedWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A derived token as a client asks for it."""

    ttl: Annotated[
        float,
        Meta(gt=0, le=TTL_S_MAX, description=f"a number of seconds above 0, up to {TTL_S_MAX / 86_400:.0f} days"),
    ] = TTL_S
    note: Note = ""
    role: Role | None = None
    """None: the role of the request's token."""
    scopes: Scopes = ()
    replace_oldest: bool = False
    """At the limit of valid derived tokens: end the oldest one that has this note and the same parent token."""


async def derive(services: Services, wish: DerivedWanted) -> TokenMade:
    """Derive a new token from the request's token. The new token is on disk when this returns, and valid at all daemons
    soon afterwards.

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
    """Raise Denied if the wanted role and scopes allow more than `role` and `scopes` do."""
    if not MAY[wanted] <= MAY[role]:
        raise Denied(f"a token of the role {role} derives none of the role {wanted}, which may do more")
    if wanted in SCOPED and not is_within(wanted_scopes, scopes):
        raise Denied(f"this token is for {' '.join(scopes)} only; scopes name others")


def _find_slot(services: Services, wish: DerivedWanted) -> str:
    """Return the slot (name of a setting) in which to store a new token that is derived from the request's token.
    Raises Denied, Conflict."""
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
    # A random one, since another daemon may choose one in the same moment; if both choose the same, the later one wins.
    return secrets.choice([slot for slot in slots if slot not in valid])


def _expect_room(services: Services, line: Sequence[str], valid: Collection[Token]) -> None:
    """Raise Conflict if no more tokens can be derived from the request's token.

    `line`: ids of the request's token and of the tokens from which it was derived. `valid`: the valid tokens in the
    slots from which the new token's slot is chosen.
    """
    below = [one for one in valid if line[-2:][0] in services.tokens.line(one.token_id)]
    most, whose = (SLOTS, line[-1]) if len(line) == 1 else (BELOW_MAX, line[-2])
    if len(below) >= most or len(valid) >= SLOTS:
        why = (
            f"{most} tokens that were derived from {whose} are valid, or {SLOTS} of all that were derived from such"
            " ones: revoke some, ask for shorter ones, or use another token"
        )
        raise Conflict.at("", why)
    if below or len(line) > 1:  # each token that was made may have a first derived one, whatever the others have
        expect_token_room(services, services.principal.tenant, derived=True)
