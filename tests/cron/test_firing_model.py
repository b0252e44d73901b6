"""The protocol of schedules as a small model: any daemon may fire any date, and each date is fired once.

Daemons with clocks of their own, one store, and all that may happen between two steps: kills, processes that stand
still, a store that is wiped, jobs that ended and whose names are forgotten, a schedule whose job is changed. What the
real code does is walked in tests/cron/test_loop.py; here the order of steps is judged, and what each is for.
docs/adr/0044.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

EVERY, END = 20, 400  # a date each so many ticks, for so long
FRESH = 6  # ticks: what a daemon was told longer ago counts no more
NAMED = 15  # ticks that a name stays after its job's end; above FRESH and the skew of clocks together
RESERVED = 8  # ticks that a name is kept for a push that did not come
RARE = {"holds-long": 300, "other-life": 970}  # one of a thousand walks finds them: the first seed tried
# With these, others may push something else for a date, as people do.
BY_CONTENT = frozenset({"name-of-content", "taken-is-fired", "holds-long", "comes-late"})


@dataclass
class Name:
    """What the store knows of a job's name."""

    ident: int  # of its job: a name that was forgotten is given to another one
    content: int
    until: int  # 0: its job is in a journal
    is_there: bool = False  # and has come to the store
    ended_at: int = 0


@dataclass
class Store:
    life: int = 0
    names: dict[int, Name] = field(default_factory=dict)
    through: int = 0


class Frame(NamedTuple):
    kind: str
    date: int
    ident: int = 0
    content: int = 0
    life: int = -1  # of the store, in which the name was given


@dataclass
class Daemon:
    skew: int
    frames: list[Frame] = field(default_factory=list)  # what is on disk
    unsynced: list[Frame] = field(default_factory=list)
    applied: tuple[int, int] = (0, 0)  # life of the store, frames of ours that it has
    through: int = 0  # what was fired, as far as we know
    told_at: int = -99  # by a clock that does not jump
    stands_until: int = 0
    step: Iterator[None] | None = None


class World:
    def __init__(self, seed: int, mistake: str) -> None:
        self.source = random.Random(seed)
        self.mistake = mistake
        self.now = 0
        self.content = 0  # of the schedule's job
        self.store = Store()
        self.daemons = [Daemon(self.source.randint(-2, 2)) for _ in range(self.source.randint(2, 3))]
        self.runs: dict[int, int] = {}
        self.idents = 0
        self.ended: set[int] = set()  # outcomes, which all daemons tell a store before anybody claims

    # ------------------------------------------------------------ a daemon's steps, the store between any two

    def fire(self, one: Daemon) -> Iterator[None]:
        """One attempt at the next date that this daemon does not know to be fired."""
        date = one.through + EVERY
        if self.now + one.skew < date or (self.now - one.told_at > FRESH and self.mistake != "never-told"):
            return
        name = self.now if self.mistake == "name-of-now" else date
        # What all pushes of a date have in common is the date: of a change of the job one may not have heard yet.
        content = self.content if self.mistake in BY_CONTENT else 0
        if self.mistake == "date-first":
            one.unsynced.append(Frame("through", date))
            yield
            self.sync(one)
        yield
        if not self.settled():
            return
        known, life, asked_at = self.store.names.get(name), self.store.life, self.now
        if known is None or (known.until and (known.content == content or known.until <= self.now)):
            self.idents += known is None or known.content != content
            ident = known.ident if known is not None and known.content == content else self.idents
            self.store.names[name] = Name(ident, content, self.now + RESERVED)
        elif known.content != content and known.until and self.mistake != "taken-is-fired":
            return  # whoever has it may never come: it is looked at again
        else:
            ident = 0  # it is fired
        yield
        if self.now - one.told_at > FRESH and self.mistake not in ("never-told", "told-once"):
            return
        if self.now - asked_at >= RESERVED / 2 and self.mistake != "holds-long":
            return  # the name may be another's by now, who may never come
        if life != one.applied[0] and self.mistake != "other-life":
            return  # the store forgot that name since we had it, and may have given it to another
        if one.through >= date and self.mistake != "chosen-once":
            return  # it stood still meanwhile, and was told
        if ident:
            one.unsynced.append(Frame("job", name, ident, content, life))
        if self.mistake != "no-date":
            one.unsynced.append(Frame("through", date))
        self.sync(one)  # one sync, for both: what is read of a journal is its beginning
        one.through = max(one.through, date)
        yield
        if ident and (mine := self.store.names.get(name)) and mine.ident == ident:
            mine.until = 0

    def sync(self, one: Daemon) -> None:
        one.frames += one.unsynced
        one.unsynced = []

    def tell(self, one: Daemon) -> None:
        """The lanes: what the store lacks of our journal, in order; then what it knows that we do not."""
        life, at = one.applied
        if life != self.store.life:
            at = 0
        for kind, date, ident, content, given_in in one.frames[at:]:
            if kind == "through":
                if self.mistake == "last-come" or date > self.store.through:
                    self.store.through = date
            else:
                known = self.store.names.get(date)
                ours = known is not None and known.ident == ident
                if given_in == self.store.life and not ours and self.mistake != "comes-late":
                    continue  # the name was given away meanwhile, or its job has ended and is forgotten
                # Of two the later one has the name, also while it is only promised.
                if known is None or known.ident < ident or (ours and not known.is_there):
                    self.store.names[date] = Name(ident, content, 0, True, self.now if ident in self.ended else 0)
        one.applied = (self.store.life, len(one.frames))
        one.told_at = self.now
        heard = self.store.through if self.mistake == "last-come" else max(one.through, self.store.through)
        if heard != one.through:
            one.through = heard
            one.frames.append(Frame("through", heard))  # in every daemon's journal

    def settled(self) -> bool:
        return all(one.applied[0] == self.store.life for one in self.daemons if one.stands_until <= self.now)

    # ------------------------------------------------------------ and what happens to them

    def kill(self, one: Daemon) -> None:
        one.unsynced, one.step = [], None
        one.stands_until = self.now + self.source.choice((1, 5, 40, 90))
        one.told_at = -99
        one.through = max([0, *(date for kind, date, *_ in one.frames if kind == "through")])

    def run_jobs(self) -> None:
        for date, name in [*self.store.names.items()]:
            if name.is_there and not name.ended_at and self.settled():
                name.ended_at = self.now
                self.ended.add(name.ident)
                self.runs[date] = self.runs.get(date, 0) + 1
            elif name.ended_at and self.now - name.ended_at > NAMED and self.source.random() < 0.3:
                del self.store.names[date]

    def tick(self, faults: bool) -> None:
        self.now += 1
        for one in self.source.sample(self.daemons, len(self.daemons)):
            if one.stands_until > self.now:
                continue
            fault = self.source.random() if faults and self.settled() else 1
            if fault < 0.01:
                self.kill(one)
            elif fault < 0.05:
                one.stands_until = self.now + self.source.choice((3, 30, 60))  # and goes on where it stood
            else:
                if self.source.random() < 0.5:
                    self.tell(one)
                for _ in range(self.source.randint(1, 2)):
                    one.step = one.step or self.fire(one)
                    if next(one.step, self) is self:
                        one.step = None
        if faults and self.source.random() < 0.02 and all(one.stands_until <= self.now for one in self.daemons):
            # What only a daemon knows that is away now, nobody knows then: docs/use/SCHEDULING.md says so.
            self.store = Store(self.store.life + 1)
        known = self.mistake == "name-of-content" or all(len(one.frames) == one.applied[1] for one in self.daemons)
        if faults and self.source.random() < 0.03 and known:
            self.content += 1
        self.run_jobs()


def walk(seed: int, mistake: str = "") -> str | None:
    """What is wrong at the end of a random life; None: nothing."""
    world = World(seed, mistake)
    while world.now < END:
        world.tick(faults=world.now < END - 120)
    dates = range(EVERY, END - 20, EVERY)
    if twice := {date: count for date, count in world.runs.items() if count > 1 or date % EVERY}:
        return f"twice: {twice}"
    if lost := [date for date in dates if not world.runs.get(date)]:
        return f"lost: {lost}"
    return None


@pytest.mark.parametrize("block", range(2))
def test_each_date_is_fired_once(block: int) -> None:
    assert [(seed, found) for seed in range(block * 100, block * 100 + 100) if (found := walk(seed))] == []


@pytest.mark.parametrize(
    ("mistake", "finds"),
    [
        ("name-of-now", "twice"),
        ("date-first", "lost"),
        ("never-told", "twice"),
        ("told-once", "twice"),
        ("chosen-once", "twice"),
        ("holds-long", "lost"),
        ("last-come", "twice"),
        ("no-date", "twice"),
        ("taken-is-fired", "lost"),
        ("comes-late", "twice"),
        ("name-of-content", "lost"),
        ("other-life", "lost"),
    ],
)
def test_each_mistake_is_found(mistake: str, finds: str) -> None:
    first = RARE.get(mistake, 0)
    for seed in range(first, first + 600):
        if (found := walk(seed, mistake)) is not None:
            assert found.startswith(finds), found
            assert walk(seed) is None, "the seed is good without it"
            return
    pytest.fail("nobody finds it")
