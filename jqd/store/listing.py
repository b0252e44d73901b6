"""The store's method that lists jobs. Each page reads a bounded part of the sets (places) that have the jobs."""

import hashlib
from collections.abc import Sequence

import trio

from jqd.domain.flow import BLOCKED_MS
from jqd.domain.job import State
from jqd.domain.queue_name import BETWEEN
from jqd.domain.tenant import bare, tenant_of
from jqd.store import codec
from jqd.store.cursor import Walked, decode_cursor, encode_cursor
from jqd.store.queries import VIEWS, QueryMethods
from jqd.store.types import JobView, Page

LEAST = 5  # ids read of each place in one call, at least
LIST_SOURCES = 64  # places walked side by side; a store with more jobtypes is walked in groups
LIST_TYPES = 10_000  # more jobtypes with waiting jobs are walked in parts
LIST_QUEUES = 500  # more queues of constraints are walked in parts; a third of a millisecond of the server
LIST_ROWS = 2_000  # ids looked at in one call: 2 to 5 ms of the server if it reads their rows or outcomes
LATER_ROWS = 2_000  # dated or blocked jobs that are read as a whole and sorted by id: some 2 ms of the server a page
LIST_SCAN = 50_000  # jobs looked at for one page: a filter with few matches gives a short page and a cursor
NAME_BYTES = 8  # of a place in a cursor: among thousands, no two have the same
ALL = "*"  # stands for all tenants: none is called so
ANY = (ALL, "", "", "", 0)  # a filter that all jobs pass
LIST_FREE = 500  # jobs looked at however long it takes, so that few jobs are one page on a busy machine, too
LIST_S = 0.03  # no call for a page begins later; the whole page then takes less than 0.1 s

# State → the places where its jobs lie.
PLACES = {
    State.WAITING: ("ready",),
    State.SCHEDULED: ("later",),
    State.BLOCKED: ("later",),
    State.RETRYING: ("later", "ready"),
    State.RUNNING: ("held",),
    State.SUCCEEDED: ("ended",),
    State.CANCELLED: ("ended",),
    State.FAILED: ("dead",),
    None: ("held", "ready", "later", "ended", "dead"),
}

LAST_LISTED, PART, PAST = "told", "part", "past"  # keys of a cursor beside those of places
FIRST = "0"  # begins the name of the first part; behind the last part it comes again


class _Source:
    """A set of job ids in the store (place) that is read from its newest job backwards."""

    def __init__(self, place: str, suffix: str, before: tuple[float, str]) -> None:
        self.place, self.suffix = place, suffix
        self.name = _name(place, suffix)
        self.before = before
        """The score and id before which the next call to the store reads."""
        self.at = before
        """The score and id before which the next page begins: all newer jobs were listed or do not match."""
        self.rows: list[tuple[str, float]] = []
        self.done = False
        self.is_by_id = False
        """Whether the set is ordered by date and small: then each page reads all of it and sorts it by id."""
        self.last_listed = ""
        """With `is_by_id`: the id of the last job listed; only older ones follow."""

    def take(self) -> str:
        """Remove the newest id from `rows`, the ids that were read and are not listed yet, and return it."""
        job_id, score = self.rows.pop(0)
        if self.is_by_id:
            self.last_listed = job_id
            return job_id
        self.at = (score, job_id) if self.rows else self.before
        return job_id


class _Looking:
    """The filter of one page, and how many jobs were examined for it."""

    def __init__(self, *fits: object) -> None:
        self.fits = fits
        """The filter, as arguments of `list_ids`."""
        self.looked = 0
        self.are_any = False
        """Whether any job of the wanted state and type exists, by the store's counts."""
        self._until_s = trio.current_time() + LIST_S

    @property
    def is_late(self) -> bool:
        return trio.current_time() >= self._until_s

    @property
    def is_over(self) -> bool:
        """Return whether enough jobs were examined for one page."""
        return self.looked >= LIST_SCAN or (self.looked >= LIST_FREE and self.is_late)


class ListingMethods(QueryMethods):
    @property
    def seal(self) -> str:
        """The key that cursors are sealed with; "" before `look` first accepted the store."""
        return self._caller.seal

    async def list_jobs(
        self,
        state: State | None,
        jobtype: str | None,
        tag: str | None,
        limit: int,
        cursor: str,
        tenant: str | None = None,
        *,
        row_bytes: int = 0,
        tried: bool = False,
        sources: int = LIST_SOURCES,
    ) -> Page:
        """Return up to `limit` jobs that match, newest first; docs/use/HTTP.md says how pages follow one another.

        A page may be short or empty and yet have a cursor, if many jobs did not match, or reading took long. A job
        whose state changes between two pages may be listed twice or not at all. In a new life of the store all jobs may
        be listed again.

        `tenant`: None: jobs of all tenants; `jobtype` then stands for each tenant's jobtype of that name. `row_bytes`:
        jobs with larger rows come without their argument. `tried`: jobs without an ended attempt may be left out.

        `sources`: number of places walked side by side; a cursor has an entry for each.

        Raises ValueError for a cursor that this store did not give, StoreAway for any cursor before the first `look`.
        """
        walked = decode_cursor(cursor, self.seal)
        server, _, place = walked.pop(PART, (0.0, ""))[1].rpartition(" ")
        past = walked.pop(PAST, (0.0, ""))[1]
        found: dict[str, JobView] = {}  # by id: a job that moves during the walk is found in two places
        how = state.value if state and PLACES[state] == ("ended",) else ""
        is_tried = int(tried or state is State.RETRYING)
        looking, in_parts = _Looking(ALL if tenant is None else tenant, jobtype or "", how, tag or "", is_tried), False
        while True:
            if server != self._caller.identity:  # each run of a server scans in another order
                server, place, past = self._caller.identity, FIRST, ""
            behind, place, places = await self._places(place, state, jobtype, tenant, sources)
            is_whole = place.startswith(FIRST)  # other parts have other names when the server scans them again
            in_parts = in_parts or len(places) > sources or not is_whole or behind != FIRST
            places = [each for each in places if not is_whole or _order(state, *each) > past]
            for at in range(0, len(places), sources):
                if is_whole:  # nothing is left of places that are finished or gone: they may be thousands
                    near = {LAST_LISTED, *(_name(*each) for each in places[at : at + 2 * sources])}
                    walked = {name: before for name, before in walked.items() if name in near}
                group = [_source(*each, state, walked) for each in places[at : at + sources]]
                begins = [source.at for source in group]
                while len(found) < limit and not looking.is_over and any(s.rows or not s.done for s in group):
                    ids = await self._newest(group, min(VIEWS, limit - len(found)), looking)
                    for view in await self._views(ids, brief=max(1, row_bytes), last=True) if ids else []:
                        if isinstance(view, JobView) and _matches(view, state, jobtype, tag, tenant):
                            found[view.id] = view
                    looking.are_any = looking.are_any or bool(found) or await self._are_any(state, jobtype, tenant)
                    if not looking.are_any:
                        return Page([], "", looking.looked)
                walked |= {s.name: s.at for s, began in zip(group, begins, strict=True) if s.at != began}
                for last_id in filter(None, (source.last_listed for source in group)):
                    walked[LAST_LISTED] = 0.0, last_id
                if any(source.rows or not source.done for source in group):
                    break
                if not is_whole:
                    continue
                past = max(_order(state, source.place, source.suffix) for source in group)
            else:
                walked, past, place = {}, "", behind
                if place != FIRST and not looking.is_late:
                    continue
            break
        if walked or past or place != FIRST:
            walked[PART] = 0.0, f"{server} {place}"
            walked[PAST] = 0.0, past
        cursor = encode_cursor(walked, self.seal) if walked else ""
        return Page([found[job_id] for job_id in sorted(found, reverse=True)], cursor, looking.looked, in_parts)

    async def _are_any(self, state: State | None, jobtype: str | None, tenant: str | None) -> bool:
        """Return whether the store's counts include any job of this state, jobtype and tenant. If not, no job is
        examined."""
        counts = (one.counts for one in await self.list_types(dated=False) if _is_of(one.jobtype, jobtype, tenant))
        # A type without counts may have any: its counts cannot be read.
        return any(state is None or getattr(each, state.value) or not each.jobs for each in counts)

    async def _places(
        self, part: str, state: State | None, jobtype: str | None, tenant: str | None, sources: int
    ) -> tuple[str, str, list[tuple[str, str]]]:
        """Return three values about one part of the list: the name of the part that follows, the name by which to ask
        for this part again, and the sets of job ids (places) in this part."""
        behind, places = FIRST, list[tuple[str, str]]()
        for place in PLACES[state]:
            if place == "ready":
                # Other tenants' types of this name are found among all types.
                asked = "" if tenant is None else jobtype or ""
                answer = await self._caller.call("list_ready", part, LIST_QUEUES, LIST_TYPES, sources, asked)
                place_behind, some, named = codec.fields(self._keys, "tied", answer, 3)
                behind, part = self._text("tied", place_behind), self._text("tied", named)
                names = {*self._texts("types", some)}
                own = [name for name in names if _is_of(name.partition(BETWEEN)[0], jobtype, tenant)]
                places += (("loose", name[:-1]) if name.endswith(BETWEEN) else ("ready", name) for name in own)
            elif part.startswith(FIRST) and place == "held":
                members = await self._caller.call("list_members")
                places += (("held", sysid) for sysid in self._texts("members", members))
            elif part.startswith(FIRST):
                places.append((place, ""))
        return behind, part, sorted(places, key=lambda each: _order(state, *each))

    async def _newest(self, group: Sequence[_Source], count: int, looking: _Looking) -> list[str]:
        """Return the next `count` ids of all sources together, newest first; fewer if no more are left or the page's
        time is over."""
        taken: list[str] = []
        while len(taken) < count:
            empty = [source for source in group if not source.rows and not source.done]
            if empty and not looking.is_over:
                share = max(LEAST, 2 * (count - len(taken)) // len(group))
                await self._fill(empty, min(count - len(taken), share), looking)
                if any(source.rows for source in group):
                    continue
                break  # the caller looks whether any such job exists
            ready = [source for source in group if source.rows]
            if not ready:
                break
            # Take the newest head each time, until a source is empty.
            while len(taken) < count and ready:
                newest = max(ready, key=lambda source: source.rows[0][0])
                taken.append(newest.take())
                looking.looked += newest.is_by_id
                if not newest.rows and not newest.done and not looking.is_over:
                    break
                ready = [source for source in ready if source.rows]
        return taken

    async def _fill(self, empty: Sequence[_Source], count: int, looking: _Looking) -> None:
        for source in empty:
            if source.is_by_id:
                await self._fill_by_id(source, looking)
        empty = [source for source in empty if not source.is_by_id]
        if not empty:
            return
        flat = (v for s in empty for v in (s.place, s.suffix, f"{s.before[0]:.17g}", s.before[1]))
        answer = await self._caller.call("list_ids", count, LIST_ROWS, *looking.fits, *flat)
        for source, piece in zip(empty, self._list("ended", answer), strict=True):
            score, job_id, is_all, looked, rows = codec.fields(self._keys, source.place, piece, 5)
            source.before = codec.score(self._keys, source.place, score), self._text(source.place, job_id)
            source.rows = [
                (self._text(source.place, job_id), codec.score(self._keys, source.place, score))
                for job_id, score in self._rows(source.place, rows, 2)
                if not source.last_listed or self._text(source.place, job_id) < source.last_listed
            ]
            source.done = bool(self._whole(source.place, is_all))
            source.at = source.at if source.rows else source.before
            looking.looked += self._whole(source.place, looked)

    async def _fill_by_id(self, source: _Source, looking: _Looking) -> None:
        """Read all ids of a set into `rows`, sorted. A set that is too large for this is read in the order of its dates
        instead, from the next call on."""
        where = source.place, source.suffix, f"{source.before[0]:.17g}", source.before[1]
        rows_max = LATER_ROWS if looking.fits == ANY else LIST_FREE  # a filter reads rows: 25 µs each
        answer = await self._caller.call("list_ids", rows_max, rows_max, *looking.fits, *where)
        (piece,) = self._list("ended", answer)
        _, _, is_all, looked, rows = codec.fields(self._keys, source.place, piece, 5)
        source.is_by_id = source.done = bool(self._whole(source.place, is_all))
        if source.is_by_id:
            ids = [self._text(source.place, job_id) for job_id, _ in self._rows(source.place, rows, 2)]
            older = [job_id for job_id in ids if not source.last_listed or job_id < source.last_listed]
            source.rows = [(job_id, 0.0) for job_id in sorted(older, reverse=True)]
            if not source.last_listed:  # those that match are counted when they are listed
                looking.looked += self._whole(source.place, looked) - len(ids)


def _matches(view: JobView, state: State | None, jobtype: str | None, tag: str | None, tenant: str | None) -> bool:
    good_state = state is None or view.state is state
    return good_state and _is_of(view.jobtype, jobtype, tenant) and (tag is None or tag in view.tags)


def _is_of(name: str, jobtype: str | None, tenant: str | None) -> bool:
    """Return whether the jobtype called `name` is the wanted `jobtype` of the wanted `tenant`; None: any."""
    if tenant is None:
        return jobtype is None or jobtype in (name, bare(name))
    return tenant_of(name) == tenant and (jobtype is None or name == jobtype)


def _source(place: str, suffix: str, state: State | None, walked: Walked) -> _Source:
    source = _Source(place, suffix, walked.get(_name(place, suffix), _begin(state, place)))
    if place == "later":
        source.is_by_id = state is not State.BLOCKED and source.name not in walked  # blocked jobs lie by id already
        source.last_listed = walked.get(LAST_LISTED, (0.0, ""))[1]
    return source


def _name(place: str, suffix: str) -> str:
    """Return the name of a set in a cursor, of the same length for all: jobtypes and queues have hundreds of bytes."""
    return hashlib.blake2b(f"{place}:{suffix}".encode(), digest_size=NAME_BYTES).hexdigest()


def _begin(state: State | None, place: str) -> tuple[float, str]:
    """Return the score and id below which a set is read; (0, ""): from its newest job. In `later` all blocked jobs have
    higher scores than jobs with a date, so a list of dated jobs begins below the blocked ones."""
    return (BLOCKED_MS, "!") if place == "later" and state in (State.SCHEDULED, State.RETRYING) else (0.0, "")


def _order(state: State | None, place: str, suffix: str = "") -> str:
    """Return the key by which the sets of a list are sorted. The queues of a jobtype follow its set `loose`, as jobs
    move only from there to the queues.

    A cursor names the last finished key, not each finished set: with thousands of jobtypes it would not fit into a URL.
    """
    kind = PLACES[state].index("ready" if place == "loose" else place)
    return f"{kind}{suffix}{BETWEEN * (place == 'loose')}"
