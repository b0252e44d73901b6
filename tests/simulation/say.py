"""Words on rules, drawn from a seed: who registers, pauses, plans, changes, deletes what, at which daemon, and when."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jqd.cron.schedules import Missed, Overlap

PUT, DELETE, FAREWELL, PAUSE, RESUME = "put", "delete", "farewell", "pause", "resume"
DRAIN, GO_ON = "drain", "go on"
SAYS = (PUT, PUT, PUT, DELETE, FAREWELL)
OF_SCHEDULES = (PUT, PUT, PAUSE, RESUME, DELETE)
WORKERS, HANDLERS, SHORT, SCHEDULES = ("v0", "v1"), ("h0", "h1"), "t0", ("s0", "s1")
LIMITS = ("c0", "c1")
SHORT_TTL_S = 3.0
RATES_S = (1.0, 2.0, 6.0)  # the last is longer than all wait after a loss of the store
EVERY_S = (1.5, 2.5, 4.0)  # dates of a schedule: some ten of them in a run
MISSED: tuple[Missed, ...] = ("all", "all", "once", "skip")
OVERLAPS: tuple[Overlap, ...] = ("queue", "skip", "replace")
UNDER_CLOCKS: tuple[Overlap, ...] = ("skip", "skip", "replace")  # an hour of dates one after the other outlasts a run
FIRST_S = 3.0  # a schedule is there from its beginning on, so that dates come in all the faults


@dataclass(frozen=True, slots=True)
class Dates:
    """When a schedule fires, and what becomes of dates that passed."""

    every_s: float
    missed: Missed
    overlap: Overlap


@dataclass(frozen=True, slots=True)
class Limit:
    """What a constraint allows of some jobtypes: so many starts in any `per_s` seconds, or, with 0, so many at once."""

    jobtypes: tuple[str, ...]
    most: int
    per_s: float


@dataclass(frozen=True, slots=True)
class Say:
    """A word that somebody says."""

    at_s: float
    node: int
    what: str
    name: str
    slots: int
    """By which it is known again: each word has its own. Of a schedule: the number of its job's work; of a constraint:
    how many it allows; of a daemon that is drained: which."""
    dates: Dates | None = None
    limit: Limit | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The rule it is about."""
        if self.what in (DRAIN, GO_ON):
            return "drain", self.name
        kinds = {LIMITS: "constraint", SCHEDULES: "schedule", HANDLERS: "handler", (*WORKERS, SHORT): "worker"}
        return next((kind for names, kind in kinds.items() if self.name in names), "pause"), self.name


def make_says(source: random.Random, nodes: int, until_s: float, dense: int) -> list[Say]:
    """Some ten of them on workers, on few names; `dense` times as many. Pure."""
    at_s = sorted(source.uniform(0.0, until_s) for _ in range(source.randint(6, 16) * dense))
    names = (*WORKERS, *HANDLERS, SHORT)
    says = [Say(at, source.randrange(nodes), source.choice(SAYS), source.choice(names), slots) for slots, at in
            enumerate(at_s, 1)]  # fmt: skip
    return [say for say in says if say.what == PUT or say.name != SHORT]


def make_pauses(source: random.Random, nodes: int, types: Sequence[str], until_s: float, dense: int) -> Iterator[Say]:
    """Some on jobtypes. Each is paused more often than resumed: at the end all are. Pure."""
    for at_s in sorted(source.uniform(0.5, until_s) for _ in range(source.randint(2, 6) * dense)):
        yield Say(at_s, source.randrange(nodes), source.choice((PAUSE, PAUSE, RESUME)), source.choice(types), 0)


def make_drains(source: random.Random, nodes: int, until_s: float, dense: int) -> Iterator[Say]:
    """Some on daemons, which are drained more often than not. What one is called is known when it is said. Pure."""
    for at_s in sorted(source.uniform(0.5, until_s) for _ in range(source.randint(2, 5) * dense)):
        what, of = source.choice((DRAIN, DRAIN, GO_ON)), source.randrange(nodes)
        yield Say(at_s, source.randrange(nodes), what, "", of)


def make_limits(source: random.Random, nodes: int, types: Sequence[str], until_s: float, dense: int) -> Iterator[Say]:
    """A rate of half of the jobtypes, how many of the others may run at once; changed, deleted now and then. Pure."""
    mixed, half = source.sample(types, len(types)), len(types) // 2
    parts = tuple(mixed[:half]), tuple(mixed[half:])
    for name, jobtypes, per_s in zip(LIMITS, parts, (source.choice(RATES_S), 0.0), strict=True):
        words = [PUT, *(source.choice((PUT, PUT, DELETE)) for _ in range(source.randint(0, 2) * dense))]
        at_s = [source.uniform(0.0, FIRST_S), *sorted(source.uniform(FIRST_S, until_s) for _ in words[1:])]
        for at, what in zip(at_s, words, strict=True):
            limit = Limit(jobtypes, source.randint(1, 2) * max(1, round(per_s / 2)), per_s)
            yield Say(at, source.randrange(nodes), what, name, limit.most, limit=limit)


def make_schedules(
    source: random.Random, nodes: int, first: int, until_s: float, dense: int, overlaps: Sequence[Overlap] = OVERLAPS
) -> list[Say]:
    """One or two schedules, and a few words that change them; `dense` times as many. Their works are numbered from
    `first` on. Pure."""
    says: list[Say] = []
    for name in SCHEDULES[: source.randint(1, 2)]:
        missed, overlap = source.choice(MISSED), source.choice(overlaps)
        dates = Dates(source.choice(EVERY_S), missed, overlap)
        words = [PUT, *(source.choice(OF_SCHEDULES) for _ in range(source.randint(0, 3) * dense))]
        at_s = [source.uniform(0.0, FIRST_S), *sorted(source.uniform(FIRST_S, until_s) for _ in words[1:])]
        for at, what in zip(at_s, words, strict=True):
            says.append(Say(at, source.randrange(nodes), what, name, first if what == PUT else 0, dates))
            first += what == PUT
    return says
