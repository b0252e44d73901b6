"""Finds the jobs that a job has to do with, from any of them, the nearest first and only as far as is asked for.

    first ──▶ its parents, children ──▶ theirs …      one call of the store: some hundred jobs, or a chain of as many
                                    ──▶ then the further children of wide ones, and members of groups

A page is what comes next of such a walk, so the first one of 10,000 jobs costs no more than that of 500. Acts on a flow
take it in parts of FLOW_MAX jobs.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from jqd.domain.clock import Clock
from jqd.domain.errors import NotFound
from jqd.domain.job import State
from jqd.domain.jobid import parse_id, partition_of, partition_of_name
from jqd.domain.record import seen_to
from jqd.domain.settings import SettingTable
from jqd.service.act_on_each import act_on_each
from jqd.service.find import resolve
from jqd.service.principal import Principal
from jqd.service.services import Services
from jqd.store.links import Linked

FLOW_MAX = 10_000  # jobs of one flow that are looked at, or changed by one call
LINKS_MAX = 1_000_000  # their parents and children, of a flow, and of all that are kept: some 80 MB
PIECE = 100  # jobs in one call of the store: 2 ms of it, and as long to read the answer here
PIECES = 4  # such calls at once: the store does one while the answer of another is read here
KNOWN = 400  # jobs found last that one call is told, so that it does not walk back
WALKS = 4  # of which further pages may be asked for: some 10 MB each
WALK_KEPT_S = 60.0  # since its first page
CHILDREN_MAX = 200  # of one job that are told with it
FURTHER_MAX = FLOW_MAX  # children of one job in one call, as many as a flow has jobs: 260 kB
MORE_MAX = 1_000  # members of a group in one call
NEAR_MAX = 100  # ids of parents, or of children, told of one job
INGESTED_S = 1.0  # for what this daemon has journaled: some milliseconds, unless the store is away or far behind

BEHIND = "!"  # begins a cursor: below all ids, so a daemon that takes it for one repeats, and leaves out none

Breathe = Callable[[], Awaitable[None]]


class Flow(NamedTuple):
    """The jobs of a flow that were found."""

    jobs: dict[str, Linked]
    """Id → job."""
    names: Mapping[str, str]
    """Pusher's own id, with its tenant → id."""
    is_whole: bool
    """False: there are more than FLOW_MAX jobs, or LINKS_MAX links, or what was pushed here is not all in the store; or
    another walk found the parts before."""

    def cancelled_for(self, job: Linked) -> str:
        """Return the parent for which a job was cancelled, as far as is known here; else "". That may have begun anew
        since, and done well; the cancel may have come behind that, and is then known by `record_cancels`."""
        is_child = job.job.flow is not None and job.job.flow.on_parent_failure == "cancel"
        if job.state != State.CANCELLED or not is_child:
            return ""
        known = [each for each in self.parents(job) if each in self.jobs]
        for each in known:
            if self.jobs[each].state in (State.FAILED, State.CANCELLED):
                return each
        since = 1000 * job.ended_ms
        if job.cancelled_to == seen_to(job.generation):
            # A named job that was refused behind its push is cancelled so, too: no parent began anew after that.
            since = job.generation or -1
        anew = [each for each in known if self.jobs[each].generation > since]
        return max(anew, key=lambda each: self.jobs[each].generation, default="")

    def parents(self, job: Linked) -> list[str]:
        """Return the ids of a job's parents; of parents not found so far the ids that pushers chose."""
        flow = job.job.flow
        if flow is None:
            return []
        after = [self.names.get(parent, parent) for parent in flow.after]
        return list(dict.fromkeys([*after, flow.parent])) if flow.parent else after


class Page(NamedTuple):
    """One page of a flow."""

    rows: Sequence[Linked]
    flow: Flow
    """The known part of the flow: the jobs of this page, and jobs shown beside them."""
    end: int
    """How many jobs came before the next page; 0: that was all."""


class RecentFlows:
    """Keeps how far flows were walked, for the next page or part of each; a flow that was forgotten is walked anew."""

    def __init__(self, _: SettingTable, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[tuple[Principal, str, int], tuple[float, Walk]] = {}

    def keep(self, principal: Principal, given: str, end: int, walk: "Walk") -> None:
        """Keep a walk for its next page; of more than WALKS, or more than LINKS_MAX links, the oldest go."""
        self._kept[principal, given, end] = walk.began_s + WALK_KEPT_S, walk
        while len(self._kept) > WALKS or sum(each.links for _, each in self._kept.values()) > LINKS_MAX:
            del self._kept[next(iter(self._kept))]

    def take(self, principal: Principal, given: str, end: int) -> "Walk | None":
        """Return it unless it is too old; it is kept no more."""
        until_s, walk = self._kept.pop((principal, given, end), (0.0, None))
        return walk if self._clock.mono_s() < until_s else None


class Walk:
    """The jobs of a flow that were found so far."""

    def __init__(self, first: str, began_s: float, *, is_ingested: bool, is_taken: bool = False) -> None:
        """`first`: the id of the job to begin with. `began_s`: by the monotonic clock. `is_taken`: in parts, so that
        LINKS_MAX alone bounds it."""
        self.began_s = began_s
        self.is_anew = False
        """Whether this walk skipped jobs that an earlier walk had listed, perhaps in another order: some jobs may be
        left out.
        """
        self._is_taken = is_taken
        self._taken: set[str] = set()
        self.links = 0
        self._jobs: dict[str, Linked] = {}
        self._names: dict[str, str] = {}
        self._met = {first}
        """Ids, and "=" with own ones, of all that is found or due."""
        self._due: dict[str, None] = {first: None}
        self._wide: dict[str, int] = {}
        """Jobs with further children, and groups after "=" → how many of their members were listed."""
        self._groups: set[str] = set()
        self._is_whole = is_ingested

    @property
    def flow(self) -> Flow:
        """The jobs that are known so far."""
        return Flow(self._jobs, self._names, self._is_whole)

    async def walk_to(self, services: Services, jobs: int, breathe: Breathe) -> None:
        """Look on until so many are known, or all. Raises StoreAway, StoreRefused."""
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
        """Return the next FLOW_MAX jobs, of which only ids are kept. Raises StoreAway, StoreRefused."""
        await self.walk_to(services, FLOW_MAX, breathe)
        some = dict(islice(self._jobs.items(), FLOW_MAX))
        self._taken.update(some)
        for job_id in some:
            del self._jobs[job_id]
        return Flow(some, self._names, self._is_whole)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be taken."""
        return not (self._jobs or self._due or self._wide)

    async def page(self, services: Services, begin: int, size: int, breathe: Breathe) -> Page:
        """Return the jobs from that place on. Raises StoreAway, StoreRefused."""
        await self.walk_to(services, begin + size + 1, breathe)
        rows = list(islice(self._jobs.values(), begin, begin + size))
        near, asked = dict[str, None](), dict[str, bool]()
        for row in rows:
            near |= dict.fromkeys(row.listed[:NEAR_MAX])
            near |= dict.fromkeys(await self._parents_shown(services, row, asked))
            await breathe()
        # They are beside the others: a walk made anew for a later page was not asked for this one, and must meet the
        # jobs in the same order.
        beside = await _look_beside(services, [each for each in near if each in self._due], breathe)
        names = {row.job.name: job_id for job_id, row in beside.items() if row.job.name}
        flow = Flow({**beside, **self._jobs}, {**names, **self._names}, self._is_whole)
        is_last = begin + size >= len(self._jobs) and not self._due and not self._wide
        return Page(sorted(rows, key=lambda row: row.job.id), flow, 0 if is_last else begin + size)

    async def _parents_shown(self, services: Services, row: Linked, asked: dict[str, bool]) -> Sequence[str]:
        """Return the parents that are shown of a job: the first, those that it waits for, and that it was cancelled
        for.
        The latter two may be any of 10,000. `asked`: as in `_unended`."""
        parents = self.flow.parents(row)
        if len(parents) <= NEAR_MAX or row.state == State.CANCELLED:
            return [key_of(each) for each in parents]
        waits = await _unended(services, parents, asked) if row.state == State.BLOCKED else ()
        return [*map(key_of, parents[:NEAR_MAX]), *waits]

    async def _look(self, services: Services, given: Sequence[str], breathe: Breathe) -> None:
        """Take the jobs with these ids, and what is found from them; the last stay due where links are very many."""
        walk_to = max(0, PIECE - len(given))
        known = list(islice(reversed(self._jobs), KNOWN)) if walk_to else []
        pieces = pieces_of(services, given)
        linked: dict[int, Sequence[Linked | None]] = {}

        async def one(place: int) -> None:
            home, its = pieces[place]
            linked[place] = await services.store.at(home).list_links(
                its, CHILDREN_MAX, 0, walk_to, known, LINKS_MAX // PIECES
            )

        await act_on_each(range(len(pieces)), one, PIECES)
        for place in range(len(pieces)):  # not as they came: whoever walks again meets the jobs in the same order
            for row in linked[place]:
                if row is not None and services.principal.can_access(row.job.jobtype):
                    self._add(row)
            for each in pieces[place][1][: len(linked[place])]:
                self._due.pop(each, None)
            await breathe()

    def _add(self, row: Linked) -> None:
        """Take a job, unless it was found by way of one that the principal may not see."""
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
        """Meet further children of a job, or members of a group."""
        if key.startswith("="):
            group = await services.home(key[1:]).get_group(key[1:], MORE_MAX, self._wide[key])
            found, end = (group.job_ids, group.end) if group is not None else ((), 0)
        else:
            # All in one call: a child that is told of its parent's end is listed last from then on, so whoever passes
            # over as many as were listed before passes over others.
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
    """Return a page of a flow: the jobs behind the `begin` nearest. Raises NotFound, StoreAway, StoreRefused."""
    recent = services.feature(RecentFlows)
    walk = recent.take(services.principal, given, begin) or await _begin(services, given, breathe)
    page = await walk.page(services, begin, size, breathe)
    if page.end:
        recent.keep(services.principal, given, page.end, walk)
    return page


async def part(services: Services, act: str, given: str, begin: int, breathe: Breathe) -> tuple[Flow, int]:
    """Return the next jobs that a job has to do with, behind the `begin` nearest: parents, children, and members of
    groups; and how many jobs came before the next part, 0: that was all. `begin`: FLOW_MAX, or several times that.
    Raises NotFound, StoreAway, StoreRefused."""
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
    """Return a part of a flow, and the parents of those that ended badly, which may lie in another part."""
    bad = (row for row in flow.jobs.values() if row.state in (State.FAILED, State.CANCELLED))
    other = dict.fromkeys(key_of(each) for row in bad for each in flow.parents(row) if each not in flow.jobs)
    beside = await look(services, other, breathe)
    names = {row.job.name: job_id for job_id, row in beside.items() if row.job.name}
    return Flow({**beside, **flow.jobs}, {**names, **flow.names}, flow.is_whole)


async def look(services: Services, job_ids: Iterable[str], breathe: Breathe) -> dict[str, Linked]:
    """Return those of these jobs that are in the store, and that the principal may see."""
    found: dict[str, Linked] = {}

    async def one(piece: tuple[int, Sequence[str]]) -> None:
        home, its = piece
        rows = await services.store.at(home).list_links(its, 0)
        found.update((row.job.id, row) for row in rows if row and services.principal.can_access(row.job.jobtype))
        await breathe()

    await act_on_each(pieces_of(services, job_ids), one, PIECES)
    return found


async def _look_beside(services: Services, given: Sequence[str], breathe: Breathe) -> dict[str, Linked]:
    """As `look`, without what these wait for: that may be very much, and a page needs their names and states only."""
    found: dict[str, Linked] = {}

    async def one(piece: tuple[int, Sequence[str]]) -> None:
        home, its = piece
        while its:
            rows = await services.store.at(home).list_links(its, 0, links=LINKS_MAX // PIECES)
            its = its[len(rows) :]
            for row in rows:
                if row is not None and services.principal.can_access(row.job.jobtype):
                    found[row.job.id] = row._replace(job=replace(row.job, flow=None))
            await breathe()

    await act_on_each(pieces_of(services, given), one, PIECES)
    return found


async def wait_ingested(services: Services) -> bool:
    """Whether the store has all that was pushed here before, within INGESTED_S: who pushed sees it."""
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
    """Return the first of these that have not ended. `asked`: parents for which the store was asked → whether they had
    not; jobs side by side often wait for the same."""

    async def one(piece: tuple[int, Sequence[str]]) -> None:
        home, its = piece
        is_open = {*await services.store.at(home).unfinished(its)}
        asked.update((each, each in is_open) for each in its)

    found: list[str] = []
    for at in range(0, len(parents), PIECE * PIECES):
        some = [key_of(each) for each in parents[at : at + PIECE * PIECES]]
        await act_on_each(pieces_of(services, [each for each in some if each not in asked]), one, PIECES)
        found += [each for each in some if asked[each]]
        if len(found) >= NEAR_MAX:
            break
    return found[:NEAR_MAX]


def cursor_of(end: int) -> str:
    """Return the cursor of the page after so many jobs."""
    return f"{BEHIND}{end}"


def key_of(parent: str) -> str:
    """Return the key under which the store looks up a parent."""
    return parent if parse_id(parent) is not None else f"={parent}"


def pieces_of(services: Services, given: Iterable[str]) -> list[tuple[int, Sequence[str]]]:
    """Return partition → the ids for one call there."""
    homes: dict[int, list[str]] = {}
    for each in dict.fromkeys(given):
        is_own, count = each.startswith("="), services.partitions
        home = partition_of_name(each[1:], count) if is_own else partition_of(each, count)
        homes.setdefault(home, []).append(each)
    return [(home, its[at : at + PIECE]) for home, its in homes.items() for at in range(0, len(its), PIECE)]
