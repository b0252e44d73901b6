"""The HTTP routes of tenants: their jobs (/v1/tenants), quotas (/v1/quotas), tokens (/v1/tokens), and the audit of who
changed what with a token (/v1/audit)."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from jqd.api.context import ApiContext
from jqd.api.decode import read_body, read_query
from jqd.api.lists import ListQuery, Page, answer_page, page_wanted
from jqd.api.message import alike, answer_rows
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant
from jqd.domain import audit
from jqd.domain.array_split import Steps, in_steps
from jqd.domain.errors import NotFound
from jqd.domain.job import State
from jqd.domain.job_spec import Date
from jqd.domain.pauses import all_of
from jqd.domain.tenant import tenant_of
from jqd.domain.tokens import Role
from jqd.domain.tokens import Token as Kept
from jqd.http import Request, Response
from jqd.service.job_filter import instant_of
from jqd.service.listing import no_cursor
from jqd.service.pauses import is_barred
from jqd.service.rates import PerMinute, Rates
from jqd.service.services import Services
from jqd.store import TypeView
from jqd.tenants import quota_service, tokens
from jqd.tenants.quotas import Quota, Quotas
from jqd.tenants.tokens import DerivedWanted, TokenMade, TokenWanted

NOTES, NOTES_MAX = 100, 1_000  # in one answer, by default and at most
CURSOR = re.compile(r"[0-9]{16}\.[0-9a-f]+")  # the name of a note: its date, and its place among notes with that date


# ------------------------------------------------------------ /v1/tenants


class Tenant(Struct, frozen=True, kw_only=True):
    """A tenant that has jobs, a quota or a pause, or is the token's own. Each job counts in one of the eight states."""

    tenant: Annotated[str, Meta(description="empty for what belongs to no tenant")]
    types: Annotated[int, Meta(description="the number of jobtypes that have jobs")]
    waiting: int
    running: int
    scheduled: int
    retrying: int
    succeeded: int
    failed: Annotated[int, Meta(description="dead")]
    cancelled: int
    blocked: int
    per_minute: PerMinute
    oldest_at: Instant | None
    """When the oldest of the jobs that come next in its jobtypes was pushed; null if none is ready to run."""
    quota: Quota | None
    """Null if it has none."""
    put_off: Annotated[int, Meta(description="the number of parents whose followers wait for the quota")]
    paused_types: Annotated[int, Meta(description="the number of paused jobtypes")]
    paused_at: Instant | None
    """Since when the whole tenant is paused; null if it is not."""
    barred: Annotated[
        bool, Meta(description="paused by whoever runs this jqd, so that none of its own tokens resumes it")
    ]


class Tenants(Page, frozen=True):
    """One page of tenants, by name."""

    tenants: Sequence[Tenant]


class _Sum:
    """Adds up numbers over all jobtypes of a tenant."""

    def __init__(self) -> None:
        self.types = 0
        self.states: Counter[str] = Counter()
        self.rates = [0.0] * len(PerMinute.__struct_fields__)
        self.oldest_ms = 0
        self.paused = 0

    def add(self, view: TypeView, rates: PerMinute) -> None:
        self.types += 1
        self.states.update({state.value: getattr(view.counts, state.value) for state in State})
        self.rates = [have + more for have, more in zip(self.rates, structs.astuple(rates), strict=True)]
        if view.oldest_ms:
            self.oldest_ms = min(self.oldest_ms or view.oldest_ms, view.oldest_ms)


async def list_tenants(parts: ApiContext, request: Request) -> Response:
    """`GET /v1/tenants?limit&cursor` → 200 {tenants, cursor}, by name; a tenant's token sees its own row.

    Raises Invalid, StoreAway.
    """
    wanted, services = page_wanted(request, ListQuery), parts.services
    views = await services.store.list_types()
    sums = await in_steps(_added(services, views), request.breathe)
    # A page continues after a name, and no name comes before "", so each has a slash before it.
    found = ((f"/{tenant}", tenant) for tenant in [*sums] if services.principal.can_see(tenant))
    return await answer_page(request, wanted, Tenants, found, lambda tenant: _tenant(services, tenant, sums[tenant]))


def _added(services: Services, views: Sequence[TypeView]) -> Steps[dict[str, _Sum]]:
    sums: dict[str, _Sum] = {}
    for view in views:
        sums.setdefault(tenant_of(view.jobtype), _Sum()).add(view, services.feature(Rates).of(view))
        yield
    for jobtype in [*services.pauses.names]:
        sums.setdefault(tenant_of(jobtype), _Sum()).paused += 1
        yield
    own = () if services.principal.sees_all else (services.principal.tenant,)
    for tenant in (*own, *services.feature(Quotas).known, *map(tenant_of, services.halts.names)):
        sums.setdefault(tenant, _Sum())
        yield
    return sums


def _tenant(services: Services, tenant: str, of: _Sum) -> Tenant:
    return Tenant(
        tenant=tenant,
        types=of.types,
        **{state.value: of.states[state.value] for state in State},
        per_minute=PerMinute(*(round(rate, 3) for rate in of.rates)),
        oldest_at=iso(of.oldest_ms),
        quota=services.feature(Quotas).known.get(tenant),
        put_off=services.control.waiting_parents(tenant),
        paused_types=of.paused,
        paused_at=iso(services.halts.since_ms.get(all_of(tenant), 0)),
        barred=is_barred(services, tenant),
    )


# ------------------------------------------------------------ /v1/quotas


class QuotaView(Quota, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=False):
    """A tenant's quota; a field that is null sets no limit."""

    tenant: str
    put_off: int
    """The number of parents whose followers wait for this quota."""


class QuotaPage(Page, frozen=True):
    """One page of quotas."""

    quotas: Sequence[QuotaView]


async def put(parts: ApiContext, request: Request, tenant: str) -> QuotaView:
    """Set a tenant's quota. All daemons know it within a second."""
    await quota_service.put(parts.services, tenant, read_body(request, Quota))
    return _quota(parts, tenant)


async def list_quotas(parts: ApiContext, request: Request) -> Response:
    """List the quotas by tenant; a tenant's token sees only its own."""
    wanted, known = page_wanted(request, ListQuery), parts.services.feature(Quotas).known
    found = ((tenant, tenant) for tenant in [*known] if quota_service.exists(parts.services, tenant))
    return await answer_page(
        request, wanted, QuotaPage, found, lambda one: _quota(parts, one) if one in known else None
    )


async def get(parts: ApiContext, request: Request, tenant: str) -> QuotaView:
    """Return a tenant's quota; 404 if it has none, or if the token belongs to another tenant."""
    return _quota(parts, tenant)


async def delete(parts: ApiContext, request: Request, tenant: str) -> None:
    """Delete the quota of a tenant."""
    await quota_service.delete(parts.services, tenant)


def _quota(parts: ApiContext, tenant: str) -> QuotaView:
    if not quota_service.exists(parts.services, tenant):
        raise NotFound(f"there is no quota of tenant {tenant[:64]!r}")
    one = parts.services.feature(Quotas).known[tenant]
    return QuotaView(tenant=tenant, put_off=parts.services.control.waiting_parents(tenant), **structs.asdict(one))


# ------------------------------------------------------------ /v1/tokens


class Token(Struct, frozen=True, kw_only=True):
    """A token, without its secret."""

    token_id: str
    role: Role
    tenant: str
    scopes: Sequence[str]
    """The jobtypes that it is limited to; empty for all."""
    note: str
    made_at: Instant | None
    made_by: str | None
    """The id of the token that made it; `root` is the daemon's own token."""
    expires_at: Instant | None
    derived_from: str | None
    """The id of the token that it was derived from, which it never outlives; null if it was not derived."""


class NewToken(Token, frozen=True, kw_only=True):
    """A new token, with its secret."""

    token: str
    """The secret, which clients send as `Authorization: Bearer …`; no other answer shows it."""


class Tokens(Page, frozen=True):
    """One page of valid tokens."""

    tokens: Sequence[Token]


class Revoked(Struct, frozen=True):
    """The answer to a revocation, after which the token is invalid at this daemon."""

    token_id: str
    urls: Sequence[str]
    """The URLs of the other daemons; while the store cannot be reached, send the request to each of them."""


async def create(parts: ApiContext, request: Request) -> NewToken:
    """Make a token; only this answer shows it."""
    return _made(await tokens.create(parts.services, read_body(request, TokenWanted)))


async def derive(parts: ApiContext, request: Request) -> NewToken:
    """Derive a new token, with the same rights or fewer, from the request's token. Revoking the request's token revokes
    the new one, too. Only this answer shows the new token."""
    wanted = read_body(request, DerivedWanted) if request.body else DerivedWanted()
    return _made(await tokens.derive(parts.services, wanted))


async def list_tokens(parts: ApiContext, request: Request) -> Response:
    """List the valid tokens, the oldest first. A master sees all tokens of its tenant; any other token sees itself and
    those derived from it."""
    wanted = page_wanted(request, ListQuery)
    found = ((f"{one[1].made_at_ms:016d}{one[0]}", one) for one in tokens.seen_by(parts.services))
    return await answer_page(request, wanted, Tokens, found, lambda one: Token(**_fields(*one)))


async def revoke(parts: ApiContext, request: Request, token_id: str) -> Revoked:
    """Revoke a token, and all tokens derived from it. They are invalid at this daemon at once, and at the others within
    a second. A token that is not a master's can revoke only itself and those derived from it."""
    await tokens.revoke(parts.services, token_id)
    others = parts.services.control.urls(request.peer, absent=True)[1:]  # the first is this daemon's
    return Revoked(token_id, others)


def _made(made: TokenMade) -> NewToken:
    return NewToken(**_fields(made.id, made.token), token=made.text)


def _fields(token_id: str, one: Kept) -> dict[str, Any]:
    return alike(
        Token,
        one,
        token_id=token_id,
        made_at=iso(one.made_at_ms),
        made_by=one.made_by or None,
        expires_at=iso(one.until_ms),
        derived_from=one.parent or None,
    )


# ------------------------------------------------------------ /v1/audit


class AuditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of `GET /v1/audit`, the log of who changed what."""

    token: str = ""
    """The id of the token."""
    act: str = ""
    """A text that the name of the act contains, like `token` or `jobs delete`."""
    since: Date | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=NOTES_MAX, description=f"a whole number from 1 to {NOTES_MAX}")] = NOTES
    cursor: str = ""
    """The cursor at the end of the page before; empty for the newest notes."""


class Note(Struct, frozen=True):
    """One act that the audit noted."""

    at: Instant | None
    token: str
    """The id of the token; `root` is the daemon's own token, `master_key` the key in the configuration."""
    role: str
    act: str
    what: str
    """The name or id of what was changed, or the filter that selected it."""
    tenant: str
    """The tenant that it belongs to."""


class Notes(Struct, frozen=True):
    """A page of notes, the newest first."""

    notes: Sequence[Note]
    cursor: str


async def list_notes(parts: ApiContext, request: Request) -> Response:
    """`GET /v1/audit?token&act&since&limit&cursor` → 200 {notes, cursor}: who changed what with a token.

    Raises Invalid.
    """
    query = read_query(request, AuditQuery)
    if query.cursor and CURSOR.fullmatch(query.cursor) is None:
        raise no_cursor(query.cursor)
    since_ms = 0 if query.since is UNSET else instant_of("since", query.since)
    who = parts.services.principal

    def fits(note: audit.Note) -> bool:
        is_asked = query.token in ("", note.token) and query.act in note.act
        return is_asked and who.can_see(note.tenant) and note.at_ms >= since_ms

    tenants = None if who.sees_all else {"", who.tenant}
    steps = audit.newest(parts.services.workers.settings, query.limit, query.cursor, tenants, fits)
    fit = await in_steps(steps, request.breathe)
    rows = (Note(iso(one.at_ms), one.token, one.role, one.act, one.what, one.tenant) for _, one in fit)
    return await answer_rows(request, Notes([], fit[-1][0] if len(fit) == query.limit else ""), rows)
