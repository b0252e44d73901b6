"""Changes of one job, and of many: POST of /v1/jobs/{id}/… and of /v1/jobs/…."""

from jqd.api.context import ApiContext
from jqd.api.decode import read_body
from jqd.api.v1.job_views import job_body
from jqd.api.v1.responses import Job
from jqd.http import Request
from jqd.service import bulk
from jqd.service import edit as service_edit
from jqd.service.bulk import Clean, Filter, Tally
from jqd.service.edit import Edit


async def retry(parts: ApiContext, request: Request, job_id: str) -> Job:
    """`POST /v1/jobs/{id}/retry`: retry a job that failed or was cancelled → 200 the job; 404, 409, 422.

    A body like that of `PATCH` changes the job in the same step.
    """
    wanted = read_body(request, Edit) if request.body else None
    return job_body(parts.services, await service_edit.retry(parts.services, job_id, wanted), job_id)


async def run_now(parts: ApiContext, request: Request, job_id: str) -> Job:
    """`POST /v1/jobs/{id}/run-now`: let a job no longer wait for date or parents → 200 the job; 404, 409."""
    return job_body(parts.services, await service_edit.run_now(parts.services, job_id), job_id)


async def edit(parts: ApiContext, request: Request, job_id: str) -> Job:
    """`PATCH /v1/jobs/{id}`: change priority, date or argument of a job that waits → 200 the job; 404, 409, 422."""
    wanted = read_body(request, Edit)
    return job_body(parts.services, await service_edit.edit(parts.services, job_id, wanted), job_id)


async def cancel_many(parts: ApiContext, request: Request) -> Tally:
    """`POST /v1/jobs/cancel`: cancel jobs that have not ended. `changed` counts the cancels on disk."""
    return await bulk.cancel_many(parts.services, read_body(request, Filter))


async def retry_many(parts: ApiContext, request: Request) -> Tally:
    """`POST /v1/jobs/retry`: retry failed jobs, or cancelled ones if the filter says so."""
    return await bulk.retry_many(parts.services, read_body(request, Filter))


async def delete_many(parts: ApiContext, request: Request) -> Tally:
    """`POST /v1/jobs/delete`: delete failed jobs, or jobs of another final state if the filter says so."""
    return await bulk.delete_many(parts.services, read_body(request, Filter))


async def clean(parts: ApiContext, request: Request) -> Tally:
    """`POST /v1/jobs/clean`: delete jobs that succeeded or were cancelled before a date, never failed ones."""
    return await bulk.clean(parts.services, read_body(request, Clean))
