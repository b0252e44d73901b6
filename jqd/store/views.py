"""Builds the view of a job from an answer of `get_jobs`, even if part of it cannot be read."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import structs
from msgspec.structs import replace

from jqd.domain.flow import BLOCKED_MS, NO_FIELD, RESULTS_GONE, RESULTS_TOO_LARGE
from jqd.domain.job import NIL, Fate, Job, Outcome, State
from jqd.store import codec
from jqd.store.codec import decode_generation, decode_outcome, whole
from jqd.store.keys import Keys
from jqd.store.types import JobView

CANCELLED = b"C"  # before the outcome of the last attempt, or alone: a cancel ended the job
CRASHED = b"X"  # in place of an outcome; a number follows: the deaths of daemons at which it was alone in flight
EXPIRED = b"E"  # in place of an outcome; an instant (ms) follows: when it was too late to begin
ROW_BYTES_MAX = 1024  # shown of an unreadable row, so that somebody may see what wrote it
WAITS = frozenset({"ready", "later", "nowhere"})


def read_view(keys: Keys, job_id: str, place: str, fields: Sequence[object], *, last: bool = False) -> JobView:
    """Build the view of a job. `place`: the set that has the job. `fields`: its values from `get_jobs`. `last`: with
    the last attempt as the only history. Raises Unreadable."""
    _, score, sysid, row, tries, outcome, result, asked, _, generation, worker, progress, log = fields
    job = codec.decode_job(keys, job_id, row)
    if place == "nowhere":
        raise codec.Unreadable(
            f"the key {keys['jobs']} holds job {job_id!r}, but no set of {keys['ready']}:…, "
            "later, held, ended or dead does: keys were deleted by hand"
        )
    failed, history = codec.decode_tries(keys, job_id, tries, last=last)
    ended, cancelled = decode_end(keys, job_id, outcome)
    if ended is not None and ended.reason == "expired" and job.flow is not None and job.flow.failed:
        ended = parent_failed(ended, job.flow.failed)
    daemon = "" if sysid is None else codec.text(keys, "members", sysid)
    return job_view(
        job,
        place,
        codec.whole(keys, place, score),
        failed=failed,
        history=history,
        outcome=ended,
        cancelled=cancelled,
        changed=codec.decode_generation(keys, job_id, generation),
        daemon=daemon if worker is None else "",
        worker="" if worker is None else codec.text(keys, "leases", worker),
        cancel_asked=asked is not None,
        result=codec.decode_result(keys, job_id, result),
        progress=progress if isinstance(progress, bytes) else None,
        log="" if log is None else codec.decode_log(keys, job_id, log).text,
    )


def damaged_view(keys: Keys, job_id: str, place: str, fields: Sequence[object], why: str) -> tuple[JobView, bool]:
    """Build a view from what can be read of a damaged job. Also returns whether to move the job to the dead set.
    `place`: the set that has the job. `fields`: its values from `get_jobs`. `why`: the fault, for people.

    Raises Unreadable if the row can be read but the job is in no set: keys were deleted."""
    ended, cancelled, job = None, False, None
    with suppress(codec.Unreadable):
        ended, cancelled = decode_end(keys, job_id, fields[5])
    with suppress(codec.Unreadable):
        job = codec.decode_job(keys, job_id, fields[3])
    if job and place == "nowhere":
        raise codec.Unreadable(why)
    known = job or ended
    jobtype = known.jobtype if known else ""
    view = job_view(
        job or Job(job_id, jobtype),
        place,
        codec.whole(keys, place, fields[1]),
        outcome=replace(ended, message=f"UNREADABLE: {why}") if ended else unreadable(job_id, why, jobtype, fields[3]),
        cancelled=cancelled,
        daemon="",
        cancel_asked=False,
        result=None,
    )
    return view, job is None and place in WAITS


def job_view(
    job: Job,
    place: str,
    score: int,
    *,
    failed: int = 0,
    history: Sequence[Outcome] = (),
    outcome: Outcome | None,
    cancelled: bool,
    changed: tuple[int, int, bool] = (0, 0, False),
    **more: Any,
) -> JobView:
    """Build the view of a job. State, attempts and dates follow from the set (`place`) that the job is in.

    `score`: its date or fence there. `changed`: as `decode_generation` returns it. `more`: further fields."""
    waits, dated = (State.RETRYING,) * 2 if failed else (State.WAITING, State.SCHEDULED)
    state = {"ready": waits, "later": dated, "held": State.RUNNING}.get(place, State.FAILED)
    if place == "ended":
        state = State.CANCELLED if cancelled else State.SUCCEEDED
    if outcome is not None and state is State.FAILED:
        history = [*history, outcome]
    last = outcome or (history[-1] if history else None)
    fields = structs.asdict(job)
    if place == "later":
        fields["eligible_at_ms"] = score
        if score >= BLOCKED_MS and state is State.SCHEDULED:
            state = State.BLOCKED
    if fields["eligible_at_ms"] >= BLOCKED_MS:  # it stands for "blocked", and is no date
        fields["eligible_at_ms"] = job.flow.not_before_ms if job.flow else 0
    if job.flow is not None and job.flow.failed:
        fields["expires_at_ms"] = 0  # so it was ended; nobody asked for it
    if place == "held":
        attempts, started_at_ms = failed + 1, score // 1000  # a fence is a time in µs
    else:
        attempts = max(failed, outcome.attempt) if outcome else failed
        started_at_ms = last.started_at_ms if last else 0
    return JobView(
        **fields,
        state=state,
        attempts=codec.attempt(job, attempts),
        started_at_ms=started_at_ms,
        outcome=last,
        history=[*history],
        snoozes=last.snoozes if last else 0,
        interruptions=last.interruptions if last else 0,
        revision=changed[0],
        generation=changed[1],
        missed=changed[2],
        # Not of a success: its date is put off while its result is kept.
        ended_at_ms=score if state in (State.FAILED, State.CANCELLED) else 0,
        **more,
    )


def decode_end(keys: Keys, job_id: str, row: object) -> tuple[Outcome | None, bool]:
    """Decode a job's row in `outcome`: the outcome, and whether a cancel ended the job. Raises Unreadable."""
    if row is None:
        return None, False
    if isinstance(row, bytes) and row[:1] == CANCELLED:
        return (decode_outcome(keys, "outcome", job_id, row[1:]) if len(row) > 1 else None), True
    if isinstance(row, bytes) and row[:1] == CRASHED:
        return crashed(job_id, whole(keys, "outcome", row[1:])), False
    if isinstance(row, bytes) and row[:1] == EXPIRED:
        return expired(job_id, whole(keys, "outcome", row[1:])), False
    return decode_outcome(keys, "outcome", job_id, row), False


def decode_end_outcome(keys: Keys, job_id: str, row: object, changed: object) -> Outcome | None:
    """Return the outcome that ended a job, in the form in which a journal may write it again. None: it is unknown, or a
    cancel ended the job. `row`, `changed`: the job's rows in `outcome` and `generation`. Raises Unreadable."""
    outcome, cancelled = decode_end(keys, job_id, row)
    if outcome is None or cancelled:
        return None
    _, generation, _ = decode_generation(keys, job_id, changed)
    generation = outcome.generation or (generation if outcome.reason in ("crash", "expired", "unreadable") else 0)
    return replace(outcome, generation=generation, keep_result=False)


def crashed(job_id: str, deaths: int) -> Outcome:
    """Return the outcome of a job during which `deaths` daemons died while nothing else was in flight."""
    message = f"{deaths} daemons died while this job was the only one in flight; it is not run again by itself"
    return Outcome(job_id, 0, Fate.DEAD, "", 0, 0, status=500, reason="crash", message=message)


def expired(job_id: str, at_ms: int) -> Outcome:
    """Return the outcome of a job that expired before its first attempt began."""
    message = "no attempt had begun when it expired"  # without names or times: errors are grouped by it
    return Outcome(job_id, 0, Fate.DEAD, "", 0, 0, status=408, finished_at_ms=at_ms, reason="expired", message=message)


def parent_failed(outcome: Outcome, parent: str) -> Outcome:
    """Return `outcome` changed into that of a job that was not run because of a parent. `parent`: the id of the parent
    that did not succeed, or why the parents' results cannot be given to the job (RESULTS_TOO_LARGE, RESULTS_GONE,
    NO_FIELD)."""
    message = "PARENT_FAILED: it waited for a job that did not succeed, and was not run"
    if parent == RESULTS_TOO_LARGE:
        message = (
            "PARENT_RESULTS_TOO_LARGE: the results of its parents are more than an argument may have, and it was not "
            "run; give it an argument of its own and read the results by their ids"
        )
        return replace(outcome, status=413, reason="parent", message=message)
    if parent == RESULTS_GONE:
        message = (
            "PARENT_RESULTS_GONE: the result of a parent was dropped before the last one had ended, or there never "
            "was that parent, and it was not run; raise store.result_ttl_s, or give it an argument of its own and run "
            "it now"
        )
        return replace(outcome, status=410, reason="parent", message=message)
    if parent == NO_FIELD:
        message = (
            "PARENT_RESULTS_NO_FIELD: result_into names a field of its argument, which is no map, and it was not run; "
            "retry it with an argument that is one"
        )
        return replace(outcome, status=422, reason="parent", message=message)
    return replace(outcome, status=424, reason="parent", message=message, error=msgspec.msgpack.encode(parent))


def unreadable(job_id: str, why: str, jobtype: str, row: object) -> Outcome:
    """Return the outcome of a job whose value in the store (`row`) cannot be read. It shows the value's bytes if the
    job's tenant is known."""
    error = msgspec.msgpack.encode(row[:ROW_BYTES_MAX]) if jobtype and isinstance(row, bytes) else NIL
    return Outcome(
        job_id, 0, Fate.DEAD, jobtype, 0, 0, status=500, reason="unreadable", error=error, message=f"UNREADABLE: {why}"
    )
