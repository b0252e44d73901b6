"""Makes the bodies of callbacks, which say how a job or a group ended, shaped as Standard Webhooks advises.

    {type: "job.succeeded" | "job.failed" | "job.cancelled" | "job.gone", timestamp, data: {job_id, name, state, …}}
    {type: "group.ended", timestamp, data: {group, counts: {succeeded, failed, …}}}

A callback is a job that waits for its parents: the job or the group's members. Its body is made once, when the last
parent has ended, and is the callback's argument from then on.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from jqd.domain.dates import iso
from jqd.domain.errors import NotYet
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.flow import Flow
from jqd.domain.job import NIL, State
from jqd.domain.jobid import parse_id
from jqd.domain.results import LargeResult
from jqd.domain.tenant import bare
from jqd.service.callbacks import message
from jqd.service.services import Services
from jqd.service.walk import pieces_of
from jqd.store import JobView, OnItsWay

GONE = "gone"  # state of a parent that is unknown: it was deleted, or its push failed

_encoder = msgspec.msgpack.Encoder()
_group_decoder = msgspec.msgpack.Decoder(dict[str, str])


async def event_body(services: Services, view: JobView, flow: Flow) -> bytes:
    """Return the body of a callback, which says how the callback's parents ended. `view`, `flow`: the callback's job
    and its links. Raises StoreError, and NotYet if a parent was restarted, since it will end again."""
    now = iso(services.clock.wall_ms())
    if group := _group(view):
        counts = await _counts(services, flow.after)
        return _packed("group.ended", now, {"group": group, "counts": counts})
    parent = await _parent(services, flow.after[0])
    if parent is None:
        return _packed(f"job.{GONE}", now, {"job_id": bare(flow.after[0]), "state": GONE})
    last, how = parent.outcome, parent.state.value
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


def _group(view: JobView) -> str:
    """Return the group that a callback reports; "" if it reports a single job. `view`: the callback's own job."""
    try:
        return _group_decoder.decode(view.argument).get("group", "")
    except DECODE_ERRORS:
        return ""


def _result(view: JobView) -> dict[str, Any]:
    """Return the job's kept result as a field of the body; only its size if the result is too large for an argument; no
    field if the job keeps no result."""
    if not view.keep_result or view.state is not State.SUCCEEDED:
        return {}
    if isinstance(view.result, LargeResult):
        return {"result_bytes": view.result.bytes}
    return {"result": Raw(view.result or NIL)}


def _packed(kind: str, at: str, data: dict[str, Any]) -> bytes:
    return _encoder.encode(message(kind, at, data))


async def _counts(services: Services, members: Sequence[str]) -> dict[str, int]:
    """Return state → how many of these members of a group have ended in that state. Raises NotYet if a member was
    restarted."""
    counts: Counter[str] = Counter()
    for home, piece in pieces_of(services, members):
        for member, row in zip(piece, await services.store.at(home).list_links(piece, 0), strict=True):
            if row is None:
                expect_gone(services, member, member)
            elif not State(row.state).is_final:
                raise NotYet(f"job {member} begins anew")
            counts[row.state if row else GONE] += 1
    return dict(counts)


async def _parent(services: Services, given: str) -> JobView | None:
    job_id = given if parse_id(given) is not None else await services.store.resolve(given)
    view = await services.store.get_job(job_id) if job_id is not None else None
    return ended(services, given, job_id, view)


def ended(services: Services, given: str, job_id: str | None, view: JobView | OnItsWay | None) -> JobView | None:
    """Return a parent that the store reported as ended to its children, after checking that it still is; None if it was
    deleted. `given`: the parent's id as its children name it. `job_id`: its daemon's id. `view`: what the store says
    about it.

    Raises NotYet if the parent was restarted or replaced since, so that its children wait for the new end; or if it is
    missing while the store is in recovery.
    """
    if isinstance(view, JobView):
        if not view.state.is_final:
            raise NotYet(f"job {bare(given)!r} begins anew")
        return view
    if view is not None and (view.is_promised or view.held):
        raise NotYet(f"job {bare(given)!r} is replaced")
    if job_id is not None:
        expect_gone(services, given, job_id)
    return None


def expect_gone(services: Services, given: str, job_id: str) -> None:
    """Raise NotYet if a job that is not in the store may still come back, because the store is in recovery. `given`:
    the job's id as other jobs name it."""
    if not services.control.settled(services.where(job_id)):
        raise NotYet(f"whether there is a job {bare(given)!r} is not known yet")
