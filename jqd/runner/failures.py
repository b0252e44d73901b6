"""Decides what becomes of the jobs of a request that ended without an outcome for each of them.

    how the request ended              one job                    several jobs
    ─────────────────────────────────────────────────────────────────────────────────────────
    complete, ids missing              ERROR NO_RESPONSE          each of the missing the same
    judged LATER                       entrusted to the worker    each entrusted to the worker
    judged BACK_OFF                    back untried, worker backed off; the judgements are in `protocols/protocol.py`
    judged GONE                        back untried, worker unregistered
    judged NOT_TAKEN                   back untried, jobtype not offered to it for a while
    judged FAILED                      FAILED                     split in halves, sent again
    judged ERROR                       ERROR                      split in halves, sent again
    judged MISPLACED the same, and health warns
    FAILED, in doubt                   put off, no attempt        back untried; in both cases the worker is backed off
    answer cannot be read on           ERROR INVALID_RESPONSE     the missing: split, sent again
    connection lost                    the missing: back untried, to be run alone; ERROR CONNECTION_LOST of one that was
    the same, the worker has left      the missing: interrupted: it ended in good order, and could not wait for them
    not sent                           back untried, worker backed off
    no connection to be had            back untried, and nothing more is claimed for a moment
    not let out                        back untried; if one job was withdrawn, the others are sent without it

"Back untried": the jobs are handed back to the store, and no attempt is counted. "Several" means that the request was
sent with several jobs, even if only one has no outcome: the end of a request fails a job only if it was the only one
sent in it. So one bad job is found in a few steps, and no other fails with it.

A refusal is in doubt while the clocks of the daemon and the store differ much, for the worker may refuse the date of
our signature. It is not in doubt if the worker has accepted a date by the same clock. A callback is tried again unless
its receiver answers 2xx or 410. Each try that is not in doubt counts as an attempt.
"""

from collections.abc import Sequence

from jqd.domain.clock import StoreClock
from jqd.domain.job import SNOOZE
from jqd.domain.log import get_logger
from jqd.runner.crash_isolation import COMPANY_LOSSES
from jqd.runner.delivery import Delivery, DeliveryContext
from jqd.runner.in_flight import InFlightJob
from jqd.runner.outcome import INVALID_RESPONSE, NO_RESPONSE, SNOOZE_STATUS, Report, parse_retry_after
from jqd.runner.protocols.protocol import Judgement
from jqd.runner.transport import End, Ending

MISPLACED_HINTS = {
    404: "nothing is at its URL; deploy what should be there, or register the right URL",
    405: "it is not to be asked with this method; register with another `method`",
    415: "it does not take this Content-Type; register with another `format`",
}

CALLBACK_ENDS = frozenset({End.STATUS, End.UNREACHABLE, End.LOST})
"""How a request may end such that a callback is handled by its own rules, not by those for workers."""
AWAY = frozenset({429, 502, 503, 504})  # a receiver with such a status gets nothing for a while
REFUSES_DATE = frozenset({400, 401, 403})  # statuses of receivers that do not accept the date of a signature
DOUBT_S = 150.0  # clock difference above which they may do so: receivers allow 300 s, and their clock may be wrong, too
DOUBT_WAIT_S = 60.0  # until a job that may have been refused for its date is sent again
GONE_S = 5.0  # after so long all daemons know that a worker is unregistered

log = get_logger("runner")


def finish(shared: DeliveryContext, delivery: Delivery, ending: Ending) -> list[Delivery]:
    """Decide what becomes of those jobs of an ended request that have no outcome. Returns new deliveries, for jobs that
    the caller sends again. `ending`: how the request ended."""
    now_s = shared.clock.mono_s()
    if doubt := _doubt(shared, delivery, ending):
        _finish_in_doubt(shared, delivery, ending, now_s, doubt)
        return []
    if delivery.is_callback and ending.end in CALLBACK_ENDS:
        if delivery.missing:  # else it succeeded, and only the rest of the answer was lost
            _finish_callback(shared, delivery, ending, now_s)
        return []
    match ending.end:
        case End.COMPLETE:
            what = INVALID_RESPONSE if delivery.unclear else NO_RESPONSE
            why = delivery.unclear or "the worker's answer is complete and does not name this job"
            delivery.report_all(Report(status=500, message=f"{what}: {why}"))
        case End.STATUS:
            return _finish_status(shared, delivery, ending)
        case End.REFUSED:
            if delivery.missing and len(delivery.missing) != delivery.size:
                return [_again(shared, delivery, _hand_on(shared, delivery))]
            delivery.release()
        case End.CROWDED:
            shared.counters.crowded += 1
            connections = shared.capacity.connections
            log.warning("runner.crowded", count=len(delivery.missing), most=connections.most, why=ending.brief)
            connections.pause()
            delivery.release()
        case End.UNREACHABLE:
            shared.counters.unreachable += 1
            _back_off(shared, delivery, now_s, None, ending.brief)
            for breaker in shared.capacity.at(delivery.worker.endpoint) if ending.is_shared else [delivery.breaker]:
                breaker.unreachable(delivery.set_out_at_s, now_s, ending.broke or "no connection")
            delivery.release()
            shared.workers.unreachable(delivery.worker.id, max(0.0, delivery.breaker.open_until_s - now_s))
        case End.GARBLED:
            shared.counters.garbled += 1
            return _charge(
                shared, delivery, Report(status=500, message=f"{INVALID_RESPONSE}: {ending.message}"), ending.brief
            )
        case End.LOST:
            shared.counters.lost += 1
            if delivery.missing:
                shared.workers.departures.lost("worker", delivery.worker.id, len(delivery.missing))
            _lost(shared, delivery, ending)
    return []


def put_off(shared: DeliveryContext, delivery: Delivery) -> bool:
    """Postpone the callback of a delivery, without counting an attempt, if its receiver did not answer lately. Returns
    whether it was postponed."""
    endpoint = delivery.worker.endpoint
    wait_s = shared.capacity.receivers.wait_s(delivery.worker.place, shared.clock.mono_s())
    if wait_s <= 0 or not delivery.missing or not shared.trusts():
        return False
    why = f"{endpoint} did not answer other callbacks; nothing is sent there for {wait_s:.1f} s"
    shared.in_flight.sent(delivery.missing.values(), shared.clock.wall_ms())
    delivery.report_all(Report(status=SNOOZE_STATUS, reason=SNOOZE, retry_after_s=wait_s, message=why))
    return True


def _finish_callback(shared: DeliveryContext, delivery: Delivery, ending: Ending, now_s: float) -> None:
    """Report a callback that its receiver did not accept. Each failure counts as an attempt; after a 410 there is no
    retry."""
    receivers, place = shared.capacity.receivers, delivery.worker.place
    if ending.end is End.STATUS and ending.status not in AWAY:
        receivers.answered(place)
    else:
        receivers.failed(place, now_s)
    if delivery.sent_at_s is None:
        shared.in_flight.sent(delivery.missing.values(), shared.clock.wall_ms())
    what = ending.message if ending.end is End.STATUS else f"{ending.end.name}: {ending.message}"
    status = ending.status if 400 <= ending.status <= 599 else 502
    wait_s = parse_retry_after(ending.retry_after, shared.clock.wall_ms())
    delivery.report_all(Report(status=status, should_retry=ending.status != 410, retry_after_s=wait_s, message=what))


def _finish_in_doubt(shared: DeliveryContext, delivery: Delivery, ending: Ending, now_s: float, doubt: str) -> None:
    """Back the worker off after a refusal that may be due to the date in our signature. If the request had one job, it
    is postponed, so that another job probes the worker: this one may be bad."""
    if delivery.is_callback:
        shared.capacity.receivers.failed(delivery.worker.place, now_s)
    else:
        _back_off(shared, delivery, now_s, None, f"{ending.brief}; {doubt}")
    if delivery.size > 1:
        delivery.release(refused=True)
    else:
        message = f"{doubt}: {ending.message}"
        report = Report(status=SNOOZE_STATUS, reason=SNOOZE, retry_after_s=DOUBT_WAIT_S, message=message)
        delivery.report_all(report)


def _lost(shared: DeliveryContext, delivery: Delivery, ending: Ending) -> None:
    if not delivery.missing:
        return
    if shared.workers.get(delivery.worker.id) is None:
        delivery.release(interruption=f"its worker had left and ended: {ending.message}")
        return
    log.info(
        "runner.lost",
        worker=delivery.worker.id,
        jobtype=delivery.jobtype,
        count=len(delivery.missing),
        why=ending.brief,
    )
    capacity, now_s = shared.capacity, shared.clock.mono_s()
    capacity.isolate(delivery.worker.place)
    assert delivery.isolated is not None
    capacity.crash_isolation.lost([*delivery.missing], delivery.isolated.lost(now_s))
    # The culprit is known only if one job had the worker to itself. A job that was lost often enough pays as well.
    is_known = (delivery.losses and delivery.isolated.is_alone()) or delivery.losses + 1 >= COMPANY_LOSSES
    if delivery.size > 1 or not is_known:
        delivery.release()
    else:
        report = Report(status=500, message=f"CONNECTION_LOST: {ending.message}")
        delivery.end([(entry, report) for entry in delivery.take_all()], now_s, cleared=False)


def _finish_status(shared: DeliveryContext, delivery: Delivery, ending: Ending) -> list[Delivery]:
    worker, breaker = delivery.worker, delivery.breaker
    now_s = shared.clock.mono_s()
    match ending.judgement:
        case Judgement.LATER:
            delivery.entrust()
        case Judgement.BACK_OFF:
            wait_s = parse_retry_after(ending.retry_after, shared.clock.wall_ms())
            _back_off(shared, delivery, now_s, wait_s, ending.brief)
            delivery.release(refused=True)
        case Judgement.GONE:
            log.error("runner.worker_gone", worker=worker.id, name=worker.name, url=worker.url, status=ending.status)
            _back_off(shared, delivery, now_s, GONE_S, ending.brief)  # other daemons know it before its jobs go back
            shared.workers.unregister(worker.id)
            delivery.release(refused=True)
        case Judgement.NOT_TAKEN:
            log.warning("runner.not_taken", worker=worker.id, name=worker.name, jobtype=delivery.jobtype)
            breaker.not_taken(delivery.jobtype, now_s)
            delivery.release(refused=True)
        case _:
            if ending.status in (502, 504):
                # A gateway answers for a worker that is away: its jobs fail, and no more are sent for a while.
                breaker.back_off(delivery.sent_at_s or now_s, now_s, why=ending.brief, hung=ending.status == 504)
            elif ending.judgement is Judgement.FAILED:
                breaker.answered(delivery.sent_at_s or now_s)
            status = ending.status if 400 <= ending.status <= 599 else 502
            retry = ending.judgement is not Judgement.FAILED  # a protocol may try a 4xx again
            misplaced = ending.judgement is Judgement.MISPLACED
            message = _misplaced(delivery, ending, now_s) if misplaced else ending.message
            return _charge(shared, delivery, Report(status=status, should_retry=retry, message=message), ending.brief)
    return []


def _doubt(shared: DeliveryContext, delivery: Delivery, ending: Ending) -> str:
    """Return why a refusal may be due to the date in our signature, so that no job has failed; "": it is not."""
    clock, is_refusal = shared.clock, ending.judgement is Judgement.FAILED and ending.status in REFUSES_DATE
    if not (is_refusal and delivery.worker.secrets and isinstance(clock, StoreClock)) or clock.apart_s <= DOUBT_S:
        return ""
    if delivery.sent is not None and delivery.breaker.accepts(delivery.sent.sent_at_ms, delivery.set_out_at_s):
        return ""
    return f"the store's clock is {clock.apart_s:.0f} s off this machine's, and it may be the date that is refused"


def _misplaced(delivery: Delivery, ending: Ending, now_s: float) -> str:
    """Return the error message for jobs of a worker that is not what it registered as. Also notes this for health, and
    logs it now and then."""
    worker, hint = delivery.worker, MISPLACED_HINTS.get(ending.status, "it is not what it registered as")
    if delivery.breaker.complain(f"answers {ending.status}: {hint}", now_s):
        status, why = ending.status, hint
        log.error("runner.misplaced", worker=worker.id, name=worker.name, url=worker.url, status=status, why=why)
    return f"MISPLACED: {hint}; {ending.message}"


def _back_off(shared: DeliveryContext, delivery: Delivery, now_s: float, retry_after_s: float | None, why: str) -> None:
    sent_at_s = delivery.set_out_at_s if delivery.sent_at_s is None else delivery.sent_at_s
    if delivery.breaker.back_off(sent_at_s, now_s, retry_after_s, why=why):
        shared.counters.back_offs += 1
        note = log.warning if delivery.breaker.is_to_log("back_off", now_s) else log.debug
        note(
            "runner.back_off",
            worker=delivery.worker.id,
            name=delivery.worker.name,
            wait_s=round(delivery.breaker.open_until_s - now_s, 3),
            failures=delivery.breaker.failures,
            why=why,
        )


def _charge(shared: DeliveryContext, delivery: Delivery, report: Report, why: str) -> list[Delivery]:
    """Handle a request that failed as a whole. If it had one job, the job ends with the report. If it had several,
    returns new deliveries, each with half of them. `why`: the reason, for the log."""
    if not delivery.missing:
        return []
    if delivery.size == 1:
        delivery.report_all(report)
        return []
    log.info("runner.split", worker=delivery.worker.id, jobtype=delivery.jobtype, count=len(delivery.missing), why=why)
    entries = _hand_on(shared, delivery)
    half = (len(entries) + 1) // 2
    shared.counters.splits += 1
    return [_again(shared, delivery, part) for part in (entries[:half], entries[half:]) if part]


def _hand_on(shared: DeliveryContext, delivery: Delivery) -> list[InFlightJob]:
    """Take the jobs without outcome out of a delivery and return them; the caller sends them again in other requests.
    Cancelled jobs are handed back to the store instead."""
    for entry in [entry for entry in delivery.missing.values() if entry.cancelled]:
        delivery.drop(entry)
    entries = delivery.take_all()
    if delivery.sent_at_s is not None and delivery.isolated is not None:
        delivery.isolated.fewer(len(entries))
    shared.in_flight.requeue(entries)
    return entries


def _again(shared: DeliveryContext, delivery: Delivery, entries: Sequence[InFlightJob]) -> Delivery:
    return Delivery(shared, delivery.worker, delivery.breaker, delivery.jobtype, entries, losses=delivery.losses)
