"""Small stand-ins for the rooms behind the edge."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import trio

from jqd.domain.errors import JournalRefused, StoreAway, StoreUnsettled
from jqd.domain.job import Fate, Job, Outcome, State
from jqd.domain.jobid import IdSource, parse_id
from jqd.domain.record import Lane, decode_cancels, decode_jobs
from jqd.domain.tenant import bare
from jqd.store import (
    BRIEFS_MAX,
    CALL_JOBS_MAX,
    NO_LOG,
    WHOLE_MAX,
    Cleaned,
    EditGiven,
    Entrusted,
    HistoryPage,
    Hold,
    JobView,
    Log,
    OnItsWay,
    Page,
    QueuePlace,
    Release,
    StoreStats,
    TypeView,
)
from jqd.store.counts import Counts
from jqd.testing.clock import ManualClock

JOURNAL = 7


JOURNAL_ID = f"{JOURNAL:010x}" + "0" * 22


class FakeJournal:
    """Keeps frames in a list; durable when `wsync` returned."""

    journal_id = JOURNAL_ID

    def __init__(self, clock: ManualClock) -> None:
        self.ids = IdSource(journal=JOURNAL, salt=1, clock=clock)
        self.frames: list[tuple[Lane, int, bytes]] = []
        self.refuse: JournalRefused | None = None
        self.synced = 0
        self.written = 0
        self.unsure_to = 0
        self.read_points = dict.fromkeys(Lane, 0)
        self.hold: trio.Event | None = None
        self.waiting = trio.Event()
        self.frame_bytes_max = 32 << 20

    @property
    def end(self) -> int:
        return self.synced

    @property
    def refusing(self) -> str | None:
        return str(self.refuse) if self.refuse else None

    @property
    def refusing_full(self) -> bool:
        return self.refuse is not None and self.refuse.full

    def write(self, lane: Lane, records: int, body: bytes) -> int:
        if self.refuse is not None:
            raise self.refuse
        if not 1 <= records <= len(body) <= self.frame_bytes_max:
            raise ValueError("no such frame is taken")
        self.frames.append((lane, records, body))
        self.written += 32 + len(body)
        return self.written

    async def wsync(self, position: int | None = None, *, since: int | None = None, shielded: bool = False) -> None:
        self.waiting.set()
        with trio.CancelScope(shield=shielded):
            if self.hold is not None:
                await self.hold.wait()
            await trio.lowlevel.checkpoint()
        if self.refuse is not None:
            raise self.refuse
        self.synced = max(self.synced, self.written if position is None else position)

    def read_point(self, lane: Lane, reader: int = 0) -> int:
        return self.read_points[lane]

    def jobs(self) -> list[Job]:
        """All that was journaled, as ingest would read it."""
        return [job for lane, _, body in self.frames if lane in (Lane.JOBS, Lane.CHANGES) for job in decode_jobs(body)]

    def cancels(self) -> list[str]:
        return [i for lane, _, body in self.frames if lane is Lane.CANCELS for i in decode_cancels(body)]


class FakeStore:
    """Jobs in a dict. An id it does not hold is on its way when it is younger than `applied_id`.

    Known are the journals JOURNAL, ours, and the next one.
    """

    seal = "known to the daemons"

    def __init__(self) -> None:
        self.views: dict[str, JobView] = {}
        self.away = False
        self.unsettled = 0  # questions that it cannot answer yet
        self.knows_journals = True
        self.applied_id = ""
        self.dropped: list[str] = []
        self.looks = 0
        self.pieces: list[int] = []
        self.looked = trio.Event()
        self.durable = True
        self.waited_for: list[int] = []
        self.names: dict[str, str] = {}
        self.changes = 100
        self.types: list[TypeView] = []
        self.history: list[tuple[int, bytes]] = []
        """Rows of numbers over time, and when each began."""
        self.places: dict[str, QueuePlace] = {}
        self.counts = Counts()
        self.asked: list[tuple[Any, ...]] = []
        self.cleaned: list[int] = []
        self.entrusted: dict[str, Entrusted] = {}
        self.logs: dict[str, Log] = {}
        self.briefs = 0

    async def wait_durable(
        self, replicas: int = 0, timeout_s: float = 5.0, where: Collection[int] | None = None
    ) -> bool:
        await trio.lowlevel.checkpoint()
        self._check()
        self.waited_for.append(replicas)
        return self.durable

    def _check(self) -> None:
        if self.away:
            raise StoreAway("the store at redis://fake does not answer; it will be asked again")

    async def get_job(self, job_id: str) -> JobView | OnItsWay | None:
        await trio.lowlevel.checkpoint()
        self._check()
        self.looks += 1
        self.looked.set()
        view = self.views.get(job_id)
        if view is not None:
            return view
        ids = parse_id(job_id)
        known = self.knows_journals and ids is not None and ids.journal in (JOURNAL, JOURNAL + 1)
        return OnItsWay(self.applied_id) if known and job_id > self.applied_id else None

    async def get_jobs(self, job_ids: Sequence[str]) -> list[JobView | OnItsWay | None]:
        assert len(job_ids) <= WHOLE_MAX
        return [await self.get_job(job_id) for job_id in job_ids]

    async def get_briefs(self, job_ids: Sequence[str]) -> list[JobView | OnItsWay | None]:
        assert len(job_ids) <= BRIEFS_MAX
        self.briefs += 1
        return [await self.get_job(job_id) for job_id in job_ids]

    async def watch_logs(self, known: Sequence[tuple[str, int, int]], watch_ms: int) -> list[Log | None]:
        await trio.lowlevel.checkpoint()
        self._check()
        logs = [(self.logs.get(job_id), fence, end) for job_id, fence, end in known]
        return [None if log is None or (log.fence, log.end) == (fence, end) else log for log, fence, end in logs]

    async def touch(
        self,
        claims: Sequence[tuple[str, int]],
        *,
        silence_s: int = 0,
        progress: bytes = b"",
        renew: bool = True,
        rows: bool = True,
        log: Log = NO_LOG,
    ) -> list[Entrusted]:
        await trio.lowlevel.checkpoint()
        self._check()
        self.asked.append((tuple(claims), silence_s, progress))
        over = Entrusted(Hold.OVER, None, "", 0, False)
        return [
            self.entrusted.get(job_id, over._replace(hold=Hold.LATE))
            if job_id in self.views and not self.views[job_id].state.is_final
            else over
            for job_id, _ in claims
        ]

    async def release_entrusted(self, claims: Sequence[tuple[str, int]], how: Release = Release.UNSENT) -> list[str]:
        await trio.lowlevel.checkpoint()
        self._check()
        return [job_id for job_id, _ in claims if self.entrusted.pop(job_id, None) is not None]

    async def unfinished(self, job_ids: Sequence[str]) -> list[str]:
        await trio.lowlevel.checkpoint()
        self._check()
        assert len(job_ids) <= CALL_JOBS_MAX
        self.pieces.append(len(job_ids))
        return [job_id for job_id in job_ids if job_id in self.views and not self.views[job_id].state.is_final]

    async def reserve_change(self, job_id: str) -> int:
        await trio.lowlevel.checkpoint()
        self._check()
        self.changes += 1
        return self.changes

    async def reserve_edit(self, job_id: str, revision: int) -> EditGiven:
        return EditGiven(await self.reserve_change(job_id), "life")

    async def resolve(self, name: str, *, promised: bool = False) -> str | None:
        await trio.lowlevel.checkpoint()
        self._check()
        if self.unsettled:
            self.unsettled -= 1
            raise StoreUnsettled("the daemons are telling the store what it forgot")
        return self.names.get(name)

    async def resolve_all(self, names: Sequence[str]) -> list[str | None]:
        return [await self.resolve(name) for name in names]

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
        sources: int = 0,
    ) -> Page:
        await trio.lowlevel.checkpoint()
        self._check()
        self.asked.append((state, jobtype, tag, limit, cursor))
        if cursor and parse_id(cursor) is None:
            raise ValueError(f"cursor {cursor}")
        fit = [
            view
            for job_id, view in sorted(self.views.items(), reverse=True)
            if (not cursor or job_id < cursor)
            and (state is None or view.state is state)
            and (jobtype is None or jobtype in (view.jobtype, bare(view.jobtype) if tenant is None else ""))
            and (tag is None or tag in view.tags)
            and (tenant is None or view.tenant == tenant)
        ]
        return Page(fit[:limit], fit[limit - 1].id if len(fit) > limit else "", len(fit[:limit]))

    async def queue_place(self, job_id: str, ages: bool = False) -> QueuePlace | None:
        await trio.lowlevel.checkpoint()
        self._check()
        return self.places.get(job_id)

    async def list_types(self, partition: int | None = None, *, dated: bool = True) -> list[TypeView]:
        await trio.lowlevel.checkpoint()
        self._check()
        return sorted(self.types)

    def at(self, number: int) -> Any:
        return self

    async def get_history(self, minutes: int, from_ms: int, from_field: str = "") -> HistoryPage:
        await trio.lowlevel.checkpoint()
        self._check()
        return HistoryPage(0, None, [*self.history], None)

    async def delete_dead(self, job_ids: Sequence[str]) -> list[str]:
        await trio.lowlevel.checkpoint()
        self._check()
        ended = [i for i in job_ids if i in self.views and self.views[i].state.is_final]
        for job_id in ended:
            del self.views[job_id]
        return ended

    async def clean_ended(self, before_ms: int, limit: int) -> Cleaned:
        await trio.lowlevel.checkpoint()
        self._check()
        self.asked.append((before_ms, limit))
        gone = self.cleaned.pop(0) if self.cleaned else 0
        return Cleaned(gone, gone, before_ms)

    async def drop_result(self, job_id: str, read: object = None) -> None:
        await trio.lowlevel.checkpoint()
        self._check()
        self.dropped.append(job_id)
        self.views[job_id] = msgspec.structs.replace(self.views[job_id], result=None)

    async def stats(self) -> StoreStats:
        await trio.lowlevel.checkpoint()
        self._check()
        return StoreStats(1, 2, 3, 4, 5, 6, 7, counts=self.counts)


def outcome(job_id: str, **fields: Any) -> Outcome:
    """An attempt that ended."""
    given: dict[str, Any] = {"fence": 1, "fate": Fate.RETRY, "jobtype": "mail", "priority": 0, "attempt": 1}
    return Outcome(job_id=job_id, **{**given, **fields})
