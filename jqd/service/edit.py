"""Changes a job while it waits, or retries one that has ended.

A change is journaled as the whole job once more, with a revision number from the store. So the change is as durable as
the job, and the content with the highest revision wins, in whatever order journals are applied.
"""

import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NoReturn

import msgspec
import trio
from msgspec import Raw

from jqd.domain.charge import FREE, Charge
from jqd.domain.errors import Conflict, Invalid, JournalRefused, NotYet, Overtaken
from jqd.domain.flow import CALLBACK, Flow
from jqd.domain.job import ChangeKind, Priority, State
from jqd.domain.job_spec import KEPT, Date, Delay, JobRecord, links_of
from jqd.domain.jobid import partition_of_name
from jqd.domain.msgpack_depth import NESTING_MAX, nests_deeper
from jqd.domain.record import Head, Lane, encode_jobs
from jqd.domain.tenant import bare
from jqd.service.find import Coming, expect_promised, find, once_settled, resolve
from jqd.service.flow_checks import NO_MAP, is_map
from jqd.service.job_limits import date_faults, eligible_at_ms
from jqd.service.key_returns import UNDER_WAY
from jqd.service.server_only import expect_allowed
from jqd.service.services import Services
from jqd.service.settings import record
from jqd.store import EditGiven, JobView
from jqd.store.links import UniqueWanted


class Edit(msgspec.Struct, forbid_unknown_fields=True):
    """What to change of a job that waits or is retried; fields left out stay as they are."""

    priority: Priority | msgspec.UnsetType = msgspec.UNSET
    run_at: Date | msgspec.UnsetType | None = msgspec.UNSET
    """None: the job may start at once."""
    delay: Delay | msgspec.UnsetType = msgspec.UNSET
    argument: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Kind(enum.Enum):
    """What a change does to a job."""

    EDIT = "changed"
    RETRY = "tried again"
    RUN_NOW = "run now"
    RELEASE = "released"
    """The job no longer waits for its parents, as all of them have ended."""


WAITS = frozenset({State.WAITING, State.SCHEDULED, State.BLOCKED, State.RETRYING})
ALLOWED = {
    Kind.EDIT: WAITS,
    Kind.RUN_NOW: WAITS,
    Kind.RETRY: frozenset({State.FAILED, State.CANCELLED}),
    Kind.RELEASE: frozenset({State.BLOCKED}),
}

BUSY_S = 0.02  # until it is checked again whether another client's change has come: the time of a sync
EARLIER = "-"  # begins the token of a retry: it sorts before any id, so the job gets the key when its retry is applied
AT_ONCE_S = 0.001  # the least `expires_in` of a job that is to fail without being run
LAPSES_S = 10.0  # well below the store's `name_reserve_s`: a change that took longer may have been overtaken

_encoder = msgspec.msgpack.Encoder()


async def retry(services: Services, given: str, wanted: Edit | None = None) -> JobView:
    """Retry a failed or cancelled job, with the `wanted` changes.

    Raises Denied, Invalid, NotFound, and the errors of `change`.
    """
    fields = _fields(services, wanted) if wanted is not None and wanted != Edit() else {}
    return await _change_own(services, given, "retry", Kind.RETRY, fields)


async def run_now(services: Services, given: str) -> JobView:
    """Let a waiting job start now, whatever its date. Raises Denied, NotFound, and the errors of `change`."""
    return await _change_own(services, given, "run-now", Kind.RUN_NOW, {})


async def edit(services: Services, given: str, wanted: Edit) -> JobView:
    """Change priority, date or argument of a waiting job.

    Raises Denied, Invalid, NotFound, and the errors of `change`.
    """
    return await _change_own(services, given, "change", Kind.EDIT, _fields(services, wanted))


async def _change_own(services: Services, given: str, act: str, kind: Kind, fields: dict[str, Any]) -> JobView:
    """Change a job if the principal may, and write that to the audit log. Raises Denied, and the errors of `latest` and
    `change`."""
    view = await latest(services, given)
    expect_allowed(services, [view.jobtype])
    _expect_fitting(view, kind, fields)  # first: a refused change is not for the audit log
    await record(services, f"job {act}", given)
    return await change(services, view, kind, **fields)


def _fields(services: Services, wanted: Edit) -> dict[str, Any]:
    """Check the wanted changes by the limits of a push, and return them as keyword arguments for `change`. Raises
    Invalid."""
    if wanted == Edit():
        raise Invalid(f"a change is a map of what changes: {', '.join(Edit.__struct_fields__)}")
    run_at = None if wanted.run_at is msgspec.UNSET else wanted.run_at
    delay = None if wanted.delay is msgspec.UNSET else wanted.delay
    for fault in date_faults(run_at, delay):
        raise Invalid(fault.detail, [fault])
    fields: dict[str, Any] = {}
    if wanted.priority is not msgspec.UNSET:
        fields["priority"] = wanted.priority
    if not (wanted.run_at is msgspec.UNSET and wanted.delay is msgspec.UNSET):
        fields["eligible_at_ms"] = eligible_at_ms(run_at, delay, services.clock.wall_ms())
    if wanted.argument is not msgspec.UNSET:
        fields["argument"] = argument = bytes(wanted.argument)
        if len(argument) > (bytes_max := services.config.job_bytes_max):
            raise Invalid.at("/argument", f"an argument has at most {bytes_max} bytes, this one {len(argument)}")
        if nests_deeper(argument, NESTING_MAX):
            raise Invalid.at("/argument", f"an argument nests at most {NESTING_MAX} levels deep")
    return fields


async def latest(services: Services, given: str) -> JobView:
    """Return the job as the store has it. Wait a moment for a job that this daemon journaled and the store does not
    have yet.

    Raises NotFound, NotYet if the store still does not have it, StoreAway, StoreRefused.
    """
    job_id = await resolve(services, given)
    named = job_id != given
    view = await find(services, job_id, named=named)
    lane = Lane.CHANGES if named else Lane.JOBS
    if isinstance(view, Coming) and await services.control.wait_caught_up(
        lane, services.journal.end, services.config.cancel_s, services.where(job_id)
    ):
        view = await find(services, job_id, named=named)
    if isinstance(view, Coming):
        if named:
            await expect_promised(services, given)
        raise NotYet(f"job {given} is on its way into the store; try again")
    return view


async def change(services: Services, view: JobView, kind: Kind, **fields: Any) -> JobView:
    """Journal a change, wait until the store has applied it, and return the changed job. For `Kind.RELEASE` the
    returned job is still as it was before the change.

    `fields`: priority, eligible_at_ms, argument; for a release also `failed`, the reason why the job is to fail.
    Raises
        Invalid     results cannot be put into the new argument
        Conflict    the job's state does not allow the change, perhaps since a moment ago
        NotYet      the store will apply the change but has not yet, or lost data, or another change is in progress
        Overtaken   `fields` were computed from a content that another change has replaced
        Overloaded  a quota does not allow it
    and JournalRefused, StoreUnsettled, StoreAway, StoreRefused."""
    _expect_fitting(view, kind, fields)
    async with _with_key(services, view, kind) as journaled:
        if kind is Kind.RELEASE or not services.principal.tenant:
            return await _change(services, view, kind, fields, FREE, journaled)
        size_bytes, is_retry = len(_array(services, view, kind, fields)), kind is Kind.RETRY
        reserve = services.hooks.reserve
        with await reserve(services, 1, size_bytes, retried=is_retry, changed=not is_retry) as charge:
            return await _change(services, view, kind, fields, charge, journaled)


class Journaled:
    """Records whether a change has been written to the journal."""

    done = False


async def _change(
    services: Services, view: JobView, kind: Kind, fields: dict[str, Any], charge: Charge, journaled: Journaled
) -> JobView:
    began_s = trio.current_time()
    view, given = await _reserve(services, view, kind, fields)
    revision, array = given.revision, _array(services, view, kind, fields)
    position = services.journal.write(Lane.CHANGES, 1, _frame(services, view, kind, given, array, fields))
    journaled.done = True
    try:
        await services.journal.wsync(position, shielded=True)
    except JournalRefused:
        journaled.done = False
        raise
    charge.taken(services.partitions_of([view.id]), len(array))
    if not await services.control.wait_caught_up(
        Lane.CHANGES, position, services.config.cancel_s, services.where(view.id)
    ):
        detail = f"it is recorded that job {_called(view)} is to be {kind.value}, but the store has not applied it yet"
        raise NotYet(detail)
    after = view if kind is Kind.RELEASE else await services.store.get_job(view.id)
    # In recovery another daemon may still report that the job had ended before this change.
    if not services.control.settled(services.where(view.id)):
        detail = (
            f"it is recorded that job {_called(view)} is to be {kind.value}; the store lost data meanwhile, and what "
            "became of the job is known once all daemons have told it again: look at the job in a moment"
        )
        raise NotYet(detail)
    if kind is Kind.RELEASE:
        return view
    if not isinstance(after, JobView) or after.revision < revision:
        raise Conflict(f"job {_called(view)} cannot be {kind.value}: it was deleted, or its id was given to another")
    if after.revision == revision and after.missed:
        if after.state is State.RUNNING and kind is not Kind.RETRY:
            detail = "has begun meanwhile: the change is recorded, and counts for a next attempt only"
            raise Conflict(f"job {_called(after)} {detail}")
        _refuse(after, kind)
    if after.revision > revision and trio.current_time() - began_s > LAPSES_S:
        detail = "was changed by somebody else while this change waited for the disk; look at it again"
        raise Conflict(f"job {_called(view)} {detail}")
    return after


async def _reserve(services: Services, view: JobView, kind: Kind, fields: dict[str, Any]) -> tuple[JobView, EditGiven]:
    """Reserve in the store the revision number of a change. Return the job's latest content, to which the change is to
    be applied, and the revision.

    If another change has replaced `view`, the newer content must allow this change, too. Raises Conflict if it does
    not, Overtaken if `_is_outdated`; also Denied, Invalid, NotYet, StoreUnsettled, StoreAway, StoreRefused."""
    # A release does not wait for another change of the job: after that its parents are looked at again.
    deadline_s = trio.current_time() + (0 if kind is Kind.RELEASE else services.config.cancel_s)
    while True:
        ask = partial(services.store.reserve_edit, view.id, view.revision)
        given = await once_settled(services, services.where(view.id), ask)
        if given is not None and given.revision:
            return view, given
        if given is not None:
            raise Conflict(f"job {view.id} cannot be {kind.value}: its id {_called(view)!r} was given to another job")
        is_late = trio.current_time() >= deadline_s
        if not is_late:
            await trio.sleep(BUSY_S)
        again = await services.store.get_job(view.id)
        if again is None:
            raise Conflict(f"job {_called(view)} cannot be {kind.value}: it was deleted")
        if isinstance(again, JobView):
            expect_allowed(services, [again.jobtype])  # a replacement may be of a type that is not for the principal
            if again.revision != view.revision and _is_outdated(view, again, kind):  # before `_expect_fitting`
                raise Overtaken(f"job {_called(view)} was changed by somebody else; try again")
        if is_late:
            raise NotYet(f"job {_called(view)} is being changed by somebody else; try again")
        if isinstance(again, JobView):
            _expect_fitting(again, kind, fields)
            view = again


def _is_outdated(view: JobView, again: JobView, kind: Kind) -> bool:
    """Return whether a change does not fit the job's newer content `again`, because the change, or the unique key
    reserved for it, was computed from the older content `view`."""
    if kind is Kind.RELEASE:  # its argument has results in it, or it is to fail for a parent
        return True
    keys = [each.flow.unique if each.flow is not None else "" for each in (view, again)]
    return kind is Kind.RETRY and keys[0] != keys[1]  # see `_with_key`


@asynccontextmanager
async def _with_key(services: Services, view: JobView, kind: Kind) -> AsyncIterator[Journaled]:
    """Reserve the unique key of a job during its retry (`async with`), and release the key if the caller has not noted
    in the yielded `Journaled` that the retry is journaled.

    Raises Conflict if another live job has the key, NotYet if another job may be about to get it."""
    journaled = Journaled()  # a journaled retry itself tells the store of the key
    if kind is not Kind.RETRY or view.flow is None or not view.flow.unique:
        yield journaled
        return
    token = EARLIER + services.journal.ids.take(1).first
    wanted = UniqueWanted(view.flow.unique, token, view.flow.until)
    unsure = [wanted]
    try:
        ask = partial(services.home(wanted.key).reserve_unique, [wanted])
        (has,) = await once_settled(services, {partition_of_name(wanted.key, services.partitions)}, ask)
        unsure = []
        if has.startswith(UNDER_WAY):
            raise NotYet(f"whether another job gets the unique key of job {_called(view)} is not known yet; try again")
        if has not in (token, view.id):
            raise Conflict(f"job {_called(view)} cannot be {kind.value}: job {has} has its unique key now")
        yield journaled
    except NotYet:
        if journaled.done:
            services.journal.unsure_to = services.journal.written
        raise
    finally:
        if not journaled.done:
            await services.key_returns.give_back(services.store, services.partitions, [wanted], unsure)


def _expect_fitting(view: JobView, kind: Kind, fields: dict[str, Any]) -> None:
    """Refuse a change that the job's state or content does not allow. Raises Conflict, Invalid."""
    if view.state not in ALLOWED[kind]:
        _refuse(view, kind)
    _expect_not_callback(view, kind, fields)
    if "argument" in fields and view.flow is not None and view.flow.result_into and not is_map(fields["argument"]):
        raise Invalid.at("/argument", NO_MAP)
    if kind is Kind.EDIT and view.state is State.BLOCKED and "eligible_at_ms" in fields:
        raise Conflict(
            f"job {_called(view)} waits for other jobs, not for a date: run-now lets it wait for none of them"
        )
    if kind is Kind.RETRY and view.outcome and view.outcome.reason == "unreadable":
        raise Conflict(f"job {_called(view)} cannot be read, nor what it was to do: delete it, and push it anew")


def _expect_not_callback(view: JobView, kind: Kind, fields: dict[str, Any]) -> None:
    """Raise Conflict for two changes of a callback: a new argument, since only jqd writes that; and a start before the
    end of the job that the callback reports."""
    if bare(view.jobtype) != CALLBACK or kind is Kind.RELEASE:
        return
    if "argument" in fields:
        raise Conflict(f"job {view.id} is a callback: what it tells is said by jqd alone")
    if kind is Kind.RUN_NOW and view.state is State.BLOCKED:
        raise Conflict(f"job {view.id} is a callback: it has nothing to tell before the end that it waits for")


def _called(view: JobView) -> str:
    """Return the pusher's own id of a job if there is one, else the daemon's id."""
    return bare(view.name) or view.id


def _refuse(view: JobView, kind: Kind) -> NoReturn:
    if view.state is State.RUNNING and kind is not Kind.RETRY:
        can = f"only a job that waits can be {kind.value}, as this one can if its attempt fails"
        raise Conflict(f"job {_called(view)} is running, and nothing was changed: {can}")
    raise Conflict(f"job {_called(view)} cannot be {kind.value}: it is {view.state.value}")


def _eligible_at_ms(view: JobView, kind: Kind, fields: dict[str, Any]) -> int:
    if fields.get("failed"):
        return 0  # it fails now, whatever its date is
    if view.flow is not None and (kind is Kind.RELEASE or (kind is Kind.EDIT and view.state is State.BLOCKED)):
        return view.flow.not_before_ms
    kept = kind is Kind.EDIT and view.state in (State.SCHEDULED, State.RETRYING)
    return int(fields.get("eligible_at_ms", view.eligible_at_ms if kept else 0))


def _array(services: Services, view: JobView, kind: Kind, fields: dict[str, Any]) -> bytes:
    """Return the changed job as a MessagePack array of one job, as in a push."""
    job = JobRecord(
        name=bare(view.jobtype),
        argument=Raw(fields.get("argument", view.argument)),
        job_id=bare(view.name) or None,
        tags=view.tags,
        traceparent=view.traceparent or None,
        **links_of(view.flow),
        **{field: fields.get(field, getattr(view, field)) for field in KEPT},
    )
    if fields.get("failed"):
        begins_ms = max(view.created_at_ms, _eligible_at_ms(view, kind, fields))
        job.expires_in = max(AT_ONCE_S, (services.clock.wall_ms() - begins_ms) / 1000)
    elif kind in (Kind.EDIT, Kind.RELEASE):  # a run-now or a retry is to run, so it does not expire
        begins_ms, dated = _eligible_at_ms(view, kind, fields), "eligible_at_ms" in fields
        job.expires_in = _expiry_s(view, begins_ms, services.clock.wall_ms(), dated=dated)
    return _encoder.encode([job])


def _frame(
    services: Services, view: JobView, kind: Kind, given: EditGiven, array: bytes, fields: dict[str, Any]
) -> bytes:
    anew, revision, eligible_at_ms = kind is Kind.RETRY, given.revision, _eligible_at_ms(view, kind, fields)
    changes = {
        0: (view.id, revision, revision if anew else view.generation, ChangeKind.RETRY if anew else ChangeKind.EDIT)
    }
    # The job keeps its id, which is in `changes`. This one only keeps the journal's sequence complete: one per record.
    first = services.journal.ids.take(1).first
    eligible = {0: eligible_at_ms} if eligible_at_ms else {}
    released = _released(view.flow, kind, fields)
    head = Head(first, view.created_at_ms, eligible, changes, life=given.life, tenant=view.tenant, released=released)
    return encode_jobs(head, array)


def _released(flow: Flow | None, kind: Kind, fields: dict[str, Any]) -> dict[int, str]:
    """Return the `released` field of the frame's head: {0: reason} if the job no longer waits for its parents after the
    change, else {}. The 0 is the job's index in the frame. The reason says why the job is to fail, and is empty if it
    is not. A retried job that failed because of a parent waits for its parents again."""
    if flow is None or not flow.after:
        return {}
    if kind in (Kind.RELEASE, Kind.RUN_NOW):
        return {0: fields.get("failed", "")}
    return {0: ""} if flow.released and not flow.failed else {}


def _expiry_s(view: JobView, begins_ms: int, now_ms: int, *, dated: bool) -> float | None:
    """Return the `expires_in` (seconds) with which a changed job expires at the same instant as before; None if it has
    no expiry, or waits for another attempt.

    If the change sets a new date (`dated`), the instant moves by as much as the date. The date "at once" counts as
    now."""
    if not view.expires_at_ms or view.state is State.RETRYING:
        return None
    created_ms, until_ms = view.created_at_ms, view.expires_at_ms
    if dated:
        before_ms = max(created_ms, view.eligible_at_ms)
        until_ms += max(begins_ms, min(before_ms, max(created_ms, now_ms))) - before_ms
    return max(1, until_ms - max(created_ms, begins_ms)) / 1000
