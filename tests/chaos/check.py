"""Checks the history of a chaos run: what was pushed, started, ended, cancelled and read, and which faults there were.

    python -m tests.chaos.check DIRECTORY

Knows nothing of jqd: `history.py` says what the lines are. Each rule below is one property of a durable queue, and
costs about O(events).
"""

import math
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path

from tests.chaos.causes import (
    TAIL_S,
    all_causes,
    any_hidden,
    causes,
    claimed_after_its_end,
    end_t,
    gave_way,
    had_begun,
    in_flight,
    may_overlap,
    timed_out,
    was_paused,
)
from tests.chaos.history import AFTER_S, Claim, Event, History, build, called, load
from tests.chaos.said import dates_fired, limits_hold, paused_between, pauses_hold
from tests.chaos.verdict import Rule, Verdict, promises

DELAY_S = 0.05  # a date may be early by this
BATCH_S = 0.25  # a job in the store for longer than one claim takes is overtaken by none of its like
GO_ON_S = 2.5  # in which something must start of what lives on servers that nothing is wrong with
WORK_PER_S = 200  # jobs that three daemons run at least, when nothing is wrong
TERMINAL = frozenset({"succeeded", "failed", "cancelled"})


# ---------------------------------------------------------------- rules


def no_loss(h: History) -> Iterator[str]:
    """C1: what was acknowledged ends, and as it was meant to."""
    for job in h.acked():
        state, asked = h.final.get(job.id, "absent"), job.id in h.cancels
        done = any(run.outcome == "ok" for run in h.runs.get(job.id, []))
        if state not in TERMINAL:
            yield f"job {job.id} (n={job.n}) was acknowledged and is {state} at the end"
        elif job.id in h.cancelled_t and state != "cancelled" and not had_begun(h, job.id, state):
            yield f"job {job.id} was cancelled with 204 and is {state} at the end"
        elif state == "cancelled" and not asked:
            yield f"job {job.id} is cancelled, but nobody asked for it"
        elif state == "succeeded" and not done:
            yield f"job {job.id} is said to have succeeded, but no worker ended it so"
        elif state == "failed" and job.plan != "failed" and not asked:
            yield f"job {job.id} is failed, though it should succeed"
        elif state == "succeeded" and job.plan == "failed":
            yield f"job {job.id} is said to have succeeded, though its worker failed it"


def no_ghosts(h: History) -> Iterator[str]:
    """C2: what runs was pushed, once, was not refused, and was claimed."""
    ids: dict[int, str] = {}
    for job_id, runs in h.runs.items():
        n = runs[0].n
        job = h.jobs.get(n)
        if job is None:
            yield f"job {job_id} (n={n}) ran, but nobody pushed it"
        elif job.fate == "fail":
            yield f"job {job_id} (n={n}) ran, but its push was refused"
        elif job.fate == "ok" and job.id != job_id:
            yield f"job {job_id} (n={n}) ran, but its pusher was told {job.id}"
        elif ids.setdefault(n, job_id) != job_id and job.key is None:
            yield f"n={n} was pushed once and ran as {ids[n]} and as {job_id}"
        for run in runs:
            if run.claim is None:
                yield f"job {job_id} started at {run.start_t:.3f} on {run.worker}, but {run.daemon} had not claimed it"


def same_bytes(h: History) -> Iterator[str]:
    """C3: a worker gets the bytes that were pushed, under the name they were pushed with."""
    for job_id, runs in h.runs.items():
        for run in runs:
            job = h.jobs.get(run.n)
            if job is not None and (job.sha, job.name) != (run.sha, run.name):
                yield f"job {job_id} was pushed as {job.name} {job.sha} and came as {run.name} {run.sha}"


def duplicates_explained(h: History) -> Iterator[str]:
    """C4: each further start of a job has a cause: it was in flight where a fault struck, or its worker asked for
    it."""
    for job_id, runs in h.runs.items():
        for before, after in pairwise(runs):
            if before.outcome == "retry":
                continue
            fault = next(causes(h, before, after), None)
            if fault is not None:
                h.dups[fault.id] += 1
            elif not timed_out(h, before):
                yield (
                    f"job {job_id} started at {before.start_t:.3f} ({before.worker}, {before.daemon}, {before.outcome})"
                    f" and again at {after.start_t:.3f} ({after.worker}, {after.daemon}); nothing had happened to it"
                )
        yield from claimed_after_its_end(h, job_id)


def duplicates_bounded(h: History) -> Iterator[str]:
    """C5: a fault makes at most those run twice that were in flight where it struck."""
    duplicates = Counter(h.dups)
    for fault in h.faults:
        if not duplicates[fault.id]:
            continue
        held = 0
        for runs in h.runs.values():
            # The last start is nobody's duplicate, unless it is an old one that comes late.
            fence = max((run.claim.fence for run in runs if run.claim), default=0)
            early = [run for run in runs if run is not runs[-1] or (run.claim and run.claim.fence < fence)]
            held += len({id(run.claim) for run in early if in_flight(h, fault, run)})
        if duplicates[fault.id] > held:
            what = f"{fault.kind} of {fault.target} at {fault.t0:.3f}"
            yield f"{what}: {duplicates[fault.id]} starts too many, but only {held} jobs in flight there"


def no_overlap(h: History) -> Iterator[str]:
    """C6: two runs of a job overlap only after a fault, and after a pause or a partition not before a lease is over."""
    lease_s = h.config["lease_s"] - h.config["renew_s"]
    for job_id, runs in h.runs.items():
        for before, after in pairwise(runs):
            if after.start_t >= end_t(h, before) or timed_out(h, before):
                continue
            if not any(may_overlap(fault, before, after, lease_s) for fault in causes(h, before, after)):
                yield f"job {job_id} ran on {before.worker} and from {after.start_t:.3f} on {after.worker} at once"


def fences_rise(h: History) -> Iterator[str]:
    """C7: nobody starts a job under an older claim than the one before, unless what was under way had been paused."""
    for job_id, runs in h.runs.items():
        fences = [claim.fence for claim in h.claims.get(job_id, [])]
        if len(set(fences)) != len(fences):
            yield f"job {job_id} was claimed twice under one fence: {sorted(fences)}"
        for before, after in pairwise(runs):
            if before.claim is None or after.claim is None or after.claim.fence >= before.claim.fence:
                continue
            if not was_paused(h, after):
                fences_seen = f"{before.claim.fence}, then {after.claim.fence}"
                yield f"job {job_id} started at {after.start_t:.3f} under an older claim: {fences_seen}"


def cancels_hold(h: History) -> Iterator[str]:
    """C8: nothing starts after its cancel was acknowledged."""
    for job_id, t in h.cancelled_t.items():
        for run in h.runs.get(job_id, []):
            if run.start_t > t:
                yield f"job {job_id} was cancelled with 204 at {t:.3f} and started at {run.start_t:.3f} on {run.worker}"


def order(h: History) -> Iterator[str]:
    """C9: what waits in the store is not overtaken by what is less urgent, or as urgent and younger."""
    waiting: dict[str, list[tuple[int, str, float]]] = defaultdict(list)
    first: dict[str, Claim] = {
        job_id: min(claims, key=lambda claim: claim.fence) for job_id, claims in h.claims.items() if claims
    }
    arrivals = sorted((h.ingested[i], i) for i in first if i in h.ingested and i in h.by_id)
    place = 0
    for job_id, claim in sorted(first.items(), key=lambda item: item[1].fence):
        job = h.by_id.get(job_id)
        claimed_t = claim.fence / 1e6 - h.offset_s  # fences are the store's microseconds
        while place < len(arrivals) and arrivals[place][0] < claimed_t - BATCH_S:
            arrived = h.by_id[arrivals[place][1]]
            if not arrived.delay_s and arrived.key is None and arrived.id not in h.cancels:
                # It may be in the store since its push: a fault may keep the answer that says so from its daemon.
                heappush(waiting[arrived.name], (arrived.priority, arrived.id, arrived.invoked_t))
            place += 1
        if job is None or job.delay_s or job.key is not None:
            continue
        line = waiting[job.name]
        while line and first[line[0][1]].fence <= claim.fence:
            heappop(line)
        if line and line[0][:2] < (job.priority, job_id) and not any_hidden(h, line[0][2], claimed_t):
            yield f"job {job_id} (priority {job.priority}) was claimed before {line[0][1]} (priority {line[0][0]})"


def keys_unique(h: History) -> Iterator[str]:
    """C10: an id that its pusher chose is one job, however often and wherever it is pushed."""
    jobs: dict[str, set[str]] = defaultdict(set)
    for job_id, told in h.own.items():
        jobs[told].add(job_id)
    for told, ids in jobs.items():
        if len(ids) > 1:
            yield f"{told} ran as {len(ids)} jobs: {', '.join(sorted(ids))}"
    for job in h.acked():
        if job.key is not None and job.key != job.id:
            yield f"{job.key} was pushed, and the pusher was told {job.id}"


def dates_and_attempts(h: History) -> Iterator[str]:
    """C11: nothing starts before its date, and no attempt is one too many."""
    for job_id, runs in h.runs.items():
        job = h.jobs.get(runs[0].n)
        if job is None:
            continue
        due_t = job.invoked_t + job.delay_s - DELAY_S
        if job.delay_s and runs[0].start_t < due_t:
            yield f"job {job_id} started {due_t + DELAY_S - runs[0].start_t:.3f} s before its date"
        most = max(run.attempt for run in runs)
        if most > h.config["max_retry"] + 1:
            yield f"job {job_id} was tried {most} times; {h.config['max_retry']} retries were allowed"
        attempts = [run.attempt for run in runs if run.outcome in ("retry", "failed")]
        if len(set(attempts)) != len(attempts) and next(all_causes(h, runs), None) is None:
            yield f"job {job_id} ended twice in one attempt: {attempts}"


def states_monotone(h: History) -> Iterator[str]:
    """C12: what was seen ended stays so, and what was acknowledged is known."""
    for job_id, reads in h.reads.items():
        job, ended = h.by_id.get(job_id), None
        for read in sorted(reads, key=lambda read: float(read["t"])):
            state = read["state"]
            if state == "unknown" and job is not None and read["t0"] > job.acked_t:
                yield f"job {job_id} was acknowledged and is unknown at {read['t']:.3f}"
            changed = ended is not None and read["t0"] >= ended["t"] and state != ended["state"]
            if ended is not None and changed and gave_way(h, job_id, ended["state"], state):
                changed = False
            if ended is not None and changed and not any(h.on(ended["t"] - TAIL_S, read["t"], h.store_of(job_id))):
                yield f"job {job_id} was {ended['state']} at {ended['t']:.3f} and {state} at {read['t']:.3f}"
            if state in TERMINAL:
                ended = read
        final = h.final.get(job_id)
        changed = ended is not None and final not in (None, ended["state"])
        if ended is not None and changed and not gave_way(h, job_id, ended["state"], final):
            yield f"job {job_id} was read as {ended['state']} and is {h.final[job_id]} at the end"


def sums_agree(h: History) -> Iterator[str]:
    """C13: at the end the store holds what was acknowledged and what ran beside it, and nothing else."""
    taken = set(h.by_id) | set(h.runs) | set(h.dated) | set(h.of_dates) - {None}
    told = {state: number for state, number in h.census.items() if state not in ("e", "t")}
    if sum(told.values()) != len(taken):
        yield f"{len(taken)} jobs were taken, and the store tells of {sum(told.values())}: {told}"
    left = {state: number for state, number in told.items() if number and state not in ("ended", "dead")}
    if left:
        yield f"nothing should be left, but there is {left}"
    dead = sum(state == "failed" for i, state in h.final.items() if i in h.by_id)
    if told.get("dead", 0) > dead:
        yield f"{told['dead']} jobs are in the dead set, {dead} were expected there"


def liveness(h: History) -> Iterator[str]:
    """C14: all has ended soon after the last fault, and a healthy daemon takes pushes whatever the store does."""
    late = sum(runs[-1].start_t > h.healed_t for runs in h.runs.values())
    heal_s = h.config["heal_s"] + late / WORK_PER_S  # what the faults had piled up is work to be done
    if not h.drained_t - h.healed_t <= heal_s:
        yield f"not all had ended {heal_s:.1f} s after the last fault, though only {late} jobs were left to run"
    for number, push in h.pushes.items():
        end = h.ends.get(number)
        if end is None:
            yield f"push {number} to {push['daemon']} at {push['t']:.3f} got neither answer nor error"
            continue
        # Whose a chosen id is only the store can say: without it such a push is refused for the moment, and says so.
        refused = str(end.get("why")).startswith("503") and any(job.get("key") for job in push["jobs"])
        if end["e"] != "push_ok" and not refused and not any(h.on(push["t"], end["t"], push["daemon"])):
            yield f"push {number} to {push['daemon']} at {push['t']:.3f}: {end['e']} {end.get('why')}, but it was well"


def others_go_on(h: History) -> Iterator[str]:
    """C15: while one server of the store is struck, and nothing else is, the jobs of the others are started."""
    for fault in h.faults:
        if not fault.target.startswith("store") or fault.t1 - fault.t0 < GO_ON_S:
            continue
        others = (other for other in h.on(fault.t0 - AFTER_S, fault.t1, *h.touching) if other is not fault)
        if next(others, None) is not None:
            continue
        starts, waiting = [fault.t0, fault.t1], list[tuple[float, float]]()
        may_wait = paused_between(h, fault.t0, fault.t1)
        for job in h.acked():
            if called("store", job.server) == fault.target or job.key is not None or job.id in h.cancels:
                continue
            begun = [run.start_t for run in h.runs.get(job.id, [])]
            starts += (t for t in begun if fault.t0 < t < fault.t1)
            if job.name not in may_wait:
                waiting.append((job.acked_t + job.delay_s, min(begun, default=math.inf)))
        starts.sort()
        for before_t, after_t in pairwise(starts):
            # Of what waited while nothing was started: since when it did, at the earliest.
            since_t = min((max(due_t, before_t) for due_t, t in waiting if t >= after_t), default=math.inf)
            if after_t - since_t > GO_ON_S:
                gap_s = after_t - since_t
                yield f"{fault.kind} of {fault.target}: from {since_t:.3f} on nothing of the others for {gap_s:.1f} s"


RULES: dict[str, Rule] = {
    "C1": no_loss,
    "C2": no_ghosts,
    "C3": same_bytes,
    "C4": duplicates_explained,
    "C5": duplicates_bounded,
    "C6": no_overlap,
    "C7": fences_rise,
    "C8": cancels_hold,
    "C9": order,
    "C10": keys_unique,
    "C11": dates_and_attempts,
    "C12": states_monotone,
    "C13": sums_agree,
    "C14": liveness,
    "C15": others_go_on,
    "C16": dates_fired,
    "C17": pauses_hold,
    "C18": limits_hold,
}


# ---------------------------------------------------------------- verdict


def check(events: Iterable[Event]) -> Verdict:
    """Run all rules over a history."""
    h = build(events)
    violations = {code: found for code, setting in RULES.items() if (found := list(setting(h)))}
    return Verdict(violations, figures(h), promises(RULES))


def figures(h: History) -> dict[str, float]:
    """Counts, and how long the work of daemons that fell out lay still."""
    acked = [job for job in h.acked() if job.acked_t < math.inf]
    span_s = max((job.acked_t for job in acked), default=0.0) - min((job.invoked_t for job in acked), default=0.0)
    known = {job.n for job in acked}
    waits = sorted(_take_overs(h, alone=False))
    alone = list(_take_overs(h, alone=True))
    return {
        "acknowledged": len(acked),
        "acknowledged_per_s": round(len(acked) / span_s, 1) if span_s else 0.0,
        "unknown_pushes_that_ran": sum(runs[0].n not in known for runs in h.runs.values()),
        "starts": sum(map(len, h.runs.values())),
        "duplicates": sum(h.dups.values()),
        "cancelled": len(h.cancelled_t),
        "faults": sum(fault.kind != "lapse" for fault in h.faults),
        "lapses": sum(fault.kind == "lapse" for fault in h.faults),
        "drain_s": round(h.drained_t - h.healed_t, 2),
        "taken_over": len(waits),
        "take_over_p50_s": round(waits[len(waits) // 2], 2) if waits else 0.0,
        "take_over_max_s": round(waits[-1], 2) if waits else 0.0,
        "taken_over_without_another_fault": len(alone),
        "take_over_without_another_fault_max_s": round(max(alone, default=0.0), 2),
    }


def _take_overs(h: History, *, alone: bool) -> Iterator[float]:
    """From a daemon's death or pause to the next claim of each job it held; `alone`: when nothing else was wrong."""
    for fault in h.faults:
        if not fault.target.startswith("daemon") or fault.kind not in ("kill", "stop"):
            continue
        for claims in h.claims.values():
            ordered = sorted(claims, key=lambda claim: claim.fence)
            times = [claim.fence / 1e6 - h.offset_s for claim in ordered]
            at = bisect_left(times, fault.t0)
            if not 0 < at < len(ordered):
                continue
            held = ordered[at - 1]
            if held.settled_t <= fault.t0 or h.of_daemon(held.daemon, held.job)[0] != fault.target:
                continue
            others = (other for other in h.on(fault.t0 - AFTER_S, times[at], *h.touching) if other is not fault)
            if not alone or next(others, None) is None:
                yield times[at] - fault.t0


if __name__ == "__main__":
    verdict = check(load(Path(sys.argv[1])))
    print(verdict.text())  # noqa: T201
    sys.exit(bool(verdict.violations))
