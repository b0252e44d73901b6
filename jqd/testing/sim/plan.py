"""What will happen in one run, drawn from its seed beforehand: daemons, jobs, what workers do with them, and faults.

What happens *to* the plan (which call loses its answer, who runs first) is drawn while it runs, from the same seed.
"""

import random
from dataclasses import dataclass, field

from jqd.lease import LeaseConfig
from jqd.store import StoreConfig

LEASE = LeaseConfig(lease_s=2.0, renew_s=0.6, margin_s=0.4)  # a fifth of the real one: time is what runs cost
STORE = StoreConfig(url="redis://simulated")
FAULTY_S = 20.0  # of the world's time in which faults come
PAUSES = (0.5, 1.1, 3.0, 8.0, 20.0)  # leases a daemon stands still
KINDS = (
    "kill",
    "pause",
    "stop",
    "lost",
    "late",
    "rollback",
    "wipe",
    "restart",
    "away",
    "cut",
    "slow",
    "lag",
    "disk",
    "full",
    "clock",
    "workers",
)
"""Kinds of fault, each explained in `faults.py`."""
SOLO = 0.6  # share of runs with one kind of fault only: what it alone must not do is checked most sharply
JOBTYPES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Push:
    """A request of one or more jobs."""

    at_s: float
    node: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What workers do with a job, attempt by attempt; the last stands for all after it."""

    jobtype: str
    priority: int
    timeout_s: float
    max_retry: int
    delay_s: float
    """0: at once."""
    attempts: tuple[tuple[str, float], ...]
    """How each ends, and after how many seconds: ok, error, failed, die, silent, or refuse (503)."""
    cancels: tuple[tuple[float, int], ...]
    """When (seconds after its push) it is cancelled, through which daemon."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    at_s: float
    kind: str
    node: int
    span_s: float
    part: float
    """A number in 0 … 1 that the kind of fault uses as it likes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All of one run."""

    seed: int
    nodes: int
    kinds: frozenset[str]
    pushes: tuple[Push, ...]
    works: tuple[Work, ...]
    faults: tuple[Fault, ...] = field(default=())


def make_plan(seed: int, kinds: frozenset[str] | None = None) -> Plan:
    """The plan of a seed; `kinds`: with these faults instead of its own. Pure."""
    source = random.Random(f"plan {seed}")
    nodes = source.choice((2, 2, 3))
    own = _kinds(source)
    kinds = own if kinds is None else kinds
    works: list[Work] = []
    pushes: list[Push] = []
    for _ in range(source.randint(3, 8)):
        size = source.choice((1, 1, 1, 2, 4))
        at_s = source.uniform(0.0, FAULTY_S * 0.8)
        numbers = tuple(range(len(works), len(works) + size))
        works += [_work(source, nodes, "workers" in kinds) for _ in numbers]
        pushes.append(Push(at_s, source.randrange(nodes), numbers))
    faults = [_fault(source, nodes, sorted(kinds)) for _ in range(source.randint(2, 7))] if kinds else []
    by_time = sorted(pushes, key=lambda push: push.at_s)
    return Plan(seed, nodes, kinds, tuple(by_time), tuple(works), tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _kinds(source: random.Random) -> frozenset[str]:
    if source.random() < SOLO:
        return frozenset(source.sample((*KINDS, ""), 1)) - {""}
    return frozenset(source.sample(KINDS, source.randint(2, 6)))


def _work(source: random.Random, nodes: int, bad_workers: bool) -> Work:
    ends = ["ok", "ok", "ok", "error", "failed"] + (["die", "silent", "refuse", "error"] if bad_workers else [])
    attempts = [(source.choice(ends), _duration_s(source)) for _ in range(source.randint(0, 2))]
    attempts.append((source.choice(("ok", "ok", "ok", "failed", "error")), _duration_s(source)))
    cancels = [(source.uniform(0.0, 6.0), source.randrange(nodes)) for _ in range(source.choice((0, 0, 0, 1, 1, 2)))]
    return Work(
        jobtype=source.choice(JOBTYPES),
        priority=source.choice((0, 0, 1)),
        timeout_s=source.choice((2.0, 30.0, 30.0)),
        max_retry=source.choice((0, 3, 3)),
        delay_s=source.uniform(1.0, 8.0) if source.random() < 0.15 else 0.0,
        attempts=tuple(attempts),
        cancels=tuple(cancels),
    )


def _duration_s(source: random.Random) -> float:
    return source.choice((0.0, 0.05, source.uniform(0.1, 1.0), source.uniform(1.0, 4.0)))


def _fault(source: random.Random, nodes: int, kinds: list[str]) -> Fault:
    kind = source.choice(kinds)
    span_s = source.uniform(0.1, 4.0)
    if kind in ("pause", "cut", "away"):
        span_s = LEASE.lease_s * source.choice(PAUSES) * source.uniform(0.9, 1.1)
    return Fault(source.uniform(0.5, FAULTY_S), kind, source.randrange(nodes), span_s, source.random())
