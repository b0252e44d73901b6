"""The history of a chaos run of flows, read: what `history.py` knows, and who waits for whom.

Beside the lines that stand there:

    node         n, flow, how (root | after | then | made | group), parents [n], policy (fail | cancel | run), plan,
                 key, wants (in | all | ""), one, keep, group; the last one of an n counts
    act_invoke   number, act (close | retry | flow_cancel …), flow, final: at rest         act_end   number, status
    stands       job, key, n (0: its argument does not say), state, failed (for which parent), server: at the end
    rested       all is quiet again after the last acts

An n in no argument, for that is all of its parents' results, is known by the key of its job.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.history import Event, Fault, History, Job, Run, build
from tests.chaos.nemesis import WIPE

ENDS = ("ok", "failed")
TERMINAL = frozenset({"succeeded", "failed", "cancelled"})

# What docs/adr/0006-recovery.md, 0047-flows.md, 0047-flows.md and docs/use/FLOWS.md name; nothing else excuses.
AWAY = (
    "a child may run before a parent, or without its result, whose journal has been away since the store lost its data"
)
UNTOLD = "a store that is emptied while a daemon is away does without that one's journal"
TWICE = "a follower may run twice where the store is emptied between two daemons' retiring"
UNLINKED = "after a store lost everything a flow is not followed from a parent to what its success made before"
OPEN = "a store that lost everything forgets that a group was closed"


@dataclass(frozen=True)
class Node:
    """One job of a flow."""

    n: int
    flow: int
    how: str
    plan: str
    key: str | None
    wants: str
    one: bool
    keep: bool
    policy: str
    parents: tuple[int, ...]
    group: str | None


@dataclass
class FlowHistory:
    """A history, indexed by jobs of flows."""

    h: History
    nodes: dict[int, Node] = field(default_factory=dict)
    stands: dict[int, list[Event]] = field(default_factory=lambda: defaultdict(list))
    strangers: list[str] = field(default_factory=list)
    """Jobs that ran or stand in the store, and that nobody made."""
    runs: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))
    acts: dict[int, list[Event]] = field(default_factory=lambda: defaultdict(list))
    """By flow; each with `end_t` and `status` of its answer, if one came."""
    rested_t: float = math.inf
    excused: Counter[str] = field(default_factory=Counter)
    _void: set[tuple[str, int]] = field(default_factory=set)
    _cancelled_t: dict[int, float] = field(default_factory=dict)

    # ------------------------------------------------------------ what was done

    def asked(self, flow: int, verb: str, *, since_t: float = math.inf) -> Iterator[Event]:
        """Acts of a flow that end so, begun before."""
        return (act for act in self.acts.get(flow, ()) if act["act"].endswith(verb) and act["t"] <= since_t)

    def cancelled_t(self, n: int) -> float:
        """When somebody first wanted it cancelled, or its flow."""
        acts = [float(act["t"]) for act in self.asked(self.nodes[n].flow, "cancel")]
        return min(self._cancelled_t.get(n, math.inf), *acts, math.inf)

    def closed_t(self, group: str) -> float:
        """When its pusher was told that it is closed."""
        flow = int(group[1:])
        return min((float(act["end_t"]) for act in self.asked(flow, "close") if act["status"] == 200), default=math.inf)

    def is_taken(self, node: Node) -> bool:
        """Whether somebody was told that it will run."""
        if node.how == "group":
            return self.closed_t(str(node.group)) < math.inf
        job = self.h.jobs.get(node.n)
        return job is not None and job.fate == "ok"

    def state(self, n: int) -> str:
        """At the end."""
        stands = self.stands.get(n, [])
        return str(stands[0]["state"]) if stands else "absent"

    def wipes(self, t: float) -> list[Fault]:
        """Of the store, before."""
        return [fault for fault in self.h.faults if fault.kind == WIPE and fault.t0 <= t]

    def is_away(self, n: int, t: float) -> bool:
        """Whether a daemon that may have it in its journal was away between a loss of the store and then."""
        job = self.h.jobs.get(n)
        names = [job.daemon] if job is not None and job.key is None and job.daemon else [*self.h.names.values()]
        for wipe in self.wipes(t):
            for name in names:
                if any(self.h.on(wipe.t0, t, name, name.replace("daemon", "edge"))):
                    return True
        return False

    # ------------------------------------------------------------ ends

    def ends(self, n: int, t: float) -> Iterator[Run]:
        """Its runs that ended by then, and whose end counted as far as is known."""
        for run in self.runs.get(n, ()):
            if run.end_t > t or run.outcome not in ENDS:
                continue
            if run.claim is None or (run.job, run.claim.fence) not in self._void or not self._goes_on(run):
                yield run

    def _goes_on(self, run: Run) -> bool:
        """Whether it was claimed again after this run."""
        claims = self.h.claims.get(self.h.own.get(run.job, run.job), ())
        return run.claim is not None and any(claim.fence > run.claim.fence for claim in claims)

    def succeeded_by(self, n: int, t: float) -> bool:
        """Whether a run of it did well by then."""
        return any(run.outcome == "ok" for run in self.ends(n, t))

    def ended_by(self, n: int, t: float) -> bool:
        """Whether it may have ended by then: it ran, or it was cancelled, or did not run because of a parent."""
        if n not in self.nodes or self.cancelled_t(n) <= t or any(self.ends(n, t)):
            return True
        return self._fell_by(n, t)

    def bad_by(self, n: int, t: float) -> bool:
        """Whether it may have ended otherwise than well by then."""
        if n not in self.nodes or self.cancelled_t(n) <= t:
            return True
        return any(run.outcome == "failed" for run in self.ends(n, t)) or self._fell_by(n, t)

    def _fell_by(self, n: int, t: float) -> bool:
        """Whether it did not run because of a parent."""
        node = self.nodes[n]
        if node.how not in ("after", "group") or node.policy == "run":
            return False
        return all(self.ended_by(p, t) for p in node.parents) and any(self.bad_by(p, t) for p in node.parents)


def build_flows(events: Iterable[Event]) -> FlowHistory:
    """Index the events."""
    listed = list(events)
    nodes = {e["n"]: _node(e) for e in listed if e.get("e") == "node"}
    of_key = {node.key: node.n for node in nodes.values() if node.key is not None}
    of_job: dict[str, int] = {}
    for e in listed:
        if e.get("e") == "stands":
            of_job[e["job"]] = e["n"] or of_key.get(e["key"], 0)
    told = [{**e, "n": of_job.get(e["job"], 0)} if e.get("e") == "exec_start" and not e["n"] else e for e in listed]
    f = FlowHistory(build(told), nodes)
    acts: dict[int, Any] = {}
    for e in sorted((e for e in listed if "e" in e), key=lambda e: float(e["t"])):
        if e["e"] == "stands":
            n = of_job[e["job"]]
            f.stands[n].append(e)
            f.strangers += [] if n in nodes else [f"job {e['job']} (key {e['key']}) is in the store"]
            if n in nodes and n not in f.h.jobs:
                f.h.jobs[n] = Job(n, "", "", "ok", 0, 0, None, "", e["t"], server=e["server"])
        elif e["e"] == "act_invoke":
            acts[e["number"]] = {**e, "end_t": math.inf, "status": 0}
            f.acts[e["flow"]].append(acts[e["number"]])
        elif e["e"] == "act_end":
            acts[e["number"]] |= {"end_t": e["t"], "status": e["status"]}
        elif e["e"] == "rested":
            f.rested_t = e["t"]
    for runs in f.h.runs.values():
        for run in runs:
            f.runs[run.n].append(run)
            f.strangers += [] if run.n in nodes else [f"job {run.job} ran at {run.start_t:.3f}"]
    for its in f.runs.values():
        its.sort(key=lambda run: run.start_t)
    _note_voids(f, listed)
    for job_id, e in f.h.cancels.items():
        if job_id in f.h.by_id:
            f._cancelled_t[f.h.by_id[job_id].n] = e["t"]
    return f


def _node(e: Event) -> Node:
    told = {name: e[name] for name in Node.__dataclass_fields__}
    return Node(**told | {"parents": tuple(e["parents"])})


def _note_voids(f: FlowHistory, events: Iterable[Event]) -> None:
    """Ends of which the store said that they came too late, and of the same claims none that counted."""
    counted: set[tuple[str, int]] = set()
    for e in events:
        if e.get("event") == "ended" and "fence" in e:
            (f._void if e.get("void") else counted).add((e["job_id"], e["fence"]))
    f._void -= counted


def forgive_retries(f: FlowHistory) -> History:
    """For the rules of single jobs: who was tried anew by hand begins anew as if its worker had asked for it.

    Changes the history: the last that is looked at."""
    for n, runs in f.runs.items():
        if n not in f.nodes or not any(f.asked(f.nodes[n].flow, "retry")):
            continue
        for run in runs:
            again = any(act["end_t"] > run.start_t for act in f.asked(f.nodes[n].flow, "retry"))
            run.outcome = "retry" if run.outcome == "failed" and again else run.outcome
        for job_id in {f.h.own.get(run.job, run.job) for run in runs}:
            for claim in f.h.claims.get(job_id, []):
                claim.fate = "retry" if claim.fate in ("failed", "dead") else claim.fate
    return f.h
