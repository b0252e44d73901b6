"""The store's methods that read jobs and jobtypes, and delete jobs that need not be kept."""

from collections.abc import Sequence
from contextlib import suppress

from jqd.domain.errors import StoreAway
from jqd.domain.queue_name import WITHIN
from jqd.store import codec
from jqd.store.counts import Counts, Totals, TypeView, decode_counts
from jqd.store.keys import last_field
from jqd.store.methods import ScriptMethods, bound, in_rows, in_steps, milliseconds
from jqd.store.types import CALL_JOBS_MAX, Cleaned, Ends, JobView, OnItsWay, Purged, QueuePlace, StoreStats
from jqd.store.views import damaged_view, decode_end_outcome, read_view

BRIEFS_MAX = 20  # views read at once: a millisecond of the loop, with some failed attempts each
WHOLE_MAX = 16  # jobs read at once with arguments and results: some 48 MiB at most
VIEWS = 100  # jobs read in one call without their arguments
PLACE_PAGES = 1_000  # pages counted to find what waits before a job: 100,000 jobs, about a millisecond
PLACE_TYPES = 3  # jobtypes with better jobs that are named
TYPES_PART = 50  # jobtypes in one call: 1.3 ms of the server; a hash of at most 512 fields comes all at once


class QueryMethods(ScriptMethods):
    # ------------------------------------------------------------ jobs

    async def get_job(self, job_id: str) -> JobView | OnItsWay | None:
        """Return all that is known of a job; OnItsWay if it may still come from a journal; None if it neither exists
        nor may come.

        Raises StoreChanged: another life of the store may not know the job yet.
        """
        (view,) = await self._views([job_id])
        return view

    async def get_jobs(self, job_ids: Sequence[str]) -> list[JobView | OnItsWay | None]:
        """Return what `get_job` returns, for at most WHOLE_MAX jobs: each may have some 3 MiB."""
        if len(job_ids) > WHOLE_MAX:
            raise ValueError(f"{len(job_ids)} jobs in one call; {WHOLE_MAX} at most")
        return await self._views(job_ids)

    async def get_briefs(self, job_ids: Sequence[str]) -> list[JobView | OnItsWay | None]:
        """Return what `get_job` returns, without argument, result and log, for at most BRIEFS_MAX jobs."""
        if len(job_ids) > BRIEFS_MAX:
            raise ValueError(f"{len(job_ids)} jobs in one call; {BRIEFS_MAX} at most")
        return await self._views(job_ids, brief=1)

    async def queue_place(self, job_id: str, ages: bool = False) -> QueuePlace | None:
        """Return which jobs run before a job; None if it is not ready. `ages`: whether jobs age."""
        found = self._list("ready", await self._caller.call("queue_place", job_id, PLACE_PAGES, PLACE_TYPES, int(ages)))
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
            self._text("tied", bucket).removesuffix(WITHIN),
            self._whole("due", looked_at),
            tuple(self._texts("busy", holds)),
        )

    async def resolve(self, name: str, *, promised: bool = False) -> str | None:
        """Return the id of the job whose pusher chose the id `name`; None if there is none. Raises StoreChanged.

        Raises StoreUnsettled if the job may be in a journal only. `promised`: None also if the name was reserved for a
        push whose job did not come in time.
        """
        (job_id,) = await self._resolve([name], promised=promised)
        return job_id

    async def resolve_all(self, names: Sequence[str]) -> list[str | None]:
        """Return what `resolve` returns, for many names."""
        found: list[str | None] = []
        for some in in_steps(names, VIEWS):
            found += await self._resolve(some)
        return found

    async def _resolve(self, names: Sequence[str], *, promised: bool = False) -> list[str | None]:
        answer = await self._caller.call("resolve", self._caller.identity, int(promised), *names)
        return [None if each is None else self._text("names", each) for each in self._list("names", answer)]

    async def _views(
        self, job_ids: Sequence[str], *, brief: int = 0, last: bool = False, again: bool = False
    ) -> list[JobView | OnItsWay | None]:
        """Return the view of each job. `brief`: 0: with results and arguments; else without results, and without the
        arguments of jobs whose rows have more bytes than `brief`. `last`: with the last failed attempt as the only
        history."""
        flat: list[object] = []
        for job_id in job_ids:
            number = codec.journal_of(job_id)
            flat += (job_id, "" if number is None else last_field(number))
        views: list[JobView | OnItsWay | None] = []
        left = job_ids
        while left:  # a call answers as many as fit
            words = flat[-2 * len(left) :]
            answer = await self._caller.call("get_jobs", self._caller.identity, brief, int(last), *words)
            rows = self._list("jobs", answer)
            views += [
                None if row is None else self._view(job_id, row, last) for job_id, row in zip(left, rows, strict=False)
            ]
            left = left[max(1, len(rows)) :]
        with suppress(StoreAway):  # a server that takes no writes can still be read
            if await self.burial.bury() and not again:
                return await self._views(job_ids, brief=brief, last=last, again=True)
        return views

    def _view(self, job_id: str, answer: object, last: bool) -> JobView | OnItsWay | None:
        fields = codec.fields(self._keys, "jobs", answer, 13)
        place, sysid, last_id = self._text("jobs", fields[0]), fields[2], fields[8]
        if place in ("unseen", "early"):
            known_id = self._text("applied", last_id) if last_id is not None else None
            if place == "early":  # a daemon holds it, so it exists, whatever its journal's last id says
                return OnItsWay(known_id or "", held=True)
            known = codec.journal_of(job_id) in self.journals
            return codec.on_its_way(job_id, "" if known_id is None and known else known_id)
        if place == "awaited":
            return OnItsWay("", held=sysid is not None, is_promised=True)
        try:
            return read_view(self._keys, job_id, place, fields, last=last)
        except codec.Unreadable as error:
            view, is_lost = damaged_view(self._keys, job_id, place, fields, str(error))
            self.burial.warn(str(error))
            if is_lost:
                self.burial.note(job_id, str(error), fields[3])
            return view

    async def unfinished(self, job_ids: Sequence[str], *, dead: bool = False) -> list[str]:
        """Return the ids of those jobs that exist and have not ended. Takes at most CALL_JOBS_MAX ids. Raises
        StoreChanged.

        `dead`: also of jobs that failed for good.
        """
        bound(job_ids)
        if not job_ids:
            return []
        answer = await self._caller.call("unfinished", self._caller.identity, int(dead), *job_ids)
        return self._texts("jobs", answer)

    async def get_ends(self, job_ids: Sequence[str]) -> Ends:
        """Return the outcomes of jobs that ended, the cancels noted for jobs in flight, and which jobs are gone. Raises
        StoreChanged."""
        found = Ends([], {}, [])
        for at in range(0, len(job_ids), VIEWS):
            answer = await self._caller.call("get_ends", self._caller.identity, *job_ids[at : at + VIEWS])
            ended, asked, gone, entrusted = self._list("outcome", answer)
            for given, row, changed in self._rows("outcome", ended, 3):
                job_id = self._text("dead", given)
                with suppress(codec.Unreadable):  # then nobody can repeat it
                    if (outcome := decode_end_outcome(self._keys, job_id, row, changed or None)) is not None:
                        found.outcomes.append(outcome)
            for lease in self._rows("leases", entrusted, 7):
                with suppress(codec.Unreadable):
                    found.outcomes.append(codec.decode_lease_outcome(self._keys, lease))
            for given, to in self._rows("generation", asked, 2):
                found.asked[self._text("tombstones", given)] = self._whole("generation", to)
            found.gone.extend(self._texts("jobs", gone))
        return found

    # ------------------------------------------------------------ numbers

    async def list_types(self, partition: int | None = None, *, dated: bool = True) -> list[TypeView]:
        """Return all jobtypes that have jobs, by name. Their numbers are exact, but not taken at one moment.

        `partition`: only jobtypes of this partition. `dated`: also read `TypeView.oldest_ms` for each.
        """
        views: dict[str, TypeView] = {}
        place = "0"
        while True:
            answer = await self._caller.call("list_types", place, TYPES_PART, int(dated))
            following, rows = self._list("counts", answer)
            for named, row, due in self._rows("counts", rows, 3):
                jobtype = self._text("counts", named)
                due_ms = self._whole("jobs", due) if due else 0
                counts, totals = self._counts(row)
                views[jobtype] = TypeView(jobtype, counts, due_ms, totals)
            place = self._text("counts", following)
            if place == "0":
                return sorted(views.values())

    async def stats(self) -> StoreStats:
        """Return the numbers of jobs, and which partitions did not answer. Raises StoreAway if no partition does."""
        *numbers, row = self._list("jobs", await self._caller.call("stats"))
        total, later, running, ended, dead, types = (self._whole("jobs", number) for number in numbers)
        counts, totals = self._counts(row)
        memory = (await self._caller.info("memory")).get("used_memory", "")
        return StoreStats(
            waiting=max(0, total - later - running - ended - dead),
            scheduled=later,
            running=running,
            ended=ended,
            dead=dead,
            types=types,
            used_memory=int(memory) if memory.isdecimal() else 0,
            counts=counts,
            totals=totals,
        )

    def _counts(self, row: object) -> tuple[Counts, Totals]:
        try:
            return decode_counts(self._list("counts", row))
        except ValueError as error:  # the other jobtypes are still shown
            self.burial.warn(f"the key {self._keys['counts']} holds a number that jqd did not write: {error}")
            return Counts(), Totals()

    # ------------------------------------------------------------ cleaning

    async def purge(self, limit: int) -> Purged:
        """Delete ended jobs, results and notes that were kept long enough, up to `limit` of each."""
        config = self._config
        keep = (milliseconds(config.ended_keep_s), config.ended_keep_jobs, milliseconds(config.tombstone_keep_s))
        answer = await self._caller.call("purge", self._caller.identity, min(limit, CALL_JOBS_MAX), *keep)
        return Purged(*(self._whole("ended", number) for number in codec.fields(self._keys, "ended", answer, 2)))

    async def delete_dead(self, job_ids: Sequence[str]) -> list[str]:
        """Delete jobs that ended, including failed ones; return the ids of the jobs that were deleted."""
        bound(job_ids)
        gone: list[str] = []
        while job_ids:
            answer = await self._caller.call("delete_dead", self._caller.identity, *job_ids)
            looked, *some = self._list("dead", answer)
            gone += (self._text("dead", job_id) for job_id in some)
            job_ids = job_ids[max(1, self._whole("dead", looked)) :]  # a call looks at as many as it has time for
        return gone

    async def clean_ended(self, before_ms: int, limit: int) -> Cleaned:
        """Examine up to `limit` jobs that ended before `before_ms`, and delete them.

        Failed jobs, jobs with kept results, and jobs that other jobs need are not deleted."""
        limit = min(limit, CALL_JOBS_MAX)
        answer = await self._caller.call("clean_ended", self._caller.identity, before_ms, limit)
        return Cleaned(*(self._whole("ended", number) for number in codec.fields(self._keys, "ended", answer, 3)))
