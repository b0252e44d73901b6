"""Who runs jobs here: POST, GET and DELETE of /v1/workers."""

from typing import Any, Final

from jqd.api.message import Request, Response, answer, read_value
from jqd.api.native import answers
from jqd.api.native.answers import Registered, Workers
from jqd.api.native.show import iso
from jqd.api.parts import Parts
from jqd.desk import workers
from jqd.runner import Card, Worker, read_card
from jqd.words.errors import Fault, Invalid

ANY: Final = "*"  # for `jobs`: every jobtype there is and will be


async def register(parts: Parts, request: Request) -> Response:
    """201 {worker_id}: registered, or its registration repeated in time."""
    card = _card(read_value(request))
    worker = await workers.register(parts.desk, card, peer=request.peer)
    return answer(201, Registered(worker.id), request.answer_language())


async def list_workers(parts: Parts, request: Request) -> Response:
    """All workers registered at this daemon."""
    rows = [_row(worker) for worker in parts.desk.workers.list()]
    return answer(200, Workers(rows), request.answer_language())


async def unregister(parts: Parts, request: Request, worker_id: str) -> Response:
    """204; what the worker has in hand is still waited for."""
    await workers.unregister(parts.desk, worker_id)
    return Response(204)


def _card(value: Any) -> Card:
    """The body of a registration. Raises Invalid."""
    if not isinstance(value, dict):
        raise Invalid("a registration is a map")
    jobs = value.get("jobs")
    said = None if isinstance(jobs, str) else jobs
    card = read_card({**value, "jobs": said})
    if said is None and jobs != ANY:
        what = "jobs is required" if jobs is None else f"jobs is a list, not {jobs[:64]!r}"
        detail = f'{what}: name the jobtypes that this worker can run, like ["mail"], or say "{ANY}" for every one'
        raise Invalid(detail, [Fault("/jobs", detail)])
    return card


def _row(worker: Worker) -> answers.Worker:
    return answers.Worker(
        worker_id=worker.id,
        name=worker.name,
        url=worker.url,
        jobs=ANY if worker.jobs is None else worker.jobs,
        max_jobs=worker.max_jobs,
        batch=worker.batch,
        priority_min=worker.priority_min,
        priority_max=worker.priority_max,
        ttl=worker.ttl_s,
        protocol=worker.style,
        registered_at=iso(worker.registered_at_ms),
    )
