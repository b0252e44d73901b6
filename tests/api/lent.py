"""An API with a worker that asks for its jobs, what it has in flight, and what it says of that."""

import itertools
from typing import Any

from jqd.domain.record import Lane, decode_outcomes
from jqd.runner import WorkerSpec
from tests.api.whole import Whole

_numbers = itertools.count()


async def begun() -> Whole:
    edge = await Whole().begin()
    edge.runner.knows = False  # no daemon waits for any of these
    edge.workers.register(WorkerSpec(name="w", id="puller", jobs=("mail",), max_jobs=5), peer=None)
    return edge


async def handed(edge: Whole, **pushed: Any) -> dict[str, Any]:
    """One job in the worker's own hand: what an outcome of it names."""
    name = f"type {next(_numbers)}"
    job_id = await edge.push(name=name, **pushed)
    (held,) = await edge.claim(name)
    await edge.hand(held)
    return {"job_id": job_id, "lease_id": str(held.fence)}


async def report(edge: Whole, *outcomes: Any, **named: Any) -> list[tuple[int, str]]:
    told = await edge.call("POST", "/v1/outcomes", list(outcomes), **named)
    assert told.status == 200, told.body
    return [(one["status"], one.get("detail", "")) for one in told.body["outcomes"]]


def journaled(edge: Whole) -> list[Any]:
    return [one for lane, _, body in edge.journal.frames if lane is Lane.OUTCOMES for one in decode_outcomes(body)]
