"""What must hold of what is said to daemons: schedules and pauses of jobtypes, under all faults."""

import math
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.causes import causes, timed_out
from tests.chaos.history import AFTER_S, EPS_S, Claim, Event, History

EARLY_S = 0.05  # a date may be early by this
HEARD_S = 1.0  # so soon all daemons know what one was told
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


def _known_t(h: History, pause: Event, claim: Claim, claimed_t: float) -> float:
    """When that daemon knew of it at the latest, all faults that it may have waited for considered."""
    ways = [pause["daemon"], *h.of_daemon(claim.daemon, claim.job)]
    ways += [target for target in h.touching if target.startswith(("store", "edge"))]
    ends = (fault.t1 for fault in h.on(pause["t0"] - BACK_OFF_S, claimed_t, *ways))
    return max((end_t + AFTER_S + BACK_OFF_S for end_t in ends), default=float(pause["t"]))
