"""One partition of the modelled store: what survives in it, and each call of it, which happens as a whole."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

PARTITIONS = 2
GONE = "gone"
BROUGHT = "+"
"""At the end of the id of a follower that comes with its parent's outcome; the others lie in the outbox first."""
OVER = ("succeeded", "failed", "cancelled")


@dataclass(eq=False)
class Row:
    """One job."""

    after: tuple[str, ...] = ()
    cancels: bool = False
    """What a parent that failed does: cancel it, or nothing."""
    followers: int = 0
    """So many jobs follow its success."""
    brings: bool = False
    """They come with its outcome."""
    state: str = "waiting"
    generation: int = 0
    revision: int = 0
    """Of its content: 0 as it was pushed."""
    content: int = 0
    """What it is to do."""

    @property
    def stage(self) -> int:
        """Only grows: twice the generation, and 1 more once it has ended."""
        return 2 * self.generation + (self.state in OVER)


class End(NamedTuple):
    """A parent as a child's partition knows it."""

    stage: int
    how: str
    """"": it has not ended."""


@dataclass(eq=False)
class Store:
    """One partition. Its calls take ids of jobs that lie here."""

    bugs: frozenset[str]
    identity: int = 1
    rows: dict[str, Row] = field(default_factory=dict)
    links: dict[str, int] = field(default_factory=dict)
    """w<child>: its parents are to be asked. e<parent>: its children are to be told. When it was noted or taken."""
    now: int = 0
    children: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of parents here: who waits, and the last stage that each was told."""
    parents: dict[str, dict[str, End]] = field(default_factory=dict)
    marks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of children: for which parents it was asked last."""
    beside: dict[str, dict[str, End]] = field(default_factory=dict)
    """Of children: ends of parents that were not asked yet, or that it waits for no more."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Of children: how many parents they have, once all are noted."""
    outbox: dict[str, str] = field(default_factory=dict)
    """Followers that are to be pushed, and their parents."""
    promised: dict[str, set[str]] = field(default_factory=dict)
    """Of a job that is to begin anew: the daemons that are about to write so."""
    changes: dict[str, list[tuple[str, int, tuple[str, ...], int]]] = field(default_factory=dict)
    """That came before their job."""
    outcomes: dict[str, dict[int, tuple[str, tuple[str, ...]]]] = field(default_factory=dict)
    """That came before their job, or before the change that began it anew: of each generation how, and followers."""
    applied: dict[tuple[str, str], int] = field(default_factory=dict)
    gone: set[tuple[str, int]] = field(default_factory=set)
    """Places of journals that were retired before this life of the store had them."""
    asked: dict[int, int] = field(default_factory=dict)
    """Of each partition its identity when all parents there were asked last."""

    def wipe(self) -> None:
        now = self.now  # a clock: no token comes twice
        self.__init__(self.bugs, self.identity + 1)  # type: ignore[misc]
        self.now = now

    # ------------------------------------------------ what journals say

    def apply_job(self, job_id: str, row: Row) -> None:
        if job_id in self.rows:
            return
        self.rows[job_id] = row
        if row.after:
            row.state = "blocked"
            self._link(f"w{job_id}")
        for change in self.changes.pop(job_id, []):
            self.apply_change(job_id, *change)
        self._late_outcome(job_id)

    def lacks(self, journal: str, place: int) -> bool:
        """Whether what stood there never was here in this life."""
        return ((journal, place) in self.gone or "copy_always" in self.bugs) and "copy_never" not in self.bugs

    def apply_outcome(self, job_id: str, generation: int, how: str, followers: tuple[str, ...]) -> None:
        row = self.rows.get(job_id)
        if row is None or row.generation < generation:
            pushed = tuple(each for each in followers if not each.endswith(BROUGHT))  # the others come with this call
            self.outcomes.setdefault(job_id, {})[generation] = how, pushed
            self._leave(job_id, followers)  # what it waits for may never come
        elif row.generation == generation and (row.state not in OVER or (how, row.state) == ("succeeded", "failed")):
            row.state = how
            self._leave(job_id, followers)
            self._note_end(job_id)
        elif row.generation > generation and "drop_stale_success" not in self.bugs:
            self._leave(job_id, followers)  # it had counted before this store lost that: once more, not never

    def _leave(self, job_id: str, followers: Iterable[str]) -> None:
        for follower in followers:
            if follower.endswith(BROUGHT):
                self.apply_job(follower, Row())
            else:
                self.outbox[follower] = job_id

    def apply_change(self, job_id: str, change: str, generation: int, after: tuple[str, ...], content: int) -> None:
        """`generation`: the revision of a release, or of a content that replaces another."""
        row = self.rows.get(job_id)
        if row is None:
            self.changes.setdefault(job_id, []).append((change, generation, after, content))
        elif change in ("release", "replace") and generation > row.revision:
            row.revision, row.after, row.content = generation, after, content
            if row.state in ("blocked", "waiting"):
                row.state = "waiting" if change == "release" else "blocked"
            if row.state == "blocked":
                self._link(f"w{job_id}")
        elif change == "cancel" and row.state in ("blocked", "waiting"):
            row.state = "cancelled"
            self._note_end(job_id)
        elif change == "anew" and generation > row.generation:
            row.state, row.generation = "waiting", generation
            self.promised.pop(job_id, None)
            self._note_end(job_id)
            self._late_outcome(job_id)

    def revision_of(self, job_id: str) -> int | None:
        return self.rows[job_id].revision if job_id in self.rows else None

    def _late_outcome(self, job_id: str) -> None:
        for generation, (how, followers) in sorted(self.outcomes.pop(job_id, {}).items()):
            self.apply_outcome(job_id, generation, how, followers)

    def _note_end(self, job_id: str) -> None:
        if job_id in self.children and "no_end_note" not in self.bugs:
            self._link(f"e{job_id}")

    # ------------------------------------------------ what loops ask

    def _link(self, entry: str) -> int:
        self.now += 1
        self.links[entry] = self.now
        return self.now

    def take(self, entry: str) -> int:
        """Return a token: who drops it must have taken it last."""
        return self._link(entry)

    def drop(self, entry: str, token: int) -> None:
        if self.links.get(entry) == token:
            del self.links[entry]

    def ask_again(self, partition: int, identity: int) -> None:
        """Children ask all their parents anew: that partition may have forgotten who waits."""
        if self.asked.get(partition) != identity and "no_ask_again" not in self.bugs:
            for job_id, row in self.rows.items():
                if row.state == "blocked":
                    self._link(f"w{job_id}")
        self.asked[partition] = identity

    def see(self, child: str, parent: str, *, is_whole: bool) -> End | None:
        """Return how a parent stands, and tell this child of its ends from now on. None: it is not here.

        `is_whole`: this store was told all that it had forgotten, else no end is certain."""
        row = self.rows.get(parent)
        if row is not None and "ask_then_watch" not in self.bugs:
            self.watch(child, parent, is_whole=is_whole)
        if row is None:
            return None
        if parent in self.promised or not is_whole:
            return End(2 * row.generation, "")
        return End(row.stage, row.state if row.state in OVER else "")

    def watch(self, child: str, parent: str, *, is_whole: bool) -> None:
        row = self.rows.get(parent)
        if row is None:
            return
        is_open = parent in self.promised or not is_whole
        stage = 2 * row.generation if is_open else row.stage
        told = self.children.setdefault(parent, {})
        # The answer may be lost, and who took the child since be done: only who told raises a mark.
        told[child] = stage if "watch_tells" in self.bugs else min(told.get(child, stage), stage)
        if row.state in OVER and is_open:
            self._link(f"e{parent}")  # told when that is certain

    def ends(self, parent: str) -> tuple[End, list[str]] | None:
        """Return how a parent stands, and who was not told. None: no end is certain now."""
        row = self.rows.get(parent)
        told = self.children.get(parent, {})
        if row is None:
            return End(1 << 30, GONE), list(told)
        if parent in self.promised:
            return None
        end = End(row.stage, row.state if row.state in OVER else "")
        return end, [child for child, stage in told.items() if stage < row.stage]

    def note(
        self,
        child: str,
        notes: Iterable[tuple[str, End]],
        *,
        mark: tuple[str, ...] | None = None,
        is_new: bool = False,
        is_all: bool = False,
    ) -> bool:
        """Take down ends of a child's parents. Returns whether it waits for none any more.

        `mark`: the parents that were asked; None: one tells. `is_all`: these are all."""
        row = self.rows.get(child)
        if row is None or row.state != "blocked":
            return False
        if is_new:
            self.parents[child], self.beside[child], self.marks[child] = {}, {}, mark or ()
            self.sizes.pop(child, None)
            return False
        its, beside = self.parents.setdefault(child, {}), self.beside.setdefault(child, {})
        if mark is not None and mark != self.marks.get(child) and "old_asker" not in self.bugs:
            return False
        for parent, end in notes:
            if mark is None and parent not in its and "old_parent" not in self.bugs:
                if parent not in beside or beside[parent].stage < end.stage:
                    beside[parent] = end
                continue
            if parent in beside:
                its[parent] = beside.pop(parent)
            if "count_down" in self.bugs and end.how:
                its[f"{len(its)} {parent}"] = end
            elif parent not in its or its[parent].stage < end.stage or "no_stage" in self.bugs:
                its[parent] = end
        if "count_down" in self.bugs:
            return sum(bool(end.how) for end in its.values()) >= len(row.after)
        if is_all and mark is not None:
            self.sizes[child] = len(mark)
        return sum(bool(end.how) for end in its.values()) == self.sizes.get(child, -1)

    def told(self, parent: str, children: Iterable[str], stage: int, token: int) -> None:
        """These know; the entry goes with the last of them."""
        its = self.children.get(parent, {})
        its |= {child: max(stage, its.get(child, 0)) for child in children}
        row = self.rows.get(parent)
        if row is None or all(known >= row.stage for known in its.values()):
            self.drop(f"e{parent}", token)

    def may_forget(self, job_id: str) -> bool:
        """Whether an ended job's children were told, and what follows it was pushed."""
        told = self.children.get(job_id, {})
        is_owed = job_id in self.outbox.values()
        if "forget_untold" in self.bugs:
            return not is_owed
        return (
            not is_owed and f"e{job_id}" not in self.links and all(s >= self.rows[job_id].stage for s in told.values())
        )
