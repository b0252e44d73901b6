"""Has a parcel carried to its worker, and does what the end of that calls for.

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
from jqd.runner.delivery import Parcel, Shared
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


async def deliver(shared: Shared, carrier: Carrier, parcel: Parcel, mark: str, spawn: Callable[[Parcel], None]) -> None:
    """See `parcel` through: until each job has stopped. `spawn` starts another such task."""
    ending = await _send(shared, carrier, parcel, mark)
    parts = [] if ending is None else _finish(shared, parcel, ending)
    parcel.stay.left(shared.clock.mono_s())
    if parcel.losses:
        shared.gates.note_free()
    for part in parts:
        spawn(part)


async def _send(shared: Shared, carrier: Carrier, parcel: Parcel, mark: str) -> Ending | None:
    """None when nothing is left to decide."""
    ending: Ending | None = None
    with parcel.scope:
        await _wait_turn(shared, parcel)
        if not _may_go(shared, parcel):
            parcel.give_back()
            return None
        batch_id = shared.next_batch_id(mark)
        sending = Sending(parcel.worker, parcel.jobtype, parcel.pack(), batch_id, shared.daemon, shared.clock.wall_ms())
        parcel.sent, parcel.set_out_at_s = sending, shared.clock.mono_s()
        ending = await carrier.carry(sending, parcel)
    if ending is None:
        # Cancelled from outside: by time, by lost trust, or all was said and the answer did not end.
        assert not parcel.missing, f"{parcel.jobtype} was cancelled with {len(parcel.missing)} jobs waited for"
    return ending


async def _wait_turn(shared: Shared, parcel: Parcel) -> None:
    """Until it may go out: a suspect when nothing else is at its worker, others when no suspect has that to itself."""
    stay, send_s, extent = parcel.stay, shared.config.connect_timeout_s, parcel.extent
    with stay.waiting(parcel.losses, extent):
        while wait_s := stay.turn(
            parcel.losses,
            shared.clock.mono_s(),
            send_s,
            jobs=len(parcel.missing),
            group=parcel.group,
            extent=extent,
        ):
            with trio.move_on_after(wait_s):
                await shared.gates.wait_free()


def _may_go(shared: Shared, parcel: Parcel) -> bool:
    """Not when all of it was withdrawn, our lease is not trusted, or its worker is gone or left alone for a while."""
    is_here = shared.workers.get(parcel.worker.id) is not None and not parcel.gate.is_open(shared.clock.mono_s())
    return bool(parcel.missing) and shared.trusts() and is_here


def _finish(shared: Shared, parcel: Parcel, ending: Ending) -> list[Parcel]:
    """Decide about the jobs still missing. Returns parcels to be sent."""
    now_s = shared.clock.mono_s()
    match ending.end:
        case End.COMPLETE:
            what = INVALID_RESPONSE if parcel.unclear else NO_RESPONSE
            why = parcel.unclear or "the worker's answer is complete and does not name this job"
            parcel.report_all(Report(status=500, message=f"{what}: {why}"))
        case End.STATUS:
            return _finish_status(shared, parcel, ending)
        case End.REFUSED:
            if parcel.missing and parcel.is_thinned:
                return [parcel.repacked()]
            parcel.give_back()
        case End.CROWDED:
            shared.counters.crowded += 1
            connections = shared.gates.connections
            log.warning("runner.crowded", count=len(parcel.missing), most=connections.most, why=ending.brief)
            connections.pause()
            parcel.give_back()
        case End.UNREACHABLE:
            shared.counters.unreachable += 1
            _back_off(shared, parcel, now_s, None, ending.brief)
            for gate in shared.gates.at(parcel.worker.endpoint) if ending.is_shared else [parcel.gate]:
                gate.unreachable(parcel.set_out_at_s, now_s, ending.broke or "no connection")
            parcel.give_back()
            shared.workers.unreachable(parcel.worker.id)
        case End.GARBLED:
            shared.counters.garbled += 1
            return _blame(parcel, Report(status=500, message=f"{INVALID_RESPONSE}: {ending.message}"), ending.brief)
        case End.LOST:
            shared.counters.lost += 1
            _lost(shared, parcel, ending)
    return []


def _lost(shared: Shared, parcel: Parcel, ending: Ending) -> None:
    if not parcel.missing:
        return
    if shared.workers.get(parcel.worker.id) is None:
        parcel.give_back(interruption=f"its worker had left and ended: {ending.message}")
        return
    log.info(
        "runner.lost", worker=parcel.worker.id, jobtype=parcel.jobtype, count=len(parcel.missing), why=ending.brief
    )
    parcel.lost(Report(status=500, message=f"CONNECTION_LOST: {ending.message}"))


def _finish_status(shared: Shared, parcel: Parcel, ending: Ending) -> list[Parcel]:
    worker, gate = parcel.worker, parcel.gate
    now_s = shared.clock.mono_s()
    match ending.judgement:
        case Judgement.LATER:
            parcel.entrust()
        case Judgement.BACK_OFF:
            wait_s = parse_retry_after(ending.retry_after, shared.clock.wall_ms())
            _back_off(shared, parcel, now_s, wait_s, ending.brief)
            parcel.give_back(refused=True)
        case Judgement.GONE:
            log.error("runner.worker_gone", worker=worker.id, name=worker.name, url=worker.url, status=ending.status)
            _back_off(shared, parcel, now_s, GONE_S, ending.brief)  # the others are told so before its jobs go back
            shared.workers.unregister(worker.id)
            parcel.give_back(refused=True)
        case Judgement.NOT_TAKEN:
            log.warning("runner.not_taken", worker=worker.id, name=worker.name, jobtype=parcel.jobtype)
            gate.not_taken(parcel.jobtype, now_s)
            parcel.give_back(refused=True)
        case _:
            if ending.status in (502, 504):
                # A gateway speaks for a worker that is away: what it got counts, but no more is sent for a while.
                gate.back_off(parcel.sent_at_s or now_s, now_s, why=ending.brief)
            status = ending.status if 400 <= ending.status <= 599 else 502
            retry = ending.judgement is not Judgement.FAILED  # a style may try a 4xx again
            misplaced = ending.judgement is Judgement.MISPLACED
            message = _misplaced(parcel, ending, now_s) if misplaced else ending.message
            return _blame(parcel, Report(status=status, should_retry=retry, message=message), ending.brief)
    return []


def _misplaced(parcel: Parcel, ending: Ending, now_s: float) -> str:
    """What its job is told. Somebody has to mend the worker: that is logged now and then, and shown all the time."""
    worker, hint = parcel.worker, MISPLACED_HINTS.get(ending.status, "it is not what it registered as")
    if parcel.gate.complain(f"answers {ending.status}: {hint}", now_s):
        status, why = ending.status, hint
        log.error("runner.misplaced", worker=worker.id, name=worker.name, url=worker.url, status=status, why=why)
    return f"MISPLACED: {hint}; {ending.message}"


def _back_off(shared: Shared, parcel: Parcel, now_s: float, retry_after_s: float | None, why: str) -> None:
    """Send its worker nothing for a while."""
    sent_at_s = parcel.set_out_at_s if parcel.sent_at_s is None else parcel.sent_at_s
    if parcel.gate.back_off(sent_at_s, now_s, retry_after_s, why=why):
        shared.counters.back_offs += 1
        log.warning(
            "runner.back_off",
            worker=parcel.worker.id,
            name=parcel.worker.name,
            wait_s=round(parcel.gate.open_until_s - now_s, 3),
            failures=parcel.gate.failures,
            why=why,
        )


def _blame(parcel: Parcel, report: Report, why: str) -> list[Parcel]:
    """A request failed as a whole: its only job did it, or one of several."""
    if not parcel.missing:
        return []
    if parcel.size == 1:
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
