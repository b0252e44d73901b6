"""Changes of many jobs: cancel, retry, delete, clean → 200 {matched, changed, cursor}."""

from jqd.api.context import ApiContext
from jqd.api.decode import read_body
from jqd.http import Request, Response, answer
from jqd.service import bulk


async def cancel_many(parts: ApiContext, request: Request) -> Response:
    """`POST /v1/jobs/cancel`: jobs that have not ended. Changed: recorded."""
    tally = await bulk.cancel_many(parts.services, read_body(request, bulk.Filter))
    return answer(200, tally, request.answer_language())


async def retry_many(parts: ApiContext, request: Request) -> Response:
    """`POST /v1/jobs/retry`: jobs that failed, and cancelled ones if asked for."""
    tally = await bulk.retry_many(parts.services, read_body(request, bulk.Filter))
    return answer(200, tally, request.answer_language())


async def delete_many(parts: ApiContext, request: Request) -> Response:
    """`POST /v1/jobs/delete`: deletes jobs that failed for good, and others that ended if asked for."""
    tally = await bulk.delete_many(parts.services, read_body(request, bulk.Filter))
    return answer(200, tally, request.answer_language())


async def clean(parts: ApiContext, request: Request) -> Response:
    """`POST /v1/jobs/clean`: deletes what ended before a date, never what failed."""
    tally = await bulk.clean(parts.services, read_body(request, bulk.Clean))
    return answer(200, tally, request.answer_language())
