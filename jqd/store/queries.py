"""The store's methods that read and clean: one job, many jobs, jobtypes."""

import base64
import zlib
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from jqd.domain.errors import StoreAway
from jqd.domain.flow import BLOCKED_MS
from jqd.domain.job import State
from jqd.domain.queue_name import BETWEEN, WITHIN
from jqd.domain.tenant import bare, tenant_of
from jqd.store import codec
from jqd.store.counts import Counts, TypeView, decode_counts
from jqd.store.keys import last_field
from jqd.store.methods import ScriptMethods, bound, in_rows, milliseconds
from jqd.store.types import CALL_JOBS_MAX, Ends, JobView, OnItsWay, Page, QueuePlace, StoreStats
from jqd.store.views import damaged_view, decode_told_end, read_view

BRIEFS_MAX = 20  # jobs whose views are read at once: a millisecond of the loop, with some failed attempts each
VIEWS = 100  # jobs asked for in one call when their arguments are left out
PASSED = 500  # the same of ended jobs, where few match: the store skips others by their outcomes
LIST_SOURCES = 64  # places looked through side by side; a store with more jobtypes is walked in groups
LIST_TYPES = 10_000  # queues whose waiting jobs are listed
LIST_SCAN = 5_000  # jobs looked at for one page: a filter with few matches gives a short page and a cursor
PLACE_PAGES = 1_000  # counted to find what waits before a job: 100,000 jobs, about a millisecond
PLACE_TYPES = 3  # with better jobs, named
TYPES_PART = 250  # jobtypes in one call: 2 ms of the loop, which metrics look at every few seconds

# In which places the jobs of a state lie.
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

CURSOR_BYTES_MAX = 1 << 20  # unpacked: a place in each of some 15,000 jobtypes
_cursors = msgspec.msgpack.Decoder(dict[str, tuple[float, str]])


class _Source:
    """One place that is walked from its newest job back."""

    def __init__(self, place: str, suffix: str, before: tuple[float, str]) -> None:
        self.place, self.suffix, self.before = place, suffix, before
        self.rows: list[tuple[str, float]] = []
        self.done = False

    @property
    def name(self) -> str:
        return f"{self.place}:{self.suffix}"


class QueryMethods(ScriptMethods):
    # ------------------------------------------------------------ jobs

    async def get_job(self, job_id: str) -> JobView | OnItsWay | None:
        """Return all about one job; None when no journal known to the store can have made that id.

        Raises StoreChanged in another life than the one we looked at: an emptied store may not know it yet.
        """
        (view,) = await self._views([job_id])
        return view

    async def get_briefs(self, job_ids: Sequence[str]) -> list[JobView | OnItsWay | None]:
        """As `get_job` of each, without what may be large: argument, result and log. At most BRIEFS_MAX."""
        if len(job_ids) > BRIEFS_MAX:
            raise ValueError(f"{len(job_ids)} jobs in one call; {BRIEFS_MAX} at most")
        return await self._views(job_ids, brief=1)

    async def queue_place(self, job_id: str, period_ms: int = 0) -> QueuePlace | None:
        """Return what waits before a job; None when it is not ready to run. `period_ms`: where jobs age."""
        found = self._list("ready", await self._caller.call("queue_place", job_id, PLACE_PAGES, PLACE_TYPES, period_ms))
        if not found:
            return None
        *numbers, others, bucket, looked_at, holds = found
        ahead, exact, deaths, suspect, better = (self._whole("ready", number) for number in numbers)
        flat = self._list("types", others)
        named = [(self._text("types", name), self._whole("ready", ready)) for name, ready in in_rows(flat, 2)]
        return QueuePlace(
            ahead,
            bool(exact),
            deaths,
            bool(suspect),
            better,
            named,
            self._text("parked", bucket).removesuffix(WITHIN),
            self._whole("due", looked_at),
            tuple(self._texts("busy", holds)),
        )

    async def resolve(self, name: str, *, promised: bool = False) -> str | None:
        """Return the id of the job under a pusher's own id; None when there is none. `promised`: nor where it is only
        reserved.

        Raises StoreChanged as `get_job`; StoreUnsettled when a journal may have it.
        """
        answer = await self._caller.call("resolve", self._caller.identity, name, int(promised))
        return None if answer is None else self._text("names", answer)

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
    ) -> Page:
        """Return up to `limit` jobs that match, newest first; in exact order if all fit in one page and few lie in each
        place.

        `tenant`: None: of all tenants, with each one's jobtype of that name. `row_bytes`: jobs with larger rows come
        without their argument. A page may be short and have a cursor: then many jobs were looked at that did not match.
        Raises ValueError for a cursor that this store did not give.
        """
        walked = _decode_cursor(cursor)
        found: dict[str, JobView] = {}  # by id: a job that moves during the walk is seen in both places
        left, step, are_any = LIST_SCAN, VIEWS, False
        fits = jobtype or "", int(tenant is None), state.value if state and PLACES[state] == ("ended",) else ""
        sources = await self._sources(state, jobtype, tenant)
        for at in range(0, len(sources), LIST_SOURCES):
            group = [
                _Source(*place, walked.get(":".join(place), _begin(state, place[0])))
                for place in sources[at : at + LIST_SOURCES]
            ]
            while len(found) < limit and left > 0:
                rows = await self._newest(group, min(step if step > VIEWS else limit - len(found), step, left))
                if not rows:
                    break
                views = await self._views([job_id for _, (job_id, _) in rows], brief=max(1, row_bytes), fits=fits)
                before = len(found)
                for (source, (job_id, score)), view in zip(rows, views, strict=True):
                    left, walked[source.name] = left - 1, (score, job_id)
                    if isinstance(view, JobView) and _matches(view, state, jobtype, tag, tenant):
                        found[view.id] = view
                    if len(found) == limit:
                        break
                are_few = 4 * (len(found) - before) < len(rows) and any(fits[::2]) and not row_bytes
                step = PASSED if are_few and all(source.place == "ended" for source, _ in rows) else VIEWS
                are_any = bool(found) or are_any or await self._are_any(state, jobtype, tenant)
                if not are_any:
                    return Page([], "")
            else:
                return Page([found[job_id] for job_id in sorted(found, reverse=True)], _encode_cursor(walked))
        return Page([found[job_id] for job_id in sorted(found, reverse=True)], "")

    async def _are_any(self, state: State | None, jobtype: str | None, tenant: str | None) -> bool:
        """Return whether the counts name any job like these: if not, no job is looked at."""
        counts = (one.counts for one in await self.list_types() if _is_of(one.jobtype, jobtype, tenant))
        return any(state is None or getattr(each, state.value) or not each.jobs for each in counts)  # 0: unreadable

    async def _sources(self, state: State | None, jobtype: str | None, tenant: str | None) -> list[tuple[str, str]]:
        sources: list[tuple[str, str]] = []
        for place in PLACES[state]:
            if place == "held":
                members = await self._caller.call("list_members")
                sources += (("held", sysid) for sysid in self._texts("members", members))
            elif place == "ready":
                names: set[str] = set()
                # Which other tenants have such a jobtype is unknown: theirs are found among all.
                for asked in dict.fromkeys((jobtype or "", "" if tenant is None else jobtype or "")):
                    answer = await self._caller.call("list_ready", LIST_TYPES, asked)
                    names.update(self._texts("types", answer))
                own = sorted(name for name in names if _is_of(name.partition(BETWEEN)[0], jobtype, tenant))
                sources += (("loose", name[:-1]) if name.endswith(BETWEEN) else ("ready", name) for name in own)
            else:
                sources.append((place, ""))
        return sources

    async def _newest(self, group: Sequence[_Source], count: int) -> list[tuple[_Source, tuple[str, float]]]:
        """Return the next `count` ids of all sources together, newest first."""
        taken: list[tuple[_Source, tuple[str, float]]] = []
        while len(taken) < count:
            await self._fill([source for source in group if not source.rows and not source.done], count)
            ready = [source for source in group if source.rows]
            if not ready:
                break
            # The newest head comes next, until a source runs dry.
            while len(taken) < count and all(source.rows or source.done for source in group):
                ready = [source for source in ready if source.rows]
                if not ready:
                    break
                newest = max(ready, key=lambda source: source.rows[0][0])
                row = newest.rows.pop(0)
                newest.before = row[1], row[0]
                taken.append((newest, row))
        return taken

    async def _fill(self, empty: Sequence[_Source], count: int) -> None:
        if not empty:
            return
        flat = (v for s in empty for v in (s.place, s.suffix, f"{s.before[0]:.0f}", s.before[1]))
        pages = self._list("ended", await self._caller.call("list_ids", count, *flat))
        for source, page in zip(empty, pages, strict=True):
            source.rows = [
                (self._text(source.place, job_id), float(self._whole(source.place, score)))
                for job_id, score in self._rows(source.place, page, 2)
            ]
            source.done = len(source.rows) < count

    async def _views(
        self, job_ids: Sequence[str], *, brief: int = 0, fits: tuple[str, int, str] = ("", 0, ""), again: bool = False
    ) -> list[JobView | OnItsWay | None]:
        """Return views of jobs. `brief`: without results, and without the arguments of rows that have more bytes than
        this; 0: with all.

        `fits`: the jobtype, whether of each tenant, and the state of what ended, to be returned; None for others."""
        flat: list[object] = []
        for job_id in job_ids:
            number = codec.journal_of(job_id)
            flat += (job_id, "" if number is None else last_field(number))
        answer = await self._caller.call("get_jobs", self._caller.identity, brief, *fits, *flat)
        rows = self._list("jobs", answer)
        views = [None if row is None else self._view(job_id, row) for job_id, row in zip(job_ids, rows, strict=True)]
        with suppress(StoreAway):  # a server that takes no writes can still be read
            if await self.burial.bury() and not again:
                return await self._views(job_ids, brief=brief, fits=fits, again=True)
        return views

    def _view(self, job_id: str, answer: object) -> JobView | OnItsWay | None:
        fields = codec.fields(self._keys, "jobs", answer, 13)
        place, sysid, last_id = self._text("jobs", fields[0]), fields[2], fields[8]
        if place in ("unseen", "early"):
            last = self._text("applied", last_id) if last_id is not None else None
            if place == "early":  # a daemon holds it, so it exists, whatever the ids mean
                return OnItsWay(last or "", held=True)
            known = codec.journal_of(job_id) in self.journals
            return codec.on_its_way(job_id, "" if last is None and known else last)
        if place == "awaited":
            return OnItsWay("", held=sysid is not None)
        try:
            return read_view(self._keys, job_id, place, fields)
        except codec.Unreadable as error:
            view, is_lost = damaged_view(self._keys, job_id, place, fields, str(error))
            self.burial.warn(str(error))
            if is_lost:
                self.burial.note(job_id, str(error), fields[3])
            return view

    async def unfinished(self, job_ids: Sequence[str], *, dead: bool = False) -> list[str]:
        """Return those of at most CALL_JOBS_MAX jobs that exist and have not ended; `dead`: also those in the dead set.

        StoreChanged in another life.
        """
        bound(job_ids)
        if not job_ids:
            return []
        answer = await self._caller.call("unfinished", self._caller.identity, int(dead), *job_ids)
        return self._texts("jobs", answer)

    async def get_ends(self, job_ids: Sequence[str]) -> Ends:
        """Return outcomes of those jobs that ended, and the cancels that wait for a job in flight.

        StoreChanged in another life.
        """
        found = Ends([], {}, [])
        for at in range(0, len(job_ids), VIEWS):
            answer = await self._caller.call("get_ends", self._caller.identity, *job_ids[at : at + VIEWS])
            ended, asked, gone, entrusted = self._list("outcome", answer)
            for given, row, changed in self._rows("outcome", ended, 3):
                job_id = self._text("dead", given)
                with suppress(codec.Unreadable):  # it cannot be repeated
                    if (outcome := decode_told_end(self._keys, job_id, row, changed or None)) is not None:
                        found.outcomes.append(outcome)
            for lease in self._rows("leases", entrusted, 7):
                with suppress(codec.Unreadable):
                    found.outcomes.append(codec.decode_told_lease(self._keys, lease))
            for given, to in self._rows("generation", asked, 2):
                found.asked[self._text("tomb", given)] = self._whole("generation", to)
            found.gone.extend(self._texts("jobs", gone))
        return found

    # ------------------------------------------------------------ numbers

    async def list_types(self, partition: int | None = None) -> list[TypeView]:
        """Return all jobtypes that have jobs, by name, with exact numbers, read in parts, so not of one moment.

        `partition`: only its numbers.
        """
        views: dict[str, TypeView] = {}
        place = "0"
        while True:
            answer = await self._caller.call("list_types", place, TYPES_PART)
            following, now, rows = self._list("counts", answer)
            now_ms = self._whole("counts", now)
            for named, row, due in self._rows("counts", rows, 3):
                jobtype = self._text("counts", named)
                due_ms = self._whole("jobs", due) if due else 0
                views[jobtype] = TypeView(jobtype, self._counts(row, now_ms), due_ms)
            place = self._text("counts", following)
            if place == "0":
                return sorted(views.values())

    async def stats(self) -> StoreStats:
        """Return the numbers of jobs. O(members). Partitions that do not answer are named; StoreAway when none does."""
        *numbers, row = self._list("jobs", await self._caller.call("stats"))
        total, later, running, ended, dead, types, now_ms = (self._whole("jobs", number) for number in numbers)
        memory = (await self._caller.info("memory")).get("used_memory", "")
        return StoreStats(
            waiting=max(0, total - later - running - ended - dead),
            scheduled=later,
            running=running,
            ended=ended,
            dead=dead,
            types=types,
            used_memory=int(memory) if memory.isdecimal() else 0,
            counts=self._counts(row, now_ms),
        )

    def _counts(self, row: object, now_ms: int) -> Counts:
        try:
            return decode_counts(row if isinstance(row, bytes) else b"", now_ms)
        except ValueError as error:  # the other jobtypes are still shown
            self.burial.warn(f"the key {self._keys['counts']} holds a row that jqd did not write: {error}")
            return decode_counts(b"", now_ms)

    # ------------------------------------------------------------ cleaning

    async def purge(self, limit: int) -> int:
        """Delete up to `limit` each of old ended jobs, old results and old notes; returns how many rows went."""
        config = self._config
        keep = (milliseconds(config.ended_keep_s), config.ended_keep_jobs, milliseconds(config.tombstone_keep_s))
        return codec.whole(
            self._keys,
            "ended",
            await self._caller.call("purge", self._caller.identity, min(limit, CALL_JOBS_MAX), *keep),
        )

    async def delete_dead(self, job_ids: Sequence[str]) -> list[str]:
        """Delete jobs that have ended, dead ones too, for good; returns those that existed."""
        bound(job_ids)
        if not job_ids:
            return []
        answer = await self._caller.call("delete_dead", self._caller.identity, *job_ids)
        return self._texts("dead", answer)

    async def clean_ended(self, before_ms: int, limit: int) -> int:
        """Delete up to `limit` jobs that ended before that date, except failed ones and kept results."""
        answer = await self._caller.call("clean_ended", self._caller.identity, before_ms, min(limit, CALL_JOBS_MAX))
        return self._whole("ended", answer)


def _matches(view: JobView, state: State | None, jobtype: str | None, tag: str | None, tenant: str | None) -> bool:
    good_state = state is None or view.state is state
    return good_state and _is_of(view.jobtype, jobtype, tenant) and (tag is None or tag in view.tags)


def _is_of(its: str, jobtype: str | None, tenant: str | None) -> bool:
    """Return whether a jobtype is the wanted one, of that tenant; None: of any tenant."""
    if tenant is None:
        return jobtype is None or jobtype in (its, bare(its))
    return tenant_of(its) == tenant and (jobtype is None or its == jobtype)


def _begin(state: State | None, place: str) -> tuple[float, str]:
    """Score and id before which to look: those that wait for a date lie before all that are blocked."""
    return (BLOCKED_MS, "!") if place == "later" and state in (State.SCHEDULED, State.RETRYING) else (0.0, "")


def _encode_cursor(walked: dict[str, tuple[float, str]]) -> str:
    # It travels in a URL and has a row for each jobtype with jobs: packed, these are a tenth.
    return base64.urlsafe_b64encode(zlib.compress(msgspec.msgpack.encode(walked))).decode()


def _decode_cursor(cursor: str) -> dict[str, tuple[float, str]]:
    if not cursor:
        return {}
    try:
        packed = base64.b64decode(cursor, altchars=b"-_", validate=True)
        return _cursors.decode(zlib.decompressobj().decompress(packed, CURSOR_BYTES_MAX))
    except (msgspec.MsgspecError, ValueError, zlib.error) as error:
        raise ValueError(f"the cursor {cursor[:32]!r} is none that was given here") from error
