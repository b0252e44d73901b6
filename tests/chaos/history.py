"""The history of a chaos run, read: jobs, runs, claims and faults, out of lines of JSON.

All stamps `t` are seconds of one machine's monotonic clock. Beside the lines lie the daemons' job logs; their wall
clock is mapped by the `clock` event.

    config       lease_s, renew_s, timeout_s, max_retry, heal_s         clock          wall_ms
    push_invoke  push, daemon, jobs [{n, sha, name, plan, delay_s, priority, key, server}]    plan: ok, retry or failed;
                 key: the id its pusher chose, and pushes again until it is told that the job was taken; server: of the
                 store, where the job lives: the targets `store` and `edge-I` are those of server 0, `store-K` and
                 `edge-I-K` those of server K
    push_ok      push, ids            push_fail  push (nothing was taken)            push_info  push (nobody knows)
    cancel_invoke, cancel_ok (204), cancel_info  job                    read           job, t0, state (`unknown`: 404)
    exec_start   job, n, attempt, sha, name, worker, exec, and daemon; of a job that its worker holds itself: fence
                 (of a flow also got: what its parents gave it)         exec_end       exec, outcome
    nemesis      id, on (start | stop), kind, target                    daemon_is      name, sysid
    schedule     name, n (of its jobs, below 0)                         pause          name, daemon, t0: answered at t
    date         name, at_ms, job, state, server: at the end            resume_invoke  name
    limit        name, jobtypes, and rate {limit, per_s} or concurrency: answered
    healed, drained                   final  job, state                 census         state -> number, in the store
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

EPS_S = 0.05  # the job log's stamps are whole milliseconds of another clock
AFTER_S = 0.5  # what a fault leaves behind (a half-open connection, a call under way) is over soon after it
LOGGED_S = 0.5  # a job log's lines are written after what they tell of: those of so long are lost with a killed daemon
LAPSE = "runner.stop_work"  # a daemon's log: its lease could not be renewed in time, so it stopped all work in its hand

Event = dict[str, Any]


@dataclass
class Job:
    """One job somebody tried to push."""

    n: int
    sha: str
    name: str
    plan: str
    delay_s: float
    priority: int
    key: str | None
    daemon: str
    invoked_t: float
    acked_t: float = math.inf
    fate: str = "info"
    id: str = ""
    server: int = 0


@dataclass
class Run:
    """One start of one job, and its end if there was one."""

    job: str
    n: int
    attempt: int
    sha: str
    name: str
    worker: str
    daemon: str
    start_t: float
    end_t: float = math.inf
    outcome: str = ""
    claim: "Claim | None" = None
    fence: int = 0
    """Of its claim, where the worker knows it; then the daemon is that of the claim."""
    exec: str = ""
    got: Any = None
    """What its parents gave it."""


@dataclass
class Claim:
    """A daemon took a job in flight under a fence, until its outcome was applied."""

    job: str
    daemon: str
    attempt: int
    fence: int
    t: float
    jobtype: str = ""
    settled_t: float = math.inf
    fate: str = ""
    kept_t: float = math.inf
    """When its worker had the job in a hand of its own: from then on no daemon's fault explains anything."""
    unsure: bool = False
    """Whether its daemon does not know that its end changed anything."""


@dataclass(frozen=True)
class Fault:
    """Something the nemesis did to one component."""

    id: int
    kind: str
    target: str
    t0: float
    t1: float


@dataclass
class History:
    """A history, indexed."""

    config: Event = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    by_id: dict[str, Job] = field(default_factory=dict)
    pushes: dict[int, Event] = field(default_factory=dict)
    ends: dict[int, Event] = field(default_factory=dict)
    runs: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    own: dict[str, str] = field(default_factory=dict)
    dated: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    """Runs of jobs that schedules pushed."""
    dates: dict[str, Event] = field(default_factory=dict)
    of_dates: dict[str, Event] = field(default_factory=dict)
    """The same by the ids of their jobs."""
    limits: list[Event] = field(default_factory=list)
    pauses: list[Event] = field(default_factory=list)
    resumes: list[Event] = field(default_factory=list)
    claims: dict[str, list[Claim]] = field(default_factory=lambda: defaultdict(list))
    ingested: dict[str, float] = field(default_factory=dict)
    cancels: dict[str, Event] = field(default_factory=dict)
    cancelled_t: dict[str, float] = field(default_factory=dict)
    cancels_refused: set[str] = field(default_factory=set)
    """Jobs whose cancel was answered 409: they had ended, and nothing was recorded."""
    reads: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    final: dict[str, str] = field(default_factory=dict)
    census: Event = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    touching: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    names: dict[str, str] = field(default_factory=dict)
    healed_t: float = math.nan
    drained_t: float = math.inf
    offset_s: float = math.nan
    dups: Counter[int] = field(default_factory=Counter)

    def acked(self) -> Iterator[Job]:
        """Jobs whose push was acknowledged."""
        return iter(self.by_id.values())

    def on(self, t0: float, t1: float, *targets: str) -> Iterator[Fault]:
        """Faults of these components that touch the time from `t0` to `t1`, in order."""
        for target in targets:
            for fault in self.touching[target]:
                if fault.t0 <= t1 and fault.t1 + AFTER_S >= t0:
                    yield fault

    def server_of(self, job_id: str) -> int:
        """Of the store, where it lives."""
        if job_id in self.of_dates:
            return int(self.of_dates[job_id]["server"])
        job = self.by_id.get(job_id)
        if job is None and self.runs.get(job_id):
            job = self.jobs.get(self.runs[job_id][0].n)
        return job.server if job else 0

    def store_of(self, job_id: str) -> str:
        """The server where it lives, as the nemesis calls it."""
        return called("store", self.server_of(job_id))

    def of_daemon(self, sysid: str, job_id: str) -> tuple[str, str]:
        """A daemon as the nemesis calls it, and its way to the store of that job."""
        name = self.names.get(sysid, sysid)
        return name, called(name.replace("daemon", "edge"), self.server_of(job_id))


def called(part: str, server: int) -> str:
    """A server of the store, or a way to it: the first as if it were the only one."""
    return f"{part}-{server}" if server else part


def load(directory: Path) -> list[Event]:
    """All events of a directory, from every file of lines. What a killed process wrote last may be half a line."""
    events = [
        json.loads(line) for path in sorted(directory.glob("*.jsonl")) for line in path.read_text().split("\n")[:-1]
    ]
    for path in sorted(directory.glob("daemon-*.log")):
        lapses = (line for line in path.read_text(errors="replace").splitlines() if LAPSE in line)
        events += [{"ts": json.loads(line)["ts"], "event": LAPSE, "daemon": path.stem} for line in lapses]
    return events


def build(events: Iterable[Event]) -> History:
    """Index the events; their order does not matter."""
    h = History()
    listed = list(events)
    clock = next((e for e in listed if e.get("e") == "clock"), {"wall_ms": 0, "t": 0.0})
    h.offset_s = clock["wall_ms"] / 1000 - clock["t"]
    logged = [(datetime.fromisoformat(e["ts"]).timestamp() - h.offset_s, e) for e in listed if "event" in e]
    runs: dict[str, Run] = {}
    starts: dict[int, Event] = {}
    # Starts before their ends, pushes before their answers: within one stamp the kind decides.
    for e in sorted((e for e in listed if "e" in e), key=lambda e: (e["t"], e["e"].endswith(("_end", "_ok")))):
        _take(h, e, runs, starts)
    for number, (t, e) in enumerate(logged):
        if e["event"] == LAPSE:
            h.faults.append(Fault(-1 - number, "lapse", e["daemon"], t - EPS_S, t))
    for start in starts.values():
        h.faults.append(Fault(start["id"], start["kind"], start["target"], start["t"], math.inf))
    for fault in sorted(h.faults, key=lambda fault: fault.t0):
        h.touching[fault.target].append(fault)
    for t, e in sorted(logged, key=lambda pair: (pair[0], pair[1]["event"] == "ended")):
        _take_logged(h, t, e)
    for job_id, listed_runs in (*h.runs.items(), *h.dated.items()):
        listed_runs.sort(key=lambda run: run.start_t)
        for run in listed_runs:
            run.claim = _claim_of(h.claims.get(job_id, []), run) or _lost_claim(h, run)
            if run.fence and run.claim:
                run.daemon = run.claim.daemon
    return h


def _take(h: History, e: Event, runs: dict[str, Run], starts: dict[int, Event]) -> None:
    kind, t = e["e"], e["t"]
    if kind == "push_invoke":
        h.pushes[e["push"]] = e
        for job in e["jobs"]:
            h.jobs.setdefault(job["n"], Job(**{"key": None, **job}, daemon=e["daemon"], invoked_t=t))
    elif kind in ("push_ok", "push_fail", "push_info"):
        h.ends[e["push"]] = e
        for place, told in enumerate(h.pushes[e["push"]]["jobs"]):
            job = h.jobs[told["n"]]
            if kind == "push_ok" and job.fate != "ok":
                job.fate, job.id, job.acked_t = "ok", e["ids"][place], t
                h.by_id[job.id] = job
            elif job.key is None:
                job.fate = kind.removeprefix("push_")
    elif kind == "exec_start":
        run = Run(e["job"], e["n"], e["attempt"], e["sha"], e["name"], e["worker"], e.get("daemon", ""), t)
        run.fence, run.exec, run.got = e.get("fence", 0), e["exec"], e.get("got")
        runs[e["exec"]] = run
        pushed = h.jobs.get(run.n)
        told = e["job"] if pushed is None or pushed.key is None else pushed.key
        h.own[e["job"]] = told
        (h.dated if run.n < 0 else h.runs)[told].append(run)
    elif kind == "exec_end":
        runs[e["exec"]].end_t, runs[e["exec"]].outcome = t, e["outcome"]
    elif kind == "nemesis" and e["on"] == "start":
        starts[e["id"]] = e
    elif kind == "nemesis":
        start = starts.pop(e["id"])
        h.faults.append(Fault(e["id"], start["kind"], start["target"], start["t"], t))
    elif kind == "cancel_invoke":
        h.cancels[e["job"]] = e
    elif kind == "cancel_ok":
        h.cancelled_t[e["job"]] = t
    elif kind == "cancel_info" and e["why"] == "409":
        h.cancels_refused.add(e["job"])
    elif kind == "read":
        h.reads[e["job"]].append(e)
    elif kind == "final":
        h.final[e["job"]] = e["state"]
    elif kind == "date":
        h.dates[e["name"]] = h.of_dates[e["job"]] = e
    elif kind == "limit":
        h.limits.append(e)
    elif kind in ("pause", "resume_invoke"):
        (h.pauses if kind == "pause" else h.resumes).append(e)
    elif kind == "census":
        h.census = e
    elif kind == "daemon_is":
        h.names[e["sysid"]] = e["name"]
    elif kind == "config":
        h.config = e
    elif kind == "healed":
        h.healed_t = t
    elif kind == "drained":
        h.drained_t = t


def _take_logged(h: History, t: float, e: Event) -> None:
    if "job_id" not in e:
        return
    job_id: str = h.own.get(e["job_id"]) or e["job_id"]  # the log knows a job by the queue's id, its pusher by his own
    if e["event"] == "started":
        h.claims[job_id].append(Claim(job_id, e["daemon"], e["attempt"], e["fence"], t, e["jobtype"]))
    elif e["event"] == "ended" and e["fate"] == "entrusted":
        for claim in h.claims.get(job_id, []):
            if claim.fence == e["fence"]:
                claim.kept_t = min(claim.kept_t, t)
    elif e["event"] == "ended" and not e.get("void"):  # else the job was another's by then, and goes on there
        for claim in h.claims.get(job_id, []):
            if claim.fence == e["fence"] and (claim.settled_t == math.inf or claim.unsure):
                claim.settled_t, claim.fate, claim.unsure = t, e["fate"], "void" in e
    elif e["event"] == "ingested":
        h.ingested[job_id] = t


def _claim_of(claims: list[Claim], run: Run) -> Claim | None:
    """Under which claim a start happened: the daemon's newest of that attempt that was there already."""
    if run.fence:
        return next((claim for claim in claims if claim.fence == run.fence), None)
    fitting = [
        claim
        for claim in claims
        if claim.daemon == run.daemon and claim.attempt == run.attempt and claim.t <= run.start_t + EPS_S
    ]
    return max(fitting, key=lambda claim: claim.fence, default=None)


def _lost_claim(h: History, run: Run) -> Claim | None:
    """Of a start whose daemon was killed before its log could say that it had claimed the job.

    The worker may begin what the daemon had sent after that one's end.
    """
    sysids = [run.daemon] if run.daemon else [*h.names]
    for sysid in sysids:
        for fault in h.touching[h.names.get(sysid, sysid)]:
            if fault.kind == "kill" and -AFTER_S <= fault.t0 - run.start_t <= LOGGED_S:
                fence = run.fence or round((run.start_t + h.offset_s) * 1e6)
                return Claim(run.job, sysid, run.attempt, fence, run.start_t)
    return None
