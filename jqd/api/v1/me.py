"""Who asks, as this daemon knows him: GET /v1/me."""

from collections.abc import Sequence

from msgspec import Struct

from jqd.api.context import ApiContext
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant
from jqd.http import Request


class Me(Struct, frozen=True):
    """Who asks, and what his token is good for."""

    role: str
    tenant: str
    """Whose it is; empty: nobody's in particular."""
    scopes: Sequence[str]
    """The jobtypes that it is for, each as it is or with a * at its end; none: all."""
    all_tenants: bool
    """Whether it sees what is of every tenant."""
    token_id: str | None
    """`root`: the daemon's own; `master_key`, `client_key`: the settings; null: the call came with none."""
    note: str
    expires_at: Instant | None
    derived_from: str | None
    """The token above it."""
    tokens_required: bool
    """Whether this daemon asks for tokens; else who comes with none is a master."""


async def get(parts: ApiContext, request: Request) -> Me:
    """Role, tenant, scopes and end of the token, and whether this daemon asks for one at all."""
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
