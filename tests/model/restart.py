"""An executable model of when claims begin after the store came back (docs/adr/0006): who vouches for what it holds.

Random walks over three daemons, each with a journal of ended jobs, and a store that comes back as it was, without its
last writes, or as it was long ago: whole, as every copy of a server is. Daemons are killed, stand still or are cut off,
answers get lost. A promise is broken when a job starts that ended at a daemon which
was there all the time, or that runs where its lease is rightly trusted.

    python -m tests.model.restart [--walks 20000] [--seed 1] [--bug NAME]

--bug plants a mistake; few walks, or none yet, find those that are in RARE: tests/loops/test_kept.py does.
"""

import argparse
import random
import sys
from dataclasses import dataclass, field, replace

BUGS = ("acts_at_once", "any_copy", "incomplete_too", "lost_answer", "sent_is_heard", "stale_lease")
RARE = frozenset(("lost_answer", "sent_is_heard", "stale_lease"))
LEASE, RENEW, MARGIN = 24, 6, 2
NOTICES = 6  # ticks until a daemon has noticed that the store is back
GONE = 8  # ticks in which a daemon does nothing: it was not there
STEPS = 200
Plot = tuple[tuple[int, str, int], ...]
"""When something befalls a daemon: instead of faults by chance."""
PLOTS: tuple[Plot, ...] = (
    (),
    ((26, "kill", 2), (56, "kill", 1), (90, "kill", 1), (93, "loses", 0)),
    ((26, "kill", 2), (56, "kill", 1), (90, "kill", 1), (105, "loses", 0), (107, "restart", 0)),
    ((26, "kill", 2), (26, "kill", 1), (60, "cut", 0), (64, "kill", 1), (98, "loses", 0)),
)


class Violation(Exception):
    """A promise was broken."""


class Lost(Exception):
    """The answer of a call got lost."""


@dataclass
class Row:
    counter: int
    epoch: int
    life: int
    """In which it came through; 0: none."""
    heard: int = 0
    """The counter that this daemon knew when it renewed last."""


@dataclass
class Store:
    run: int = 0
    """Of the server, at the last look."""
    life: int = 0
    settled: int = 0
    fence: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    held: dict[int, tuple[str, int]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    def copy(self) -> "Store":
        rows = {name: replace(row) for name, row in self.rows.items()}
        return replace(self, rows=rows, ready=self.ready.copy(), held=self.held.copy(), ended=self.ended.copy())

    def push(self, jobs: int) -> None:
        self.ready |= set(range(jobs)) - self.held.keys() - self.ended

    @property
    def all_through(self) -> bool:
        return all(row.life == self.life for row in self.rows.values() if row.epoch)

    def give_back(self, name: str, below: int) -> None:
        given = {job for job, (holder, epoch) in self.held.items() if holder == name and epoch < below}
        self.held = {job: held for job, held in self.held.items() if job not in given}
        self.ready |= given


@dataclass(eq=False)
class Daemon:
    name: str
    world: "World"
    journal: list[int] = field(default_factory=list)
    """Jobs that ended here."""
    is_up: bool = True
    still_until: int = 0
    """It does nothing until then, or does not reach the store."""
    is_cut: bool = False
    notices_at: int = 0
    there_since: int = 0
    stepped_at: int = 0
    is_known: bool = False
    """When the store came back it could act, or it was there since such a time."""

    def start(self) -> None:
        self.is_up, self.epoch, self.past, self.running = True, 0, 0, dict[int, int]()
        self.trusted_until = self.counter = 0
        self.there_since, self.stepped_at, self.is_known = self.world.now, self.world.now, False
        self.state, self.was_whole = "out", False
        self.leave()

    def leave(self) -> None:
        """Another life answers, or the epoch is burnt."""
        if self.state in ("seated", "through"):
            self.was_whole = self.is_whole
        self.run, self.life, self.state, self.waits, self.settled, self.whole = 0, 0, "out", True, False, False

    # ---------------------------------------------------------------- what it may do

    @property
    def is_heard(self) -> bool:
        """Whether nobody vouches without knowing of it."""
        return not self.unheard or self.world.now - self.sat_at > LEASE or "acts_at_once" in self.world.bugs

    @property
    def may_act(self) -> bool:
        return self.state == "through" and not self.waits and self.is_whole and self.is_heard

    @property
    def is_whole(self) -> bool:
        """Whether all that did something are members, or had the time to be."""
        return self.settled or self.whole or self.world.now - self.looked_at > LEASE

    # ---------------------------------------------------------------- calls of the store

    def step(self) -> None:
        """One moment of all its loops."""
        world, store = self.world, self.world.store
        if self.state != "out" and (self.run, self.life) != (world.run, store.life):
            self.leave()
        if self.state == "out":
            self._come_through()
            return
        row = store.rows.get(self.name)
        if row is None or row.epoch != self.epoch:
            self.leave()
            return
        if self.renewed_at + RENEW <= world.now or not self.settled or not self.is_heard or self.hurries:
            self._renew()
        self._apply()
        if self.may_act:
            self._reap()
            self._claim()

    def _come_through(self) -> None:
        """`recovery`: a calm store is told before we join, of another one all wait for us."""
        world, store = self.world, self.world.store
        if store.run != world.run:
            world.lives += 1
            store.run, store.life = world.run, world.lives
        self.run, self.life, self.looked_at, self.seen, self.beats = store.run, store.life, world.now, {}, {}
        if store.settled == store.life and not self.past:
            self._apply()
            self._sit(through=True)
            store.give_back(self.name, self.epoch)
            self.state = "through"
            return
        row = store.rows.get(self.name)
        if row is not None and row.epoch and row.epoch == self.epoch:
            is_kept = self._is_kept(row)
            if "lost_answer" not in world.bugs:
                self.was_whole = False
            row.counter, row.life = world.tick(row.counter), 0
            world.maybe_lose()
            self.whole = self.was_whole = is_kept
        else:
            self._sit(through=False)
        self.state = "seated"
        self._apply()
        for job in list(self.running):
            holder = store.held.get(job, (self.name, 0))[0]
            if job in store.ended or holder != self.name:
                del self.running[job]
            else:
                store.ready.discard(job)
                store.held[job] = (self.name, self.epoch)
        for job, (holder, _) in list(store.held.items()):
            if holder == self.name and job not in self.running:
                del store.held[job]
                store.ready.add(job)
        self.state = "through"

    def _is_kept(self, row: Row) -> bool:
        """Whether the store knows all that it told us while nobody could take us for dead: who is not in it was not
        heard by us, and did nothing."""
        bugs = self.world.bugs
        trusts = self.world.now < self.trusted_until or "stale_lease" in bugs
        is_young = row.counter >= self.counter > 0 or "any_copy" in bugs
        return trusts and is_young and (self.was_whole or "incomplete_too" in bugs)

    def _sit(self, *, through: bool) -> None:
        world, store = self.world, self.world.store
        old = store.rows.get(self.name)
        world.before_joining = store.copy()
        store.fence = world.tick(store.fence)
        store.rows[self.name] = Row(world.tick(old.counter if old else 0), store.fence, store.life if through else 0)
        if not through:
            store.settled = 0
        world.maybe_lose()
        self.epoch, self.counter, self.sat_at, self.renewed_at = store.fence, 0, world.now, 0
        self.unheard, self.hurries, self.was_whole = None, False, False

    def _renew(self) -> None:
        world, store = self.world, self.world.store
        row, sent_at = store.rows[self.name], world.now
        row.counter, row.heard = world.tick(row.counter), self.counter
        if self.state == "through":
            row.life = store.life
            if self.may_act and store.all_through:
                store.settled = store.life
        world.maybe_lose()
        self.renewed_at, self.trusted_until, self.counter = world.now, sent_at + LEASE - MARGIN, row.counter
        self.past = self.life if row.life else self.past
        others = {name: each for name, each in store.rows.items() if name != self.name and each.epoch}
        self.waits = any(each.life != store.life for each in others.values())
        self.settled = store.settled == store.life
        if self.unheard is None:
            self.unheard = {name: each.counter for name, each in others.items()}
        sent = "sent_is_heard" in world.bugs
        self.unheard = {
            name: counter
            for name, counter in self.unheard.items()
            if name in others and (others[name].counter if sent else others[name].heard) <= counter
        }
        known = {name: each[1] for name, each in self.seen.items()}
        self.hurries = any(known.get(name) != each.epoch for name, each in others.items())
        for name, each in others.items():
            if name not in self.seen or self.seen[name][0] != each.counter:
                self.seen[name] = (each.counter, each.epoch)
                self.beats[name] = world.now
        self.seen = {name: beat for name, beat in self.seen.items() if name in others}

    def _reap(self) -> None:
        store = self.world.store
        for name, (counter, epoch) in self.seen.items():
            row = store.rows.get(name)
            if row and (row.counter, row.epoch) == (counter, epoch) and self.world.now - self.beats[name] > LEASE:
                store.give_back(name, row.epoch + 1)
                del store.rows[name]
                return

    def _apply(self) -> None:
        store = self.world.store
        for job in self.journal:
            if job not in store.ended:
                store.ended.add(job)
                store.ready.discard(job)
                store.held.pop(job, None)

    def _claim(self) -> None:
        world, store = self.world, self.world.store
        if store.all_through and store.ready and world.random.random() < 0.5 and world.now < self.trusted_until:
            job = min(store.ready)
            store.ready.discard(job)
            store.held[job] = (self.name, self.epoch)
            world.maybe_lose()
            world.start(self, job)
            self.running[job] = world.now + world.random.randint(1, 3)

    def work(self) -> None:
        """What goes on without the store."""
        for job, until in list(self.running.items()):
            if self.world.now >= self.trusted_until:
                del self.running[job]
            elif self.world.now >= until:
                del self.running[job]
                self.journal.append(job)


class World:
    """Daemons, the store, and what is true."""

    def __init__(self, seed: int, bugs: frozenset[str], faults: frozenset[str], plot: Plot = ()) -> None:
        self.random, self.bugs, self.faults, self.plot = random.Random(seed), bugs, faults, plot
        self.now, self.run, self.lives, self.skew, self.restarted_at = LEASE, 1, 0, 0, 0
        self.store = Store()
        self.images = [self.store.copy()]
        self.before_joining = self.store.copy()
        self.daemons = [Daemon(f"d{k}", self) for k in range(3)]
        for daemon in self.daemons:
            daemon.start()
            daemon.is_up = bool(plot) or self.random.random() < 0.7
        self.again_at = 0

    def tick(self, last: int) -> int:
        """A number above that one, and by the server's clock."""
        return max(last + 1, self.now * 1000 + self.skew)

    def maybe_lose(self) -> None:
        if "lost" in self.faults and self.random.random() < 0.25:
            raise Lost

    def step(self) -> None:
        self.now += 1
        self.store.push(self.now)
        for daemon in self.random.sample(self.daemons, len(self.daemons)):
            is_still = self.now < daemon.still_until
            if not daemon.is_up or (is_still and not daemon.is_cut):
                continue
            daemon.work()
            if is_still or self.now < daemon.notices_at or self.random.random() < 0.15:
                continue
            if self.now - daemon.stepped_at > GONE:
                daemon.there_since, daemon.is_known = self.now, False
            daemon.stepped_at = self.now
            try:
                daemon.step()
            except Lost:
                if daemon.state == "seated":
                    daemon.leave()
            self.images.append(self.store.copy())
        self.images = self.images[-200:]
        for at, kind, number in self.plot:
            if at == self.now:
                self._break(kind, self.daemons[number])
        if self.now == self.again_at:
            self._break("restart", self.daemons[0])
        elif self.random.random() < 0.12 and not self.plot:
            self._break(self.random.choice(sorted(self.faults)), self.random.choice(self.daemons))

    def start(self, by: Daemon, job: int) -> None:
        """Raise Violation."""
        for each in self.daemons:
            if not each.is_up or each is by:
                continue
            if job in each.running and self.now < each.trusted_until:
                raise Violation(f"{self.now}: {by.name} starts job {job}, which runs at {each.name}")
            is_there = each.there_since <= self.restarted_at and self.now - each.stepped_at <= GONE
            if job in each.journal and each.is_known and is_there:
                raise Violation(f"{self.now}: {by.name} starts job {job}, whose end is known to {each.name}")
        if job in by.journal:
            raise Violation(f"{self.now}: {by.name} starts job {job}, which ended there")

    def _break(self, kind: str, daemon: Daemon) -> None:
        match kind:
            case "kill" if daemon.is_up:
                daemon.is_up = False
            case "kill":
                daemon.start()
            case "still" | "cut":
                daemon.still_until, daemon.is_cut = (
                    self.now + self.random.choice((2, 5, 8, 12, 20, 30, 60)),
                    kind == "cut",
                )
            case "restart" | "loses" | "old" | "wipe":
                back = {"restart": 1, "loses": self.random.randint(1, 12), "old": self.random.randint(1, 200)}
                for each in self.daemons:
                    row = self.store.rows.get(each.name)
                    if each.state == "through" and each.is_heard and row and row.epoch == each.epoch:
                        each.is_known = True
                if kind == "wipe":
                    self.store = Store()
                else:
                    self.store = self.images[-min(back[kind], len(self.images))].copy()
                    if kind == "loses" and self.random.random() < 0.7:
                        self.store = self.before_joining.copy()
                self.run, self.restarted_at = self.run + 1, self.now
                back_at = self.now if self.random.random() < 0.5 else 0
                self.again_at = self.now + self.random.randint(1, NOTICES) if self.random.random() < 0.3 else 0
                for each in self.daemons:
                    each.still_until = back_at or each.still_until
                    each.notices_at = self.now + self.random.randint(0, NOTICES)
            case "clock":
                self.skew = self.random.randint(-20_000, 20_000)


KINDS = ("restart", "loses", "old", "wipe")
OTHERS = ("kill", "still", "cut", "lost", "clock")


def walk(seed: int, bugs: frozenset[str] = frozenset()) -> World:
    """Raise Violation."""
    source = random.Random(seed)
    faults = {"loses", "kill", *source.sample((*KINDS, *OTHERS), source.randint(0, 4))}
    plot = tuple((at + source.randint(0, 4), kind, number) for at, kind, number in source.choice(PLOTS))
    world = World(seed, bugs, frozenset(faults | {"lost"} if plot else faults), plot)
    for _ in range(max((at for at, _, _ in plot), default=STEPS)):
        world.step()
    world.faults = frozenset({"restart"})
    for _ in range(4 * LEASE):
        world.now += 1
        for daemon in world.daemons:
            if not daemon.is_up:
                daemon.start()
            daemon.work()
            daemon.step()
    if not all(daemon.may_act for daemon in world.daemons):
        raise Violation("in four leases without a fault not all came to act")
    return world


def violations(walks: int, seed: int, bugs: frozenset[str] = frozenset()) -> list[str]:
    found = []
    for number in range(seed, seed + walks):
        try:
            walk(number, bugs)
        except Violation as broken:
            found.append(f"walk {number}: {broken}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walks", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bug", action="append", default=[], choices=BUGS)
    args = parser.parse_args()
    found = violations(args.walks, args.seed, frozenset(args.bug))
    sys.stdout.write("\n".join([*found[:20], f"{args.walks} walks, {len(found)} violations\n"]))


if __name__ == "__main__":
    main()
