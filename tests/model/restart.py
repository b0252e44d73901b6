"""An executable model of when claims begin after the store came back (docs/adr/0006): who vouches for what it holds.

Random walks over three daemons, each with a journal of jobs that ended there or got another content by its word, and a
store that comes back as it was, without its last writes, or as it was long ago: whole, as every copy of a server is,
and also one of another line of its history. Daemons are killed, stand still, are cut off or hear no answers; clocks
jump. Half of the walks let a daemon join and have the store forget that. A promise is broken when a job starts that
ended, or was promised to be another, at a daemon that was never away for a lease, or that runs where its lease is
rightly trusted.

    python -m tests.model.restart [--walks 20000] [--seed 1] [--bug NAME]

--bug plants a mistake that the walks must find.
"""

import argparse
import random
import sys
from dataclasses import dataclass, field, replace

BUGS = {
    "acts_at_once": "who joins claims before all others have heard of it",
    "acks_at_once": "who joins promises another content before all others have heard of it",
    "any_copy": "an epoch that is known proves enough",
    "incomplete_too": "a life in which somebody may be missing proves something of the next",
    "not_below": "a counter above the last confirmed proves it, too: an attempt whose answer was lost has raised it",
    "sent_is_heard": "who renewed since has heard of us",
    "stale_lease": "who does not trust its lease proves it",
    "waited_by_now": "what is whole by now was so at the last confirmed renewal",
}
LEASE, RENEW, MARGIN = 24, 6, 2
NOTICES = (0, 0, 1, 3, LEASE - 2, LEASE - 2)  # ticks until a daemon has noticed that the store is back
STEPS = 200


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
        rows = {name: Row(row.counter, row.epoch, row.life, row.heard) for name, row in self.rows.items()}
        return replace(self, rows=rows, ready=self.ready.copy(), held=self.held.copy(), ended=self.ended.copy())

    def push(self, jobs: set[int]) -> None:
        self.ready |= jobs - self.held.keys() - self.ended

    @property
    def all_through(self) -> bool:
        return all(row.life == self.life for row in self.rows.values() if row.epoch)

    def end(self, job: int) -> None:
        self.ended.add(job)
        self.ready.discard(job)
        self.held.pop(job, None)

    def give_back(self, name: str, below: int) -> None:
        given = {job for job, (holder, epoch) in self.held.items() if holder == name and epoch < below}
        self.held = {job: held for job, held in self.held.items() if job not in given}
        self.ready |= given


@dataclass(eq=False)
class Daemon:
    name: str
    world: "World"
    journal: list[int] = field(default_factory=list)
    """Jobs that ended here, or got another content here."""
    is_up: bool = True
    late: int = 0
    """So much of its journal is from before it was away and its membership gone: until the others hear of it, a store
    may lose what it told of that."""
    was_reaped: bool = False
    still_until: int = 0
    mute: str = ""
    """Until then it does nothing, is cut off, or is deaf: it hears no answers."""
    notices_at: int = 0
    there_since: int = 0
    stepped_at: int = 0

    def start(self) -> None:
        self.is_up, self.epoch, self.past, self.running = True, 0, 0, dict[int, int]()
        self.trusted_until = self.counter = self.whole_in = self.life = self.run = self.sat_at = 0
        self.stepped_at = self.world.now
        self.was_away()
        self.unheard: dict[str, int] | None = None
        self.state, self.waits, self.settled = "out", True, False

    def was_away(self) -> None:
        self.there_since = self.world.now
        if self.name not in self.world.store.rows:
            self.late = len(self.journal)

    def leave(self) -> None:
        """Another life answers, or the epoch is burnt."""
        if "waited_by_now" in self.world.bugs and self.state != "out" and self.waited:
            self.whole_in = self.life
        self.run, self.state, self.waits, self.settled = 0, "out", True, False

    # ---------------------------------------------------------------- what it may do

    @property
    def is_heard(self) -> bool:
        """Whether nobody vouches without knowing of it."""
        return self.unheard == {} or self.world.now - self.sat_at > LEASE

    @property
    def waited(self) -> bool:
        """Whether all that did something are members, or had the time to be."""
        return self.whole_in == self.life or self.world.now - self.looked_at > LEASE

    @property
    def is_settled(self) -> bool:
        return self.state == "through" and not self.waits and (self.settled or self.waited)

    def may(self, bug: str) -> bool:
        return self.is_settled and (self.is_heard or bug in self.world.bugs)

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
        if self.is_heard:
            self.late = 0
        if self.may("acts_at_once"):
            self._reap()
            self._claim()
        if self.may("acks_at_once"):
            self._promise()

    def _come_through(self) -> None:
        """`recovery`: a calm store is told before we join, of another one all wait for us."""
        world, store = self.world, self.world.store
        if store.run != world.run:
            world.lives += 1
            store.run, store.life = world.run, world.lives
        self.run, self.life, self.looked_at = store.run, store.life, world.now
        self.seen, self.beats = dict[str, tuple[int, int]](), dict[str, int]()
        if store.settled == store.life and not self.past:
            self._apply()
            self._sit(through=True)
            store.give_back(self.name, self.epoch)
            self.state = "through"
            return
        row = store.rows.get(self.name)
        if row is not None and row.epoch and row.epoch == self.epoch:
            is_kept = self._is_kept(row)
            row.counter, row.life, row.heard = world.tick(row.counter), 0, 0
            world.maybe_lose(self)
            if self.whole_in != self.life:
                self.whole_in = self.life if is_kept else 0
            self.counter = row.counter
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
        is_same = row.counter == self.counter > 0 or "any_copy" in bugs
        if "not_below" in bugs:
            is_same = row.counter >= self.counter > 0
        return trusts and is_same and (self.whole_in > 0 or "incomplete_too" in bugs)

    def _sit(self, *, through: bool) -> None:
        world, store = self.world, self.world.store
        old = store.rows.get(self.name)
        world.before_joining = store.copy()
        store.fence = world.tick(store.fence)
        store.rows[self.name] = Row(world.tick(old.counter if old else 0), store.fence, store.life if through else 0)
        if not through:
            store.settled = 0
        world.maybe_lose(self)
        if self.was_reaped:
            self.late, self.was_reaped = len(self.journal), False
        self.epoch, self.sat_at, self.renewed_at = store.fence, world.now, 0
        self.counter = self.whole_in = 0
        self.unheard, self.hurries = None, False

    def _renew(self) -> None:
        world, store = self.world, self.world.store
        row, sent_at, waited = store.rows[self.name], world.now, self.waited
        row.counter, row.heard = world.tick(row.counter), self.counter
        if self.state == "through":
            row.life = store.life
            if self.may("acts_at_once") and store.all_through:
                store.settled = store.life
        world.maybe_lose(self)
        self.renewed_at, self.trusted_until, self.counter = world.now, sent_at + LEASE - MARGIN, row.counter
        self.past = self.life if row.life else self.past
        others = {name: each for name, each in store.rows.items() if name != self.name and each.epoch}
        self.waits = any(each.life != store.life for each in others.values())
        self.settled = store.settled == store.life
        if self.settled or waited:
            self.whole_in = self.life
        elif self.whole_in != self.life:
            self.whole_in = 0
        if self.unheard is None:
            self.unheard = {name: each.counter for name, each in others.items()}
        sent = "sent_is_heard" in world.bugs
        self.unheard = {
            name: counter
            for name, counter in self.unheard.items()
            if name in others and (others[name].counter if sent else others[name].heard) <= counter
        }
        self.hurries = any(name not in self.seen or self.seen[name][1] != each.epoch for name, each in others.items())
        for name, each in others.items():
            if name not in self.seen or self.seen[name][0] != each.counter:
                self.seen[name] = (each.counter, each.epoch)
                self.beats[name] = world.now
        self.seen = {name: beat for name, beat in self.seen.items() if name in others}

    def _reap(self) -> None:
        world, store = self.world, self.world.store
        for name, (counter, epoch) in self.seen.items():
            row = store.rows.get(name)
            if row and (row.counter, row.epoch) == (counter, epoch) and world.now - self.beats[name] > LEASE:
                store.give_back(name, row.epoch + 1)
                del store.rows[name]
                for each in world.daemons:
                    each.was_reaped = each.was_reaped or each.name == name
                return

    def _apply(self) -> None:
        for job in set(self.journal) - self.world.store.ended:
            self.world.store.end(job)

    def _claim(self) -> None:
        world, store = self.world, self.world.store
        if store.all_through and store.ready and world.random.random() < 0.5 and world.now < self.trusted_until:
            job = min(store.ready)
            store.ready.discard(job)
            store.held[job] = (self.name, self.epoch)
            world.maybe_lose(self)
            world.start(self, job)
            self.running[job] = world.now + world.random.randint(1, 3)

    def _promise(self) -> None:
        """Another content for a job that waits: it must not start any more. Acknowledged when the store has it."""
        store = self.world.store
        if store.settled == store.life and store.ready and self.world.random.random() < 0.2:
            job = min(store.ready)
            store.end(job)
            self.world.maybe_lose(self)
            self.journal.append(job)

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

    def __init__(self, seed: int, bugs: frozenset[str], faults: frozenset[str], *, joins: bool) -> None:
        self.random, self.bugs, self.faults = random.Random(seed), bugs, faults
        self.now, self.run, self.lives, self.skew, self.restarted_at, self.again_at = LEASE, 1, 0, 0, 0, 0
        self.store, self.pushed = Store(), set[int]()
        self.images = [self.store.copy()]
        self.before_joining = self.store.copy()
        self.daemons = [Daemon(f"d{k}", self) for k in range(3)]
        for daemon in self.daemons:
            daemon.start()
            daemon.is_up = joins or self.random.random() < 0.7
        self.plot = self._joining() if joins else []

    def _joining(self) -> list[tuple[int, str, int, int]]:
        """A daemon joins, often beside one that is away or deaf, and then the store forgets it, often twice."""
        draw, joins = self.random, self.now + 2 * LEASE + self.random.randint(0, RENEW)
        away = draw.sample((1, 2), draw.randint(1, 2))
        plot = [(joins - LEASE - draw.randint(2, LEASE), "kill", number, 0) for number in away]
        plot.append((joins, "kill", away[0], 0))
        loses = joins + draw.randint(4, 18)
        match draw.choice(("deaf", "away", "unheard", "late", "plain")):
            case "deaf":
                plot.append((joins + draw.randint(-1, RENEW - 1), "deaf", 0, draw.randint(6, 20)))
            case "away":
                loses = joins + LEASE + draw.randint(2, 12)
                began = joins - draw.randint(0, 3)
                plot.append((began, "cut", 0, loses - began + draw.randint(0, 2)))
            case "unheard":
                plot.append((loses, "deaf", 0, draw.randint(2, 6)))
            case "late":
                cut, again = loses + draw.randint(LEASE - 6, LEASE - 1), loses + LEASE + draw.randint(1, 8)
                plot += [(cut, "cut", 0, again - cut), (again, "loses", 0, 0)]
        plot.append((loses, draw.choice(("loses", "loses", "old")), 0, 0))
        if draw.random() < 0.5 and plot[-2][1] != "loses":
            plot.append((loses + draw.randint(1, LEASE + 2), draw.choice(("restart", "loses")), 0, 0))
        return sorted(plot, key=lambda what: (what[0], what[1] == "deaf"))

    def tick(self, last: int) -> int:
        """A number above that one, and by the server's clock."""
        return max(last + 1, self.now * 1000 + self.skew)

    def maybe_lose(self, daemon: Daemon) -> None:
        is_deaf = daemon.mute == "deaf" and self.now < daemon.still_until
        if is_deaf or ("lost" in self.faults and self.random.random() < 0.25):
            raise Lost

    def step(self) -> None:
        self.now += 1
        if self.now % 3 == 0:
            self.pushed.add(self.now)
            self.store.push({self.now})
        for daemon in self.random.sample(self.daemons, len(self.daemons)):
            mute = daemon.mute if self.now < daemon.still_until else ""
            if not daemon.is_up or mute == "still":
                continue
            daemon.work()
            if mute == "cut" or self.now < daemon.notices_at or self.random.random() < 0.15:
                continue
            if self.now - daemon.stepped_at >= LEASE:
                daemon.was_away()
            try:
                daemon.step()
                daemon.stepped_at = self.now
            except Lost:
                if daemon.state == "seated":
                    daemon.leave()
        self.images = [*self.images[-99:], self.store.copy()]
        for at, kind, number, span in self.plot:
            if at == self.now:
                self._break(kind, self.daemons[number], span)
        if self.now == self.again_at:
            self._break("restart", self.daemons[0])
        elif self.faults and self.random.random() < (0.01 if self.plot else 0.12):
            self._break(self.random.choice(sorted(self.faults)), self.random.choice(self.daemons))

    def start(self, by: Daemon, job: int) -> None:
        """Raise Violation."""
        for each in self.daemons:
            if not each.is_up or (each is by and job not in by.journal):
                continue
            if job in each.running and self.now < each.trusted_until:
                raise Violation(f"{self.now}: {by.name} starts job {job}, which runs at {each.name}")
            is_there = each.there_since <= self.restarted_at and self.now - each.stepped_at < LEASE
            if job in each.journal[each.late :] and not each.was_reaped and is_there:
                raise Violation(f"{self.now}: {by.name} starts job {job}, whose end is known to {each.name}")

    def _break(self, kind: str, daemon: Daemon, span: int = 0) -> None:
        draw = self.random
        match kind:
            case "kill" if daemon.is_up:
                daemon.is_up = False
            case "kill":
                daemon.start()
            case "still" | "cut" | "deaf":
                daemon.still_until = self.now + (span or draw.choice((2, 5, 8, 12, 20, 30, 40)))
                daemon.mute = kind
            case "restart" | "loses" | "old" | "wipe":
                back = {"restart": 1, "loses": draw.randint(1, 6), "old": draw.randint(1, 100), "wipe": 1}[kind]
                self.store = Store() if kind == "wipe" else self.images[-min(back, len(self.images))].copy()
                if kind == "loses" and draw.random() < 0.7:
                    self.store = self.before_joining.copy()
                self.store.push(self.pushed)
                self.run, self.restarted_at = self.run + 1, self.now
                self.again_at = self.now + draw.randint(1, NOTICES[-1]) if draw.random() < (0.1 if self.plot else 0.3) else 0
                is_back = draw.random() < 0.5
                for each in self.daemons:
                    each.still_until = self.now if is_back else each.still_until
                    each.notices_at = self.now + draw.choice(NOTICES)
            case "clock":
                self.skew = draw.randint(-20_000, 20_000)


KINDS = ("restart", "loses", "old", "wipe", "kill", "still", "cut", "deaf", "lost", "clock")


def walk(seed: int, bugs: frozenset[str] = frozenset()) -> World:
    """Raise Violation."""
    source = random.Random(seed)
    faults = frozenset(source.sample(KINDS, source.randint(0, 5)))
    joins = source.random() < 0.7
    world = World(seed, bugs, faults if joins else faults | {"kill", "loses"}, joins=joins)
    for _ in range(max((at - LEASE for at, *_ in world.plot), default=STEPS) + LEASE):
        world.step()
    world.faults, world.plot = frozenset(), []
    for daemon in world.daemons:
        daemon.still_until = 0
        if not daemon.is_up:
            daemon.start()
    for _ in range(5 * LEASE):
        world.step()
    if not all(daemon.may("") for daemon in world.daemons):
        raise Violation("in five leases without a fault not all came to act")
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
    parser.add_argument("--bug", action="append", default=[], choices=sorted(BUGS))
    args = parser.parse_args()
    found = violations(args.walks, args.seed, frozenset(args.bug))
    sys.stdout.write("\n".join([*found[:20], f"{args.walks} walks, {len(found)} violations\n"]))


if __name__ == "__main__":
    main()
