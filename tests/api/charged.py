"""A tenant with a quota, and what it pushes and retries."""

from typing import Any

from jqd.domain.job import Fate
from tests.api.edge import JSON, Answer
from tests.api.whole import Whole

ACME, OTHER = {"jqd-tenant": "acme"}, {"jqd-tenant": "other"}


async def put(edge: Whole, **limits: Any) -> None:
    told = await edge.call("PUT", "/v1/quotas/acme", limits, kind=JSON, accept=JSON)
    assert told.status == 200, told.body
    assert {name: value for name, value in told.body.items() if value} == {"tenant": "acme", **limits}


async def push(edge: Whole, jobs: int = 1, who: Any = ACME, **fields: Any) -> Answer:
    job = {"name": "mail", **fields}
    return await edge.call("POST", "/v1/jobs", [job] * jobs if jobs > 1 else job, accept=JSON, headers=who)


async def failed(edge: Whole, jobs: int) -> list[str]:
    """So many of the tenant's jobs that are dead."""
    told = await push(edge, jobs)
    await edge.apply()
    for held in await edge.claim("acme\x1fmail"):
        await edge.end(held, Fate.FAILED, jobtype="acme\x1fmail")
    edge.clock.advance(2)
    return [told.body["job_id"]] if jobs == 1 else list(told.body["job_ids"])


async def retry(edge: Whole, job_id: str, who: Any = ACME, **change: Any) -> Answer:
    return await edge.call("POST", f"/v1/jobs/{job_id}/retry", change or None, accept=JSON, headers=who)
