"""Jobs in a FastAPI application: async ones run as tasks of its loop, plain ones in threads, behind a router.

    web.include_router(router(jobs, secret=SECRET), prefix="/jqd")

and when the application starts, in its lifespan: `await to_thread.run_sync(partial(register, jobs, URL, secret=…))`.
"""

from fastapi import APIRouter, Request, Response

from jqd.contrib.mount import Mount, Secret
from jqd.contrib.mount import register as register
from jqd.worker.app import App


def router(app: App, *, secret: Secret) -> APIRouter:
    """The jobs of `app` as a router; `secret` is as of `Mount`."""
    mount = Mount(app, secret=secret)
    found = APIRouter(include_in_schema=False)

    @found.post("")
    async def take(request: Request) -> Response:
        answer = await mount.aanswer(request.headers, await request.body())
        return Response(answer.body, answer.status, media_type=answer.content_type)

    return found
