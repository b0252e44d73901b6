"""Walks through a flow, the graph of all jobs that a job is linked with: finds the nearest jobs first, and only as many
as are asked for.

    first job ──▶ its parents, children ──▶ their parents, children …    a call of the store follows some hundred jobs
                                        ──▶ at last further children of jobs that have many, and members of groups

A page shows the next jobs of such a walk, so the first page of 10,000 jobs costs no more than that of 500. To cancel or
retry a flow, its jobs are taken in parts of FLOW_MAX.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from jqd.domain.clock import Clock
from jqd.domain.errors import NotFound
from jqd.domain.job import State
from jqd.domain.jobid import parse_id, partition_of, partition_of_name
from jqd.domain.record import only_generation
from jqd.domain.settings import SettingTable
from jqd.service.act_on_each import act_on_each
from jqd.service.find import resolve
from jqd.service.principal import Principal
from jqd.service.services import Services
from jqd.store.links import Linked

FLOW_MAX = 10_000  # jobs of one flow that are shown, or changed by one call
LINKS_MAX = 1_000_000  # links to parents and children, of one flow, and of all kept walks: some 80 MB
PIECE = 100  # jobs in one call of the store: 2 ms there, and 2 ms here to read the answer
PIECES = 4  # such calls at once: the store runs one while this daemon reads the answer of another
KNOWN = 400  # jobs found last that a call names to the store, so that it does not return them again
WALKS = 4  # walks kept for their next pages: some 10 MB each
WALK_KEPT_S = 60.0  # for this time after its first page a walk is kept
CHILDREN_MAX = 200  # children that the store returns with a job; further ones take another call
FURTHER_MAX = FLOW_MAX  # the most children of one job in such another call: 260 kB
MORE_MAX = 1_000  # members of a group in one call
NEAR_MAX = 100  # ids of parents, or of children, shown of one job
INGESTED_S = 1.0  # wait for this daemon's journal to reach the store: milliseconds, unless that is away or behind

BEHIND = "!"  # begins a cursor, as "!" sorts before all ids: if it is taken for an id, jobs are repeated, not left out

Breathe = Callable[[], Awaitable[None]]
"""Awaited between steps, so that other tasks can run."""


class Flow(NamedTuple):
    """The jobs of a flow that were found so far."""

    jobs: dict[str, Linked]
    """Id → job."""
    names: Mapping[str, str]
    """Pusher's own id, with its tenant → the daemon's id."""
    is_whole: bool
    """False if jobs may be missing: the flow has more than FLOW_MAX jobs or LINKS_MAX links, jobs pushed at this daemon
    are not in the store yet, or the earlier parts were found by another walk."""

    def cancelled_for(self, job: Linked) -> str:
        """Return the parent because of which a job was cancelled; "" if that parent was not found in the walk. The
        parent may have been retried since, and even have succeeded."""
        is_child = job.job.flow is not None and job.job.flow.on_parent_failure == "cancel"
        if job.state != State.CANCELLED or not is_child:
            return ""
        known = [each for each in self.parents(job) if each in self.jobs]
        for each in known:
            if self.jobs[each].state in (State.FAILED, State.CANCELLED):
                return each
        since = 1000 * job.ended_ms
        if job.cancelled_to == only_generation(job.generation):
            # The cancel was for this content alone, as one for a parent is, and may be later than the parent's retry.
            # (A named job whose push was refused is cancelled so, too: no parent was retried after that.)
            since = job.generation or -1
        anew = [each for each in known if self.jobs[each].generation > since]
        return max(anew, key=lambda each: self.jobs[each].generation, default="")

    def parents(self, job: Linked) -> list[str]:
        """Return the ids of a job's parents. A parent that the walk has not found is named as its pusher named it."""
        flow = job.job.flow
        if flow is None:
            return []
        after = [self.names.get(parent, parent) for parent in flow.after]
        return list(dict.fromkeys([*after, flow.parent])) if flow.parent else after


class Page(NamedTuple):
    """One page of a flow."""

    rows: Sequence[Linked]
    flow: Flow
    """What is known of the flow: the jobs of this page and of earlier ones, and jobs linked with them."""
    end: int
    """Where the next page begins, as a number of jobs; 0: this is the last page."""


class RecentFlows:
    """Keeps unfinished walks, so that the next page or part continues them. A walk that is not kept starts anew."""

    def __init__(self, _: SettingTable, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[tuple[Principal, str, int], tuple[float, Walk]] = {}

    def keep(self, principal: Principal, given: str, end: int, walk: "Walk") -> None:
        """Keep a walk for its next page, which begins after `end` jobs. Drop the oldest walks while more than WALKS, or
        more than LINKS_MAX links in all, are kept."""
        self._kept[principal, given, end] = walk.began_s + WALK_KEPT_S, walk
        while len(self._kept) > WALKS or sum(each.links for _, each in self._kept.values()) > LINKS_MAX:
            del self._kept[next(iter(self._kept))]

    def take(self, principal: Principal, given: str, end: int) -> "Walk | None":
        """Return the walk that was kept under these arguments, and stop keeping it. None: there is none, or it is too
        old."""
        until_s, walk = self._kept.pop((principal, given, end), (0.0, None))
        return walk if self._clock.mono_s() < until_s else None


class Walk:
    """A walk through a flow: the jobs found so far, and those still to be looked up."""

    def __init__(self, first: str, began_s: float, *, is_ingested: bool, is_taken: bool = False) -> None:
        """`first`: the id of the job to begin with. `began_s`: by the monotonic clock. `is_ingested`: the store has all
        jobs that were pushed here. `is_taken`: the jobs are taken in parts (`take`), so that only LINKS_MAX limits the
        walk."""
        self.began_s = began_s
        self.is_anew = False
        """Whether this walk replaces an earlier one and skipped the jobs of its parts. If the jobs came in another
        order then, some may be left out."""
        self._is_taken = is_taken
        self._taken: set[str] = set()
        self.links = 0
        self._jobs: dict[str, Linked] = {}
        self._names: dict[str, str] = {}
        self._met = {first}
        """Keys (see `key_of`) of all jobs that were found or are still to be looked up."""
        self._due: dict[str, None] = {first: None}
        """Keys (see `key_of`) of jobs that are still to be looked up, in this order."""
        self._wide: dict[str, int] = {}
        """Id of a job with further children, or "=" and a group's name → how many children or members were listed."""
        self._groups: set[str] = set()
        self._is_whole = is_ingested

    @property
    def flow(self) -> Flow:
        """The jobs that this walk has found so far."""
        return Flow(self._jobs, self._names, self._is_whole)

    async def walk_to(self, services: Services, jobs: int, breathe: Breathe) -> None:
        """Continue the walk until `jobs` jobs are known, or all. Raises StoreAway, StoreRefused."""
        while len(self._jobs) < jobs and (self._due or self._wide):
            if self._due:
                await self._look(services, list(islice(self._due, PIECE * PIECES)), breathe)
            else:
                await self._look_wide(services, next(iter(self._wide)))
            if (len(self._jobs) > FLOW_MAX and not self._is_taken) or self.links > LINKS_MAX:
                self._is_whole = False
                self._due.clear()
                self._wide.clear()
        while len(self._jobs) > FLOW_MAX and not self._is_taken:
            self._jobs.popitem()

    async def take(self, services: Services, breathe: Breathe) -> Flow:
        """Return at most FLOW_MAX next jobs of the walk, and keep only their ids. Raises StoreAway, StoreRefused."""
        await self.walk_to(services, FLOW_MAX, breathe)
        some = dict(islice(self._jobs.items(), FLOW_MAX))
        self._taken.update(some)
        for job_id in some:
            del self._jobs[job_id]
        return Flow(some, self._names, self._is_whole)

    @property
    def is_over(self) -> bool:
        """Whether no jobs are left to take."""
        return not (self._jobs or self._due or self._wide)

    async def page(self, services: Services, begin: int, size: int, breathe: Breathe) -> Page:
        """Return at most `size` jobs that come after the first `begin` jobs. Raises StoreAway, StoreRefused."""
        await self.walk_to(services, begin + size + 1, breathe)
        rows = list(islice(self._jobs.values(), begin, begin + size))
        near, asked = dict[str, None](), dict[str, bool]()
        for row in rows:
            near |= dict.fromkeys(row.listed[:NEAR_MAX])
            near |= dict.fromkeys(await self._parents_shown(services, row, asked))
            await breathe()
        # These do not become part of the walk: one made anew for a later page has not shown this page, and must meet
        # the jobs in the same order.
        beside = await _look_beside(services, [each for each in near if each in self._due], breathe)
        names = {row.job.name: job_id for job_id, row in beside.items() if row.job.name}
        flow = Flow({**beside, **self._jobs}, {**names, **self._names}, self._is_whole)
        is_last = begin + size >= len(self._jobs) and not self._due and not self._wide
        return Page(sorted(rows, key=lambda row: row.job.id), flow, 0 if is_last else begin + size)

    async def _parents_shown(self, services: Services, row: Linked, asked: dict[str, bool]) -> Sequence[str]:
        """Return the keys of those parents of a job that a page shows: all if they are few or the job was cancelled, as
        any of them may be the reason; else the first NEAR_MAX, and those it waits for. `asked`: a cache that is filled:
        key of a parent → whether it had not ended."""
        parents = self.flow.parents(row)
        if len(parents) <= NEAR_MAX or row.state == State.CANCELLED:
            return [key_of(each) for each in parents]
        waits = await _unended(services, parents, asked) if row.state == State.BLOCKED else ()
        return [*map(key_of, parents[:NEAR_MAX]), *waits]

    async def _look(self, services: Services, given: Sequence[str], breathe: Breathe) -> None:
        """Look up the jobs with these keys. Add them to the walk, and the jobs near them that the store finds. If there
        are very many links, the last keys are not looked up, and stay in `_due`."""
        walk_to = max(0, PIECE - len(given))
        known = list(islice(reversed(self._jobs), KNOWN)) if walk_to else []
        pieces = pieces_of(services, given)
        linked: dict[int, Sequence[Linked | None]] = {}

        async def fetch(place: int) -> None:
            home, piece = pieces[place]
            linked[place] = await services.store.at(home).list_links(
                piece, CHILDREN_MAX, 0, walk_to, known, LINKS_MAX // PIECES
            )

        await act_on_each(range(len(pieces)), fetch, PIECES)
        for place in range(len(pieces)):  # not in the order of answers: a walk made anew must meet the jobs in the same
            for row in linked[place]:
                if row is not None and services.principal.can_access(row.job.jobtype):
                    self._add(row)
            for each in pieces[place][1][: len(linked[place])]:
                self._due.pop(each, None)
            await breathe()

    def _add(self, row: Linked) -> None:
        """Add a job that was found. It is left out if only jobs that the principal may not see link to it."""
        job, own = row.job, f"={row.job.name}" if row.job.name else row.job.id
        if job.id in self._jobs or job.id in self._taken or not (job.id in self._met or own in self._met):
            return
        self._jobs[job.id] = row
        self._met.update((job.id, own))
        self._due.pop(job.id, None)
        self._due.pop(own, None)
        if job.name:
            self._names[job.name] = job.id
        if row.children > len(row.listed):
            self._wide[job.id] = len(row.listed)
        self._meet(row.listed)
        if job.flow is not None:
            self._meet([key_of(each) for each in job.flow.after])
            self._meet([job.flow.parent] if job.flow.parent else [])
            if job.flow.group and job.flow.group not in self._groups:
                self._groups.add(job.flow.group)
                self._wide[f"={job.flow.group}"] = 0

    def _meet(self, near: Sequence[str]) -> None:
        self.links += len(near)
        new = dict.fromkeys(each for each in near if each not in self._met)
        self._met.update(new)
        self._due |= new

    async def _look_wide(self, services: Services, key: str) -> None:
        """Fetch further children of a job, or members of a group, and add their keys to `_due`."""
        if key.startswith("="):
            group = await services.home(key[1:]).get_group(key[1:], MORE_MAX, self._wide[key])
            found, end = (group.job_ids, group.end) if group is not None else ((), 0)
        else:
            # All in one call: a child that learns of its parent's end moves to the end of the list, so skipping as many
            # as were listed before would leave out some.
            home = partition_of(key, services.partitions)
            (row,) = await services.store.at(home).list_links([key], FURTHER_MAX)
            found, end = row.listed if row is not None else (), 0
            if row is not None and row.children > len(found):
                self._is_whole = False
        self._meet(found)
        if end:
            self._wide[key] = end
        else:
            del self._wide[key]


async def shown(services: Services, given: str, begin: int, size: int, breathe: Breathe) -> Page:
    """Return a page of a flow: at most `size` jobs, after the `begin` jobs nearest to the given one.

    Raises NotFound, StoreAway, StoreRefused.
    """
    recent = services.feature(RecentFlows)
    walk = recent.take(services.principal, given, begin) or await _begin(services, given, breathe)
    page = await walk.page(services, begin, size, breathe)
    if page.end:
        recent.keep(services.principal, given, page.end, walk)
    return page


async def part(services: Services, act: str, given: str, begin: int, breathe: Breathe) -> tuple[Flow, int]:
    """Return the part of a flow that comes after the `begin` jobs nearest to the given one, and where the next part
    begins (0: there is none).

    `act`: "cancel" or "retry", which have separate walks. `begin`: 0 or a multiple of FLOW_MAX. Raises NotFound,
    StoreAway, StoreRefused.
    """
    recent, key = services.feature(RecentFlows), f"{act} {given}"
    walk = recent.take(services.principal, key, begin)
    if walk is None:
        walk = await _begin(services, given, breathe, is_taken=True)
        for _ in range(begin // FLOW_MAX):
            await walk.take(services, breathe)
        walk.is_anew = begin > 0
    flow = await walk.take(services, breathe)
    end = 0 if walk.is_over else begin + FLOW_MAX
    if end:
        recent.keep(services.principal, key, end, walk)
    return flow._replace(is_whole=flow.is_whole and not walk.is_anew), end


async def with_parents(services: Services, flow: Flow, breathe: Breathe) -> Flow:
    """Return a part of a flow, with those parents of its failed and cancelled jobs added that are in other parts."""
    bad = (row for row in flow.jobs.values() if row.state in (State.FAILED, State.CANCELLED))
    other = dict.fromkeys(key_of(each) for row in bad for each in flow.parents(row) if each not in flow.jobs)
    beside = await look(services, other, breathe)
    names = {row.job.name: job_id for job_id, row in beside.items() if row.job.name}
    return Flow({**beside, **flow.jobs}, {**names, **flow.names}, flow.is_whole)


async def look(services: Services, job_ids: Iterable[str], breathe: Breathe) -> dict[str, Linked]:
    """Look up jobs in the store. Return id → job for those that exist and that the principal may see."""
    found: dict[str, Linked] = {}

    async def fetch(piece: tuple[int, Sequence[str]]) -> None:
        home, keys = piece
        rows = await services.store.at(home).list_links(keys, 0)
        found.update((row.job.id, row) for row in rows if row and services.principal.can_access(row.job.jobtype))
        await breathe()

    await act_on_each(pieces_of(services, job_ids), fetch, PIECES)
    return found


async def _look_beside(services: Services, given: Sequence[str], breathe: Breathe) -> dict[str, Linked]:
    """Look up jobs without their links, which may be very many and which a page does not need. Return id → job."""
    found: dict[str, Linked] = {}

    async def fetch(piece: tuple[int, Sequence[str]]) -> None:
        home, keys = piece
        while keys:
            rows = await services.store.at(home).list_links(keys, 0, links=LINKS_MAX // PIECES)
            keys = keys[len(rows) :]
            for row in rows:
                if row is not None and services.principal.can_access(row.job.jobtype):
                    found[row.job.id] = row._replace(job=replace(row.job, flow=None))
            await breathe()

    await act_on_each(pieces_of(services, given), fetch, PIECES)
    return found


async def wait_ingested(services: Services) -> bool:
    """Wait up to INGESTED_S until the store has all jobs pushed at this daemon, so that a pusher sees them. Return
    whether the store has them."""
    return await services.control.wait_ingested(INGESTED_S)


async def _begin(services: Services, given: str, breathe: Breathe, *, is_taken: bool = False) -> Walk:
    is_ingested = await wait_ingested(services)
    first = await resolve(services, given)
    walk = Walk(first, services.clock.mono_s(), is_ingested=is_ingested, is_taken=is_taken)
    await walk.walk_to(services, 1, breathe)
    if first not in walk.flow.jobs:
        raise NotFound(f"there is no job {given[:64]!r} in the store; it never was, is on its way, or was deleted")
    return walk


async def _unended(services: Services, parents: Sequence[str], asked: dict[str, bool]) -> Sequence[str]:
    """Return the keys of the first NEAR_MAX of these parents that have not ended. `asked`: a cache that is filled: key
    of a parent → whether it had not ended; many jobs have the same parents."""

    async def ask(piece: tuple[int, Sequence[str]]) -> None:
        home, keys = piece
        is_open = {*await services.store.at(home).unfinished(keys)}
        asked.update((each, each in is_open) for each in keys)

    found: list[str] = []
    for at in range(0, len(parents), PIECE * PIECES):
        some = [key_of(each) for each in parents[at : at + PIECE * PIECES]]
        await act_on_each(pieces_of(services, [each for each in some if each not in asked]), ask, PIECES)
        found += [each for each in some if asked[each]]
        if len(found) >= NEAR_MAX:
            break
    return found[:NEAR_MAX]


def cursor_of(end: int) -> str:
    """Return the cursor of the page or part that begins after the first `end` jobs."""
    return f"{BEHIND}{end}"


def key_of(parent: str) -> str:
    """Return the key by which the store looks up a job. `parent`: the daemon's id, or the pusher's: then "=" is put
    first."""
    return parent if parse_id(parent) is not None else f"={parent}"


def pieces_of(services: Services, given: Iterable[str]) -> list[tuple[int, Sequence[str]]]:
    """Split keys of jobs into pieces, each for one call of the store: (partition, keys)."""
    homes: dict[int, list[str]] = {}
    for each in dict.fromkeys(given):
        is_own, count = each.startswith("="), services.partitions
        home = partition_of_name(each[1:], count) if is_own else partition_of(each, count)
        homes.setdefault(home, []).append(each)
    return [(home, keys[at : at + PIECE]) for home, keys in homes.items() for at in range(0, len(keys), PIECE)]
