"""What must hold of what is said to daemons: schedules and pauses of jobtypes, under all faults."""

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.causes import causes, timed_out
from tests.chaos.history import AFTER_S, EPS_S, Claim, Event, History, Run

EARLY_S = 0.05  # a date may be early by this
HEARD_S = 1.0  # so soon all daemons know what one was told
CLOCK_S = 0.002  # servers read their clocks apart from each other
BACK_OFF_S = 4.0  # a daemon asks the store again so soon after something was wrong between them


def dates_fired(h: History) -> Iterator[str]:
    """C16: each date of a schedule is fired once, not before it comes, and its job ends."""
    for name, date in h.dates.items():
        if date["state"] not in ("succeeded", "failed"):
            yield f"{name} is {date['state']} at the end"
    for job_id, runs in h.dated.items():
        fired = h.of_dates.get(job_id)
        if fired is None:
            yield f"job {job_id} of schedule {runs[0].n} ran from {runs[0].start_t:.3f} on, and is of no date of it"
            continue
        name, early_s = fired["name"], fired["at_ms"] / 1000 - h.offset_s - runs[0].start_t
        if early_s > EARLY_S:
            yield f"{name} started {early_s:.3f} s before its date"
        for before, after in pairwise(runs):
            if before.outcome != "retry" and next(causes(h, before, after), None) is None and not timed_out(h, before):
                yield f"{name} started at {before.start_t:.3f} and at {after.start_t:.3f}; nothing had happened to it"


def pauses_hold(h: History) -> Iterator[str]:
    """C17: of a jobtype that is paused nothing is claimed, from a second after it was said on until it is resumed."""
    for pause in h.pauses:
        until_t = min((e["t"] for e in h.resumes if e["t"] > pause["t0"]), default=math.inf)
        for claims in h.claims.values():
            for claim in claims:
                claimed_t = claim.fence / 1e6 - h.offset_s
                if claim.jobtype != pause["name"] or not pause["t"] + HEARD_S < claimed_t < until_t - EPS_S:
                    continue
                if claimed_t > _known_t(h, pause, claim, claimed_t) + HEARD_S:
                    yield (
                        f"job {claim.job} was claimed by {claim.daemon} at {claimed_t:.3f}, and {claim.jobtype!r} was "
                        f"paused at {pause['daemon']} at {pause['t']:.3f}"
                    )


def paused_between(h: History, t0: float, t1: float) -> set[str]:
    """Jobtypes of which nothing had to begin at some time in between; a resumption is heard within a second."""
    return {
        pause["name"]
        for pause in h.pauses
        if pause["t0"] < t1
        and min((e["t"] for e in h.resumes if e["t"] > pause["t0"]), default=math.inf) + HEARD_S > t0
    }


def limits_hold(h: History) -> Iterator[str]:
    """C18: of the jobs on each server of the store, in any window no more starts were claimed than a rate allows; no
    more runs than a concurrency were at once, of those that no fault of their worker, their daemon or its way to their
    store touched."""
    for limit in h.limits:
        known_t, apart = limit["t"] + HEARD_S, defaultdict[str, list[Run]](list)
        for run in (run for runs in h.runs.values() for run in runs if run.name in limit["jobtypes"]):
            apart[h.store_of(h.own.get(run.job, run.job))].append(run)
        for runs in apart.values():
            if "rate" in limit:
                yield from _rate_holds(h, limit["name"], limit["rate"], runs, known_t)
            else:
                yield from _concurrency_holds(h, limit["name"], limit["concurrency"], runs, known_t)


def _rate_holds(h: History, name: str, rate: Event, runs: list[Run], known_t: float) -> Iterator[str]:
    # Claims that came to no start, and those that no log tells of, are left out: too few are seen, and never too many.
    known = (run.claim for run in runs if run.claim and run.claim in h.claims.get(run.claim.job, ()))
    fences = {(claim.job, claim.fence): claim.fence / 1e6 - h.offset_s for claim in known}
    claimed = sorted(at_t for at_t in fences.values() if at_t > known_t)
    for first_t, over_t in zip(claimed, claimed[rate["limit"] :], strict=False):
        if over_t - first_t < rate["per_s"] - CLOCK_S:
            more = f"{rate['limit'] + 1} in {over_t - first_t:.3f} s from {first_t:.3f} on"
            yield f"{name} allows {rate['limit']} in {rate['per_s']:g} s, and {more} were claimed"


def _concurrency_holds(h: History, name: str, most: int, runs: list[Run], known_t: float) -> Iterator[str]:
    changes: list[tuple[float, int, str]] = []
    for run in runs:
        job_id = h.own.get(run.job, run.job)
        whole = run.claim is not None and run.claim.fence / 1e6 - h.offset_s > known_t and run.end_t < math.inf
        if whole and next(h.on(run.start_t, run.end_t, run.worker, *h.of_daemon(run.daemon, job_id)), None) is None:
            changes += [(run.start_t, 1, run.job), (run.end_t, -1, run.job)]
    at_work: set[str] = set()
    for at_t, change, job_id in sorted(changes):
        (at_work.add if change > 0 else at_work.discard)(job_id)
        if change > 0 and len(at_work) > most:
            yield f"{name} allows {most} at once, and at {at_t:.3f} there ran {', '.join(sorted(at_work))}"


def _known_t(h: History, pause: Event, claim: Claim, claimed_t: float) -> float:
    """When that daemon knew of it at the latest, all faults that it may have waited for considered."""
    ways = [pause["daemon"], *h.of_daemon(claim.daemon, claim.job)]
    ways += [target for target in h.touching if target.startswith(("store", "edge"))]
    ends = (fault.t1 for fault in h.on(pause["t0"] - BACK_OFF_S, claimed_t, *ways))
    return max((end_t + AFTER_S + BACK_OFF_S for end_t in ends), default=float(pause["t"]))
