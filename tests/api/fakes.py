"""Small stand-ins for the rooms behind the edge."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import trio

from jqd.desk import NewJob
from jqd.loops.endings import Endings
from jqd.runner import Report, Running, Seen
from jqd.runner.verdict import end_attempt, succeed_late
from jqd.runner.views import WELL
from jqd.store import (
    CALL_JOBS_MAX,
    EditGiven,
    Entrusted,
    Hold,
    JobView,
    OnItsWay,
    Page,
    QueuePlace,
    Release,
    StoreStats,
    Types,
    TypeView,
)
from jqd.words.backoff import Backoff
from jqd.words.clock import ManualClock
from jqd.words.errors import JournalRefused, Pressed, StoreAway, StoreUnsettled
from jqd.words.job import Fate, Held, Job, Outcome, State
from jqd.words.jobid import IdSource, parse_id
from jqd.words.joblog import Row
from jqd.words.lease import Peer
from jqd.words.record import Lane, decode_cancels, decode_jobs

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
        self.read_points = dict.fromkeys(Lane, 0)
        self.hold: trio.Event | None = None
        self.waiting = trio.Event()
        self.patient: list[bool] = []
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

    def write(self, lane: Lane, records: int, body: bytes, *, patient: bool = False) -> int:
        if self.refuse is not None:
            raise self.refuse
        if not 1 <= records <= len(body) <= self.frame_bytes_max:
            raise ValueError("no such frame is taken")
        self.patient.append(patient)
        self.frames.append((lane, records, body))
        self.written += 32 + len(body)
        return self.written

    async def wsync(self, position: int | None = None, *, shielded: bool = False) -> None:
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
        self.places: dict[str, QueuePlace] = {}
        self.counting = False
        self.asked: list[tuple[Any, ...]] = []
        self.cleaned: list[int] = []
        self.entrusted: dict[str, Entrusted] = {}

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

    async def touch(
        self, claims: Sequence[tuple[str, int]], *, silence_s: int = 0, progress: bytes = b"", renew: bool = True
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
            and (jobtype is None or view.jobtype == jobtype)
            and (tag is None or tag in view.tags)
            and (tenant is None or view.tenant == tenant)
        ]
        return Page(fit[:limit], fit[limit - 1].id if len(fit) > limit else "")

    async def queue_place(self, job_id: str, period_ms: int = 0) -> QueuePlace | None:
        await trio.lowlevel.checkpoint()
        self._check()
        return self.places.get(job_id)

    async def list_types(self, partition: int | None = None) -> Types:
        await trio.lowlevel.checkpoint()
        self._check()
        return Types(sorted(self.types), self.counting)

    async def delete_dead(self, job_ids: Sequence[str]) -> list[str]:
        await trio.lowlevel.checkpoint()
        self._check()
        ended = [i for i in job_ids if i in self.views and self.views[i].state.is_final]
        for job_id in ended:
            del self.views[job_id]
        return ended

    async def clean_ended(self, before_ms: int, limit: int) -> int:
        await trio.lowlevel.checkpoint()
        self._check()
        self.asked.append((before_ms, limit))
        return self.cleaned.pop(0) if self.cleaned else 0

    async def drop_result(self, job_id: str) -> None:
        await trio.lowlevel.checkpoint()
        self._check()
        self.dropped.append(job_id)
        self.views[job_id] = msgspec.structs.replace(self.views[job_id], result=None)

    async def stats(self) -> StoreStats:
        await trio.lowlevel.checkpoint()
        self._check()
        return StoreStats(1, 2, 3, 4, 5, 6, 7)


class FakeRunner:
    """What is at work, and the reports it was told."""

    def __init__(self) -> None:
        self.at_work: dict[str, Running] = {}
        self.reports: list[tuple[str, str, Report]] = []
        self.knows = True
        self.untold: dict[str, Outcome] = {}
        self.unnoted: JournalRefused | None = None
        self.lost: list[tuple[str, int]] = []

    def ended(self, job_id: str) -> Outcome | None:
        return self.untold.get(job_id)

    def end(self, held: Held, report: Report, worker_id: str) -> Outcome:
        return end_attempt(
            held,
            report,
            backoff=Backoff(jitter=0.0),
            source=random.Random(1),
            worker=worker_id,
            started_at_ms=1,
            finished_at_ms=5,
            result_bytes_max=10,
            wrong=lambda _: "",
        )

    def unheard(self, claims: Iterable[tuple[str, int]], *, told: bool = False) -> None:
        self.lost += claims

    def succeed_late(self, attempt: Outcome, report: Report) -> Outcome | None:
        return succeed_late(attempt, report, finished_at_ms=5, result_bytes_max=10)

    def running(self, job_id: str) -> Running | None:
        return self.at_work.get(job_id)

    async def wait_noted(self, job_id: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.unnoted is not None:
            raise self.unnoted

    def done(self, job_id: str, report: Report, *, fence: int = 0, worker_id: str = "") -> bool:
        self.reports.append((worker_id, job_id, report))
        return self.knows


class FakeControl:
    """Ready unless told; `apply` plays the ingest of a lane."""

    def __init__(self, journal: FakeJournal) -> None:
        self.not_pushing: str | None = None
        self.not_running: str | None = None
        self.pressure: Pressed | None = None
        self.applies = True
        self.calm = True
        self.warned: list[str] = []
        self.peers: list[Peer] = []
        self.views: dict[str, Seen] = {}
        self.held: dict[str, int | None] = {}
        self.endings = Endings()
        self.waiters: Counter[str] = Counter()
        self.acknowledged: list[tuple[Sequence[str], Sequence[NewJob]]] = []
        self.on_apply: dict[Lane, Any] = {}
        self.ears: list[Callable[[Sequence[Row]], None]] = []
        self.shelves: Counter[str] = Counter()
        self._journal = journal

    def push_ready(self) -> str | None:
        return self.not_pushing or self._journal.refusing

    def pressed(self) -> Pressed | None:
        return self.pressure

    def run_ready(self) -> str | None:
        return self.not_running

    def warnings(self) -> Sequence[str]:
        return self.warned

    def owed(self, tenant: str) -> int:
        return self.shelves[tenant]

    def owes(self, tenant: str) -> bool:
        return self.shelves[tenant] > 0

    def owed_told(self, tenant: str) -> str | None:
        return f"what follows {self.owed(tenant)} jobs of {tenant} waits" if self.owes(tenant) else None

    def settled(self, where: Collection[int]) -> bool:
        return self.calm

    def daemons(self) -> Sequence[Peer]:
        return self.peers

    def sharers(self) -> list[str]:
        return ["fake"]

    def urls(self, peer: str | None, *, absent: bool = False) -> list[str]:
        return ["http://127.0.0.1:7420"]

    def posted(self, worker_id: str) -> int:
        return 0

    def seen(self, worker_id: str) -> Mapping[str, Seen]:
        return {"fake": self.views.get(worker_id, WELL)}

    async def in_hand(self, sysid: str) -> int | None:
        await trio.lowlevel.checkpoint()
        return self.held.get(sysid, 0)

    def stats(self) -> Mapping[str, object]:
        return {"daemon": "fake", "uptime_s": 1.5}

    async def wait_caught_up(self, lane: Lane, position: int, timeout_s: float, where: Collection[int]) -> bool:
        await trio.lowlevel.checkpoint()
        if self.applies:
            self._journal.read_points[lane] = position
            if lane in self.on_apply:
                self.on_apply[lane]()
        return self.applies

    @contextmanager
    def heard(self, hear: Callable[[Sequence[Row]], None]) -> Iterator[None]:
        self.ears.append(hear)
        try:
            yield
        finally:
            self.ears.remove(hear)

    @contextmanager
    def ended(self, job_id: str) -> Iterator[trio.Event]:
        self.waiters[job_id] += 1
        try:
            with self.endings.waiting(job_id) as bell:
                yield bell
        finally:
            self.waiters[job_id] -= 1

    def entered(self, job_ids: Sequence[str], jobs: Sequence[NewJob], tenant: str = "") -> None:
        self.acknowledged.append((job_ids, jobs))


def outcome(job_id: str, **fields: Any) -> Outcome:
    """An attempt that ended."""
    given: dict[str, Any] = {"fence": 1, "fate": Fate.RETRY, "jobtype": "mail", "priority": 0, "attempt": 1}
    return Outcome(job_id=job_id, **{**given, **fields})
