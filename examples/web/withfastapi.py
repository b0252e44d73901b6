"""A FastAPI application that pushes jobs, and runs them: async ones in its own loop.

JOBS_SECRET=$SECRET JOBS_URL=http://127.0.0.1:8000/jqd uvicorn examples.web.withfastapi:web --port 8000
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import FastAPI

from examples.web.jobs import app as jobs
from examples.web.jobs import deliver, thank
from jqd.contrib.fastapi import register, router

SECRET = os.environ["JOBS_SECRET"]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Tell the daemons where the jobs run. Said at each start, and written down only when it is new."""
    await to_thread.run_sync(partial(register, jobs, os.environ["JOBS_URL"], secret=SECRET))
    yield


web = FastAPI(lifespan=lifespan)
web.include_router(router(jobs, secret=SECRET), prefix="/jqd")


@web.post("/orders/{number}", status_code=202)
async def order(number: int) -> dict[str, Any]:
    """The visitor may send this twice: under the order's own id the job counts once."""
    ref = await deliver.options(id=f"order-{number}").apush(number)
    await thank.apush(f"customer-{number}@example.org")
    return {"job_id": ref.job_id, "duplicate": ref.duplicate}


@web.get("/orders/{number}")
async def delivered(number: int) -> dict[str, Any]:
    """How it stands."""
    info = await deliver.ref(f"order-{number}").astatus()
    return {"state": info.state, "result": info.result}
