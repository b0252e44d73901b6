"""Tokens over HTTP: POST, GET and DELETE of /v1/tokens. A token's secret is shown once, to its maker."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from jqd.api.context import ApiContext
from jqd.api.decode import read_body
from jqd.api.lists import answer_page, page_wanted
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant
from jqd.domain.tokens import Role
from jqd.domain.tokens import Token as Kept
from jqd.http import Request, Response, answer
from jqd.tenants import tokens
from jqd.tenants.derived_tokens import DerivedWanted
from jqd.tenants.derived_tokens import derive as derive_token
from jqd.tenants.tokens import TokenMade, TokenWanted


class Token(Struct, frozen=True, kw_only=True):
    """A token, without its secret."""

    token_id: str
    role: Role
    tenant: str
    scopes: Sequence[str]
    """Its jobtypes; none: all."""
    note: str
    made_at: Instant | None
    made_by: str | None
    """The token that made it; `root`: the daemon's own."""
    expires_at: Instant | None
    derived_from: str | None
    """The token above it: it is valid no longer than that."""


class NewToken(Token, frozen=True, kw_only=True):
    """A new token, with its secret."""

    token: str
    """Sent as `Authorization: Bearer …`; shown only here."""


class Tokens(Struct, frozen=True):
    """One page of valid tokens."""

    tokens: Sequence[Token]
    cursor: str
    """Where the next page begins; empty: there is none."""


class Revoked(Struct, frozen=True):
    """A token that is revoked at this daemon."""

    token_id: str
    urls: Sequence[str]
    """Of the other daemons; while the store is away send it to each."""


async def create(parts: ApiContext, request: Request) -> Response:
    """Make a token; only this answer shows it."""
    return _made(request, await tokens.create(parts.services, read_body(request, TokenWanted)))


async def derive(parts: ApiContext, request: Request) -> Response:
    """Derive a token from the one that asks, with the same rights or fewer. Whoever revokes that
    one revokes this one, too; only this answer shows it."""
    wanted = read_body(request, DerivedWanted) if request.body else DerivedWanted()
    return _made(request, await derive_token(parts.services, wanted))


async def list_tokens(parts: ApiContext, request: Request) -> Response:
    """200 {tokens, cursor}: those that may be used, the oldest first; for a master all of its tenant, for others theirs
    and what was derived from it."""
    wanted = page_wanted(request)
    found = ((f"{one[1].made_at_ms:016d}{one[0]}", one) for one in tokens.seen_by(parts.services))
    return await answer_page(request, wanted, Tokens, found, lambda one: Token(**_fields(*one)))


async def revoke(parts: ApiContext, request: Request, token_id: str) -> Response:
    """Revoke a token, and all derived from it: invalid here at once, at the other daemons within a second. Who is no
    master revokes his own, and what was derived from it."""
    await tokens.revoke(parts.services, token_id)
    others = parts.services.control.urls(request.peer, absent=True)[1:]  # this one is the first
    return answer(200, Revoked(token_id, others), request.answer_language())


def _made(request: Request, made: TokenMade) -> Response:
    return answer(201, NewToken(**_fields(made.id, made.token), token=made.text), request.answer_language())


def _fields(token_id: str, one: Kept) -> dict[str, Any]:
    return {
        "token_id": token_id,
        "role": one.role,
        "tenant": one.tenant,
        "scopes": one.scopes,
        "note": one.note,
        "made_at": iso(one.made_at_ms),
        "made_by": one.made_by or None,
        "expires_at": iso(one.until_ms),
        "derived_from": one.parent or None,
    }
