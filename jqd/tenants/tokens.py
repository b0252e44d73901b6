"""Tokens: made, listed and revoked at any daemon, for all of them. A secret is shown once, to who makes it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from jqd.domain.errors import Conflict, Denied, Fault, Invalid, NotFound
from jqd.domain.job import Name, why_no_place
from jqd.domain.shares import PART, Share
from jqd.domain.tenant import IN_WORDS, NAME, annotate
from jqd.domain.tokens import NOBODYS, NOTE_LENGTH_MAX, TOKEN, Role, Token, body_of, draw, hash_of
from jqd.service.services import Services
from jqd.service.settings import MIB, expect_room, get_or_refresh, refresh, save

TOKENS = Share("tokens", 10_000)  # valid ones: every daemon keeps them in memory, some 3 MB
DERIVED = Share("derived tokens", 10_000, remedy="revoke some, or the token that they were derived from")
"""Apart: whoever has a token derives some, and must not take a master the room for his."""
# Of the tokens of all tenants, also revoked ones; a tenant has a tenth, some 3,600 tokens without scopes, and some
# 1,000 derived ones. Together a quarter of what all settings may take, so that tenants cannot fill these.
KEPT_BYTES_MAX, DERIVED_BYTES_MAX = 12 << 20, 4 << 20
SURE_BYTES = 16 << 10  # guaranteed to a tenant, whatever the others have: some fifty
SCOPES_MAX = 100
SCOPED = (Role.PUSH, Role.WORKER)
DAYS_S_MAX = 10 * 366 * 86_400.0  # ten years: longer is a slip of units

Scopes = Annotated[
    tuple[Name, ...],
    Meta(
        min_length=1,  # an empty array would mean all: a program that gathers none means no jobtype
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
    """None: of who asks."""
    scopes: Scopes = ()
    note: Note = ""
    expires_in: (
        Annotated[float, Meta(gt=0, le=DAYS_S_MAX, description="a number of seconds, up to ten years")] | None
    ) = None


class TokenMade(NamedTuple):
    """A new token."""

    id: str
    text: str
    """What its owner sends. It is nowhere else."""
    token: Token


async def create(services: Services, wish: TokenWanted) -> TokenMade:
    """Make a token; it is on disk when this returns, and holds at all daemons soon.

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
    """Raise Invalid for a note or scopes that no token may have."""
    if not note.isprintable() or not all(scope.isprintable() for scope in scopes):
        field = "note" if not note.isprintable() else "scopes"
        raise Invalid(f"{field} has printable characters only", [Fault(f"/{field}", "printable characters only")])
    if why := next(filter(None, map(why_no_place, scopes)), None):
        raise Invalid.at("/scopes", f"a jobtype {why}")
    if scopes and role not in SCOPED:
        why = f"scopes bound the roles {' and '.join(SCOPED)} only: a {role} sees all jobtypes; leave them out"
        raise Invalid.at("/scopes", why)


def seen_by(services: Services) -> Iterator[tuple[str, Token]]:
    """Valid tokens that the principal may see."""
    return ((token_id, one) for token_id, one in services.tokens if services.can_see_token(token_id))


async def revoke(services: Services, token_id: str) -> None:
    """Revoke a token: at this daemon when this returns, at the others once they learn of it.

    Raises NotFound, NotYet, JournalRefused.
    """
    token = await get_or_refresh(services, partial(_find, services, token_id))
    if token is None:
        raise NotFound(f"there is no token {token_id[:64]!r}")
    if token.revoked_at_ms:
        return
    if token.slot:
        await refresh(services)  # another daemon may have given its slot to another one

    def make() -> Mapping[tuple[str, str], bytes]:
        now_ms = services.clock.wall_ms()
        if services.tokens.get(token_id) is None:
            return {}  # meanwhile another one took its slot
        gone = msgspec.structs.replace(token, hash=NOBODYS, scopes=(), note="", revoked_at_ms=now_ms)
        return {(TOKEN, token.slot or token_id): body_of(gone)}

    await save(services, make, bounded=False, act="token revoke", what=annotate(token.tenant, token_id))


def _find(services: Services, token_id: str) -> Token | None:
    return services.tokens.get(token_id) if services.can_see_token(token_id) else None


def expect_token_room(services: Services, tenant: str, *, derived: bool = False) -> None:
    """Raise Conflict where a tenant cannot have one more token. `derived`: one that was derived from another."""
    share, bytes_max = (DERIVED, DERIVED_BYTES_MAX) if derived else (TOKENS, KEPT_BYTES_MAX)
    expect_room(share, tenant, (one.tenant for _, one in services.tokens if bool(one.parent) is derived))
    if services.principal.tokens_tenant:
        _expect_bytes(_kept_bytes(services, derived=derived), tenant, share.what, bytes_max)


def _expect_bytes(kept: Counter[str], tenant: str, what: str, bytes_max: int) -> None:
    """Raise Conflict for too many bytes of tokens.

    Tenants only: the tenant "" can make one, within the limit of all settings.
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
    """Return tenant → bytes of its tokens, or of its derived ones, that are not forgotten yet."""
    kept: Counter[str] = Counter()
    for setting in services.workers.settings.all(TOKEN):
        one = services.tokens.in_slot(setting.name) or services.tokens.get(setting.name)
        if one is not None and bool(one.parent) is derived:
            kept[one.tenant] += setting.size_bytes
    return kept
