"""Actions on one job: retry it, run it now, edit it while it waits."""

from jqd.api.context import ApiContext
from jqd.api.decode import read_body
from jqd.api.large_bodies import answer_with
from jqd.api.v1.job_views import job_body
from jqd.http import Request, Response
from jqd.service import edit as service_edit
from jqd.service.edit import Edit
from jqd.store import JobView


async def retry(parts: ApiContext, request: Request, job_id: str) -> Response:
    """`POST /v1/jobs/{id}/retry`: a job that failed or was cancelled is tried again → 200 the job; 404, 409, 422.

    A body as of `PATCH` changes it in the same step.
    """
    wanted = read_body(request, Edit) if request.body else None
    return await _answer(parts, request, job_id, await service_edit.retry(parts.services, job_id, wanted))


async def run_now(parts: ApiContext, request: Request, job_id: str) -> Response:
    """`POST /v1/jobs/{id}/run-now`: it does not wait for its date any longer → 200 the job; 404, 409."""
    return await _answer(parts, request, job_id, await service_edit.run_now(parts.services, job_id))


async def edit(parts: ApiContext, request: Request, job_id: str) -> Response:
    """`PATCH /v1/jobs/{id}`: another priority, date or argument for a job that waits → 200 the job; 404, 409, 422."""
    wanted = read_body(request, Edit)
    return await _answer(parts, request, job_id, await service_edit.edit(parts.services, job_id, wanted))


async def _answer(parts: ApiContext, request: Request, job_id: str, view: JobView) -> Response:
    return await answer_with(parts, 200, job_body(parts.services, view, job_id), request.answer_language())
