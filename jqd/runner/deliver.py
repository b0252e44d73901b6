"""Has a delivery carried to its worker, and does what the end of that calls for.

    end of carrying                    one job                    several jobs
    ─────────────────────────────────────────────────────────────────────────────────────────
    complete, ids missing              ERROR NO_RESPONSE          each of the missing the same
    judged LATER                       entrusted to the worker    each entrusted to the worker
    judged BACK_OFF                    back untried, worker backed off
    judged GONE                        back untried, worker unregistered
    judged NOT_TAKEN                   back untried, jobtype not offered to it for a while
    judged FAILED                      FAILED                     split in halves, sent again
    judged ERROR                       ERROR                      split in halves, sent again
    judged MISPLACED                   the same, and said loudly
    answer cannot be read on           ERROR INVALID_RESPONSE     the missing: split, sent again
    connection lost                    the missing: back untried, to be run alone; ERROR CONNECTION_LOST of one that was
    the same, the worker has left      the missing: interrupted: it ended in good order, and could not wait for them
    not sent                           back untried, worker backed off
    no connection to be had            back untried, and nothing more is claimed for a moment
    not let out                        back untried; what was packed with a job that was withdrawn is sent without it

So one poison job is found in a few steps and takes no other along. "Several" counts the jobs of the request, not
those still missing: a job is blamed for how a request ended only if it was the single one in it.
"""

from collections.abc import Callable

import trio

from jqd.domain.log import get_logger
from jqd.runner.delivery import Delivery, DeliveryContext
from jqd.runner.outcome import INVALID_RESPONSE, NO_RESPONSE, Report, parse_retry_after
from jqd.runner.protocols import Judgement, Sending
from jqd.runner.transport import Carrier, End, Ending

MISPLACED_HINTS = {
    404: "nothing is at its URL; deploy what should be there, or register the right URL",
    405: "it is not to be asked with this method; register with another `method`",
    415: "it does not take this Content-Type; register with another `format`",
}

GONE_S = 5.0  # in which all daemons hear that a worker is taken out

log = get_logger("runner")


async def deliver(
    shared: DeliveryContext, carrier: Carrier, delivery: Delivery, mark: str, spawn: Callable[[Delivery], None]
) -> None:
    """See `parcel` through: until each job has stopped. `spawn` starts another such task."""
    ending = await _send(shared, carrier, delivery, mark)
    parts = [] if ending is None else _finish(shared, delivery, ending)
    delivery.stay.left(shared.clock.mono_s())
    if delivery.losses:
        shared.gates.note_free()
    for part in parts:
        spawn(part)


async def _send(shared: DeliveryContext, carrier: Carrier, delivery: Delivery, mark: str) -> Ending | None:
    """None when nothing is left to decide."""
    ending: Ending | None = None
    with delivery.scope:
        await _wait_turn(shared, delivery)
        if not _may_go(shared, delivery):
            delivery.give_back()
            return None
        batch_id = shared.next_batch_id(mark)
        sending = Sending(
            delivery.worker, delivery.jobtype, delivery.pack(), batch_id, shared.daemon, shared.clock.wall_ms()
        )
        delivery.sent, delivery.set_out_at_s = sending, shared.clock.mono_s()
        ending = await carrier.carry(sending, delivery)
    if ending is None:
        # Cancelled from outside: by time, by lost trust, or all was said and the answer did not end.
        assert not delivery.missing, f"{delivery.jobtype} was cancelled with {len(delivery.missing)} jobs waited for"
    return ending


async def _wait_turn(shared: DeliveryContext, delivery: Delivery) -> None:
    """Until it may go out: a suspect when nothing else is at its worker, others when no suspect has that to itself."""
    stay, send_s, extent = delivery.stay, shared.config.connect_timeout_s, delivery.extent
    with stay.waiting(delivery.losses, extent):
        while wait_s := stay.turn(
            delivery.losses,
            shared.clock.mono_s(),
            send_s,
            jobs=len(delivery.missing),
            group=delivery.group,
            extent=extent,
        ):
            with trio.move_on_after(wait_s):
                await shared.gates.wait_free()


def _may_go(shared: DeliveryContext, delivery: Delivery) -> bool:
    """Not when all of it was withdrawn, our lease is not trusted, or its worker is gone or left alone for a while."""
    is_here = shared.workers.get(delivery.worker.id) is not None and not delivery.gate.is_open(shared.clock.mono_s())
    return bool(delivery.missing) and shared.trusts() and is_here


def _finish(shared: DeliveryContext, delivery: Delivery, ending: Ending) -> list[Delivery]:
    """Decide about the jobs still missing. Returns deliveries to be sent."""
    now_s = shared.clock.mono_s()
    match ending.end:
        case End.COMPLETE:
            what = INVALID_RESPONSE if delivery.unclear else NO_RESPONSE
            why = delivery.unclear or "the worker's answer is complete and does not name this job"
            delivery.report_all(Report(status=500, message=f"{what}: {why}"))
        case End.STATUS:
            return _finish_status(shared, delivery, ending)
        case End.REFUSED:
            if delivery.missing and delivery.is_thinned:
                return [delivery.repacked()]
            delivery.give_back()
        case End.CROWDED:
            shared.counters.crowded += 1
            connections = shared.gates.connections
            log.warning("runner.crowded", count=len(delivery.missing), most=connections.most, why=ending.brief)
            connections.pause()
            delivery.give_back()
        case End.UNREACHABLE:
            shared.counters.unreachable += 1
            _back_off(shared, delivery, now_s, None, ending.brief)
            for gate in shared.gates.at(delivery.worker.endpoint) if ending.is_shared else [delivery.gate]:
                gate.unreachable(delivery.set_out_at_s, now_s, ending.broke or "no connection")
            delivery.give_back()
            shared.workers.unreachable(delivery.worker.id)
        case End.GARBLED:
            shared.counters.garbled += 1
            return _blame(delivery, Report(status=500, message=f"{INVALID_RESPONSE}: {ending.message}"), ending.brief)
        case End.LOST:
            shared.counters.lost += 1
            _lost(shared, delivery, ending)
    return []


def _lost(shared: DeliveryContext, delivery: Delivery, ending: Ending) -> None:
    if not delivery.missing:
        return
    if shared.workers.get(delivery.worker.id) is None:
        delivery.give_back(interruption=f"its worker had left and ended: {ending.message}")
        return
    log.info(
        "runner.lost",
        worker=delivery.worker.id,
        jobtype=delivery.jobtype,
        count=len(delivery.missing),
        why=ending.brief,
    )
    delivery.lost(Report(status=500, message=f"CONNECTION_LOST: {ending.message}"))


def _finish_status(shared: DeliveryContext, delivery: Delivery, ending: Ending) -> list[Delivery]:
    worker, gate = delivery.worker, delivery.gate
    now_s = shared.clock.mono_s()
    match ending.judgement:
        case Judgement.LATER:
            delivery.entrust()
        case Judgement.BACK_OFF:
            wait_s = parse_retry_after(ending.retry_after, shared.clock.wall_ms())
            _back_off(shared, delivery, now_s, wait_s, ending.brief)
            delivery.give_back(refused=True)
        case Judgement.GONE:
            log.error("runner.worker_gone", worker=worker.id, name=worker.name, url=worker.url, status=ending.status)
            _back_off(shared, delivery, now_s, GONE_S, ending.brief)  # the others are told so before its jobs go back
            shared.workers.unregister(worker.id)
            delivery.give_back(refused=True)
        case Judgement.NOT_TAKEN:
            log.warning("runner.not_taken", worker=worker.id, name=worker.name, jobtype=delivery.jobtype)
            gate.not_taken(delivery.jobtype, now_s)
            delivery.give_back(refused=True)
        case _:
            if ending.status in (502, 504):
                # A gateway speaks for a worker that is away: what it got counts, but no more is sent for a while.
                gate.back_off(delivery.sent_at_s or now_s, now_s, why=ending.brief)
            status = ending.status if 400 <= ending.status <= 599 else 502
            retry = ending.judgement is not Judgement.FAILED  # a style may try a 4xx again
            misplaced = ending.judgement is Judgement.MISPLACED
            message = _misplaced(delivery, ending, now_s) if misplaced else ending.message
            return _blame(delivery, Report(status=status, should_retry=retry, message=message), ending.brief)
    return []


def _misplaced(delivery: Delivery, ending: Ending, now_s: float) -> str:
    """What its job is told. Somebody has to mend the worker: that is logged now and then, and shown all the time."""
    worker, hint = delivery.worker, MISPLACED_HINTS.get(ending.status, "it is not what it registered as")
    if delivery.gate.complain(f"answers {ending.status}: {hint}", now_s):
        status, why = ending.status, hint
        log.error("runner.misplaced", worker=worker.id, name=worker.name, url=worker.url, status=status, why=why)
    return f"MISPLACED: {hint}; {ending.message}"


def _back_off(shared: DeliveryContext, delivery: Delivery, now_s: float, retry_after_s: float | None, why: str) -> None:
    """Send its worker nothing for a while."""
    sent_at_s = delivery.set_out_at_s if delivery.sent_at_s is None else delivery.sent_at_s
    if delivery.gate.back_off(sent_at_s, now_s, retry_after_s, why=why):
        shared.counters.back_offs += 1
        log.warning(
            "runner.back_off",
            worker=delivery.worker.id,
            name=delivery.worker.name,
            wait_s=round(delivery.gate.open_until_s - now_s, 3),
            failures=delivery.gate.failures,
            why=why,
        )


def _blame(delivery: Delivery, report: Report, why: str) -> list[Delivery]:
    """A request failed as a whole: its only job did it, or one of several."""
    if not delivery.missing:
        return []
    if delivery.size == 1:
        delivery.report_all(report)
        return []
    log.info(
        "runner.split",
        worker=delivery.worker.id,
        jobtype=delivery.jobtype,
        count=len(delivery.missing),
        why=why,
    )
    return delivery.split()
