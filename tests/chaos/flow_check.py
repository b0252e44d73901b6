"""Checks the history of a chaos run of flows: jobs that wait for others, that follow them, and groups.

    python -m tests.chaos.flow_check DIRECTORY

Knows nothing of jqd: `flow_history.py` says what the lines are. What a document names as a known limit is excused by
that name and counted; nothing else is.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from tests.chaos.check import cancels_hold, duplicates_bounded, duplicates_explained, fences_rise, no_overlap
from tests.chaos.flow_history import (
    AWAY,
    OPEN,
    TERMINAL,
    TWICE,
    UNLINKED,
    UNTOLD,
    FlowHistory,
    Node,
    build_flows,
    forgive_retries,
)
from tests.chaos.history import Event, Run, load
from tests.chaos.verdict import Rule, Verdict, promises

WORK_PER_S = 60  # jobs of flows that a cluster ends at least, when nothing is wrong
EVER_T = sys.float_info.max  # later than anything that was, and before what never came

FlowRule = Callable[[FlowHistory], Iterator[str]]


def _who(node: Node) -> str:
    return f"n={node.n} of flow {node.flow} ({node.how} {list(node.parents)}, on failure {node.policy})"


def lost(f: FlowHistory) -> Iterator[str]:
    """F1: what was taken, and what follows a success, comes and ends: nothing waits for ever."""
    for node in f.nodes.values():
        due = f.is_taken(node) or (node.how in ("then", "made") and f.state(node.parents[0]) == "succeeded")
        if due and not f.stands.get(node.n):
            yield f"{_who(node)} was taken, or follows a success, and is not in the store"
        for stands in f.stands.get(node.n, ()):
            if stands["state"] not in TERMINAL:
                parents = {parent: f.state(parent) for parent in node.parents}
                yield f"{_who(node)} is {stands['state']} as {stands['job']} at the end; its parents are {parents}"


def twice(f: FlowHistory) -> Iterator[str]:
    """F2: each job of a flow is one job, whoever pushes it and however often, and was made by somebody."""
    yield from f.strangers
    for n, node in f.nodes.items():
        # One whose id another push had got meanwhile is cancelled by its daemon.
        stand = [e["job"] for e in f.stands.get(n, ()) if e["state"] != "cancelled"]
        ids = dict.fromkeys([*(run.job for run in f.runs.get(n, ())), *stand])
        if len(ids) < 2:
            continue
        came_t = max(min((run.start_t for run in f.runs.get(n, ()) if run.job == one), default=math.inf) for one in ids)
        if f.is_away(n, came_t):
            f.excused[UNTOLD] += 1
        elif node.how in ("then", "made") and f.wipes(came_t):
            f.excused[TWICE] += 1
        else:
            yield f"{_who(node)} is {len(ids)} jobs: {', '.join(ids)}"


def early(f: FlowHistory) -> Iterator[str]:
    """F3: no child runs before an end of each of its parents that counted; none of a `then` before a success."""
    yield from (why for node in f.nodes.values() if node.how != "group" for why in _early(f, node))


def group_early(f: FlowHistory) -> Iterator[str]:
    """F4: what waits for a group runs after the end of each of its members that were taken."""
    yield from (why for node in f.nodes.values() if node.how == "group" for why in _early(f, node))


def _early(f: FlowHistory, node: Node) -> Iterator[str]:
    for run in f.runs.get(node.n, ()):
        for parent in _parents(f, node):
            follows = node.how in ("then", "made")
            if f.succeeded_by(parent, run.start_t) if follows else f.ended_by(parent, run.start_t):
                continue
            if not follows and f.is_away(parent, run.start_t):
                f.excused[AWAY] += 1
                continue
            yield f"{_who(node)} started at {run.start_t:.3f} on {run.worker}, and n={parent} had not ended by then"


def _parents(f: FlowHistory, node: Node) -> Iterable[int]:
    """Of a group the members that were taken: of the others nobody knows whether they came."""
    if node.how != "group":
        return node.parents
    closed_t = f.closed_t(str(node.group))
    return [p for p in node.parents if p in f.h.jobs and f.is_taken(f.nodes[p]) and f.h.jobs[p].acked_t < closed_t]


def arguments(f: FlowHistory) -> Iterator[str]:
    """F5: who wants the results of its parents gets those that they gave, in their order, and null where there is
    none."""
    for node in f.nodes.values():
        for run in f.runs.get(node.n, ()) if node.how != "made" else ():
            why = _wrong_argument(f, node, run) if node.wants else "it wants none" if run.got is not None else None
            if why is not None:
                yield f"{_who(node)} got {str(run.got)[:300]} at {run.start_t:.3f}: {why}"


def _wrong_argument(f: FlowHistory, node: Node, run: Run) -> str | None:
    if node.how == "then" or node.one:
        return _wrong_result(f, node, node.parents[0], run.got, run)
    if not isinstance(run.got, list):
        # A group of which nobody was told that it has a member may have none: then there are no results.
        return None if node.how == "group" and not [*_parents(f, node)] else "it is no list"
    if node.how == "group":
        given = Counter(got["of"] for got in run.got if isinstance(got, dict))
        twice_ = [n for n, times in given.items() if times > 1 and n]
        if twice_:
            return f"the results of {twice_} are there twice"
        results = {got["of"]: got for got in run.got if isinstance(got, dict)}
        bare = [got for got in run.got if isinstance(got, dict) and not got["of"]]
        for parent in _parents(f, node):
            mine = results.get(parent) if f.nodes[parent].wants != "all" else _bare(f, parent, bare)
            if (why := _wrong_result(f, node, parent, mine, run)) is not None:
                return why
        return None
    if len(run.got) != len(node.parents):
        return f"there are {len(node.parents)} parents"
    found = (_wrong_result(f, node, p, got, run) for p, got in zip(node.parents, run.got, strict=True))
    return next((why for why in found if why is not None), None)


def _bare(f: FlowHistory, parent: int, results: Iterable[Event]) -> Event | None:
    """The result of a member that does not know its own n."""
    return next((got for got in results if any(run.exec == got["by"] for run in f.runs.get(parent, ()))), None)


def _wrong_result(f: FlowHistory, node: Node, parent: int, got: object, run: Run) -> str | None:
    """None: it is a result that this parent gave, or there may be none."""
    if got is None:
        if node.how != "then" and (not f.nodes[parent].keep or f.bad_by(parent, run.start_t)):
            return None
        if f.is_away(parent, run.start_t):
            f.excused[AWAY] += 1
            return None
        return f"there is no result of n={parent}, which did well"
    if node.how != "then" and not f.nodes[parent].keep:
        return f"n={parent} keeps none"
    by = got.get("by") if isinstance(got, dict) else None
    gave = [one for one in f.runs.get(parent, ()) if one.outcome == "ok" and one.end_t <= run.start_t]
    return None if any(one.exec == by for one in gave) else f"n={parent} never gave it"


def policies(f: FlowHistory) -> Iterator[str]:
    """F6: a parent that does not do well means to its child what the child says, and who has no such parent ends as it
    was told to."""
    for node in f.nodes.values():
        its = f.stands.get(node.n, [])
        its = [one for one in its if one["state"] != "cancelled"] if len(its) > 1 else its  # see `twice`
        for stands in its:
            state, failed = stands["state"], stands["failed"]
            if state in TERMINAL and f.cancelled_t(node.n) == math.inf:
                why = _wrong_end(f, node, state, failed)
                if why is not None:
                    yield f"{_who(node)} with the plan {node.plan} is {state}: {why}"


def _wrong_end(f: FlowHistory, node: Node, state: str, failed: str) -> str | None:
    ran = bool(f.runs.get(node.n))
    waits = node.how in ("after", "group")
    bad = [p for p in node.parents if waits and f.bad_by(p, EVER_T)]
    still_bad = [p for p in node.parents if waits and f.state(p) != "succeeded"]
    final = [act["t"] for act in f.asked(node.flow, "retry") if act["final"] and act["status"] == 200]
    retried = bool(final)
    if state == "succeeded" or (state == "failed" and not failed):
        if not ran:
            return "no worker had it"
        if node.policy != "run" and (stayed := _stayed_bad(f, node, f.runs[node.n][-1])):
            return f"it ran although n={stayed[0]} did not do well"
        failed_itself = f.runs[node.n][-1].outcome == "failed"
        if state == "succeeded" and node.plan == "failed":
            return "its worker failed it"
        if state == "failed" and node.plan not in ("failed", "late"):
            return "it should succeed"
        if state == "failed" and node.plan == "late" and retried and failed_itself:
            if node.how in ("then", "made") and f.wipes(min(final)):
                f.excused[UNLINKED] += 1
                return None
            return "it was tried anew at the end, and should succeed then"
        return None
    wanted = "fail" if state == "failed" else "cancel"
    if failed == "gone" and any(f.is_away(p, EVER_T) for p in node.parents):
        f.excused[AWAY] += 1
        return None
    if retried and state == "cancelled":  # it is known that this was for a parent as long as that one has not done well
        retried = any(not f.succeeded_by(p, min(final)) for p in bad)
    if not waits or not bad or (retried and not still_bad):
        return f"none of its parents is to blame ({failed or 'nobody'} is said to be)"
    return None if node.policy == wanted else f"that is not what was to be done when n={bad[0]} does not do well"


def _stayed_bad(f: FlowHistory, node: Node, run: Run) -> list[int]:
    """Parents that never did well before it ran, nor at the end."""
    if node.how not in ("after", "group"):
        return []
    parents = (p for p in _parents(f, node) if f.state(p) in ("failed", "cancelled"))
    return [p for p in parents if not f.succeeded_by(p, run.start_t) and not f.is_away(p, run.start_t)]


def closed(f: FlowHistory) -> Iterator[str]:
    """F7: a group that is closed takes nobody."""
    for number, push in f.h.pushes.items():
        end, group = f.h.ends.get(number), push.get("group")
        if group is None or end is None or end["e"] != "push_ok" or push["t"] <= f.closed_t(group):
            continue
        (first_t,) = {f.h.jobs[job["n"]].invoked_t for job in push["jobs"]}
        if first_t <= f.closed_t(group):
            continue  # somebody may have taken it before
        if any(wipe.t1 >= f.closed_t(group) for wipe in f.wipes(push["t"])):
            f.excused[OPEN] += 1
            continue
        yield f"push {number} at {push['t']:.3f} was taken into group {group}, which was closed"


def at_rest(f: FlowHistory) -> Iterator[str]:
    """F8: all has ended soon after the last fault, and soon after the last word; every push is answered."""
    late = sum(runs[-1].start_t > f.h.healed_t for runs in f.runs.values())
    heal_s = f.h.config["heal_s"] + late / WORK_PER_S
    if not f.h.drained_t - f.h.healed_t <= heal_s:
        yield f"not all had ended {heal_s:.1f} s after the last fault, though only {late} jobs were left to run"
    final = [act["t"] for acts in f.acts.values() for act in acts if act["final"]]
    if final and not f.rested_t - max(final) <= heal_s:
        yield f"not all had ended {heal_s:.1f} s after flows were tried anew"
    yield from (f"push {number} got neither answer nor error" for number in f.h.pushes if number not in f.h.ends)


FLOW_RULES: dict[str, FlowRule] = {
    "F1": lost,
    "F2": twice,
    "F3": early,
    "F4": group_early,
    "F5": arguments,
    "F6": policies,
    "F7": closed,
    "F8": at_rest,
}
JOB_RULES: dict[str, Rule] = {
    "C4": duplicates_explained,
    "C5": duplicates_bounded,
    "C6": no_overlap,
    "C7": fences_rise,
    "C8": cancels_hold,
}
"""Of jobs alone, which hold of these as well."""


def check(events: Iterable[Event]) -> Verdict:
    """Run all rules over a history."""
    f = build_flows(events)
    told = figures(f)
    violations = {code: found for code, rule in FLOW_RULES.items() if (found := list(rule(f)))}
    h = forgive_retries(f)
    violations |= {code: found for code, rule in JOB_RULES.items() if (found := list(rule(h)))}
    told["duplicates"] = sum(h.dups.values())
    return Verdict(violations, told, promises({**FLOW_RULES, **JOB_RULES}), f.excused)


def figures(f: FlowHistory) -> dict[str, float]:
    """How much of everything there was."""
    kinds = Counter(node.how for node in f.nodes.values() if f.runs.get(node.n))
    states = Counter(stands["state"] for its in f.stands.values() for stands in its)
    acts = Counter(act["act"] for its in f.acts.values() for act in its if act["status"] == 200)
    return {
        "flows": len({node.flow for node in f.nodes.values()}),
        "acknowledged": sum(f.is_taken(node) for node in f.nodes.values()),
        **{f"ran_{how}": times for how, times in sorted(kinds.items())},
        **{f"are_{state}": times for state, times in sorted(states.items())},
        **{f"acts_{act}": times for act, times in sorted(acts.items())},
        "failed_or_cancelled_for_a_parent": sum(f.state(n) in TERMINAL and not f.runs.get(n) for n in f.nodes),
        "cancelled": len(f.h.cancelled_t),
        "starts": sum(map(len, f.runs.values())),
        "runs_apart": sum(1 for runs in f.runs.values() for _ in pairwise(runs)),
        "faults": sum(fault.kind != "lapse" for fault in f.h.faults),
        "drain_s": round(f.h.drained_t - f.h.healed_t, 2),
    }


if __name__ == "__main__":
    verdict = check(load(Path(sys.argv[1])))
    print(verdict.text())  # noqa: T201
    sys.exit(bool(verdict.violations))
