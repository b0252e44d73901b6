"""Decides what becomes of a job when an attempt ends. Pure.

report (how a worker or the runner says that the attempt ended)  ──end_attempt──▶  outcome (what is journaled)

2xx OK                                      succeeded
4xx FAILED, or should_retry = false         failed
1xx RETRY, 5xx ERROR, attempts left         retry after `retry_after`, or the job's own back-off, or the daemon's
1xx RETRY, 5xx ERROR, none left             dead
put off (a snooze), up to SNOOZES_MAX       retry after `retry_after`, and no attempt is spent
interrupted, up to `max_interruptions`      retry at once, and no attempt is spent
interrupted, more often                     dead
"""

import random
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jqd.domain.backoff import Backoff
from jqd.domain.flow import THEN_TOO_LARGE, jobs_of, waiting, wants_result, with_result
from jqd.domain.followers import FOLLOWERS_BYTES_MAX, FOLLOWERS_MAX, Item, items_of
from jqd.domain.job import BACKOFF_S_MAX, INTERRUPTED, NIL, SNOOZE, Exit, Fate, Held, Job, Outcome, bytes_of
from jqd.domain.msgpack_depth import NESTING_MAX, nests_deeper
from jqd.domain.outcome_followers import FollowerOptions, encode_followers, push_separately
from jqd.domain.results import RESULT_DROPPED

INVALID_RESPONSE = "INVALID_RESPONSE"  # begins the message of an attempt whose answer could not be read
TOO_DEEP = f"{INVALID_RESPONSE}: the result nests deeper than {NESTING_MAX} levels; return plain values"
SNOOZE_STATUS = 102
SNOOZES_MAX = 10_000  # of one job: a week, at one a minute. Each further snooze costs an attempt, so it ends some day
SNOOZE_S_MIN = 1.0  # shorter ones would be a busy loop through store and journal
MAX_INTERRUPTIONS = 20  # interruptions of one job by stops of its worker or daemon; at one more it is dead
INVALID_JOBS = "INVALID_JOBS"  # begins the message of a success whose followers cannot be pushed
NO_RESPONSE = "NO_RESPONSE"  # begins the message of an attempt that is missing in a complete answer
MESSAGE_LENGTH_MAX = 16_384  # only the last characters of a message are kept, as the end of a traceback tells most
LOG_BYTES_MAX = 65_536  # only the last bytes that an attempt printed are kept, in the store's memory
SUCCESS_LOG_BYTES_MAX = 8_192  # the same for a success: there are many, and each log goes through the journal
ERROR_BYTES_MAX = 65_536  # size of an error value; the store's memory keeps one for each failed attempt
LOG_PLACE_MAX = 1 << 50  # limit of `log_from`: up to here the store's functions count exactly
FIELD_BYTES = 128  # what a result adds to a job beside its own bytes, at most: a field's name and some heads
RETRY_AFTER_S_MAX = BACKOFF_S_MAX

SUCCEEDED = Fate.SUCCEEDED  # a constant: reading an enumeration's member costs as much as a call
_encoder = msgspec.msgpack.Encoder()

Size = Annotated[int, Meta(ge=0, description="a number of bytes")]
Printed = Annotated[int, Meta(ge=0, le=LOG_PLACE_MAX, description="a number of bytes that the attempt printed")]


class Report(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How one attempt ended, as reported by its worker, or by the runner if the worker did not report."""

    status: int = 200
    """1xx RETRY, 2xx OK, 4xx FAILED, 5xx ERROR."""
    should_retry: bool | None = None
    """Whether a failure is retried; None: by its status."""
    retry_after_s: float | None = None
    """Seconds until the next attempt; None: the daemon's own back-off."""
    reason: str = ""
    """`timeout`, `snooze` (the job asks to be tried later), `interrupted` or `other` for failures."""
    message: str = ""
    error: bytes = NIL
    result: bytes = NIL
    result_bytes: int = 0
    """Size of the result if it is missing here because it was too large; else 0."""
    log: str = ""
    """The end of what the attempt printed."""
    log_from: Printed = 0
    """How many bytes the attempt printed before those in `log`."""
    follows: bytes = b""
    """New jobs to push if the attempt succeeds, a MessagePack array as the worker wrote it."""
    note: str = ""
    """A remark by jqd, shown as the message of a success."""
    ended_at_ms: int | None = None
    """When the attempt ended by the worker's own clock, if the worker reported it later; only shown."""


def status_of(how: str, reason: str | None, should_retry: bool | None) -> tuple[int, str]:
    """Return (status, reason) of a report, from the fields of a worker's outcome. `how`: its `type`: `success`,
    `failure` or `snooze`."""
    if how == "snooze":
        return SNOOZE_STATUS, SNOOZE
    failed = 400 if should_retry is False else 504 if reason == "timeout" else 500
    return 200 if how == "success" else failed, "timeout" if reason == "timeout" else ""


def timed_out(held: Held, worker: str) -> Report:
    message = f"TIMEOUT: no outcome within {held.job.timeout:g} s from worker {worker}"
    return Report(status=504, reason="timeout", message=message)


def interrupted(why: str) -> Report:
    """Return the report of a job that had begun when its worker or daemon was stopped."""
    return Report(status=503, reason=INTERRUPTED, retry_after_s=0.0, message=f"INTERRUPTED: {why}")


def nothing_follows(*_: object) -> str:
    """Return the error with which a job fails that has followers (jobs to be pushed after a success): none are
    taken."""
    return "jobs that follow are not taken here"


def end_attempt(
    held: Held,
    report: Report,
    *,
    backoff: Backoff,
    source: random.Random,
    worker: str,
    started_at_ms: int,
    finished_at_ms: int,
    result_bytes_max: int,
    max_interruptions: int = MAX_INTERRUPTIONS,
    wrong: Callable[[bytes], str] = nothing_follows,
    options: FollowerOptions = push_separately,
) -> Outcome:
    """Return the outcome that a report leads to. The result is kept if the job asked for it. If it is too large to
    keep, a job that requires its result fails.

    `wrong`: returns why follower jobs (pushed after a success) cannot be pushed; "": they can."""
    job = held.job
    if report.reason:
        report = _bounded(held, report, max_interruptions)
    report = _readable(report, job) if len(report.result) > NESTING_MAX else report
    succeeds = 200 <= report.status < 300 and report.reason != SNOOZE
    follows: Sequence[Item] = ()
    if succeeds and (report.follows or job.flow is not None):
        report, follows = _followed(report, job, wrong)
    if succeeds and report.status < 300:  # nearly all do, so what only a failure has is not computed
        is_large = report.result_bytes or len(report.result) > result_bytes_max
        dropped = _dropped(report, result_bytes_max) if job.keep_result and is_large else ""
        if not dropped or job.keep_result != "required":
            named = _named(follows, held, finished_at_ms, options) if follows else b""
            return _success(held, report, worker, started_at_ms, finished_at_ms, dropped, named)
        report = Report(status=413, message=f"{dropped}; this job requires its result")
    report = _within_limits(report)
    fate = _fate(held, report, max_interruptions, finished_at_ms - round(backoff.for_s * 1000) if backoff.for_s else 0)
    own_s = backoff.asked_s(job.backoff, held.attempt, source) if fate is Fate.RETRY else 0.0
    return Outcome(
        job.id,
        held.fence,
        fate,
        job.jobtype,
        job.priority,
        held.attempt,
        report.status,
        started_at_ms=started_at_ms,
        finished_at_ms=max(started_at_ms, finished_at_ms),
        worker=worker,
        message=report.message,
        delay_ms=round(_delay_s(report, own_s) * 1000) if fate is Fate.RETRY else 0,
        reason=report.reason or "other",
        error=report.error,
        snoozes=held.snoozes + (report.reason == SNOOZE),
        keep_result=job.keep_result,
        generation=held.generation,
        interruptions=held.interruptions + (report.reason == INTERRUPTED),
        lag_ms=None if report.ended_at_ms is None else finished_at_ms - report.ended_at_ms,
        log=report.log,
        log_from=report.log_from,
    )


def _success(
    held: Held, report: Report, worker: str, started_at_ms: int, finished_at_ms: int, dropped: str, follows: bytes
) -> Outcome:
    job = held.job
    outcome = Outcome(
        job.id,
        held.fence,
        SUCCEEDED,
        job.jobtype,
        job.priority,
        held.attempt,
        report.status,
        started_at_ms=started_at_ms,
        finished_at_ms=finished_at_ms if finished_at_ms > started_at_ms else started_at_ms,
        worker=worker,
        message=dropped or report.note,
        result=report.result if job.keep_result and not dropped else NIL,
        keep_result=job.keep_result,
        generation=held.generation,
        snoozes=held.snoozes,
        interruptions=held.interruptions,
        follows=follows,
        lag_ms=None if report.ended_at_ms is None else finished_at_ms - report.ended_at_ms,
    )
    log = _log_within(report, SUCCESS_LOG_BYTES_MAX) if report.log else None
    return msgspec.structs.replace(outcome, **log) if log else outcome


def _named(follows: Sequence[Item], held: Held, finished_at_ms: int, options: FollowerOptions) -> bytes:
    job = held.job
    return encode_followers(follows, job.id, job.jobtype, held.generation, finished_at_ms, job.traceparent, options)


def _followed(report: Report, job: Job, wrong: Callable[[bytes], str]) -> tuple[Report, Sequence[Item]]:
    """Return the report of a success, and its follower jobs (those to be pushed now). If the followers are wrong,
    return a failure without retry, and no jobs."""
    if report.follows and (why := wrong(report.follows)):
        return Report(status=422, message=f"{INVALID_JOBS}: it succeeded, but what is to follow is wrong: {why}"), ()
    then = b"" if job.flow is None else job.flow.then
    return with_then(report, then, job.id)


def with_then(report: Report, then: bytes, parent: str) -> tuple[Report, Sequence[Item]]:
    """Return the report of a success and its follower jobs: those of its worker, then those of its pusher (`then`, an
    array or empty). If they are too many, or too large even without the parent's result, return a failure and no jobs.

    Followers for which copies of the parent's result are too large read it from the store instead. They fail if the
    result was not kept, or does not fit an argument."""
    own = items_of(report.follows) if report.follows else []
    if not then:
        return report, own
    jobs = jobs_of(then)
    wants = any(map(wants_result, jobs))
    size = report.result_bytes or len(report.result)
    if sum(map(wants_result, jobs)) * size <= FOLLOWERS_BYTES_MAX:  # else they surely do not fit: 500 copies of 1 MiB
        follows = [*own, *(with_result(job, report.result) for job in jobs)]
        # An upper bound: followers that surely fit are encoded once, later.
        most = len(report.follows) + len(then) + len(jobs) * (size + FIELD_BYTES)
        if not (why := _too_many(follows, most)):
            return report, follows
    if wants:
        follows = [*own, *(waiting(job, parent) for job in jobs)]
        if not (why := _too_many(follows)):
            note = f"{THEN_TOO_LARGE}: its result has {size} bytes, at most {FOLLOWERS_BYTES_MAX} can be handed on"
            return msgspec.structs.replace(report, note=f"{note}; return where it is"), follows
    return Report(status=422, message=f"{INVALID_JOBS}: it succeeded, but what is to follow cannot: {why}"), ()


def _too_many(follows: Sequence[Item], bytes_most: int = FOLLOWERS_BYTES_MAX + 1) -> str:
    """Return why there are too many follower jobs, or too large ones; "": they fit. `bytes_most`: an upper bound of
    their size."""
    if len(follows) <= FOLLOWERS_MAX and bytes_most <= FOLLOWERS_BYTES_MAX:
        return ""
    size = len(_encoder.encode(follows))
    if len(follows) <= FOLLOWERS_MAX and size <= FOLLOWERS_BYTES_MAX:
        return ""
    most = f"at most {FOLLOWERS_MAX} of {FOLLOWERS_BYTES_MAX} bytes can follow one job"
    return f"they are {len(follows)} jobs of {size} bytes, {most}"


def _delay_s(report: Report, own_s: float) -> float:
    """Return the seconds until the next attempt. `own_s`: the delay if the worker asked for none."""
    delay_s = own_s if report.retry_after_s is None else min(max(0.0, report.retry_after_s), RETRY_AFTER_S_MAX)
    return max(SNOOZE_S_MIN, delay_s) if report.reason == SNOOZE else delay_s


def is_repeat(outcome: Outcome, report: Report) -> bool:
    """Return whether `report` says the same as the report that led to `outcome`. A worker sends a report again if it
    did not get our answer."""
    if Exit.of_status(report.status) is Exit.OK:
        return outcome.fate is Fate.SUCCEEDED
    fates = (Fate.FAILED,) if report.should_retry is False else (Fate.RETRY, Fate.DEAD)
    return outcome.fate in fates and outcome.message == _within_limits(report).message


def succeed_late(
    attempt: Outcome,
    report: Report,
    *,
    then: bytes,
    finished_at_ms: int,
    result_bytes_max: int,
    trace: str = "",
    options: FollowerOptions = push_separately,
) -> Outcome | None:
    """Return the outcome of an attempt that was given up (timed out, say) but succeeded. `then`: the followers that the
    job's pusher gave; `trace`: the job's traceparent.

    None if the result is required but too large, is too large for the follower jobs, or is nested too deep."""
    if (attempt.keep_result or then) and nests_deeper(report.result, NESTING_MAX):
        return None
    report, follows = with_then(report, then, attempt.job_id)
    if report.status >= 300:
        return None
    dropped = _dropped(report, result_bytes_max) if attempt.keep_result else ""
    if dropped and attempt.keep_result == "required":
        return None
    return msgspec.structs.replace(
        attempt,
        fate=Fate.SUCCEEDED,
        status=report.status,
        delay_ms=0,
        finished_at_ms=max(attempt.started_at_ms, finished_at_ms),
        reason="",
        error=NIL,
        message=dropped or report.note,
        **_log_within(report, SUCCESS_LOG_BYTES_MAX),
        result=report.result if attempt.keep_result and not dropped else NIL,
        follows=encode_followers(
            follows, attempt.job_id, attempt.jobtype, attempt.generation, finished_at_ms, trace, options
        )
        if follows
        else b"",
        lag_ms=None if report.ended_at_ms is None else finished_at_ms - report.ended_at_ms,
    )


def parse_retry_after(value: str | None, now_ms: int) -> float | None:
    """Return the seconds that a Retry-After header asks for, as a number or an HTTP date. None: no header, or an
    invalid one."""
    if value is None:
        return None
    text = value.strip()
    # ASCII only: isdigit() also accepts digits of other scripts, which no peer means.
    if text.isascii() and text.isdigit():
        return float(min(int(text[:12]), RETRY_AFTER_S_MAX))
    try:
        at = parsedate_to_datetime(text)
        return min(max(0.0, at.timestamp() - now_ms / 1000), RETRY_AFTER_S_MAX)
    except (ValueError, TypeError, OverflowError):
        return None


def _bounded(held: Held, report: Report, max_interruptions: int) -> Report:
    """Return the report. A job that was snoozed too often gets a report that counts as an attempt; for a job that was
    interrupted too often, the report's message says so."""
    if report.reason == SNOOZE and held.snoozes >= SNOOZES_MAX:
        return msgspec.structs.replace(report, reason="")
    if report.reason == INTERRUPTED and held.interruptions >= max_interruptions:
        often = f"{held.interruptions + 1} times, and max_interruptions is {max_interruptions}"
        return msgspec.structs.replace(report, message=f"{report.message}; it was interrupted {often}")
    return report


def _readable(report: Report, job: Job) -> Report:
    """Return the report. If its result is needed but nested too deep to be read, return a failure without retry
    instead."""
    goes_on = 200 <= report.status < 300 and (job.keep_result or job.flow is not None)
    is_deep = goes_on and nests_deeper(report.result, NESTING_MAX)
    return Report(status=422, message=TOO_DEEP) if is_deep else report


def _fate(held: Held, report: Report, max_interruptions: int, since_ms: int) -> Fate:
    """Decide what becomes of a job whose attempt failed. `since_ms`: jobs that became eligible before this are not
    retried."""
    if report.reason == INTERRUPTED:
        return Fate.RETRY if held.interruptions < max_interruptions else Fate.DEAD
    if report.reason == SNOOZE:
        return Fate.RETRY
    exit_class = Exit.of_status(report.status)
    retry = exit_class is not Exit.FAILED if report.should_retry is None else report.should_retry
    if not retry:
        return Fate.FAILED
    job = held.job
    began_ms = max(job.created_at_ms, job.eligible_at_ms, held.generation // 1000)  # a revision counts microseconds
    return Fate.RETRY if held.attempt <= job.max_retry and began_ms >= since_ms else Fate.DEAD


def _dropped(report: Report, bytes_max: int) -> str:
    size = report.result_bytes or len(report.result)
    if size <= bytes_max and not report.result_bytes:
        return ""
    limit = f"{bytes_max} can be kept" if size > bytes_max else "more than its worker can send"
    return f"{RESULT_DROPPED}: the result has {size} bytes, {limit}; store it elsewhere and return where"


def _within_limits(report: Report) -> Report:
    changes: dict[str, object] = {}
    if not 100 <= report.status <= 599:
        changes["status"] = 500
    if len(report.message) > MESSAGE_LENGTH_MAX:
        changes["message"] = "… " + report.message[-MESSAGE_LENGTH_MAX:]
    if bytes_of(report.log) > LOG_BYTES_MAX:
        changes |= _log_within(report, LOG_BYTES_MAX)
    if report.reason == SNOOZE and not report.message:
        changes["message"] = "the job put itself off"
    if len(report.error) > ERROR_BYTES_MAX:
        changes["error"] = NIL
        message = changes.get("message", report.message)
        changes["message"] = f"{message}\n(its error value of {len(report.error)} bytes was dropped)"
    elif nests_deeper(report.error, NESTING_MAX):
        changes["error"] = NIL
        message = changes.get("message", report.message)
        changes["message"] = f"{message}\n(its error value nests deeper than {NESTING_MAX} levels and was dropped)"
    return msgspec.structs.replace(report, **changes) if changes else report


def _log_within(report: Report, bytes_max: int) -> dict[str, Any]:
    """Return `log` and `log_from` with the last `bytes_max` bytes of a report's log. A character cut in two is left
    out."""
    data = report.log.encode("utf-8", "replace")
    kept = data[-bytes_max:].decode("utf-8", "ignore")
    return {"log": kept, "log_from": report.log_from + len(data) - len(kept.encode())}
