"""Runs jobs in a FastAPI application, behind a router: async functions as tasks of its loop, plain ones in threads.

    web.include_router(router(jobs, secret=SECRET), prefix="/jqd")

and when the application starts, in its lifespan: `await to_thread.run_sync(partial(register, jobs, URL, secret=…))`.
"""

from contextlib import aclosing

from fastapi import APIRouter, Request, Response

from jqd.contrib.mount import BODY_BYTES_MAX, Mount, Secret
from jqd.contrib.mount import register as register
from jqd.worker.app import App


def router(app: App, *, secret: Secret, body_bytes_max: int = BODY_BYTES_MAX) -> APIRouter:
    """Return a router that runs the jobs of `app`. `secret`: one or several secrets with which daemons sign requests;
    None: accept unsigned requests. `body_bytes_max`: larger requests are refused with 413."""
    mount = Mount(app, secret=secret, body_bytes_max=body_bytes_max)
    found = APIRouter(include_in_schema=False)

    @found.post("")
    async def take(request: Request) -> Response:
        async with aclosing(request.stream()) as chunks:
            answer = await mount.aanswer(request.headers, chunks)
        return Response(answer.body, answer.status, answer.headers, answer.content_type)

    return found
