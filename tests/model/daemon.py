"""A modelled daemon: its journal, what of it is applied, and its loops, step by step."""

from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.model.store import BROUGHT, GONE, PARTITIONS, End, Row, Store

if TYPE_CHECKING:
    from tests.model.flows import World

LANES = ("jobs", "changes", "outcomes")


class Lost(Exception):
    """The answer of a call got lost."""


def home(job_id: str) -> int:
    """What an outcome brings lives where its parent does."""
    return sum(map(ord, job_id.partition(".")[0] if job_id.endswith(BROUGHT) else job_id)) % PARTITIONS


@dataclass(eq=False)
class Record:
    """One frame of a journal."""

    lane: str
    job_id: str
    row: Row | None = None
    what: str = ""
    """Of a change: its kind. Of an outcome: how it ended."""
    generation: int = 0
    followers: tuple[str, ...] = ()
    copied: int | None = None
    """Of a copy by retention: where the outcome stood first."""
    after: tuple[str, ...] = ()
    """Of a content that follows another: its parents."""
    content: int = 0
    """What the job is to do, as who wrote this saw it."""


@dataclass(eq=False)
class Daemon:
    """Lives as long as its process does, but for the journal."""

    name: str
    world: "World"
    journal: list[Record | None] = field(default_factory=list)
    """None: retired."""
    life: int = 0
    is_up: bool = True
    loops: list[Iterator[None]] = field(default_factory=list)
    through: dict[int, int] = field(default_factory=dict)
    """Of partitions: the identity under which all of this journal was applied."""

    def start(self) -> None:
        self.life += 1
        self.is_up, self.through = True, {}
        self.loops = [self._ask_loop(), self._tell_loop(), self._outbox_loop()]

    def apply(self, store: Store, lane: str) -> None:
        """Apply the next records of one lane, as many as one call takes."""
        key = self.name, lane
        begin = store.applied.get(key, 0)
        for at, record in enumerate(self.journal[begin : begin + 3], begin):
            if record is None and lane == "outcomes":
                store.gone.add((self.name, at))
            if record is None or record.lane != lane or home(record.job_id) != self.world.stores.index(store):
                continue
            if record.row is not None:
                store.apply_job(record.job_id, replace(record.row))
            elif lane == "changes":
                store.apply_change(record.job_id, record.what, record.generation, record.after, record.content)
            else:
                followers = record.followers
                if record.copied is not None and not store.lacks(self.name, record.copied):
                    followers = ()  # they were here: what is missing has ended
                store.apply_outcome(record.job_id, record.generation, record.what, followers)
        store.applied[key] = min(begin + 3, len(self.journal))

    def come_through(self, number: int) -> None:
        store = self.world.stores[number]
        if self.through.get(number) == store.identity:
            return
        end = len(self.journal)
        while any(store.applied.get((self.name, lane), 0) < end for lane in LANES):
            for lane in LANES:
                self.apply(store, lane)
        self.through[number] = store.identity

    def retire(self, job_id: str, unfinished: Collection[str]) -> None:
        """Drop all that the journal has of a job, but for a copy of its outcome with followers that have not ended."""
        for at, record in enumerate(list(self.journal)):
            if record is None or record.job_id != job_id:
                continue
            self.journal[at] = None
            left = tuple(each for each in record.followers if each in unfinished)
            if left and "copy_none" not in self.world.bugs:
                first = at if record.copied is None else record.copied
                self.journal.append(replace(record, followers=left, copied=first))

    # ------------------------------------------------ loops: each `yield` is a moment at which others go on

    def _ask_loop(self) -> Iterator[None]:
        while True:
            yield
            for number, store in enumerate(self.world.stores):
                self._ask_again(number)
                for entry in sorted(each for each in store.links if each[0] == "w"):
                    if entry in store.links:
                        yield from self._ask(store, entry)

    def _ask_again(self, number: int) -> None:
        for other, store in enumerate(self.world.stores):
            if self.world.is_settled(other):
                self.world.stores[number].ask_again(other, store.identity)

    def _ask(self, store: Store, entry: str) -> Iterator[None]:
        child = entry[1:]
        row = store.rows.get(child)
        if row is None or row.state != "blocked":
            store.drop(entry, store.links[entry])
            return
        token, after = store.take(entry), row.after
        if "drop_note_first" in self.world.bugs:
            store.drop(entry, token)
        if "late" in self.world.faults and self.world.random.random() < 0.1:
            self.loops.append(self._late(store, child, token, after))
            raise Lost
        store.note(child, (), mark=after, is_new=True)
        notes, is_known = dict[str, End](), True
        whole = self._whole()
        for parent in after:
            yield from self._call()
            is_whole = self.world.is_settled(home(parent))
            end = self.world.stores[home(parent)].see(child, parent, is_whole=is_whole)
            is_coming = self.world.is_coming(parent)
            self.world.check_told(parent, end)
            yield from self._call()
            if "whole_afterwards" in self.world.bugs:
                whole = self._whole()
            if end is None and self._is_gone(parent, whole, is_coming=is_coming):
                end = End(1 << 30, GONE)
            notes[parent] = end or End(0, "")
            is_known = is_known and end is not None
            if "ask_then_watch" in self.world.bugs:
                yield from self._call()
                self.world.stores[home(parent)].watch(child, parent, is_whole=is_whole)
        yield from self._call()
        is_done = True
        if store.note(child, notes.items(), mark=after, is_all=True):
            is_done = yield from self._release(store, child)
        if is_known and is_done:
            yield from self._call()
            store.drop(entry, token)

    def _late(self, store: Store, child: str, token: int, after: tuple[str, ...]) -> Iterator[None]:
        """A question whose asker gave it up, and that is heard when others may have asked since."""
        for _ in range(self.world.random.randrange(20)):
            yield
        if "late_new" in self.world.bugs or store.links.get(f"w{child}") == token:
            store.note(child, (), mark=after, is_new=True)

    def _whole(self) -> dict[int, int]:
        """The partitions that were told all that they had forgotten, and their identities."""
        return {number: each.identity for number, each in enumerate(self.world.stores) if self.world.is_settled(number)}

    def _is_gone(self, parent: str, whole: Mapping[int, int], *, is_coming: bool) -> bool:
        """Nobody knows it, and all had told what the store had forgotten when it was asked for."""
        if "unknown_is_gone" in self.world.bugs:
            return True
        pusher = self.world.pusher[parent]
        is_whole = whole.get(home(parent)) == self.world.stores[home(parent)].identity
        if not is_whole or (pusher.is_up and is_coming):
            return False
        if not pusher.is_up:
            self.world.excused.add(parent)
        return True

    def _tell_loop(self) -> Iterator[None]:
        while True:
            yield
            for number, store in enumerate(self.world.stores):
                for entry in sorted(each for each in store.links if each[0] == "e"):
                    if entry in store.links and self.world.is_settled(number):
                        yield from self._tell(store, entry)

    def _tell(self, store: Store, entry: str) -> Iterator[None]:
        parent = entry[1:]
        token = store.take(entry)
        found = store.ends(parent)
        if found is None:
            return
        end, children = found
        self.world.check_told(parent, end)
        done = []
        for child in children:
            yield from self._call()
            its = self.world.stores[home(child)]
            if not its.note(child, [(parent, end)]) or (yield from self._release(its, child)):
                done.append(child)
        yield from self._call()
        store.told(parent, done, end.stage, token)

    def _release(self, store: Store, child: str) -> Generator[None, None, bool]:
        """Write that it goes on, and have that applied. Returns False where it waits for others meanwhile."""
        its, mark = dict(store.parents[child]), store.marks.get(child, ())
        self.world.check_release(mark)
        if "replace" in self.world.faults:
            yield from self._call()
        row = store.rows.get(child)
        if row is None or row.state != "blocked":
            return True
        if "old_release" not in self.world.bugs and mark != row.after:
            return False
        if not self.world.is_settled(home(child)):
            return False  # it may have forgotten that the job was replaced
        seen, content = row.revision, row.content
        if "replace" in self.world.faults:
            yield from self._call()  # results of parents are read meanwhile
            if "old_content" not in self.world.bugs and store.revision_of(child) != seen:
                return False
        failed = any(end.how in ("failed", "cancelled") for end in its.values())
        what = "cancel" if failed and row.cancels else "release"
        if what == "cancel":
            self.world.ends.setdefault(child, [])
            self.world.ends[child].append("cancelled")
        revision = self.world.next_revision()
        after = row.after
        self.journal.append(Record("changes", child, what=what, generation=revision, after=after, content=content))
        yield from self._call()
        if child in store.rows:
            while store.applied.get((self.name, "changes"), 0) < len(self.journal):
                self.apply(store, "changes")
        return True

    def _outbox_loop(self) -> Iterator[None]:
        while True:
            yield
            for number, store in enumerate(self.world.stores):
                for follower in sorted(store.outbox) if self.world.is_settled(number) else ():
                    if "drop_outbox_first" in self.world.bugs:
                        store.outbox.pop(follower, None)
                        yield from self._call()
                    self.world.push(self, follower, Row())
                    yield from self._call()
                    store.outbox.pop(follower, None)

    def _call(self) -> Iterator[None]:
        """A call of the store is on its way: others go on, and its answer may be lost."""
        yield
        if "lost" in self.world.faults and self.world.random.random() < 0.1:
            raise Lost
