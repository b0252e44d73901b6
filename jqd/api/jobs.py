"""GET and DELETE of one job: what is known of it, its result, its cancellation."""

from collections.abc import Sequence

import trio
from msgspec import Raw

from jqd.api.find import find, never_given, not_found, resolve
from jqd.api.large import answer_with
from jqd.api.message import Request, Response, answer
from jqd.api.parts import Parts
from jqd.api.polls import wait_final
from jqd.api.problems import Problem
from jqd.api.show import Coming, job_body
from jqd.store import JobView, OnItsWay
from jqd.words.errors import StoreAway
from jqd.words.job import NIL, State
from jqd.words.jobid import parse_id
from jqd.words.record import Lane, cancel_of, encode_cancels

CANCELS_MAX = 3  # of one request: a job that is replaced while it is cancelled is cancelled again


async def get_job(parts: Parts, request: Request, job_id: str) -> Response:
    """`GET /v1/jobs/{id}?wait=S`: the job, as soon as it has ended or the wait is over."""
    wait_s = request.seconds("wait", 0.0, parts.config.wait_s_max)
    inner = await resolve(parts, job_id)
    view = await wait_final(parts, inner, wait_s, named=inner != job_id)
    return await answer_with(parts, 200, job_body(parts, view, job_id), request.answer_language())


async def get_result(parts: Parts, request: Request, job_id: str) -> Response:
    """`GET /v1/jobs/{id}/result?wait=S&consume=1`: nil when there is none, not yet or not any more."""
    consume = request.flag("consume") and request.method == "GET"  # HEAD looks, and takes nothing
    wait_s = request.seconds("wait", 0.0, parts.config.wait_s_max)
    inner = await resolve(parts, job_id)
    view = await wait_final(parts, inner, wait_s, named=inner != job_id)
    result = view.result if isinstance(view, JobView) else None
    if result is not None and isinstance(view, JobView) and consume:
        await parts.store.drop_result(view.id)
    return await answer_with(parts, 200, {"result": Raw(result or NIL)}, request.answer_language())


async def delete_job(parts: Parts, request: Request, job_id: str) -> Response:
    """`DELETE /v1/jobs/{id}`: 204 it will not start; 202 recorded, but it runs or the store is away; 409 it ended.

    With `?purge=1` one that has ended is deleted for good: 204; 409 while it has not.
    """
    purge = request.flag("purge")
    inner = await resolve(parts, job_id)
    if purge:
        await _purge(parts, job_id, inner)
        return Response(204)
    state = await cancel(parts, inner, named=inner != job_id)
    if state is State.CANCELLED:
        return Response(204)
    if state.is_final:
        raise Problem(409, f"job {job_id} has already ended: {state.value}")
    return answer(202, {"job_id": job_id, "state": state.value, "cancel": "recorded"}, request.answer_language())


async def cancel(parts: Parts, job_id: str, *, named: bool = False) -> State:
    """Record a cancel and return what the store made of it: CANCELLED only when it will never start.

    Any other state that is not final: recorded, but running, or not confirmed in time. Raises Problem 404,
    JournalRefused, StoreRefused.
    """
    try:
        before = await find(parts, job_id, named=named)
    except StoreAway:
        ids = parse_id(job_id)
        if ids is None or never_given(parts, ids, job_id):
            raise not_found(job_id) from None
        # Nobody can look now. The cancel meets the job when the store is back; if there is none, it does no harm.
        before = Coming(job_id, ids.at_ms)
    for _ in range(CANCELS_MAX):
        if before.state is State.CANCELLED and not parts.control.settled(parts.where(job_id)):
            return State.RUNNING  # after a roll-back a daemon may be at work on it until it has told the store
        if before.state.is_final and before.state is not State.CANCELLED:
            return before.state
        # Also of one that is cancelled: a retry of it may be recorded and on its way.
        unsure = State.WAITING if before.state is State.CANCELLED else before.state
        cancelled_to = await record_cancels(parts, [before])
        if cancelled_to is None:
            return unsure
        try:
            after = await parts.store.get_job(job_id)
        except StoreAway:
            return unsure
        if not parts.control.settled(parts.where(job_id)):
            return State.RUNNING  # it rolled back meanwhile: as above
        if isinstance(after, OnItsWay) and after.held:
            return State.RUNNING  # its daemon came sooner than the job's journal
        if not isinstance(after, JobView):
            return State.CANCELLED  # not there yet: the store keeps the cancel, and the job will meet it
        if after.state.is_final or after.generation <= cancelled_to[job_id]:
            return after.state
        before = after  # replaced meanwhile: the cancel was meant for what stood there before
    return before.state


async def record_cancels(parts: Parts, found: Sequence[JobView | Coming]) -> dict[str, int] | None:
    """Journal cancels. Returns up to which generation of each they are meant, when the store is known to hold them.

    Then none of these will start that is not running. None: it is not known to hold them.

    Of a job whose content may change by a push, under its pusher's id, the store does not tell the last word: a
    replacement may be acknowledged and on its way. All that was acknowledged before now is meant.
    """
    moving = [job.id for job in found if isinstance(job, Coming) or _may_move(job)]
    up_to, sure = await _up_to_now(parts, moving)
    up_to = {job.id: up_to.get(job.id, 0) for job in found}
    records = [cancel_of(job_id, generation) for job_id, generation in up_to.items()]
    position = parts.journal.write(Lane.CANCELS, len(records), encode_cancels(records))
    with trio.CancelScope(shield=True):
        await parts.journal.wsync(position)
    where = parts.where(*(job.id for job in found))
    applied = await parts.control.wait_caught_up(Lane.CANCELS, position, parts.config.cancel_s, where)
    # While daemons still tell the store what it forgot, one of them may bring such a job running.
    return up_to if applied and parts.control.settled(where) and sure else None


def _may_move(job: JobView) -> bool:
    return bool(job.name or job.generation or job.state is State.CANCELLED)


async def _up_to_now(parts: Parts, job_ids: Sequence[str]) -> tuple[dict[str, int], bool]:
    """Up to which generation cancels of such jobs are meant, and whether the store said so for all of them.

    Which content of such a job is in some journal nobody knows here: all that began before now are meant. The store's
    numbers follow its clock in microseconds, so where it cannot be asked ours says about the same.
    """
    numbers: dict[frozenset[int], int] = {}  # one for each partition
    sure = True
    for job_id in job_ids:
        where = parts.where(job_id)
        if where not in numbers:
            try:
                numbers[where] = await parts.store.reserve_change(job_id)
            except StoreAway:
                numbers[where], sure = (parts.clock.wall_ms() + 1) * 1_000, False
    return {job_id: numbers[parts.where(job_id)] for job_id in job_ids}, sure


async def _purge(parts: Parts, given: str, job_id: str) -> None:
    """Raises Problem 404 or 409, StoreAway, StoreRefused."""
    if await parts.store.delete_dead([job_id]):
        return
    view = await find(parts, job_id)
    if view.state.is_final:
        raise not_found(given)  # deleted by somebody else between the two questions
    raise Problem(409, f"job {given} has not ended: it is {view.state.value}; cancel it first")
