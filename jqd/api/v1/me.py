"""GET /v1/me: the caller, as this daemon knows it."""

from collections.abc import Sequence

from msgspec import Struct

from jqd.api.context import ApiContext
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant
from jqd.http import Request


class Me(Struct, frozen=True):
    """The caller, and what its token may do."""

    role: str
    tenant: str
    """The tenant for which the call acts; empty: none."""
    scopes: Sequence[str]
    """The jobtypes that the token is for, each in full or as a prefix with a * at its end; none: all."""
    all_tenants: bool
    """Whether the token sees all tenants."""
    token_id: str | None
    """`root`: the daemon's own token; `master_key`, `client_key`: those of the settings; null: the call had no
    token."""
    note: str
    expires_at: Instant | None
    derived_from: str | None
    """The token that it was derived from."""
    tokens_required: bool
    """Whether this daemon asks for tokens; if not, a caller without one is a master."""


async def get(parts: ApiContext, request: Request) -> Me:
    """Role, tenant, scopes and expiry of the caller's token, and whether this daemon asks for tokens."""
    who = parts.services.principal
    kept = parts.services.tokens.get(who.token)
    return Me(
        role=who.role.value,
        tenant=who.tenant,
        scopes=who.scopes,
        all_tenants=who.sees_all,
        token_id=who.token or None,
        note=kept.note if kept is not None else "",
        expires_at=iso(kept.until_ms) if kept is not None else None,
        derived_from=(kept.parent or None) if kept is not None else None,
        tokens_required=parts.auth.required,
    )
