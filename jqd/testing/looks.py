"""Part of the fake store: what lists, deletes, keeps handlers, and shows what journals keep."""

from collections.abc import Iterable, Sequence

from jqd.store import JobView, Kept, Page, Told, TypeView, codec
from jqd.testing.changes import FakeChanges
from jqd.testing.members import Entry, Tries
from jqd.words.job import Job, State
from jqd.words.jobid import parse_id


class FakeLooks(FakeChanges):
    """Plain loops over all there is."""

    async def list_jobs(
        self, state: State | None, jobtype: str | None, tag: str | None, limit: int, cursor: str
    ) -> Page:
        """See Store. The cursor is the last id given."""
        await self._answer()
        if cursor and parse_id(cursor) is None:
            raise ValueError(f"the cursor {cursor[:32]!r} is none that was given here")
        found: list[JobView] = []
        for job_id in sorted(self._data.entries, reverse=True):
            view = self._view(self._data.entries[job_id])
            fits = (state is None or view.state is state) and (jobtype is None or view.jobtype == jobtype)
            if fits and (tag is None or tag in view.tags) and (not cursor or job_id < cursor):
                found.append(view)
        page = found[:limit]
        return Page(page, page[-1].id if len(found) > limit else "")

    def _view(self, entry: Entry) -> JobView:
        job_id = entry.job.id
        tries = self._data.tries.get(job_id, Tries())
        return codec.job_view(
            entry.job,
            entry.place,
            entry.score,
            daemon=entry.sysid,
            failed=tries.count,
            history=list(tries.kept),
            outcome=self._data.outcomes.get(job_id),
            cancelled=job_id in self._data.cancelled,
            cancel_asked=("c", job_id) in self._data.notes,
            result=self._data.results[job_id][0] if job_id in self._data.results else None,
            changed=self._data.generations.get(job_id, (0, 0, False)),
        )

    async def list_types(self, limit: int) -> list[TypeView]:
        """See Store."""
        await self._answer()
        rows: dict[str, list[Job]] = {}
        running: dict[str, int] = {}
        for entry in sorted(self._data.entries.values(), key=lambda entry: (entry.score, entry.job.id)):
            if entry.place == "ready":
                rows.setdefault(entry.job.jobtype, []).append(entry.job)
            elif entry.place == "held":
                rows.setdefault(entry.job.jobtype, [])
                running[entry.job.jobtype] = running.get(entry.job.jobtype, 0) + 1
        views = []
        for jobtype, jobs in sorted(rows.items()):
            parts = parse_id(jobs[0].id) if jobs else None
            views.append(TypeView(jobtype, len(jobs), running.get(jobtype, 0), parts.at_ms if parts else 0))
        return views[:limit]

    async def delete_dead(self, job_ids: Sequence[str]) -> list[str]:
        """See Store."""
        await self._answer()
        entries = self._data.entries
        ended = [i for i in job_ids if i in entries and entries[i].place in ("ended", "dead")]
        gone = [i for i in ended if not self._awaits_newer(entries[i])]
        self._delete(gone)
        return gone

    async def clean_ended(self, before_ms: int, limit: int) -> int:
        """See Store."""
        await self._answer()
        ended = sorted(
            (e.score, i) for i, e in self._data.entries.items() if e.place == "ended" and e.score < before_ms
        )
        gone = self._deletable([job_id for _, job_id in ended[:limit] if job_id not in self._data.results])
        self._delete(gone)
        return len(gone)

    def _deletable(self, job_ids: Iterable[str]) -> list[str]:
        """Those with nothing more to come; the others stand as if they ended now."""
        free = []
        for job_id in job_ids:
            entry = self._data.entries[job_id]
            if self._awaits_newer(entry):
                entry.score = max(entry.score, self._now_ms())
            else:
                free.append(job_id)
        return free

    def _delete(self, job_ids: Iterable[str]) -> None:
        data = self._data
        for job_id in job_ids:
            entry = data.entries.pop(job_id)
            if entry.job.name in data.names and data.names[entry.job.name].job_id == job_id:
                del data.names[entry.job.name]
            data.cancelled.discard(job_id)
            for rows in (
                data.tries,
                data.outcomes,
                data.results,
                data.generations,
                data.awaited,
                data.cancelled_to,
                data.deaths,
            ):
                rows.pop(job_id, None)

    async def tell_kept(self, journal_id: str, since: int) -> Kept:
        """See Store."""
        await self._answer()
        self._expect_life()
        now = self._next_fence()
        known = self._data.kept.get(journal_id, Told(0, 0))
        self._data.kept[journal_id] = Told(max(since, known.since), now)
        return Kept(now, self._data.high, dict(self._data.kept))

    # ------------------------------------------------------------ handlers

    async def set_handler(self, jobtype: str, handler: bytes) -> int:
        """See Store."""
        await self._answer()
        newest, versions = self._data.handlers.get(jobtype, (0, {}))
        version = newest + 1
        kept = {number: row for number, row in versions.items() if number > version - self._config.handler_versions}
        self._data.handlers[jobtype] = version, kept | {version: handler}
        return version

    async def get_handler(self, jobtype: str, version: int = 0) -> tuple[int, bytes] | None:
        """See Store."""
        await self._answer()
        newest, versions = self._data.handlers.get(jobtype, (0, {}))
        wanted = version or newest
        return (wanted, versions[wanted]) if wanted in versions else None

    async def delete_handler(self, jobtype: str) -> bool:
        """See Store."""
        await self._answer()
        newest, versions = self._data.handlers.get(jobtype, (0, {}))
        self._data.handlers[jobtype] = newest, {}
        return bool(versions)
