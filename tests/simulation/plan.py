"""What will happen in one run, drawn from its seed beforehand: daemons, jobs, what workers do with them, and faults.

What happens *to* the plan (which call loses its answer, who runs first) is drawn while it runs, from the same seed.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jqd.domain.lease import LeaseConfig
from jqd.store import StoreConfig
from tests.simulation.flow_plan import Families, Group
from tests.simulation.matter import Matter, make_matters
from tests.simulation.say import (
    OVERLAPS,
    PUT,
    SCHEDULES,
    UNDER_CLOCKS,
    Say,
    make_drains,
    make_limits,
    make_pauses,
    make_says,
    make_schedules,
)
from tests.simulation.work import Push, Work, draw_work, expiring, let_follow, let_wait

LEASE = LeaseConfig(lease_s=2.0, renew_s=0.6, margin_s=0.4)  # a fifth of the real one: time is what runs cost
STORE = StoreConfig(url="redis://simulated", name_reserve_s=3 * LEASE.lease_s)  # as many leases as in service
OLD_S = 20.0  # as a parent must be whose journal never came to a new store, for what waits for it to go on
FAULTY_S = 20.0  # of the world's time in which faults come
SPENT_S = 14.0  # of that, in which a quota has no room
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
    "backlog",
    "disk",
    "full",
    "clock",
    "workers",
)
"""Kinds of fault, each explained in `faults.py`."""
STALL, SUSPEND, UNREADABLE = "stall", "suspend", "unreadable"
STILL_KINDS = (STALL, SUSPEND, UNREADABLE)
"""Kinds in which something stands still for long: see `faults.py`."""
PATIENT = frozenset((UNREADABLE, "wipe", "rollback", "restart"))
"""With these alone nobody is waited for without an end."""
STILLS = 0.1  # share of runs with one of these, and one or two others
SOLO = 0.6  # share of runs with one kind of fault only: what it alone must not do is checked most sharply
JOBTYPES = ("a", "b")
PARTITIONS_MAX = 4
SPREAD_TYPES = ("a", "b", "d", "e")  # some of them live in each of two, three or four partitions
ABSENT, TRIM, POISON, PURGE = "absent", "trim", "poison", "purge"
APART_KINDS = (ABSENT, TRIM, POISON)
"""Kinds for stores of several partitions: see `faults.py`."""
SWAP = "swap"
ASKED_KINDS = (SWAP,)
"""Kinds that no seed draws by itself: see `faults.py`."""
KEPT_KINDS = (TRIM, PURGE)
"""What journals and store keep: no faults, but what makes some of them matter."""
LOSES_NOTHING = ("kill", "pause", "stop", "lost", "late", "restart", "away", "cut", "slow", "lag", "backlog")
"""What may happen while the journals keep no more than they must."""
CALM_KINDS = frozenset((ABSENT, POISON, "kill", "pause", "stop", "restart", "wipe", "rollback"))
"""With these alone the partitions that are there are as quick as ever."""
SHORT = 0.06  # share of runs over one partition with short journals and a store that forgets what ended
SHARES = {
    "changes": 0.5,  # some jobs have names, are replaced, edited, retried, deleted
    "lends": 0.25,  # some workers hold jobs by themselves
    "hasty": 0.5,  # those of them that were sent jobs name no lease, and may report at once
    "rules": 0.2,  # workers and handlers are registered, changed, deleted
    "pauses": 0.12,  # jobtypes are paused and resumed
    "drains": 0.12,  # so are daemons
    "schedules": 0.15,  # schedules push jobs
    "limits": 0.12,  # constraints limit what may start
    "expires": 0.12,  # some jobs must begin soon or never
    "follows": 0.15,  # other jobs follow some
    "awaits": 0.15,  # other jobs wait for several
    "flows": 0.08,  # there are named and retried parents, groups, chains, and results as arguments
    "ages": 0.1,  # jobs age
    "quotas": 0.3,  # a quota has no room for what follows jobs and for dates, up to SPENT_S
}
"""What a seed has only now and then, and the share of runs that have it."""
MATTERS_MAX = 3  # of jobs that are changed
PULLERS = ("p1", "p2")
"""Workers that ask for their jobs."""
PULLED = 3  # jobs one of them asks for at most
APART = 0.06  # share of plain seeds over a store of several partitions, with limits that hold in each of them
ABSENCES = 0.3  # share of runs over several partitions in which one of them is away nearly all the time
TRIMS = 0.15  # and of those with short journals
POISONS = 0.1  # and of those in which some jobs kill
POISONOUS = 2  # of the jobs at most: each takes five daemons with it
ONE_OF_THEM = 0.75  # share of faults of the store that befall one partition; the others: all of them


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    at_s: float
    kind: str
    node: int
    span_s: float
    part: float
    """A number in 0 … 1 that the kind of fault uses as it likes."""
    partition: int | None = None
    """Of the store, where it befalls one of them only."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All of one run."""

    seed: int
    nodes: int
    kinds: frozenset[str]
    pushes: tuple[Push, ...]
    works: tuple[Work, ...]
    faults: tuple[Fault, ...] = field(default=())
    partitions: int = 1
    matters: tuple[Matter, ...] = ()
    """Their contents have works behind those of the plain jobs."""
    lends: bool = False
    """Whether some workers ask for their jobs, and others answer 202."""
    says: tuple[Say, ...] = ()
    """What is said of workers, jobtypes and schedules. Jobs of schedules have works behind all others."""
    groups: tuple[Group, ...] = ()
    """Their jobs that wait have works behind all others."""
    hasty: bool = False
    ages: bool = False
    """Whether jobs gain by waiting."""
    quotas: bool = False
    """Whether a quota has no room for what comes by itself, up to SPENT_S."""

    @property
    def absent(self) -> int | None:
        """The partition that is away nearly all the time, where the partitions that are there must not mind."""
        calm = self.kinds <= CALM_KINDS
        return next((fault.partition for fault in self.faults if fault.kind == ABSENT and calm), None)

    @property
    def in_line_s(self) -> float:
        """For how long workers that hang may keep other jobs from a start, where few are allowed at once."""
        few = {jobtype for say in self.says if say.limit is not None for jobtype in say.limit.jobtypes}
        hangs = ((work, how) for work in self.works if work.jobtype in few for how, _ in work.attempts)
        return sum(work.timeout_s for work, how in hangs if how == "silent")


def make_plan(
    seed: int, kinds: frozenset[str] | None = None, partitions: int | None = None, *, dense: int = 1, **given: bool
) -> Plan:
    """The plan of a seed; `kinds`: with these faults instead of its own; `given`: names of SHARES, with or without.

    `partitions`: as many of the store; as the seed has it otherwise. `dense`: so many times as much to do in the same
    time, for a fault to befall.
    """
    assert SHARES.keys() >= given.keys(), f"{given.keys() - SHARES.keys()}: a plan has {SHARES.keys()}"
    if partitions is None:
        partitions = _partitions(seed)
        given = {"limits": True} | given if partitions > 1 else given
    source = random.Random(f"plan {seed}")
    nodes = source.choice((2, 2, 3))
    own = _kinds(source) if partitions == 1 else _kinds_apart(source)
    kinds = (_kinds_still(seed) or own) if kinds is None else kinds
    types = JOBTYPES if partitions == 1 else SPREAD_TYPES
    works: list[Work] = []
    pushes: list[Push] = []
    for _ in range(source.randint(3, 8) * dense):
        size = source.choice((1, 1, 1, 2, 4))
        at_s = source.uniform(0.0, FAULTY_S * 0.8)
        numbers = tuple(range(len(works), len(works) + size))
        works += [draw_work(source, nodes, types, "workers" in kinds) for _ in numbers]
        pushes.append(Push(at_s, source.randrange(nodes), numbers))
    if POISON in kinds:
        poison = ("murder", source.uniform(0.0, 0.3))
        for number in source.sample(range(len(works)), POISONOUS):
            works[number] = replace(works[number], attempts=(poison,), timeout_s=30.0)
    if draws := _draws("expires", seed, given):
        works = [expiring(draws, work) for work in works]
    often = sorted(kinds.difference(APART_KINDS, KEPT_KINDS))
    faults = [_fault(source, nodes, often) for _ in range(source.randint(2, 7))] if often else []
    if partitions > 1:
        faults = [*(_befalling(source, fault, partitions) for fault in faults), *_absence(source, kinds, partitions)]
    matters = _matters(seed, nodes, types, len(works), given, dense)
    works += _works(seed, matters, nodes, "workers" in kinds)
    faults.sort(key=lambda fault: fault.at_s)
    lends = _draws("lends", seed, {"lends": False} | given if POISON in kinds else given) is not None
    says = _says(seed, nodes, types, kinds, given, dense)
    if draws := _draws("schedules", seed, given):
        overlaps = UNDER_CLOCKS if "clock" in kinds else OVERLAPS
        planned = make_schedules(draws, nodes, len(works), FAULTY_S * 0.9, dense, overlaps)
        says += planned
        works += _works_of_schedules(seed, planned, nodes, types)
    if draws := _draws("follows", seed, given):
        let_follow(draws, works, [number for push in pushes for number in push.numbers], nodes, types)
    if draws := _draws("awaits", seed, given):
        let_wait(draws, works, pushes, nodes, types, FAULTY_S * 0.9)
    groups: list[Group] = []
    if draws := _draws("flows", seed, given):
        large = not any(say.limit for say in says)  # a matcher fails on an argument so large, and its job waits
        families = Families(draws, works, pushes, nodes, types, large=large)
        families.draw(FAULTY_S * 0.7, dense)
        groups = families.groups
        if PURGE in kinds:  # what waited for a group may be gone when it is closed again: then that begins it anew
            groups = [replace(group, closes=group.closes[:1]) for group in groups]
    by_time = tuple(sorted(pushes, key=lambda push: push.at_s))
    all_of_it = by_time, tuple(works), tuple(faults), partitions, tuple(matters), lends, tuple(says)
    ages, quotas, hasty = (_draws(what, seed, given) is not None for what in ("ages", "quotas", "hasty"))
    if PURGE in kinds and any(say.name in SCHEDULES for say in says):
        quotas = False  # dates that all daemons fire in one moment may be given the names of ended jobs (adr/0044)
    return Plan(seed, nodes, kinds, *all_of_it, groups=tuple(groups), hasty=hasty, ages=ages, quotas=quotas)


def _partitions(seed: int) -> int:
    source = random.Random(f"partitions {seed}")
    return source.choice((2, 3)) if source.random() < APART else 1


def _draws(what: str, seed: int, given: Mapping[str, bool], name: str = "") -> random.Random | None:
    """What draws that of a seed; None: its plan is without."""
    source = random.Random(f"{name or what} {seed}")
    wanted = given[what] if what in given else source.random() < SHARES[what]
    return source if wanted else None


def _says(
    seed: int,
    nodes: int,
    types: Sequence[str],
    kinds: frozenset[str],
    given: Mapping[str, bool],
    dense: int,
) -> list[Say]:
    says: list[Say] = []
    if draws := _draws("rules", seed, given):
        says += make_says(draws, nodes, FAULTY_S * 0.95, dense)
    if ABSENT not in kinds:  # there it is asked what holds a job up
        if draws := _draws("pauses", seed, given):
            says += make_pauses(draws, nodes, types, FAULTY_S * 0.95, dense)
        if draws := _draws("drains", seed, given):
            says += make_drains(draws, nodes, FAULTY_S * 0.95, dense)
        if draws := _draws("limits", seed, given):
            says += make_limits(draws, nodes, types, FAULTY_S * 0.9, dense)
    return says


def _works_of_schedules(seed: int, says: Sequence[Say], nodes: int, types: Sequence[str]) -> list[Work]:
    """Their jobs are short, all but the first few: dates may wait for each other."""
    source = random.Random(f"works of schedules {seed}")
    works: list[Work] = []
    for _ in (say for say in says if say.what == PUT):
        drawn = draw_work(source, nodes, types, bad_workers=False)
        last = source.choice(("ok", "ok", "failed")), source.choice((0.0, 0.3, 1.0))
        works.append(replace(drawn, priority=0, delay_s=0.0, cancels=(), attempts=(*drawn.attempts[:-1], last)))
    return works


def _matters(
    seed: int, nodes: int, types: Sequence[str], first: int, given: Mapping[str, bool], dense: int
) -> list[Matter]:
    source = _draws("changes", seed, given, "matters")
    if source is None:
        return []
    count = source.randint(1, MATTERS_MAX) * dense
    return make_matters(source, count, nodes=nodes, types=types, first=first, until_s=FAULTY_S * 0.6)


def _works(seed: int, matters: Sequence[Matter], nodes: int, bad_workers: bool) -> list[Work]:
    source = random.Random(f"works of matters {seed}")
    works: list[Work] = []
    for matter in matters:
        for number, order in sorted(matter.contents.items()):
            drawn = draw_work(source, nodes, (matter.jobtype,), bad_workers)
            works.append(replace(drawn, priority=number, delay_s=order.delay_s, cancels=()))
    return works


def _kinds(source: random.Random) -> frozenset[str]:
    if source.random() < SHORT:
        return frozenset((*KEPT_KINDS, *source.sample(LOSES_NOTHING, source.randint(1, 2))))
    if source.random() < SOLO:
        return frozenset(source.sample((*KINDS, ""), 1)) - {""}
    return frozenset(source.sample(KINDS, source.randint(2, 6)))


def _kinds_still(seed: int) -> frozenset[str]:
    source = random.Random(f"still {seed}")
    if source.random() >= STILLS:
        return frozenset()
    still = source.choice(STILL_KINDS)
    return frozenset((still, *source.sample(("wipe", "rollback", "kill", "lag", "restart"), source.randint(0, 2))))


def _kinds_apart(source: random.Random) -> frozenset[str]:
    chosen = source.random()
    if chosen < ABSENCES:
        return frozenset((ABSENT, *source.sample(sorted(CALM_KINDS - {ABSENT}), source.randint(0, 2))))
    if chosen < ABSENCES + TRIMS:
        return frozenset((TRIM, *source.sample(LOSES_NOTHING, source.randint(1, 3))))
    if chosen < ABSENCES + TRIMS + POISONS:
        return frozenset((POISON,))
    return _kinds(source)


def _befalling(source: random.Random, fault: Fault, partitions: int) -> Fault:
    one = source.randrange(partitions)
    return replace(fault, partition=one) if source.random() < ONE_OF_THEM else fault


def _absence(source: random.Random, kinds: frozenset[str], partitions: int) -> list[Fault]:
    if ABSENT not in kinds:
        return []
    at_s = source.choice((0.0, source.uniform(0.0, FAULTY_S / 3)))
    return [Fault(at_s, ABSENT, 0, FAULTY_S - at_s, 0.0, source.randrange(partitions))]


def _fault(source: random.Random, nodes: int, kinds: list[str]) -> Fault:
    kind = source.choice(kinds)
    span_s = source.uniform(0.1, 4.0)
    if kind in ("pause", "cut", "away", SUSPEND):
        span_s = LEASE.lease_s * source.choice(PAUSES) * source.uniform(0.9, 1.1)
    if kind in (STALL, UNREADABLE):
        span_s = source.uniform(2.0, source.choice((14.0, 60.0)))  # some of them end while clients still ask
    return Fault(source.uniform(0.5, FAULTY_S), kind, source.randrange(nodes), span_s, source.random())
