"""Releases a job that waited for its parents: it gets their results and starts, or is cancelled or failed if a parent
did not succeed."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import msgspec
import trio
from msgspec import Raw

from jqd.chaining.callbacks import ended, event_body
from jqd.domain.clock import Clock
from jqd.domain.errors import Conflict, Invalid, NotFound, NotYet, Overtaken, StoreUnsettled
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.flow import CALLBACK, NO_FIELD, RESULTS_GONE, RESULTS_TOO_LARGE, Flow, put_into
from jqd.domain.job import NIL, State
from jqd.domain.jobid import parse_id, partition_of
from jqd.domain.results import RESULT_DROPPED, LargeResult
from jqd.domain.settings import SettingTable
from jqd.domain.tenant import bare
from jqd.service.callbacks import expect_called
from jqd.service.cancel import record_cancels
from jqd.service.edit import Kind, change
from jqd.service.find import read_pieces
from jqd.service.services import Services
from jqd.store import WHOLE_MAX, JobView
from jqd.store.links import ParentNote, ParentsState

RELEASES = 32  # at once in the whole daemon: results, argument and frame of one are some 4 MiB (4 job_bytes_max)
SEVERAL = 2  # of them read results of several parents
PARENTS = SEVERAL * WHOLE_MAX  # read at once by these in the whole daemon: a row and its result are some 3 MiB
TRIES = 5  # in a row, where the job is changed meanwhile; then it rests, so that a busy pusher costs no more

_encoder = msgspec.msgpack.Encoder()


class ReleaseLimits:
    """Limits how many jobs are released at once, so that the memory for their results is bounded. Each partition has an
    equal share of the limit, so that a partition that is away delays no other."""

    def __init__(self, _: SettingTable, __: Clock) -> None:
        self._limiters: dict[tuple[str, int], trio.CapacityLimiter] = {}

    def limiter(self, what: str, most: int, services: Services, job_id: str) -> trio.CapacityLimiter:
        """Return the limiter named `what` of the job's partition. `most`: the limit of all partitions together, of
        which each has an equal share."""
        key = what, partition_of(job_id, services.partitions)
        return self._limiters.setdefault(key, trio.CapacityLimiter(max(1, most // services.partitions)))


class ResultBudget:
    """Counts how many more bytes of results the argument of one job can hold. Before a result is read, its size is
    taken from this number."""

    def __init__(self, size_bytes: int) -> None:
        self._left = size_bytes

    def reserve(self, size_bytes: int) -> bool:
        """Reserve this many bytes. Returns False, and reserves none, if fewer are left."""
        if size_bytes > self._left:
            return False
        self._left -= size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        self._left += size_bytes


async def release(services: Services, job_id: str, failed: str, mark: str) -> bool:
    """Release a job whose parents have ended. `failed`: the first parent that did not succeed, or "". `mark`: digest of
    the parents' ids, `Flow.mark`.

    Returns False if the caller has to try again later: the store has not applied the job yet or is in recovery, or the
    job was changed or waits for other parents. Raises JournalRefused, StoreAway, StoreRefused.
    """
    async with services.feature(ReleaseLimits).limiter("release", RELEASES, services, job_id):
        for _ in range(TRIES):
            try:
                return await _release(services, job_id, failed, mark)
            except (Overtaken, Invalid):  # the job or its parents have changed meanwhile
                state = await _parents_state(services, job_id)
                if not state.is_done:
                    return False  # a parent begins anew, or all are queried anew
                failed = state.failed
        return False


async def _parents_state(services: Services, job_id: str) -> ParentsState:
    """Ask the store whether all parents of a job have ended now, and which one did not succeed."""
    home = services.store.at(partition_of(job_id, services.partitions))
    return (await home.note_parents([ParentNote(job_id)]))[job_id]


async def _release(services: Services, job_id: str, failed: str, mark: str) -> bool:
    """Try once to `release` a job. Also raises Overtaken and Invalid, after which job and parents must be read
    again."""
    try:
        view = await services.store.get_job(job_id)
        if not isinstance(view, JobView) or view.state is not State.BLOCKED or view.flow is None:
            return True  # it was released, cancelled or deleted meanwhile
        if mark != view.flow.mark:
            return False
        is_cancelled = view.flow.on_parent_failure == "cancel"
        if failed and is_cancelled:
            return await _cancel(services, view, failed)
        fields: dict[str, Any] = {"failed": failed} if failed and view.flow.on_parent_failure == "fail" else {}
        if bare(view.jobtype) == CALLBACK:
            await expect_called(services, view.tenant)
            fields = {"argument": await event_body(services, view, view.flow)}
        elif not fields:
            fields = await _with_results(services, view, view.flow)
        if is_cancelled and not failed and parse_id(fields.get("failed", "")) is not None:
            return await _cancel(services, view, "")
        await _expect_parents_state(services, view, failed)
        await change(services, view, Kind.RELEASE, **fields)
    except Conflict:
        return True  # it was cancelled or deleted in that moment
    except Overtaken:
        raise
    except (NotYet, StoreUnsettled):
        return False
    return True


async def _cancel(services: Services, view: JobView, failed: str) -> bool:
    """Cancel a job because a parent did not succeed. Returns whether the store has the cancel. Raises Overtaken."""
    await _expect_parents_state(services, view, failed)
    return await record_cancels(services, [view], as_seen=True) is not None


async def _expect_parents_state(services: Services, child: JobView, failed: str) -> None:
    """Raise Overtaken if the ends of the child's parents have changed meanwhile: a parent may have been retried, or
    have succeeded after all by a late outcome. Raises NotYet if the failed parent was restarted and the store has not
    noted that yet."""
    if failed and child.flow is not None:
        (view,) = await services.store.get_briefs([failed])
        parent = ended(services, failed, failed, view)
        if parent is not None and parent.state is State.SUCCEEDED:
            home, stage = services.store.at(partition_of(child.id, services.partitions)), 2 * parent.generation + 1
            await home.note_parents([ParentNote(child.id, failed, parent.state, stage=stage, mark=child.flow.mark)])
    state = await _parents_state(services, child.id)
    if not state.is_done or state.failed != failed:
        raise Overtaken(f"parents of job {child.id} began anew")


async def _with_results(services: Services, view: JobView, flow: Flow) -> dict[str, Any]:
    """Return the one field of the job to change when it is released: `argument`, with the parents' results if the job
    takes them; or `failed`, the reason why the results cannot be put in."""
    if view.argument != NIL and not flow.result_into:
        return {"argument": view.argument}
    bytes_max = services.config.job_bytes_max
    found = await _results(services, view, flow, bytes_max)
    if isinstance(found, str):
        return {"failed": found}
    results = [Raw(found[parent]) for parent in flow.after]
    value = bytes(results[0]) if flow.one_result else _encoder.encode(results)
    try:
        argument = bytes(put_into(view.argument, flow.result_into, value)) if flow.result_into else value
    except DECODE_ERRORS:  # the argument was changed since the push checked it
        return {"failed": NO_FIELD}
    return {"argument": argument} if len(argument) <= bytes_max else {"failed": RESULTS_TOO_LARGE}


async def _results(services: Services, view: JobView, flow: Flow, bytes_max: int) -> dict[str, bytes] | str:
    """Return parent → its kept result, nil for a parent without one. If the job cannot get the results, return the
    reason as a text. Raises NotYet, StoreError."""
    found: dict[str, bytes] = {}
    budget = ResultBudget(bytes_max)
    ids = await _ids_of(services, flow.after)
    several = services.feature(ReleaseLimits).limiter("results", SEVERAL, services, view.id)
    step = min(WHOLE_MAX, max(1, PARENTS // services.partitions))
    for at in range(0, len(flow.after), step):
        parents = flow.after[at : at + step]
        known = [ids[parent] for parent in parents]
        async with several if len(flow.after) > 1 else nullcontext():  # in turns with jobs of fewer parents
            views = iter(await services.store.get_jobs([job_id for job_id in known if job_id is not None]))
            for parent, job_id in zip(parents, known, strict=True):
                parent_view = ended(services, parent, job_id, next(views) if job_id is not None else None)
                result = await _result(services, parent_view, view, flow, budget)
                if isinstance(result, bytes):
                    found[parent] = result
                elif result == RESULTS_GONE and flow.on_parent_failure == "run":
                    found[parent] = NIL
                else:
                    return result
    return found


async def _ids_of(services: Services, parents: Sequence[str]) -> dict[str, str | None]:
    """Return parent → the id that jqd gave it, None if there is no such job. `parents`: ids given by jqd, or by the
    pushers."""
    named = [parent for parent in parents if parse_id(parent) is None]
    found = await services.store.resolve_all(named) if named else []
    return {parent: parent for parent in parents} | dict(zip(named, found, strict=True))


async def _result(
    services: Services, parent: JobView | None, child: JobView, flow: Flow, budget: ResultBudget
) -> bytes | str:
    """Return the kept result of a parent; nil if it keeps none, did not succeed or belongs to another tenant. `room`:
    counts the bytes that the child's argument can still hold.

    If the child cannot get the result, return a text instead: RESULTS_GONE, RESULTS_TOO_LARGE, or the parent's id if it
    had succeeded when its end was noted, but was restarted and failed since.
    """
    if parent is None:
        return RESULTS_GONE
    is_own, is_good = parent.tenant == child.tenant, parent.state is State.SUCCEEDED
    if is_own and not is_good and flow.on_parent_failure != "run":
        return parent.id
    if parent.result is None and parent.id == flow.parent and parent.id in flow.after:
        return RESULTS_TOO_LARGE  # the child follows this parent and waits for it, as its result was too large to copy
    if not is_own or not is_good or not parent.keep_result:
        return NIL
    result = parent.result
    if result is None:
        was_dropped = parent.outcome is not None and parent.outcome.message.startswith(RESULT_DROPPED)
        return NIL if was_dropped else RESULTS_GONE  # dropped: the result was too large to be kept
    size_bytes = result.bytes if isinstance(result, LargeResult) else len(result)
    if not budget.reserve(size_bytes):
        return RESULTS_TOO_LARGE
    if not isinstance(result, LargeResult):
        return result
    try:
        return b"".join([piece async for piece in read_pieces(services, result)])
    except NotFound:
        budget.release(size_bytes)
        return RESULTS_GONE
