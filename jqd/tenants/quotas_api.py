"""How much a tenant may push: PUT, GET and DELETE of /v1/quotas/{tenant}."""

from collections.abc import Sequence

from msgspec import Struct, structs

from jqd.api.context import ApiContext
from jqd.api.decode import read_body
from jqd.api.lists import answer_page, page_wanted
from jqd.domain.errors import NotFound
from jqd.http import Request, Response, answer
from jqd.tenants import quota_service
from jqd.tenants.quotas import Quota, Quotas


class QuotaView(Quota, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=False):
    """A tenant's quota; null: no limit."""

    tenant: str
    put_off: int
    """Parents whose followers wait for this quota."""


class QuotaPage(Struct, frozen=True):
    """One page of quotas."""

    quotas: Sequence[QuotaView]
    cursor: str
    """Where the next page begins; empty: there is none."""


async def put(parts: ApiContext, request: Request, tenant: str) -> Response:
    """200 and the quota: all daemons know it within a second."""
    await quota_service.put(parts.services, tenant, read_body(request, Quota))
    return answer(200, _row(parts, tenant), request.answer_language())


async def list_quotas(parts: ApiContext, request: Request) -> Response:
    """Quotas by tenant; a tenant's token reads its own."""
    wanted, known = page_wanted(request), parts.services.feature(Quotas).known
    found = ((tenant, tenant) for tenant in [*known] if quota_service.exists(parts.services, tenant))
    return await answer_page(request, wanted, QuotaPage, found, lambda one: _row(parts, one) if one in known else None)


async def get(parts: ApiContext, request: Request, tenant: str) -> Response:
    """The quota of a tenant; 404: none, or another tenant's token asks."""
    return answer(200, _row(parts, tenant), request.answer_language())


async def delete(parts: ApiContext, request: Request, tenant: str) -> Response:
    """Delete the quota of a tenant."""
    await quota_service.delete(parts.services, tenant)
    return Response(204)


def _row(parts: ApiContext, tenant: str) -> QuotaView:
    if not quota_service.exists(parts.services, tenant):
        raise NotFound(f"there is no quota of tenant {tenant[:64]!r}")
    one = parts.services.feature(Quotas).known[tenant]
    return QuotaView(tenant=tenant, put_off=parts.services.control.owed(tenant), **structs.asdict(one))
