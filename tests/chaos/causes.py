"""What explains what: which fault may be why a job was started again, or late, or twice at once."""

import math
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.history import AFTER_S, EPS_S, Fault, History, Run

TAIL_S = 2.0  # a store that syncs every second may lose so much when it is killed


def causes(h: History, before: Run, after: Run) -> Iterator[Fault]:
    """Faults that struck `before` while its end was not known to the store, and before `after` began."""
    claim = before.claim
    taken_t, settled_t = (before.start_t, math.inf) if claim is None else (claim.t, claim.settled_t)
    job_id = h.own.get(before.job, before.job)
    name, edge = h.of_daemon(before.daemon, job_id)
    # A start that comes late, from a worker or daemon that was paused, was struck itself.
    is_late = after.claim and claim and after.claim.t < claim.t
    late = (after.worker, *h.of_daemon(after.daemon, job_id)) if is_late else ()
    for fault in h.on(taken_t - EPS_S, after.start_t, before.worker, name, edge, *late, h.store_of(job_id)):
        of_daemon = fault.target in (name, edge)
        since_t = min(settled_t, claim.kept_t) if claim and of_daemon else settled_t
        if fault.t0 <= since_t + EPS_S or fault.target in late:
            yield fault


def all_causes(h: History, runs: list[Run]) -> Iterator[Fault]:
    for before, after in pairwise(runs):
        yield from causes(h, before, after)


def had_begun(h: History, job_id: str, state: str | None) -> bool:
    """Whether it succeeded although it was cancelled: a run had begun before the 204, whose end came after it."""
    if state != "succeeded" or job_id not in h.cancels:
        return False
    t = h.cancelled_t.get(job_id, math.inf)
    runs = (run for run in h.runs.get(job_id, []) if run.outcome == "ok" and run.start_t <= t)
    return any(run.claim is None or run.claim.settled_t > t - EPS_S or t == math.inf for run in runs)


def gave_way(h: History, job_id: str, before: str, state: str | None) -> bool:
    """Whether the end that was read before gives way to this one, in whatever order journals tell of both.

    A success beats a cancel, and the failure of one whose worker was found silent. A cancel beats a failure: a daemon
    that a fault keeps from the store takes it without knowing of the end (202), and the store hears of it later.
    """
    if before == "failed" and state == "succeeded":
        return any(run.outcome == "ok" for run in h.runs.get(job_id, []))
    if before == "failed" and state == "cancelled":
        return job_id in h.cancels and job_id not in h.cancels_refused
    return had_begun(h, job_id, state)


def timed_out(h: History, run: Run) -> bool:
    """The worker's own book says that it took longer than it might."""
    return bool(min(end_t(h, run), h.drained_t) - run.start_t >= h.config["timeout_s"])


def claimed_after_its_end(h: History, job_id: str) -> Iterator[str]:
    """No claim brings up what the store knew to have ended, unless it was struck and the one who knows was, too."""
    for done in h.claims.get(job_id, []):
        if done.fate not in ("succeeded", "failed", "dead") or done.unsure:
            continue
        for claim in h.claims[job_id]:
            claimed_t = claim.fence / 1e6 - h.offset_s
            if claim.fence <= done.fence or claimed_t <= done.settled_t + EPS_S:
                continue
            store = any(h.on(done.settled_t - TAIL_S, claimed_t, h.store_of(job_id)))
            if not (store and any(h.on(done.settled_t - TAIL_S, claimed_t, *h.of_daemon(done.daemon, job_id)))):
                yield f"job {job_id} was {done.fate} at {done.settled_t:.3f} and claimed again at {claimed_t:.3f}"


def in_flight(h: History, fault: Fault, run: Run) -> bool:
    claim, job_id = run.claim, h.own.get(run.job, run.job)
    if claim is None or fault.target not in (run.worker, h.store_of(job_id), *h.of_daemon(run.daemon, job_id)):
        return False
    return claim.t - EPS_S <= fault.t1 + AFTER_S and claim.settled_t + EPS_S >= fault.t0


def end_t(h: History, run: Run) -> float:
    """When a run was over: its end, or the death of its worker."""
    if run.end_t < math.inf:
        return run.end_t
    killed = (fault.t0 for fault in h.touching[run.worker] if fault.kind == "kill" and fault.t0 >= run.start_t - EPS_S)
    return min(killed, default=math.inf)


def may_overlap(fault: Fault, before: Run, after: Run, lease_s: float) -> bool:
    """A dead daemon's next life goes on at once, and a lapse lets go; what it may come back from lasts a lease."""
    if (
        fault.kind == "kill"
        or fault.target.startswith("store")
        or fault.target == before.worker
        or after.daemon == before.daemon
    ):
        return True
    return after.start_t >= fault.t0 + lease_s


def was_paused(h: History, run: Run) -> bool:
    name, edge = h.of_daemon(run.daemon, h.own.get(run.job, run.job))
    since_t = run.claim.t if run.claim else run.start_t
    return any(fault.kind != "kill" for fault in h.on(since_t, run.start_t, run.worker, name, edge))


def any_hidden(h: History, t0: float, t1: float) -> bool:
    """Whether a job may have been claimed without a trace: the answer to its claim was lost."""
    return any(h.on(t0, t1, *(target for target in h.touching if not target.startswith("worker"))))
