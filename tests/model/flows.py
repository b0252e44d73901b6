"""An executable model of flows (docs/adr/0047): the outbox of followers, and children blocked until parents end.

Random walks over three daemons, each with a journal, and a store of two partitions. Loops run step by step: a daemon
may be killed, an answer lost, a partition emptied between any two calls of the store. At each step a child begins only
after all its parents ended, with its last content, and none that a parent's failure cancels; a follower runs once; at
the end, after healing, every job that was acknowledged, and every follower of a success, has run.

    python -m tests.model.flows [--walks 20000] [--seed 1] [--many] [--bug NAME]

One kind of fault per walk unless --many. --bug plants a mistake that the checks must catch.
"""

import argparse
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.model.daemon import LANES, Daemon, Lost, Record, home
from tests.model.store import BROUGHT, OVER, PARTITIONS, End, Row, Store

BUGS = (
    "ask_then_watch",
    "copy_always",
    "copy_never",
    "copy_none",
    "count_down",
    "drop_note_first",
    "drop_outbox_first",
    "drop_stale_success",
    "forget_untold",
    "late_new",
    "no_ask_again",
    "no_end_note",
    "no_promise",
    "no_stage",
    "old_asker",
    "old_content",
    "old_parent",
    "old_release",
    "unknown_is_gone",
    "watch_tells",
    "whole_afterwards",
)
FAULTS = ("kill", "late", "lost", "replace", "wipe")
RAN = ("succeeded", "failed")
JOBS = 14  # pushed in one walk
STEPS = 500
BRINGING = 12  # walks in a row with followers that come with outcomes, then as many without: all kinds of fault twice
HEALING = 600  # steps: each loop of each daemon some twenty times


class Violation(Exception):
    """A promise was broken."""


class World:
    """Daemons, the store, and what is true."""

    def __init__(self, seed: int, bugs: frozenset[str], faults: Sequence[str]) -> None:
        self.random, self.bugs, self.faults = random.Random(seed), bugs, faults
        self.brings = seed // BRINGING % 2 == 1
        """Whether some followers come with their parent's outcome."""
        self.stores = [Store(bugs) for _ in range(PARTITIONS)]
        self.daemons = [Daemon(f"d{k}", self) for k in range(3)]
        self.pusher: dict[str, Daemon] = {}
        """Of each job the daemon whose journal has it."""
        self.pushed: dict[str, Row] = {}
        self.wrote: defaultdict[tuple[str, int], list[Daemon]] = defaultdict(list)
        """Whose journals have the outcomes of a job in a generation."""
        self.ends: dict[str, list[str]] = {}
        self.owed: set[str] = set()
        """Followers of successes."""
        self.anew: Counter[str] = Counter()
        self.writer: dict[str, Daemon] = {}
        """Whose journal has the last change that began a job anew."""
        self.replaced: dict[str, Daemon] = {}
        """Whose journal has the last content of a job that was replaced."""
        self._revision = 0
        self.excused: set[str] = set()
        """Their journal was away when the store had lost everything: docs/adr/0047 says what may be then."""
        for daemon in self.daemons:
            daemon.start()

    # ------------------------------------------------ what loops want to know

    def is_settled(self, number: int) -> bool:
        """Whether all who are up told this partition what it had forgotten."""
        identity = self.stores[number].identity
        return all(each.through.get(number) == identity for each in self.daemons if each.is_up)

    def is_coming(self, job_id: str) -> bool:
        daemon = self.pusher[job_id]
        applied = self.stores[home(job_id)].applied.get((daemon.name, "jobs"), 0)
        return any(
            each is not None and each.lane == "jobs" and each.job_id == job_id for each in daemon.journal[applied:]
        )

    # ------------------------------------------------ what people and workers do

    def push(self, daemon: Daemon, job_id: str, row: Row) -> None:
        if job_id in self.pusher and (self.pusher[job_id].is_up or job_id in self.stores[home(job_id)].rows):
            return  # its name is known
        self.excused |= {job_id} & self.pusher.keys()
        self.pusher.setdefault(job_id, daemon)
        self.pushed.setdefault(job_id, row)
        daemon.journal.append(Record("jobs", job_id, row))

    def _push_new(self, daemon: Daemon) -> None:
        known = sorted(job_id for job_id in self.pushed if "." not in job_id)
        if len(known) < JOBS:
            after = tuple(self.random.sample(known, min(len(known), self.random.choice((0, 0, 1, 2, 3)))))
            row = Row(after, self.random.random() < 0.5, self.random.choice((0, 0, 1, 2)))
            row.brings = self.brings and self.random.random() < 0.8
            self.push(daemon, f"j{len(known):02}", row)

    def _run(self, daemon: Daemon) -> None:
        """Run one job, and write how it ended."""
        ready = [
            (job_id, row)
            for number, store in enumerate(self.stores)
            if self.is_settled(number) and daemon.through.get(number) == store.identity
            for job_id, row in sorted(store.rows.items())
            if row.state == "waiting"
        ]
        if not ready:
            return
        job_id, row = self.random.choice(ready)
        self._check_start(job_id, row)
        row.state = "held"
        how = "failed" if self.random.random() < 0.25 else "succeeded"
        self.ends.setdefault(job_id, []).append(how)
        mark = BROUGHT if row.brings else ""
        count = row.followers if how == "succeeded" else 0
        followers = tuple(f"{job_id}.{row.generation}.{k}{mark}" for k in range(count))
        self.owed |= {*followers}
        self.pushed |= {follower: Row() for follower in followers if row.brings}
        if self.wrote[job_id, row.generation]:  # who is away has the first success, and brings what ended meanwhile
            self.excused |= {*followers}
        self.wrote[job_id, row.generation].append(daemon)
        daemon.journal.append(Record("outcomes", job_id, None, how, row.generation, followers))

    def _try_anew(self, daemon: Daemon) -> None:
        store = self.random.choice(self.stores)
        ended = sorted(job_id for job_id, row in store.rows.items() if row.state in RAN and row.generation < 2)
        if not ended:
            return
        job_id = self.random.choice(ended)
        if "no_promise" not in self.bugs:
            store.promised.setdefault(job_id, set()).add(daemon.name)
        daemon.loops.append(self._write_anew(daemon, store, job_id, store.rows[job_id].generation + 1))

    def _write_anew(self, daemon: Daemon, store: Store, job_id: str, generation: int) -> Iterator[None]:
        yield
        if daemon.name in store.promised.get(job_id, ()) or "no_promise" in self.bugs:
            self.anew[job_id] = max(generation, self.anew[job_id])
            self.writer[job_id] = daemon
            daemon.journal.append(Record("changes", job_id, what="anew", generation=generation))

    def next_revision(self) -> int:
        self._revision += 1
        return self._revision

    def _replace(self, daemon: Daemon) -> None:
        """A blocked job is to do something else from now on, and may wait for others; that is in the store at once."""
        number = self.random.randrange(PARTITIONS)
        store = self.stores[number]
        rows = sorted(job_id for job_id, row in store.rows.items() if row.state == "blocked" and job_id > "j00")
        if not rows or not self.is_settled(number):
            return
        job_id = self.random.choice(rows)
        before = [each for each in sorted(self.pushed) if each < job_id and "." not in each]
        after = tuple(self.random.sample(before, min(len(before), self.random.choice((1, 2)))))
        self.replaced[job_id] = daemon
        revision = self.next_revision()
        if revision % 2:  # only what it is to do
            after = store.rows[job_id].after
        self.pushed[job_id] = replace(self.pushed[job_id], after=after, content=revision)
        change = Record("changes", job_id, what="replace", generation=revision, after=after, content=revision)
        daemon.journal.append(change)
        while store.applied.get((daemon.name, "changes"), 0) < len(daemon.journal):
            daemon.apply(store, "changes")

    def _forget(self) -> None:
        """Retention: a success whose children know, and whatever of it stands in journals."""
        store = self.random.choice(self.stores)
        if not self.is_settled(self.stores.index(store)):
            return  # it is being told what it forgot
        for job_id, row in sorted(store.rows.items()):
            parent = job_id if job_id.endswith(BROUGHT) else job_id.partition(".")[0]
            if row.state != "succeeded" or (parent != job_id and parent in self.stores[home(parent)].rows):
                continue
            # What a journal has that is away, nobody takes from it.
            wrote = (each for (of, _), those in self.wrote.items() if of == job_id for each in those)
            if all(each.is_up for each in wrote) and store.may_forget(job_id) and job_id not in store.promised:
                del store.rows[job_id]
                store.children.pop(job_id, None)
                unfinished = [one for one, its in store.rows.items() if its.state not in OVER]
                for daemon in () if job_id.endswith(BROUGHT) else self.daemons:  # a journal keeps its end for longer
                    daemon.retire(job_id, unfinished)
                return

    # ------------------------------------------------ what must hold

    def check_release(self, after: Sequence[str]) -> None:
        """A parent that was tried anew has ended anew, unless its child is about to be told."""
        for parent in after:
            store = self.stores[home(parent)]
            its = store.rows.get(parent)
            if its is None or its.state in OVER or f"e{parent}" in store.links or parent in self.excused:
                continue
            is_known = all(daemon.is_up for daemon in self.wrote[parent, its.generation])
            if is_known and self.is_settled(home(parent)):
                raise Violation(f"released before its parent {parent} ended anew")

    def check_told(self, parent: str, end: End | None) -> None:
        """No end is told of a job that is to begin anew, unless that stands in a journal that is away."""
        if end is not None and end.how and end.stage < 2 * self.anew[parent] and self.writer[parent].is_up:
            raise Violation(f"told the end of {parent}, which begins anew")

    def _check_start(self, job_id: str, row: Row) -> None:
        is_there = job_id not in self.replaced or self.replaced[job_id].is_up
        if is_there and row.content != self.pushed[job_id].content:
            raise Violation(f"{job_id} began with a content that was replaced")
        for parent in self.pushed[job_id].after if is_there else ():
            if not self.ends.get(parent) and parent not in self.excused:
                raise Violation(f"{job_id} began before its parent {parent} ended")
            if row.cancels and "succeeded" not in self.ends.get(parent, ()) and parent not in self.excused:
                raise Violation(f"{job_id} began though its parent {parent} had failed")
        knows = any(daemon.is_up for daemon in self.wrote[job_id, row.generation])
        if knows and job_id not in self.excused:
            raise Violation(f"{job_id} ran twice in generation {row.generation}")

    def check_end(self) -> None:
        for job_id in sorted(self.pushed.keys() | self.owed):
            if not self.ends.get(job_id):
                raise Violation(f"{job_id} was lost: {self.stores[home(job_id)].rows.get(job_id)}")

    # ------------------------------------------------ time

    def step(self) -> None:
        alive = [each for each in self.daemons if each.is_up]
        if alive:
            self._work(self.random.choice(alive))
        if self.faults and self.random.random() < 0.02:
            self._fault(self.random.choice(self.faults))
        if "replace" in self.faults and alive and self.random.random() < 0.1:
            self._replace(self.random.choice(alive))

    def _work(self, daemon: Daemon) -> None:
        what = self.random.choice(
            ("push", "apply", "apply", "apply", "loop", "loop", "loop", "loop", "run", "anew", "forget")
        )
        number = self.random.randrange(PARTITIONS)
        if what == "push":
            self._push_new(daemon)
        elif what == "apply":
            daemon.apply(self.stores[number], self.random.choice(LANES))
            if self.random.random() < 0.3:
                daemon.come_through(number)
        elif what == "loop":
            self.advance(daemon, self.random.randrange(len(daemon.loops)))
        elif what == "run":
            self._run(daemon)
        elif what == "anew" and self.random.random() < 0.3:
            self._try_anew(daemon)
        elif what == "forget":
            self._forget()

    def advance(self, daemon: Daemon, place: int) -> None:
        """Let one loop go on to its next call; one that lost an answer begins anew."""
        names = (daemon._ask_loop, daemon._tell_loop, daemon._outbox_loop)
        try:
            next(daemon.loops[place])
        except Lost:
            daemon.loops[place] = names[place]()
        except StopIteration:
            del daemon.loops[place]

    def _fault(self, kind: str) -> None:
        daemon = self.random.choice(self.daemons)
        if kind == "kill" and daemon.is_up:
            daemon.is_up, daemon.loops = False, []
            for store in self.stores:  # its name is free again: whoever promised is no more
                rest = {job_id: names - {daemon.name} for job_id, names in store.promised.items()}
                store.promised = {job_id: names for job_id, names in rest.items() if names}
        elif kind == "kill":
            daemon.start()
        elif kind == "wipe":
            self.random.choice(self.stores).wipe()

    def heal(self) -> None:
        self.faults = ()
        for daemon in self.daemons:
            if not daemon.is_up:
                daemon.start()
        for _ in range(HEALING):
            for daemon in self.daemons:
                for number, store in enumerate(self.stores):
                    daemon.come_through(number)
                    for lane in LANES:
                        daemon.apply(store, lane)
                for place in range(len(daemon.loops) - 1, -1, -1):
                    self.advance(daemon, place)
                self._run(daemon)


def walk(seed: int, bugs: frozenset[str] = frozenset(), faults: Sequence[str] = ()) -> None:
    """Raise Violation."""
    world = World(seed, bugs, faults)
    for _ in range(STEPS):
        world.step()
    world.heal()
    world.check_end()


def violations(walks: int, seed: int, bugs: frozenset[str] = frozenset(), *, many: bool = False) -> list[str]:
    """Return what was broken, by walk."""
    found = []
    for number in range(seed, seed + walks):
        kinds = FAULTS if many else ((), *((each,) for each in FAULTS))[number % (1 + len(FAULTS))]
        try:
            walk(number, bugs, kinds)
        except Violation as broken:
            found.append(f"walk {number} under {'+'.join(kinds) or 'no fault'}: {broken}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walks", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--bug", action="append", default=[], choices=BUGS)
    args = parser.parse_args()
    found = violations(args.walks, args.seed, frozenset(args.bug), many=args.many)
    sys.stdout.write("\n".join([*found[:20], f"{args.walks} walks, {len(found)} violations\n"]))


if __name__ == "__main__":
    main()
