"""What callbacks tell: how a job ended, or a group, shaped as Standard Webhooks advises.

    {type: "job.succeeded" | "job.failed" | "job.cancelled" | "job.gone", timestamp, data: {job_id, name, state, …}}
    {type: "group.ended", timestamp, data: {group, counts: {succeeded, failed, …}}}

It is made once, when the last parent has ended, and is the argument of the callback from then on.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import trio
from msgspec import Raw

from jqd.domain.dates import iso
from jqd.domain.errors import StoreError
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.flow import CALLBACK, Flow
from jqd.domain.job import NIL, Fate, State
from jqd.domain.jobid import parse_id
from jqd.domain.results import LargeResult
from jqd.domain.tenant import annotate, bare
from jqd.runner.callbacks import CALLBACKS
from jqd.service.services import Services
from jqd.service.settings import save
from jqd.store import JobView

LOOKS_MAX = 32  # parents looked at together: each is up to two calls of the store
GONE = "gone"  # of a parent that nobody knows: it was deleted, or its push failed

_encoder = msgspec.msgpack.Encoder()
_group_decoder = msgspec.msgpack.Decoder(dict[str, str])


async def expect_called(services: Services, tenant: str) -> None:
    """Have all daemons run callbacks of this tenant, from its first one on. Raises NotYet, JournalRefused."""
    name = annotate(tenant, CALLBACK)
    if name not in services.workers.own:
        await save(services, lambda: {(CALLBACKS, name): _encoder.encode(True)}, bounded=False)


async def told(services: Services, view: JobView, flow: Flow) -> bytes:
    """Return what the URL is told. Raises StoreError."""
    parents = await _parents(services, flow.after)
    try:
        group = _group_decoder.decode(view.argument).get("group", "")
    except DECODE_ERRORS:
        group = ""
    now = iso(services.clock.wall_ms())
    if group:
        counts = Counter(GONE if one is None else _how(one) for one in parents)
        return _packed("group.ended", now, {"group": group, "counts": dict(counts)})
    parent = parents[0]
    if parent is None:
        return _packed(f"job.{GONE}", now, {"job_id": bare(flow.after[0]), "state": GONE})
    last, how = parent.outcome, _how(parent)
    data: dict[str, Any] = {
        "job_id": bare(parent.name) or parent.id,
        "name": bare(parent.jobtype),
        "state": how,
        "attempts": parent.attempts,
        "finished_at": iso(last.finished_at_ms) if last and last.finished_at_ms else now,
    }
    if how == "failed" and last is not None:
        data |= {"error": Raw(last.error), "message": last.message}
    whole = _packed(f"job.{how}", data["finished_at"], data | _result(parent))
    if len(whole) <= services.config.job_bytes_max:
        return whole
    size = len(parent.result) if isinstance(parent.result, bytes) else 0
    data.pop("error", None)
    return _packed(f"job.{how}", data["finished_at"], {**data, "result_bytes": size})


def _how(view: JobView) -> str:
    """How it ended; of one that was tried again by hand since, how it ended before."""
    if view.state.is_final:
        return view.state.value
    return "succeeded" if view.outcome is not None and view.outcome.fate is Fate.SUCCEEDED else "failed"


def _result(view: JobView) -> dict[str, Any]:
    """Its result where it was kept; of one too large for an argument the size alone."""
    if not view.keep_result or view.state is not State.SUCCEEDED:
        return {}
    if isinstance(view.result, LargeResult):
        return {"result_bytes": view.result.bytes}
    return {"result": Raw(view.result or NIL)}


def _packed(kind: str, at: str, data: dict[str, Any]) -> bytes:
    return _encoder.encode({"type": kind, "timestamp": at, "data": data})


async def _parents(services: Services, given: Sequence[str]) -> list[JobView | None]:
    found: dict[int, JobView | None] = {}
    failed: list[StoreError] = []

    async def look(place: int, parent: str) -> None:
        try:
            job_id = parent if parse_id(parent) is not None else await services.store.resolve(parent)
            view = await services.store.get_job(job_id) if job_id is not None else None
        except StoreError as error:
            failed.append(error)  # raised below, outside the nursery, as what it is
        else:
            found[place] = view if isinstance(view, JobView) else None

    for at in range(0, len(given), LOOKS_MAX):
        async with trio.open_nursery() as nursery:
            for place, parent in enumerate(given[at : at + LOOKS_MAX], at):
                nursery.start_soon(look, place, parent)
        if failed:
            raise failed[0]
    return [found[place] for place in range(len(given))]
