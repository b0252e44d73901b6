"""GET and DELETE of one job: what is known of it, its result, its cancellation."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import trio
from msgspec import Raw

from jqd.api.message import Request, Response, answer
from jqd.api.parts import Parts
from jqd.api.problems import Problem
from jqd.errors import StoreAway
from jqd.job import NIL, Outcome, State
from jqd.jobid import IdParts, parse_id
from jqd.record import Lane, encode_cancels
from jqd.store import JobView, OnItsWay

CLOCK_AHEAD_MS = 60_000  # other daemons' clocks may be ahead of ours by this and their ids still be believed


@dataclass(frozen=True, slots=True)
class Coming:
    """A job that was taken but is not in the store yet."""

    job_id: str
    created_at_ms: int

    @property
    def state(self) -> State:
        """It waits to be ingested."""
        return State.WAITING


async def get_job(parts: Parts, request: Request, job_id: str) -> Response:
    """`GET /v1/jobs/{id}?wait=S`: the job, as soon as it has ended or the wait is over."""
    view = await wait_final(parts, job_id, request.seconds("wait", 0.0, parts.config.wait_s_max))
    return answer(200, job_body(parts, view), request.answer_language())


async def get_result(parts: Parts, request: Request, job_id: str) -> Response:
    """`GET /v1/jobs/{id}/result?wait=S&consume=1`: nil when there is none, not yet or not any more."""
    view = await wait_final(parts, job_id, request.seconds("wait", 0.0, parts.config.wait_s_max))
    result = view.result if isinstance(view, JobView) else None
    if result is not None and request.flag("consume"):
        await parts.store.drop_result(job_id)
    return answer(200, {"result": Raw(result or NIL)}, request.answer_language())


async def delete_job(parts: Parts, request: Request, job_id: str) -> Response:
    """`DELETE /v1/jobs/{id}`: 204 it will not start; 202 recorded, but it runs or the store is away; 409 it ended."""
    state = await cancel(parts, job_id)
    if state is State.CANCELLED:
        return Response(204)
    if state.is_final:
        raise Problem(409, f"job {job_id} has already ended: {state.value}")
    return answer(202, {"job_id": job_id, "state": state.value, "cancel": "recorded"}, request.answer_language())


async def cancel(parts: Parts, job_id: str) -> State:
    """Record a cancel and return what the store made of it: CANCELLED only when it will never start.

    Any other state that is not final: recorded, but running, or not confirmed in time. Raises Problem 404,
    JournalRefused, StoreRefused.
    """
    try:
        before = await find(parts, job_id)
    except StoreAway:
        ids = parse_id(job_id)
        if ids is None or _never_given(parts, ids, job_id):
            raise not_found(job_id) from None
        # Nobody can look now. The cancel meets the job when the store is back; if there is none, it does no harm.
        before = Coming(job_id, ids.at_ms)
    if before.state.is_final:
        return before.state
    position = parts.journal.write(Lane.CANCELS, 1, encode_cancels([job_id]))
    with trio.CancelScope(shield=True):
        await parts.journal.wsync(position)
    applied = await parts.control.wait_applied(Lane.CANCELS, position, parts.config.cancel_s)
    if not applied or not parts.control.settled():
        return before.state  # while daemons still tell the store what it forgot, one of them may bring this job running
    try:
        after = await parts.store.get_job(job_id)
    except StoreAway:
        return before.state
    # Not there: the store keeps the cancel, and the job will meet it.
    return after.state if isinstance(after, JobView) else State.CANCELLED


async def find(parts: Parts, job_id: str) -> JobView | Coming:
    """The job, or that it is on its way to the store. Raises Problem 404, StoreAway, StoreRefused."""
    ids = parse_id(job_id)
    if ids is None:
        raise not_found(job_id)
    # Of what this daemon journaled and has not applied yet it knows more than the store, and without it.
    awaited = parts.taken.awaits(job_id, parts.journal.read_point(Lane.JOBS))
    try:
        view = await parts.store.get_job(job_id)
    except StoreAway:
        if awaited:
            return Coming(job_id, ids.at_ms)
        raise
    if isinstance(view, JobView):
        return view
    # While daemons still tell the store what it forgot, it cannot say of any job that it never was.
    unknown = isinstance(view, OnItsWay) or not parts.control.settled()
    if awaited or (unknown and not _never_given(parts, ids, job_id)):
        return Coming(job_id, ids.at_ms)
    raise not_found(job_id)


async def wait_final(parts: Parts, job_id: str, wait_s: float) -> JobView | Coming:
    """Look until the job has ended or `wait_s` is over; the last look counts. Meanwhile the store may be away."""
    deadline_s = trio.current_time() + wait_s
    while True:
        # Listen first, look then: an ending between the two rings.
        with parts.control.ended(job_id) as bell:
            left_s = deadline_s - trio.current_time()
            try:
                view = await find(parts, job_id)
            except StoreAway:
                if left_s <= 0:
                    raise
            else:
                if view.state.is_final or left_s <= 0:
                    return view
            with trio.move_on_after(min(left_s, parts.config.poll_s)):
                await bell.wait()


def job_body(parts: Parts, view: JobView | Coming) -> dict[str, Any]:
    """The members of `GET /v1/jobs/{id}`."""
    if isinstance(view, Coming):
        # Its content is still on its way: priority and max_retry are left out, for they are not nothing.
        return {
            "job_id": view.job_id,
            "name": "",
            "state": view.state.value,
            "attempts": 0,
            "created_at": iso(view.created_at_ms),
            **dict.fromkeys(("eligible_at", "started_at", "finished_at", "worker", "daemon", "error", "message")),
            "history": [],
        }
    running = parts.runner.running(view.id) if view.state is State.RUNNING else None
    last = view.outcome
    worker = running.worker if running else (last.worker if last else "")
    body: dict[str, Any] = {
        "job_id": view.id,
        "name": view.jobtype,
        "state": view.state.value,
        "priority": view.priority,
        "attempts": view.attempts,
        "max_retry": view.max_retry,
        "created_at": iso(view.created_at_ms),
        "eligible_at": iso(view.eligible_at_ms),
        "started_at": iso(running.started_at_ms if running else view.started_at_ms),
        "finished_at": iso(last.finished_at_ms if last and view.state.is_final else 0),
        "worker": worker or None,
        "daemon": view.daemon or None,
        "error": Raw(last.error) if last else None,
        "message": (last.message if last else "") or None,
        "tags": list(view.tags),
        "history": [_attempt(outcome) for outcome in view.history],
    }
    if view.keep_result:
        body["result"] = Raw(view.result or NIL)
    return body


def _attempt(outcome: Outcome) -> dict[str, Any]:
    return {
        "attempt": outcome.attempt,
        "status": outcome.status,
        "started_at": iso(outcome.started_at_ms),
        "finished_at": iso(outcome.finished_at_ms),
        "worker": outcome.worker or None,
        "reason": outcome.reason or None,
        "error": Raw(outcome.error),
        "message": outcome.message or None,
    }


def not_found(job_id: str) -> Problem:
    """404."""
    return Problem(404, f"there is no job {job_id[:64]!r}; it never was, or its keep time is over")


def iso(at_ms: int) -> str | None:
    """An instant as clients read it, ISO 8601 in UTC; None for 0."""
    if not at_ms:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _never_given(parts: Parts, ids: IdParts, job_id: str) -> bool:
    """Whether no journal can have given this id yet: ours knows its last one, others' clocks are about ours."""
    source = parts.journal.ids
    if ids.journal != source.journal:
        return ids.at_ms > parts.clock.wall_ms() + CLOCK_AHEAD_MS
    return job_id > source.last_id if source.last_id else ids.at_ms > source.last_ms
