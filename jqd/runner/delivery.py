"""Takes a parcel to its worker, and does what the end of the POST calls for.

    end of the POST                    one job                    several jobs
    ─────────────────────────────────────────────────────────────────────────────────────────
    complete, ids missing              ERROR NO_RESPONSE          each of the missing the same
    2xx without a body                 OK                         all OK
    202                                waits for `done`           each waits for `done`
    408 425 429 503                    back untried, worker backed off
    410                                back untried, worker unregistered
    404 from a LightJQ worker          back untried, jobtype not offered to it for a while
    other 4xx                          FAILED                     split in halves, sent again
    other 5xx, 3xx                     ERROR                      split in halves, sent again
    answer cannot be read on           ERROR INVALID_RESPONSE     the missing: split, sent again
    connection lost                    ERROR CONNECTION_LOST      the missing: split, sent again one by one
    not sent                           back untried, worker backed off
    no connection to be had            back untried, and nothing more is claimed for a moment
    not let out                        back untried; what was packed with a job that was withdrawn is sent without it

So one poison job is found in a few steps and takes no other along. "Several" counts the jobs of the request, not
those still missing: only a job that was alone in its request is blamed for how the request ended.
"""

from collections.abc import Callable

import httpcore2

from jqd.runner.parcel import Parcel, Shared
from jqd.runner.post import End, Ending, post
from jqd.runner.reach import on_behalf_of
from jqd.runner.verdict import Judgement, Report, parse_retry_after
from jqd.runner.wire import INVALID_RESPONSE, NO_RESPONSE, encode_batch, encode_light_job, request_headers
from jqd.words.log import get_logger

log = get_logger("runner")


async def deliver(
    shared: Shared, pool: httpcore2.AsyncConnectionPool, parcel: Parcel, mark: str, spawn: Callable[[Parcel], None]
) -> None:
    """See `parcel` through: until each job has stopped, or waits for `done`. `spawn` starts another such task."""
    work = [parcel]
    while work:
        current = work.pop()
        ending = await _send(shared, pool, current, mark)
        if ending is None:
            continue
        parts = _finish(shared, current, ending)
        if ending.end is End.LOST:
            # A job that takes the worker down must not meet its neighbours there: one request after the other.
            work.extend(reversed(parts))
        else:
            for part in parts:
                spawn(part)


async def _send(shared: Shared, pool: httpcore2.AsyncConnectionPool, parcel: Parcel, mark: str) -> Ending | None:
    """None when nothing is left to decide."""
    worker, gate = parcel.worker, parcel.gate
    if not parcel.missing:
        return None
    if shared.workers.get(worker.id) is None or gate.is_open(shared.clock.mono_s()) or not shared.trusts():
        parcel.give_back()
        return None
    assert worker.url is not None, f"worker {worker.id} has no URL, but jobs to post"
    batch_id = shared.next_batch_id(mark)
    held = parcel.pack()
    lightjq = worker.style == "lightjq"
    if lightjq:
        (only,) = held
        url, body = worker.url.rstrip("/") + "/worker-job", encode_light_job(only)
    else:
        url, body = worker.url, encode_batch(batch_id, held, shared.clock.wall_ms())
    headers = request_headers(batch_id, parcel.jobtype, shared.daemon)
    ending: Ending | None = None
    with parcel.scope, shared.connections.one(), on_behalf_of(worker.standing):
        ending = await post(pool, url, headers, body, lightjq=lightjq, listener=parcel, limits=shared.limits)
    if ending is None:
        # Cancelled from outside: by time, by lost trust, or all was said and the answer did not end.
        assert not parcel.missing, f"batch {batch_id} was cancelled with {len(parcel.missing)} jobs waited for"
    return ending


def _finish(shared: Shared, parcel: Parcel, ending: Ending) -> list[Parcel]:
    """Decide about the jobs still missing. Returns parcels to be sent."""
    alone = parcel.size == 1
    now_s = shared.clock.mono_s()
    match ending.end:
        case End.EMPTY:
            parcel.report_all(Report())
        case End.COMPLETE:
            what = INVALID_RESPONSE if parcel.unclear else NO_RESPONSE
            why = parcel.unclear or "the worker's answer is complete and does not name this job"
            parcel.report_all(Report(status=500, message=f"{what}: {why}"))
        case End.STATUS:
            return _finish_status(shared, parcel, ending, alone)
        case End.REFUSED:
            if parcel.missing and parcel.is_thinned:
                return [parcel.repacked()]
            parcel.give_back()
        case End.CROWDED:
            shared.counters.crowded += 1
            log.warning("runner.crowded", count=len(parcel.missing), most=shared.connections.most, why=ending.brief)
            shared.connections.pause()
            parcel.give_back()
        case End.UNREACHABLE:
            shared.counters.unreachable += 1
            _back_off(shared, parcel, now_s, None, ending.brief)
            shared.workers.unreachable(parcel.worker.id)
        case End.GARBLED:
            shared.counters.garbled += 1
            return _blame(
                parcel, Report(status=500, message=f"{INVALID_RESPONSE}: {ending.message}"), alone, ending.brief
            )
        case End.LOST:
            shared.counters.lost += 1
            if ending.reused and not parcel.again and parcel.missing:
                return parcel.split(again=True)
            return _blame(parcel, Report(status=500, message=f"CONNECTION_LOST: {ending.message}"), alone, ending.brief)
    return []


def _finish_status(shared: Shared, parcel: Parcel, ending: Ending, alone: bool) -> list[Parcel]:
    worker, gate = parcel.worker, parcel.gate
    now_s = shared.clock.mono_s()
    match ending.judgement:
        case Judgement.LATER:
            return []  # reported by `done`, or timed out
        case Judgement.BACK_OFF:
            wait_s = parse_retry_after(ending.retry_after, shared.clock.wall_ms())
            _back_off(shared, parcel, now_s, wait_s, ending.brief)
        case Judgement.GONE:
            log.error("runner.worker_gone", worker=worker.id, name=worker.name, url=worker.url, status=ending.status)
            shared.workers.unregister(worker.id)
            parcel.give_back()
        case Judgement.NOT_TAKEN:
            log.warning("runner.not_taken", worker=worker.id, name=worker.name, jobtype=parcel.jobtype)
            gate.not_taken(parcel.jobtype, now_s)
            parcel.give_back()
        case _:
            if ending.status in (502, 504):
                # A gateway speaks for a worker that is away: what it got counts, but no more is sent for a while.
                gate.back_off(parcel.sent_at_s or now_s, now_s)
            status = ending.status if 400 <= ending.status <= 599 else 502
            return _blame(parcel, Report(status=status, message=ending.message), alone, ending.brief)
    return []


def _back_off(shared: Shared, parcel: Parcel, now_s: float, retry_after_s: float | None, why: str) -> None:
    """Hand the jobs back and leave the worker alone for a while."""
    sent_at_s = now_s if parcel.sent_at_s is None else parcel.sent_at_s
    if parcel.gate.back_off(sent_at_s, now_s, retry_after_s):
        shared.counters.back_offs += 1
        log.warning(
            "runner.back_off",
            worker=parcel.worker.id,
            name=parcel.worker.name,
            wait_s=round(parcel.gate.open_until_s - now_s, 3),
            failures=parcel.gate.failures,
            why=why,
        )
    parcel.give_back()


def _blame(parcel: Parcel, report: Report, alone: bool, why: str) -> list[Parcel]:
    """A request failed as a whole: its only job did it, or one of several."""
    if not parcel.missing:
        return []
    if alone:
        parcel.report_all(report)
        return []
    log.info(
        "runner.split",
        worker=parcel.worker.id,
        jobtype=parcel.jobtype,
        count=len(parcel.missing),
        why=why,
    )
    return parcel.split()
