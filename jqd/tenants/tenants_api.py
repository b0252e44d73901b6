"""How the jobs of each tenant stand, added up over its jobtypes: GET of /v1/tenants."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from jqd.api.context import ApiContext
from jqd.api.lists import answer_page, page_wanted
from jqd.api.v1.job_views import iso
from jqd.api.v1.jobtypes import PerMinute
from jqd.api.v1.responses import Instant
from jqd.domain.array_split import Steps, in_steps
from jqd.domain.job import State
from jqd.domain.pauses import all_of
from jqd.domain.tenant import tenant_of
from jqd.http import Request, Response
from jqd.service import Services
from jqd.service.pauses import is_barred
from jqd.service.rates import Rates
from jqd.store import TypeView
from jqd.tenants.quotas import Quota, Quotas


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


class Tenants(Struct, frozen=True):
    """One page of tenants, by name."""

    tenants: Sequence[Tenant]
    cursor: str
    """Where the next page begins; empty: there is none."""


class _Sum:
    def __init__(self) -> None:
        self.types = 0
        self.states: Counter[str] = Counter()
        self.rates = [0.0] * len(PerMinute.__struct_fields__)
        self.oldest_ms = 0
        self.paused = 0

    def add(self, view: TypeView, rates: Sequence[float]) -> None:
        self.types += 1
        self.states.update({state.value: getattr(view.counts, state.value) for state in State})
        self.rates = [have + more for have, more in zip(self.rates, rates, strict=True)]
        if view.oldest_ms:
            self.oldest_ms = min(self.oldest_ms or view.oldest_ms, view.oldest_ms)


async def list_tenants(parts: ApiContext, request: Request) -> Response:
    """`GET /v1/tenants?limit&cursor` → 200 {tenants, cursor}, by name; a tenant's token sees its own row.

    Raises Invalid, StoreAway.
    """
    wanted, services = page_wanted(request), parts.services
    views = await services.store.list_types()
    sums = await in_steps(_added(services, views), request.breathe)
    # A page goes on behind a name, and there is none before "".
    found = ((f"/{tenant}", tenant) for tenant in [*sums] if services.principal.can_see(tenant))
    return await answer_page(request, wanted, Tenants, found, lambda tenant: _row(services, tenant, sums[tenant]))


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


def _row(services: Services, tenant: str, of: _Sum) -> Tenant:
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
