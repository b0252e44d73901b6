"""Explains why one job waits, and until when. The first reason in this list that applies is given:

the store is away · not ingested · ended · running · its parents · a date · paused · its version is gone · no worker,
none for its priority, or all of them down · it may only run alone · a constraint · no daemon may claim · jobs before it
· it is the next
"""

from jqd.domain.dates import iso
from jqd.domain.error_summary import error_line
from jqd.domain.errors import StoreAway
from jqd.domain.job import INTERRUPTED, State
from jqd.domain.tenant import bare, tenant_of
from jqd.service.find import Coming, look_up, worker_of
from jqd.service.health import why_waiting
from jqd.service.parents import awaited, cancelled_for
from jqd.service.services import Services
from jqd.service.wait_reason import Cause, WaitReason
from jqd.store import JobView, QueuePlace

WORDS_MAX = 200  # characters shown of an attempt's message


async def explain(services: Services, given: str) -> tuple[JobView | None, WaitReason]:
    """Return a job and the reason why it waits. The job is None if the store does not have it yet or does not answer.

    Raises NotFound, StoreRefused.
    """
    try:
        view = await look_up(services, given, 0.0)
        not_ready = services.control.run_ready()
        if isinstance(view, Coming):
            text = "it is in the journal of a daemon, or about to be, and not in the store yet"
            return None, WaitReason(Cause.NOT_INGESTED, f"{text}: {not_ready or 'it comes in its turn'}")
        if view.state.is_final:
            return view, await _ended(services, view)
        if view.state is State.RUNNING:
            reason = _running(services, view)
        elif view.state is State.BLOCKED and view.flow is not None:
            reason = WaitReason(Cause.BLOCKED, await awaited(services, view, view.flow))
        elif view.eligible_at_ms > services.clock.wall_ms():
            reason = _dated(view)
        else:
            reason = why_waiting(services, view.jobtype, view.priority) or _in_turn(
                services, view, await services.store.queue_place(view.id, services.ages), not_ready
            )
    except StoreAway as error:
        text = f"nobody can tell how it stands, for the store is away: {error}"
        return None, WaitReason(Cause.STORE_AWAY, text)
    return view, reason._replace(text=reason.text + _interrupted(view))


async def _ended(services: Services, view: JobView) -> WaitReason:
    last = view.outcome
    at_ms = last.finished_at_ms if last else 0
    text = f"it has ended: {view.state.value}{f' at {iso(at_ms)}' if at_ms else ''}"
    if view.state is State.FAILED and last is not None and (words := error_line(last.message)[:WORDS_MAX]):
        text += f" ({words})"
    if parent := await cancelled_for(services, view):
        text += f" (its parent {parent} did not succeed)"
    if view.state is State.SUCCEEDED and (parents := services.control.waiting_parents(tenant_of(view.jobtype))):
        text += f"; what follows {parents} jobs waits for the quota of its tenant, and it may be one of them"
    return WaitReason(Cause.ENDED, text, since_ms=at_ms)


def _running(services: Services, view: JobView) -> WaitReason:
    running = services.runner.of(view.id).running(view.id)
    worker = worker_of(services, view)
    since_ms = (running.started_at_ms if running else 0) or view.started_at_ms
    where = f" at worker {worker}" if worker else ""
    daemon = f" for daemon {view.daemon}" if view.daemon else ""
    asked = "; it was asked to stop" if view.cancel_asked else ""
    text = f"it runs since {iso(since_ms)}{where}{daemon}, attempt {view.attempts} of {view.max_retry + 1}{asked}"
    return WaitReason(Cause.RUNNING, text, since_ms=since_ms, by=worker)


def _dated(view: JobView) -> WaitReason:
    until = iso(view.eligible_at_ms)
    if view.state is not State.RETRYING:
        return WaitReason(Cause.SCHEDULED, f"it is not to begin before {until}", until_ms=view.eligible_at_ms)
    words = error_line(view.outcome.message)[:WORDS_MAX] if view.outcome else ""
    failed = f"attempt {view.attempts} failed{f' ({words})' if words else ''}"
    text = f"{failed}, and the next one is not to begin before {until}"
    return WaitReason(Cause.RETRYING, text, until_ms=view.eligible_at_ms)


def _interrupted(view: JobView) -> str:
    """Return, as text, how often the job was interrupted, and why the last time; empty if it never was."""
    if not view.interruptions:
        return ""
    last = next((one for one in reversed(view.history) if one.reason == INTERRUPTED), None)
    words = f" ({error_line(last.message)[:WORDS_MAX]})" if last else ""
    often = "once" if view.interruptions == 1 else f"{view.interruptions} times"
    return f"; it was interrupted {often}{words}, and begins anew each time"


def _in_turn(services: Services, view: JobView, place: QueuePlace | None, not_ready: str | None) -> WaitReason:
    """Return why a job waits although some worker takes its jobtype. `place`: the job's place in the queue; None: it is
    in no queue yet. `not_ready`: why this daemon claims no jobs now; None: it claims jobs."""
    if place is None:
        text = f"its date has come, and it becomes ready in a moment{f': {not_ready}' if not_ready else ''}"
        return WaitReason(Cause.NOT_READY if not_ready else Cause.NEXT, text)
    if place.suspect:
        text = (
            f"it was in flight when {place.deaths} daemons died, so it runs alone: it waits until a daemon that comes"
            " to it has nothing else in flight"
        )
        return WaitReason(Cause.SUSPECT, text, deaths=place.deaths, ahead=place.ahead, is_exact=place.exact)
    if place.limited_by:
        return services.hooks.why_limited(services, view, place)
    if not_ready:
        return WaitReason(Cause.NOT_READY, not_ready, ahead=place.ahead, is_exact=place.exact)
    better = tuple((bare(name), ready) for name, ready in place.better if services.principal.can_access(name))
    more = place.better_types - len(better) if services.principal.sees_all else 0
    if not place.ahead and not better:
        text = "it is the next of its type: a worker takes it as soon as one has a free hand"
        return WaitReason(Cause.NEXT, text, ahead=0)
    most, jobs = "" if place.exact else "at most ", "job" if place.ahead == 1 else "jobs"
    before = [f"{most}{place.ahead} {jobs} of {bare(view.jobtype)!r}"] if place.ahead else []
    before += [f"better ones of {name!r} ({ready} ready)" for name, ready in better]
    before += [f"of {more} more types"] if more else []
    text = f"it waits behind {', '.join(before)}"
    return WaitReason(Cause.BEHIND, text, ahead=place.ahead, is_exact=place.exact, better=better, more_better=more)
