"""Changing a job that was pushed long ago: other content while it waits, a new life when it has ended.

The change is journaled as the whole job once more, under a revision that the store gave; so it survives whatever the
job survives, and whoever applies the journals in any order ends with the latest content.
"""

import enum
from functools import partial
from typing import Any, NoReturn

import msgspec
import trio
from msgspec import Raw

from jqd.api.find import once_noted
from jqd.api.parts import Parts
from jqd.api.problems import RETRY_AFTER_S, Problem
from jqd.store import EditGiven, JobView
from jqd.words.job import ChangeKind, State
from jqd.words.record import Head, Lane, PushedJob, encode_jobs


class Kind(enum.Enum):
    """What may be done to a job."""

    EDIT = "changed"
    RETRY = "tried again"
    RUN_NOW = "run now"


WAITS = frozenset({State.WAITING, State.SCHEDULED, State.RETRYING})
ALLOWED = {Kind.EDIT: WAITS, Kind.RUN_NOW: WAITS, Kind.RETRY: frozenset({State.FAILED, State.CANCELLED})}

BUSY_S = 0.02  # between looks whether somebody else's change has come: its sync takes about so long
LAPSES_S = 10.0  # well below the store's `name_reserve_s`: a change that took longer may have been overtaken

_encoder = msgspec.msgpack.Encoder()


async def change(parts: Parts, view: JobView, kind: Kind, **fields: Any) -> JobView:
    """Journal a change and return the job as it is then. `fields` of an EDIT: priority, eligible_at_ms, argument.

    Raises Problem 409 when its state does not allow it, or no more; 503 when the store has not applied it in time, but
    will, or somebody else changes it now; JournalRefused, StoreUnsettled, StoreAway, StoreRefused.
    """
    if view.state not in ALLOWED[kind]:
        _refuse(view, kind)
    began_s = trio.current_time()
    view, given = await _reserve(parts, view, kind)
    revision = given.revision
    body = _frame(parts, view, kind, given, fields)
    position = parts.journal.write(Lane.CHANGES, 1, body)
    with trio.CancelScope(shield=True):
        await parts.journal.wsync(position)
    if not await parts.control.wait_caught_up(Lane.CHANGES, position, parts.config.cancel_s, parts.where(view.id)):
        detail = f"it is recorded that job {view.id} is to be {kind.value}, but the store has not applied it yet"
        raise Problem(503, detail, retry_after_s=RETRY_AFTER_S)
    after = await parts.store.get_job(view.id)
    if not isinstance(after, JobView) or after.revision < revision:
        raise Problem(409, f"job {view.id} cannot be {kind.value}: it was deleted, or its id was given to another")
    if after.revision == revision and after.missed:
        _refuse(after, kind)
    if after.revision > revision and trio.current_time() - began_s > LAPSES_S:
        detail = f"job {view.id} was changed by somebody else, while this change waited for the disk; look at it again"
        raise Problem(409, detail)
    return after


async def _reserve(parts: Parts, view: JobView, kind: Kind) -> tuple[JobView, EditGiven]:
    """A number for the change, and the job it may be made of: the latest, or what came meanwhile would be gone again.

    Raises Problem 409 or 503; StoreUnsettled, StoreAway, StoreRefused.
    """
    deadline_s = trio.current_time() + parts.config.cancel_s
    while True:
        ask = partial(parts.store.reserve_edit, view.id, view.revision)
        given = await once_noted(parts, parts.where(view.id), ask)
        if given is not None:
            return view, given
        if trio.current_time() >= deadline_s:
            detail = f"job {view.id} is being changed by somebody else; try again"
            raise Problem(503, detail, retry_after_s=RETRY_AFTER_S)
        await trio.sleep(BUSY_S)
        again = await parts.store.get_job(view.id)
        if again is None:
            raise Problem(409, f"job {view.id} cannot be {kind.value}: it was deleted")
        if isinstance(again, JobView):
            view = again
        if view.state not in ALLOWED[kind]:
            _refuse(view, kind)


def _refuse(view: JobView, kind: Kind) -> NoReturn:
    if view.state is State.RUNNING and kind is not Kind.RETRY:
        raise Problem(
            409, f"job {view.id} is running: only what waits can be {kind.value}. It counts for a next attempt"
        )
    raise Problem(409, f"job {view.id} cannot be {kind.value}: it is {view.state.value}")


def _frame(parts: Parts, view: JobView, kind: Kind, given: EditGiven, fields: dict[str, Any]) -> bytes:
    """The job once more, as a frame."""
    eligible_at_ms = view.eligible_at_ms if view.state in (State.SCHEDULED, State.RETRYING) else 0
    job = PushedJob(
        name=view.jobtype,
        argument=Raw(fields.get("argument", view.argument)),
        priority=fields.get("priority", view.priority),
        max_retry=view.max_retry,
        keep_result=view.keep_result,
        timeout=view.timeout_s,
        job_id=view.name or None,
        tags=view.tags,
    )
    if kind is not Kind.EDIT:
        eligible_at_ms = 0
    eligible_at_ms = fields.get("eligible_at_ms", eligible_at_ms)
    anew, revision = kind is Kind.RETRY, given.revision
    changes = {
        0: (view.id, revision, revision if anew else view.generation, ChangeKind.RETRY if anew else ChangeKind.EDIT)
    }
    # Its own id is the one in `changes`; the journal's sequence only has to have one for each record.
    first = parts.journal.ids.take(1).first
    head = Head(first, view.created_at_ms, {0: eligible_at_ms} if eligible_at_ms else {}, changes, life=given.life)
    return encode_jobs(head, _encoder.encode([job]))
