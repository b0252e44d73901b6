"""Tenants over HTTP: how the jobs of each stand (/v1/tenants), how much it may push (/v1/quotas), its tokens
(/v1/tokens), and who changed what with them (/v1/audit)."""

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

NOTES, NOTES_MAX = 100, 1_000  # in one answer
CURSOR = re.compile(r"[0-9]{16}\.[0-9a-f]+")  # the name of a note: its date, and its place among those of that moment


# ------------------------------------------------------------ /v1/tenants


class Tenant(Struct, frozen=True, kw_only=True):
    """A tenant that has jobs, a quota or a pause. Each job counts in one of the eight states."""

    tenant: Annotated[str, Meta(description="empty: what is of no tenant")]
    types: Annotated[int, Meta(description="jobtypes that have jobs")]
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
    """When the job that is next of all its jobtypes was pushed; null: none is ready."""
    quota: Quota | None
    """Null: none."""
    put_off: Annotated[int, Meta(description="parents whose followers wait for the quota")]
    paused_types: Annotated[int, Meta(description="jobtypes that are paused")]
    paused_at: Instant | None
    """All of it is paused since."""
    barred: Annotated[bool, Meta(description="paused by who runs this jqd: no token of its own resumes it")]


class Tenants(Page, frozen=True):
    """One page of tenants, by name."""

    tenants: Sequence[Tenant]


class _Sum:
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
    # A page goes on behind a name, and there is none before "".
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
    for tenant in (*services.feature(Quotas).known, *map(tenant_of, services.halts.names)):
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
        put_off=services.control.owed(tenant),
        paused_types=of.paused,
        paused_at=iso(services.halts.since_ms.get(all_of(tenant), 0)),
        barred=is_barred(services, tenant),
    )


# ------------------------------------------------------------ /v1/quotas


class QuotaView(Quota, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=False):
    """A tenant's quota; null: no limit."""

    tenant: str
    put_off: int
    """Parents whose followers wait for this quota."""


class QuotaPage(Page, frozen=True):
    """One page of quotas."""

    quotas: Sequence[QuotaView]


async def put(parts: ApiContext, request: Request, tenant: str) -> QuotaView:
    """200 and the quota: all daemons know it within a second."""
    await quota_service.put(parts.services, tenant, read_body(request, Quota))
    return _quota(parts, tenant)


async def list_quotas(parts: ApiContext, request: Request) -> Response:
    """Quotas by tenant; a tenant's token reads its own."""
    wanted, known = page_wanted(request, ListQuery), parts.services.feature(Quotas).known
    found = ((tenant, tenant) for tenant in [*known] if quota_service.exists(parts.services, tenant))
    return await answer_page(
        request, wanted, QuotaPage, found, lambda one: _quota(parts, one) if one in known else None
    )


async def get(parts: ApiContext, request: Request, tenant: str) -> QuotaView:
    """The quota of a tenant; 404: none, or another tenant's token asks."""
    return _quota(parts, tenant)


async def delete(parts: ApiContext, request: Request, tenant: str) -> None:
    """Delete the quota of a tenant."""
    await quota_service.delete(parts.services, tenant)


def _quota(parts: ApiContext, tenant: str) -> QuotaView:
    if not quota_service.exists(parts.services, tenant):
        raise NotFound(f"there is no quota of tenant {tenant[:64]!r}")
    one = parts.services.feature(Quotas).known[tenant]
    return QuotaView(tenant=tenant, put_off=parts.services.control.owed(tenant), **structs.asdict(one))


# ------------------------------------------------------------ /v1/tokens


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


class Tokens(Page, frozen=True):
    """One page of valid tokens."""

    tokens: Sequence[Token]


class Revoked(Struct, frozen=True):
    """A token that is revoked at this daemon."""

    token_id: str
    urls: Sequence[str]
    """Of the other daemons; while the store is away send it to each."""


async def create(parts: ApiContext, request: Request) -> NewToken:
    """Make a token; only this answer shows it."""
    return _made(await tokens.create(parts.services, read_body(request, TokenWanted)))


async def derive(parts: ApiContext, request: Request) -> NewToken:
    """Derive a token from the one that asks, with the same rights or fewer. Whoever revokes that
    one revokes this one, too; only this answer shows it."""
    wanted = read_body(request, DerivedWanted) if request.body else DerivedWanted()
    return _made(await tokens.derive(parts.services, wanted))


async def list_tokens(parts: ApiContext, request: Request) -> Response:
    """200 {tokens, cursor}: those that may be used, the oldest first; for a master all of its tenant, for others theirs
    and what was derived from it."""
    wanted = page_wanted(request, ListQuery)
    found = ((f"{one[1].made_at_ms:016d}{one[0]}", one) for one in tokens.seen_by(parts.services))
    return await answer_page(request, wanted, Tokens, found, lambda one: Token(**_fields(*one)))


async def revoke(parts: ApiContext, request: Request, token_id: str) -> Revoked:
    """Revoke a token, and all derived from it: invalid here at once, at the other daemons within a second. Who is no
    master revokes his own, and what was derived from it."""
    await tokens.revoke(parts.services, token_id)
    others = parts.services.control.urls(request.peer, absent=True)[1:]  # this one is the first
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
    """The query of the audit."""

    token: str = ""
    """Its id."""
    act: str = ""
    """Stands in the act: `token`, `jobs delete`."""
    since: Date | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=NOTES_MAX, description=f"a whole number from 1 to {NOTES_MAX}")] = NOTES
    cursor: str = ""
    """That another page ended with; empty: from the newest on."""


class Note(Struct, frozen=True):
    """One act that was noted."""

    at: Instant | None
    token: str
    """Its id; `root`: the daemon's own; `master_key`: the setting."""
    role: str
    act: str
    what: str
    """Name, id or filter."""
    tenant: str
    """Whose that is."""


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
