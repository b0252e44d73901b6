"""Releases jobs that wait for others (children) when those (their parents) have ended.

    child pushed with `after` ──apply_jobs──▶ links "w<child>" ──query──▶ each parent's partition notes the child
    parent ended ──write_counts──▶ links "e<parent>" ──note──▶ each child's partition: has the child other parents?
    all parents ended ──▶ release: a journaled change of the child, after which it waits for a worker like any other job

`links` is a list of work in each partition of the store. Each step may be repeated, by any daemon: an end that is noted
twice is one end, and a child that is not blocked is not released. An entry of `links` that was taken and not done is
found again after REST_S. All parents are queried again when their partition, or the children's, began a new life, which
means that it lost data: perhaps the children, or which parents ended. A parent that no store and no journal knows
counts as ended, because a job is forgotten or deleted only after its end was noted at its children.
"""

import math
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

import trio

from jqd.domain.beat import next_beat_s
from jqd.domain.clock import Clock
from jqd.domain.errors import JournalRefused, StoreAway, StoreRefused
from jqd.domain.job import ChangeKind, Job
from jqd.domain.jobid import parse_id, partition_of, partition_of_name
from jqd.domain.log import get_logger
from jqd.loops.backoff import LoopBackoff
from jqd.service.services import PartitionBreaker
from jqd.store import Store
from jqd.store.keys import last_field
from jqd.store.links import NEW, Blocked, Parent, ParentNote, ParentsState, Watched, WatchPair

LOOK_S = 1.0  # between two searches for links that other daemons left or wrote
GATHER_S = 0.01  # between rounds: ends that come together are noted together
ALONE_S = 0.002  # between rounds after one with a single entry: each step of a chain waits for it
REST_S = 5.0  # until an entry of `links` that was taken but not done is found again
ENTRIES = 100  # entries of `links` taken in one round
HOLD_S = 0.1  # how long a round waits for releases: a release may wait for a lock, a disk or a partition
WALKS = 1_000  # entries in `_passed` that one call names to the store: 60 kB
RELEASES = 64  # at once: each is some calls of the store and a shared sync. With more, a round waits for all of them
OLD_MS = 600_000  # a job counts as lost if nothing of its journal has come to a new store for this time
FORGET_S = 60.0  # a child not queried here for this time is forgotten: released, or queried by other daemons
COMPLAIN_S = 60.0  # health reports a child that has waited for an unknown parent for this time

AGAIN = (ChangeKind.REPLACE, ChangeKind.RETRY)  # changes that restart a job that has ended
GONE = "gone"  # the end of a parent that no store and no journal knows

T = TypeVar("T")
Release = Callable[[str, str, str], Awaitable[bool]]
"""Releases a child. Arguments: its id, the first parent that did not succeed (or ""), and `Flow.mark` of its parents.
Returns False if it has to be tried again. Raises JournalRefused, StoreAway, StoreRefused."""


class Wait(NamedTuple):
    """Since when a child has waited for a parent that no partition knows yet; times by the monotonic clock."""

    since_s: float
    seen_s: float
    """When this daemon last queried the child's parents."""


class Asked(NamedTuple):
    """What the partitions answered about the parents of one blocked job: one note for each parent, which tells its end
    if it has ended."""

    notes: list[ParentNote]
    is_known: bool
    """Whether the state of all parents is known; False: some are on their way into the store."""


class Flows:
    """The loop that, for one partition of the store, reports each parent's end to its children and releases the
    children."""

    def __init__(
        self,
        number: int,
        stores: Sequence[Store],
        settled: Callable[[Collection[int]], bool],
        release: Release,
        *,
        clock: Clock,
        source: random.Random,
    ) -> None:
        """`number`: the partition. `settled`: returns whether recovery of the given partitions is complete. `release`:
        releases one child."""
        self.backoff = LoopBackoff("flows", source=source)
        self._number, self._store, self._stores, self._settled = number, stores[number], stores, settled
        self._lives: dict[int, str] = {}
        """Partition → its life in which all parents there were queried. In a newer life the store may have lost which
        children wait."""
        self._since_s: dict[int, float] = {}
        """Partition → since when its recovery has been complete in the life in `_lives`, by the monotonic clock."""
        self._release = release
        self._clock = clock
        self._bell = trio.Event()
        self.is_awaited = False
        """Whether any job here may be a parent or child. If not, ends of jobs need not be handled."""
        self._waits: dict[str, Wait] = {}
        """Children with parents that no partition knows yet."""
        self._passed: dict[str, int] = {}
        """Entry of `links` with further children → how many of its first children could not be reached. Each child is
        tried once before the entry waits."""
        self._begun = self._clear = 0
        """`_begun`: number of the last round. `_clear`: number of the last round after which no links were left to
        handle."""
        self._turn = trio.Event()  # set at the end of each round
        self._is_alone = True
        """Whether the last round handled at most one entry."""
        self._rest_until_s = -math.inf
        """When entries of a failed round are tried again, by the monotonic clock."""
        self._breaker = PartitionBreaker()
        self._nursery: trio.Nursery
        self._limiter = trio.CapacityLimiter(RELEASES)
        self._releases: dict[str, trio.Event] = {}
        """Child whose release is in progress → event that is set when the release has ended."""
        self._failure, self._failed_at_s = "", -math.inf
        """The last error that kept jobs from being released, and when it was (monotonic clock)."""
        self._log = get_logger("flows")

    @property
    def complaint(self) -> str | None:
        """For the health report: which jobs wait for parents that no partition knows, or why releases are tried again
        later."""
        now_s = self._clock.mono_s()
        old = [child for child, wait in self._waits.items() if wait.since_s <= now_s - COMPLAIN_S]
        if old:
            return f"job {old[0]} and {len(old) - 1} others wait for jobs that are not in the store yet"
        is_over = now_s >= self._failed_at_s + 2 * REST_S  # the next try comes a moment after REST_S
        return None if is_over else f"some jobs that wait for others are tried again later: {self._failure}"

    def wake(self) -> None:
        """Wake the loop. Called when a job with parents or children ended or was applied."""
        self._bell.set()

    def note_jobs(self, jobs: Sequence[Job]) -> None:
        """Wake the loop if some of the jobs, which were just applied, wait for parents, or are parents that were
        restarted: their children learn of this before another parent's end."""
        if any(job.flow is not None and job.flow.after for job in jobs) or (
            self.is_awaited and any(job.change is not None and job.change.kind in AGAIN for job in jobs)
        ):
            self.wake()

    def note_ends(self) -> None:
        """Wake the loop after jobs ended or were cancelled. Does nothing while no job of this partition can be a parent
        or child."""
        if self.is_awaited:
            self.wake()

    async def wait_links_applied(self) -> None:
        """Wait until all links in this partition are handled, so that parents know the children that were applied here
        before. While a partition is in recovery, some parents may be missing there, so this also waits for the end of
        the recovery."""
        if self._clear == self._begun > 0 and not self._bell.is_set() and self._is_whole():
            return
        goal = self._begun + 1  # a round that is under way may have read the links before
        self.wake()
        while self._clear < goal:
            await self._turn.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            wait_s, began_s = 0.0, -math.inf
            while True:
                with trio.move_on_after(wait_s):
                    await self._bell.wait()
                await trio.sleep_until(began_s + (ALONE_S if self._is_alone else GATHER_S))
                began_s, self._bell = trio.current_time(), trio.Event()
                try:
                    wait_s = min(await self.one_round(), next_beat_s(LOOK_S))
                except (StoreAway, StoreRefused) as error:
                    self._rest_until_s = self._clock.mono_s() + REST_S
                    await self.backoff.wait_after_failure(error)
                    wait_s = 0.0
                else:
                    self.backoff.succeeded()

    async def one_round(self) -> float:
        """Handle the entries of `links` that are due: query parents, report ends, release children. Returns the seconds
        until the next call; 0: more may be due now. Raises StoreAway, StoreRefused."""
        self._begun += 1
        await self._ask_again()
        passed = dict(islice(self._passed.items(), WALKS))
        due = await self._store.take_links(ENTRIES, REST_S, passed=passed)
        if due.wait_s != 0:  # other daemons have done the entries that are left in `_passed`
            self._passed.clear()
        # A child that came just now is not linked yet, but its parent may end before the next look.
        self.is_awaited = due.linked > 0 or bool(due.blocked)
        self._is_alone = len(due.blocked) + len(due.ended) <= 1
        try:
            if due.blocked:
                await self._ask(due.blocked, due.rest_until_ms)
        finally:
            is_left = await self._note_ends(due.ended, due.rest_until_ms) if due.ended else False
        is_over = due.wait_s != 0 and not is_left and not self._releases
        if is_over and self._clock.mono_s() >= self._rest_until_s and self._is_whole():
            self._clear = self._begun
        self._turn.set()
        self._turn = trio.Event()
        if is_left:
            return 0.0
        return LOOK_S if due.wait_s is None else min(LOOK_S, due.wait_s)

    async def one_whole_round(self) -> float:
        """Do `one_round` outside `run`, and wait for all releases that it began."""
        async with trio.open_nursery() as self._nursery:
            wait_s = await self.one_round()
        return wait_s

    # ------------------------------------------------ children

    async def _ask_again(self) -> None:
        """Let all parents be queried again after a partition began a new life, in which it may have lost data. This
        partition's own new life counts, too."""
        for number, store in enumerate(self._stores):
            life = store.identity
            if self._lives.get(number) != life and self._settled({number}):
                await self._store.ask_again(number, life)
                self._lives[number], self._since_s[number] = life, self._clock.mono_s()

    def _is_whole(self) -> bool:
        """Return whether all partitions have completed recovery, and all parents were queried since then."""
        numbers = range(len(self._stores))
        return self._settled(numbers) and all(self._lives.get(n) == self._stores[n].identity for n in numbers)

    async def _ask(self, blocked: Sequence[Blocked], rest_until_ms: int) -> None:
        """Register blocked jobs at the partitions of their parents, which then report each parent's end to them. Read
        which parents have ended already, and release children whose parents have all ended. If a partition is away,
        only children with parents in it have to wait. `rest_until_ms`: as `take_links` returned it."""
        follow = [each for each in blocked if each.job.flow is not None and each.job.flow.after]
        children = {
            each.job.id: each
            for each in follow
            if each.job.flow is not None and each.is_blocked and not each.job.flow.released
        }
        # Those that are blocked no more were released, have ended, or failed for a parent and expire in a moment.
        over = {each.job.id for each in follow} - children.keys()
        marks = {child: each.job.flow.mark for child, each in children.items() if each.job.flow is not None}
        new = [ParentNote(child, size=NEW, stage=rest_until_ms, mark=mark) for child, mark in marks.items()]
        await self._store.note_parents(new)
        pairs = [pair for each in follow for pair in _pairs(each.job)]
        # Read before the query: while its answer is on its way a parent may come and its partition complete recovery.
        whole = {home: store.identity for home, store in enumerate(self._stores) if self._settled({home})}
        found = await self._watch(pairs)
        whole = {home: life for home, life in whole.items() if life == self._stores[home].identity}
        away = {pair.child for place, pair in enumerate(pairs) if place not in found}
        asked: dict[str, Asked] = {child: Asked([], True) for child in children if child not in away}
        answers = ((pairs[place], watched) for place, watched in found.items() if pairs[place].child not in away)
        for pair, watched in answers:
            if pair.child in over:  # only registered; and again later if recovery may still bring the parent
                away |= {pair.child} if watched.how is None and self._home(pair.parent) not in whole else set()
                continue
            how = watched.how if watched.how is not None else self._unknown(pair, watched, whole)
            stage = "" if how == GONE else watched.stage
            note = ParentNote(pair.child, watched.id or pair.parent, how or "", stage=stage, mark=marks[pair.child])
            asked[pair.child].notes.append(note)
            if how is None:
                asked[pair.child] = asked[pair.child]._replace(is_known=False)
        notes = [note for each in asked.values() for note in _with_size(each.notes)]
        left = await self._go_on(await self._store.note_parents(notes))
        now_s = self._clock.mono_s()
        coming = {child for child, each in asked.items() if not each.is_known}
        self._waits = {
            child: wait for child, wait in self._waits.items() if child not in asked and wait.seen_s > now_s - FORGET_S
        } | {child: Wait(self._waits.get(child, Wait(now_s, now_s)).since_s, now_s) for child in coming}
        stay = left | coming | away
        await self._store.drop_links({each.entry: () for each in blocked if each.job.id not in stay}, rest_until_ms)

    def _unknown(self, pair: WatchPair, watched: Watched, whole: Mapping[int, str]) -> str | None:
        """Return GONE if a parent (`watched`) that is not in the store counts as ended; None if it may still come.

        `whole`: partitions that had completed recovery when they were asked → the life (time without loss) of each.
        """
        ids, home = parse_id(watched.id), self._home(pair.parent)
        if watched.is_coming or home not in whole:
            return None
        if ids is None or pair.parent.startswith("="):
            return GONE
        if watched.last_id is not None:  # the last id of its journal that was applied; the next may take long to come
            return GONE if watched.id <= watched.last_id else None
        # Nothing of its journal was applied. The time in which it could be counts: not while the partition was away.
        waited_s = self._clock.mono_s() - self._since_s[home] if self._lives.get(home) == whole[home] else 0.0
        is_old = min(1000 * waited_s, self._clock.wall_ms() - ids.at_ms) > OLD_MS
        return GONE if is_old else None

    async def _watch(self, pairs: Sequence[WatchPair]) -> dict[int, Watched]:
        """Query the parents at their partitions. Returns index of the pair → state of its parent. Pairs whose partition
        fails are left out."""
        homes: dict[int, list[int]] = {}
        for place, pair in enumerate(pairs):
            homes.setdefault(self._home(pair.parent), []).append(place)
        found: dict[int, Watched] = {}
        for home, places in homes.items():
            there = [pairs[place] for place in places]
            answers = await self._at(home, partial(self._stores[home].watch_parents, there))
            found |= zip(places, answers, strict=True) if answers is not None else ()
        return found

    def _home(self, parent: str) -> int:
        if parent.startswith("="):
            return partition_of_name(parent[1:], len(self._stores))
        return partition_of(parent, len(self._stores))

    # ------------------------------------------------ parents

    async def _note_ends(self, ended: Sequence[Parent], rest_until_ms: int) -> bool:
        """Report the ends of parents to their children, and release children that wait for no other parent. Returns
        whether a parent has further children. Children that could not be reached are tried again after REST_S.
        `rest_until_ms`: as `take_links` returned it."""
        by_home: dict[int, list[ParentNote]] = {}
        for each in ended:
            for child in each.children:
                home = partition_of(child, len(self._stores))
                by_home.setdefault(home, []).append(ParentNote(child, each.id, each.how, stage=each.stage))
        left: set[str] = set()
        for home, notes in by_home.items():
            standing = await self._at(home, partial(self._stores[home].note_parents, notes))
            left |= {note.child for note in notes} if standing is None else await self._go_on(standing)
        done = {each.entry: [child for child in each.children if child not in left] for each in ended}
        stages = {each.entry: each.stage for each in ended}
        failed = {each.entry: each.children_before + len(each.children) - len(done[each.entry]) for each in ended}
        more = set(await self._store.drop_links(done, rest_until_ms, stages, failed))
        for entry, passed in failed.items():
            if passed and entry in more:
                self._passed[entry] = passed
            else:
                self._passed.pop(entry, None)
        return bool(more)

    async def _go_on(self, states: Mapping[str, ParentsState]) -> set[str]:
        """Release those children that no longer wait for any parent. Returns the children that have to be tried again.
        If a release takes longer than HOLD_S, its child is one of them, and the release continues in the background."""
        due = {child: each for child, each in states.items() if each.is_done}
        released = set[str]()

        async def release(child: str, each: ParentsState) -> None:
            try:
                async with self._limiter:
                    if await self._release(child, each.failed, each.mark):
                        released.add(child)
            except (StoreAway, StoreRefused, JournalRefused) as error:
                self._note_failure(error)
            finally:
                self._releases.pop(child).set()
                if not self._releases:
                    self.wake()  # for callers of `wait_links_applied`

        begun = due.keys() - self._releases.keys()
        over = [self._releases.setdefault(child, trio.Event()) for child in begun]
        for child in begun:
            self._nursery.start_soon(release, child, due[child])
        with trio.move_on_after(HOLD_S if len(self._releases) <= RELEASES else math.inf):
            for each in over:
                await each.wait()
        return due.keys() - released

    async def _at(self, home: int, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Call `ask`, which asks the partition `home`, and return its result. Return None if the call fails at another
        partition than this loop's own; its links are tried again after REST_S. A circuit breaker limits the time spent
        on a partition that hangs. Raises StoreAway, StoreRefused of the loop's own partition only."""
        if home == self._number:
            return await ask()
        silent, began_s = frozenset({home}), self._clock.mono_s()
        try:
            if (why := self._breaker.why(silent, began_s)) is not None:
                raise StoreAway(why)
            return await ask()
        except (StoreAway, StoreRefused) as error:
            now_s = self._clock.mono_s()
            if why is None and isinstance(error, StoreAway):
                self._breaker.note(silent, str(error), took_s=now_s - began_s, now_s=now_s)
            self._note_failure(error)
            return None

    def _note_failure(self, error: StoreAway | StoreRefused | JournalRefused) -> None:
        """Remember the error for which some jobs are tried again after REST_S. Log it, unless an error was noted
        shortly before."""
        now_s = self._clock.mono_s()
        if now_s >= self._failed_at_s + 2 * REST_S:
            self._log.warning("flows.delayed", error=str(error))
        self._failure, self._failed_at_s, self._rest_until_s = str(error), now_s, now_s + REST_S


def _pairs(job: Job) -> Iterable[WatchPair]:
    assert job.flow is not None
    for parent in job.flow.after:
        ids = parse_id(parent)
        if ids is None:
            yield WatchPair(job.id, job.tenant, f"={parent}", "")
        else:
            yield WatchPair(job.id, job.tenant, parent, last_field(ids.journal))


def _with_size(notes: Sequence[ParentNote]) -> Iterable[ParentNote]:
    """Yield the notes about one child's parents. The last note also has the number of parents, each counted once."""
    yield from notes[:-1]
    yield notes[-1]._replace(size=len({note.parent for note in notes}))
