"""How much a tenant may push: PUT, GET and DELETE of /v1/quotas/{tenant}."""

from collections.abc import Sequence

from msgspec import Struct

from jqd.api.context import ApiContext
from jqd.api.decode import read_body
from jqd.api.lists import answer_page
from jqd.api.message import ApiRequest, ApiResponse, answer
from jqd.domain.errors import NotFound
from jqd.service import quotas
from jqd.service.quotas import Allowance


class Quota(Struct, frozen=True):
    """What one may push; null: as much as it likes."""

    tenant: str
    rate: float | None
    """Jobs a second."""
    bytes: float | None
    """Of jobs as they are pushed, a second."""
    queued: int | None
    """Jobs that wait, those with a date among them."""
    in_flight: int | None
    """Jobs that have not ended."""
    dead: int | None
    """Jobs that failed, and are kept until somebody retries or deletes them: who has so many pushes no more."""
    put_off: int
    """Of the tenant's jobs those with others that are to follow them, and wait for this quota."""


class Quotas(Struct, frozen=True):
    """One page of them."""

    quotas: Sequence[Quota]
    cursor: str
    """For those that follow; empty: there are no more."""


async def put(parts: ApiContext, request: ApiRequest, tenant: str) -> ApiResponse:
    """200 and the quota: it holds at this daemon, and at the others within a second."""
    await quotas.put(parts.services, tenant, read_body(request, Allowance))
    return answer(200, _row(parts, tenant), request.answer_language())


async def list_quotas(parts: ApiContext, request: ApiRequest) -> ApiResponse:
    """200 {quotas, cursor}, by tenant: to who is of one his own."""
    known = parts.services.quotas.known
    found = ((tenant, tenant) for tenant in known if quotas.exists(parts.services, tenant))
    return await answer_page(request, Quotas, found, lambda one: _row(parts, one) if one in known else None)


async def get(parts: ApiContext, request: ApiRequest, tenant: str) -> ApiResponse:
    """200 and the quota of a tenant; 404 where it has none, or it is not the asker's."""
    return answer(200, _row(parts, tenant), request.answer_language())


async def delete(parts: ApiContext, request: ApiRequest, tenant: str) -> ApiResponse:
    """204: it may push as much as it likes."""
    await quotas.delete(parts.services, tenant)
    return ApiResponse(204)


def _row(parts: ApiContext, tenant: str) -> Quota:
    if not quotas.exists(parts.services, tenant):
        raise NotFound(f"there is no quota of tenant {tenant[:64]!r}")
    one = parts.services.quotas.known[tenant]
    return Quota(tenant, one.rate, one.bytes, one.queued, one.in_flight, one.dead, parts.services.control.owed(tenant))
