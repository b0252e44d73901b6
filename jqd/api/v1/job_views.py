"""Makes the descriptions of jobs in answers: of one job with all fields, or of many jobs without the large fields."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from jqd.api.v1 import responses
from jqd.api.v1.responses import Attempt, Job, JobBrief
from jqd.domain import dates
from jqd.domain.error_summary import error_line
from jqd.domain.flow import Flow, unique_text
from jqd.domain.job import NIL, Exit, Outcome, State
from jqd.domain.job_spec import KEPT, NOTHING
from jqd.domain.results import LargeResult
from jqd.domain.tenant import bare
from jqd.service import Coming, Services
from jqd.service.find import worker_of
from jqd.service.health import why_waiting
from jqd.service.leases import read_progress
from jqd.service.walk import NEAR_MAX
from jqd.store import JobView

ARGUMENT_BYTES_MAX = 64 * 1024  # a larger argument is shown only on request
BRIEF_MESSAGE_LENGTH_MAX = 300  # characters of a message in a list; of a longer one only the line with the error

_then_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])


def job_body(services: Services, view: JobView | Coming, named: str = "", *, whole: bool = False) -> Job:
    """Return the body of `GET /v1/jobs/{id}`.

    `named`: the id in the request. `whole`: whether to include the argument even if it is large.
    """
    if isinstance(view, Coming):
        # Its content is still on its way, so priority and max_retry are unknown and left out.
        created_at = iso(view.created_at_ms)
        named = named or view.id
        return Job(job_id=named, name="", state=view.state, attempts=0, created_at=created_at, error=NOTHING)
    last = view.outcome
    return Job(
        **_known(services, view, Job),
        expires_at=iso(view.expires_at_ms) or UNSET,
        argument=Raw(view.argument) if whole or len(view.argument) <= ARGUMENT_BYTES_MAX else UNSET,
        argument_bytes=len(view.argument),
        error=Raw(last.error) if last else NOTHING,
        message=(last.message if last else "") or None,
        history=[_attempt(outcome) for outcome in view.history],
        note=_note(services, view),
        progress=_progress(view),
        log=view.log or UNSET,
        **_result(view),
        **_links(view.flow),
    )


def _result(view: JobView) -> dict[str, Any]:
    """Return the fields for a job's kept result. For a large result it is only the size."""
    if not view.keep_result:
        return {}
    if isinstance(view.result, LargeResult):
        return {"result_bytes": view.result.bytes}
    return {"result": Raw(view.result or NIL)}


def job_brief(services: Services, view: JobView) -> JobBrief:
    """Return the description of a job in a list, without large fields."""
    return JobBrief(**_known(services, view, JobBrief), message=brief_message(view))


def brief_message(view: JobView) -> str | None:
    """Return the message of a job's last attempt for a list; a long one is cut to the end of the line that says what
    went wrong."""
    message = view.outcome.message if view.outcome else ""
    if len(message) > BRIEF_MESSAGE_LENGTH_MAX:
        message = "… " + error_line(message)[-BRIEF_MESSAGE_LENGTH_MAX:]
    return message or None


def iso(at_ms: int) -> str | None:
    """Return Unix milliseconds as an ISO 8601 date in UTC; None for 0."""
    return dates.iso(at_ms) if at_ms else None


_OPTIONS = {kind: [name for name in KEPT if name in kind.__struct_fields__] for kind in (Job, JobBrief)}


def _known(services: Services, view: JobView, kind: type[Job] | type[JobBrief]) -> dict[str, Any]:
    """Return the fields of `JobState` for a job, and the options of the job that `kind` shows."""
    options = {name: UNSET if (value := getattr(view, name)) == () else value for name in _OPTIONS[kind]}
    running = services.runner.of(view.id).running(view.id) if view.state is State.RUNNING else None
    last = view.outcome
    return options | {
        "job_id": bare(view.name) or view.id,
        "id": view.id if view.name else UNSET,
        "name": bare(view.jobtype),
        "tenant": view.tenant or UNSET,
        "state": view.state,
        "attempts": view.attempts,
        "snoozes": view.snoozes or UNSET,
        "interrupted": view.interruptions or UNSET,
        "created_at": iso(view.created_at_ms),
        "eligible_at": iso(view.eligible_at_ms),
        "started_at": iso((running.started_at_ms if running else 0) or view.started_at_ms),
        "finished_at": iso(last.finished_at_ms if last and view.state.is_final else 0),
        "worker_finished_at": _reported_at(last) if view.state.is_final else UNSET,
        "code": Exit.of_status(last.status).code if last else UNSET,
        "exitcode": last.status if last else UNSET,
        "worker": worker_of(services, view) or None,
        "daemon": view.daemon or None,
        "tags": view.tags,
    }


def _note(services: Services, view: JobView) -> str | UnsetType:
    waits = view.state in (State.WAITING, State.RETRYING) and view.eligible_at_ms <= services.clock.wall_ms()
    reason = why_waiting(services, view.jobtype, view.priority) if waits else None
    return reason.text if reason else UNSET


def _progress(view: JobView) -> responses.Progress | UnsetType:
    progress = read_progress(view.progress) if view.progress else None
    return UNSET if progress is None else responses.Progress(progress.done, progress.message, iso(progress.at_ms))


def _reported_at(outcome: Outcome | None) -> str | UnsetType:
    return dates.iso(at_ms) if outcome and (at_ms := outcome.by_worker_at_ms) is not None else UNSET


def _attempt(outcome: Outcome) -> Attempt:
    return Attempt(
        attempt=outcome.attempt,
        status=outcome.status,
        started_at=iso(outcome.started_at_ms),
        finished_at=iso(outcome.finished_at_ms),
        worker_finished_at=_reported_at(outcome),
        worker=bare(outcome.worker) or None,
        reason=outcome.reason or None,
        error=Raw(outcome.error),
        message=outcome.message or None,
    )


def _links(links: Flow | None) -> dict[str, Any]:
    """Return the fields of `JobLinks` for a job's links."""
    if links is None:
        return {}
    followers = _then_decoder.decode(links.then) if links.then else ()
    return {
        "parents": [bare(parent) for parent in links.after[:NEAR_MAX]] or UNSET,
        "parents_count": len(links.after) or UNSET,
        "parent": links.parent or UNSET,
        "group": bare(links.group) or UNSET,
        "unique": unique_text(links.unique) or UNSET,
        "then": [str(msgspec.msgpack.decode(each["name"])) for each in followers] if links.then else UNSET,
    }
