"""Who runs jobs here: POST, GET and DELETE of /v1/workers."""

from typing import Any

import msgspec

from jqd.api.message import DECODE_ERRORS, Request, Response, answer, read_value
from jqd.api.parts import Parts
from jqd.api.problems import Problem, field_problem
from jqd.api.schema import explain
from jqd.api.show import iso
from jqd.runner import Worker
from jqd.words.job import PRIORITY_MAX, PRIORITY_MIN

ANY = "*"  # for `jobs`: every jobtype there is and will be


class Registration(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/workers`."""

    name: str
    max_jobs: int
    url: str | None = None
    jobs: list[str] | str | None = None
    """Required, but said so in our own words: a worker that takes everything takes others' jobs, too."""
    batch: int | None = None
    priority_min: int = PRIORITY_MIN
    priority_max: int = PRIORITY_MAX
    ttl: float | None = None
    worker_id: str | None = None


async def register(parts: Parts, request: Request) -> Response:
    """201 {worker_id}: registered, or its registration repeated in time."""
    card = read_card(request, Registration)
    await parts.workers.judge(card.url, request.peer)
    worker = parts.workers.register(
        name=card.name,
        url=card.url,
        jobs=_jobtypes(card.jobs),
        max_jobs=card.max_jobs,
        batch=card.batch,
        priority_min=card.priority_min,
        priority_max=card.priority_max,
        ttl_s=card.ttl,
        protocol="native",
        worker_id=card.worker_id,
        peer=request.peer,
    )
    await parts.workers.wait_saved()
    return answer(201, {"worker_id": worker.id}, request.answer_language())


async def list_workers(parts: Parts, request: Request) -> Response:
    """All workers registered at this daemon."""
    rows = [_row(worker) for worker in parts.workers.list()]
    return answer(200, {"workers": rows}, request.answer_language())


async def unregister(parts: Parts, request: Request, worker_id: str) -> Response:
    """204; what the worker has in hand is still waited for."""
    if not parts.workers.unregister(worker_id):
        raise Problem(404, f"there is no worker {worker_id[:64]!r}")
    await parts.workers.wait_saved()
    return Response(204)


def _jobtypes(jobs: list[str] | str | None) -> list[str] | None:
    """None for any. Raises Problem 422 when it is not said."""
    if jobs == ANY:
        return None
    if jobs is None or isinstance(jobs, str):
        what = "jobs is required" if jobs is None else f"jobs is a list, not {jobs[:64]!r}"
        detail = f'{what}: name the jobtypes that this worker can run, like ["mail"], or say "{ANY}" for every one'
        raise field_problem("/jobs", detail)
    return jobs


def read_card(request: Request, kind: Any) -> Any:
    """The body as `kind`. Raises Problem 400, 415 or 422."""
    value = read_value(request)
    if not isinstance(value, dict):
        raise Problem(422, "a registration is a map")
    try:
        return msgspec.convert(value, kind)
    except DECODE_ERRORS as error:
        raise field_problem(*explain(str(error), kind.__struct_fields__)) from error


def _row(worker: Worker) -> dict[str, Any]:
    return {
        "worker_id": worker.id,
        "name": worker.name,
        "url": worker.url,
        "jobs": ANY if worker.jobs is None else list(worker.jobs),
        "max_jobs": worker.max_jobs,
        "batch": worker.batch,
        "priority_min": worker.priority_min,
        "priority_max": worker.priority_max,
        "ttl": worker.ttl_s,
        "protocol": worker.protocol,
        "registered_at": iso(worker.registered_at_ms),
    }
