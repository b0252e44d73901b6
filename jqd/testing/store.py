"""The store in dicts, held to the same contract as the real one (`tests/contract`).

store = FakeStore(clock)
store.away = "cable pulled"      # every method raises StoreAway until it is None again
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import trio

from jqd.clock import Clock
from jqd.errors import PositionMismatch, StaleOwner, StoreAway, SysidTaken
from jqd.job import NIL, Fate, Held, Job, Outcome
from jqd.jobid import journal_number
from jqd.record import Lane
from jqd.store import (
    Identity,
    JobView,
    Member,
    OnItsWay,
    Owner,
    Promoted,
    StoreConfig,
    StoreStats,
    WaitingType,
    codec,
)
from jqd.store.interface import CALL_JOBS_MAX


@dataclass(slots=True)
class _Entry:
    """A job and where it lies: in the set `place`, at `score` (priority, date or fence), perhaps in a hand."""

    job: Job
    place: str
    score: int
    sysid: str = ""


@dataclass(slots=True)
class _Tries:
    count: int = 0
    kept: list[Outcome] = field(default_factory=list)


class FakeStore:
    """Time comes from `clock` alone. `jqd.store.Store` says what each method promises."""

    def __init__(self, clock: Clock, config: StoreConfig | None = None) -> None:
        self.away: str | None = None
        self._clock = clock
        self._config = config or StoreConfig(url="redis://fake")
        self._life = 0
        self._journals: set[int] = set()
        self.wipe()

    def wipe(self) -> None:
        """Lose everything, as a server without its files does."""
        self._life += 1
        self._entries: dict[str, _Entry] = {}
        self._tries: dict[str, _Tries] = {}
        self._outcomes: dict[str, Outcome | None] = {}  # None: cancelled
        self._results: dict[str, tuple[bytes, int]] = {}
        self._notes: dict[tuple[str, str], int] = {}  # letter (as in lua/include/move.lua), id → when
        self._positions: dict[tuple[str, Lane], int] = {}
        self._last: dict[int, str] = {}
        self._members: dict[str, Member] = {}
        self._fence = 0

    # ------------------------------------------------------------ journal → store

    async def apply_jobs(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> None:
        await self._answer()
        if not self._advance(journal_id, Lane.JOBS, start, end, len(jobs)):
            return
        for job in jobs:
            if job.id not in self._entries:
                self._entries[job.id] = self._placed(job)
        number = journal_number(journal_id)
        self._last[number] = max(self._last.get(number, ""), codec.newest_id(job.id for job in jobs))

    def _placed(self, job: Job) -> _Entry:
        notes = {letter: self._notes.pop((letter, job.id), None) for letter in "sdcr"}
        due_ms = max(job.eligible_at_ms, notes["r"] or 0)
        if notes["s"] is not None:
            return _Entry(job, "ended", notes["s"])
        if notes["d"] is not None:
            return _Entry(job, "dead", notes["d"])
        if notes["c"] is not None:
            self._outcomes[job.id] = None
            return _Entry(job, "ended", self._now_ms())
        return _Entry(job, "later", due_ms) if due_ms > self._now_ms() else _Entry(job, "ready", job.priority)

    async def apply_outcomes(self, journal_id: str, start: int, end: int, outcomes: Sequence[Outcome]) -> list[str]:
        await self._answer()
        if not self._advance(journal_id, Lane.OUTCOMES, start, end, len(outcomes)):
            return []
        return [one.job_id for one in outcomes if not self._settle(one)]

    def _settle(self, one: Outcome) -> bool:
        """Whether the outcome changed anything."""
        entry = self._entries.get(one.job_id)
        if entry is None:
            return self._note(one)
        if entry.place == "held" and entry.score == one.fence:
            if one.fate is Fate.RETRY:
                self._fail(one)
                self._put_back(entry, self._now_ms() + one.delay_ms if one.delay_ms else None)
            else:
                self._finish(one, entry)
        elif one.fate is Fate.SUCCEEDED and entry.place not in ("ended", "dead"):
            self._finish(one, entry)
        else:
            return False
        return True

    def _finish(self, one: Outcome, entry: _Entry) -> None:
        entry.place, entry.score, entry.sysid = "dead" if one.fate is Fate.DEAD else "ended", self._keep(one), ""
        self._notes.pop(("c", one.job_id), None)

    def _keep(self, one: Outcome) -> int:
        place = self._now_ms()  # among the ended: with a kept result, as if it ended when that is dropped
        if one.fate is Fate.SUCCEEDED and one.keep_result:
            place += round(self._config.result_ttl_s * 1000)
            self._results[one.job_id] = one.result, place
        self._outcomes[one.job_id] = msgspec.structs.replace(one, result=NIL)
        return place

    def _fail(self, one: Outcome) -> None:
        tries = self._tries.setdefault(one.job_id, _Tries())
        tries.count = max(tries.count + 1, one.attempt)
        tries.kept = [*tries.kept, msgspec.structs.replace(one, result=NIL)][-self._config.history_max :]

    def _note(self, one: Outcome) -> bool:
        if ("s", one.job_id) in self._notes or ("d", one.job_id) in self._notes:
            return False
        if one.fate is Fate.RETRY:
            self._fail(one)
            self._notes["r", one.job_id] = self._now_ms() + one.delay_ms
        else:
            self._notes["d" if one.fate is Fate.DEAD else "s", one.job_id] = self._keep(one)
        return True

    def _put_back(self, entry: _Entry, due_ms: int | None) -> None:
        """Out of a hand, not ended: cancelled when that was asked for, else ready or later."""
        entry.sysid = ""
        if self._notes.pop(("c", entry.job.id), None) is not None:
            self._outcomes[entry.job.id] = None
            entry.place, entry.score = "ended", self._now_ms()
        elif due_ms is not None:
            entry.place, entry.score = "later", due_ms
        else:
            entry.place, entry.score = "ready", entry.job.priority

    async def apply_cancels(self, journal_id: str, start: int, end: int, job_ids: Sequence[str]) -> None:
        await self._answer()
        if not self._advance(journal_id, Lane.CANCELS, start, end, len(job_ids)):
            return
        for job_id in job_ids:
            entry = self._entries.get(job_id)
            if entry is None or entry.place == "held":
                self._notes["c", job_id] = self._now_ms()
            elif entry.place in ("ready", "later"):
                self._outcomes[job_id] = None
                entry.place, entry.score = "ended", self._now_ms()

    async def applied(self, journal_id: str) -> dict[Lane, int]:
        await self._answer()
        self._last.setdefault(journal_number(journal_id), "")
        return {lane: self._positions.get((journal_id, lane), 0) for lane in Lane}

    async def skip(self, journal_id: str, lane: Lane, start: int, end: int) -> None:
        await self._answer()
        self._advance(journal_id, lane, start, end, 0)

    def _advance(self, journal_id: str, lane: Lane, start: int, end: int, records: int) -> bool:
        assert 0 <= start <= end, f"positions {start} to {end} run backwards"
        if records > CALL_JOBS_MAX:
            raise ValueError(f"{records} records in one call; {CALL_JOBS_MAX} at most")
        self._journals.add(journal_number(journal_id))
        stored = self._positions.get((journal_id, lane), 0)
        if stored not in (start, end):
            raise PositionMismatch(f"the store has applied this journal up to {stored}", stored=stored)
        self._positions[journal_id, lane] = end
        return stored == start

    # ------------------------------------------------------------ store → runner

    async def get_waiting_jobtypes(self, jobtypes: Sequence[str] | None, limit: int) -> list[WaitingType]:
        await self._answer()
        found: dict[str, list[tuple[int, str]]] = {}
        for entry in self._entries.values():
            if entry.place == "ready" and (jobtypes is None or entry.job.jobtype in jobtypes):
                found.setdefault(entry.job.jobtype, []).append((entry.score, entry.job.id))
        best = sorted((min(jobs), jobtype, len(jobs)) for jobtype, jobs in found.items())
        return [WaitingType(jobtype, head[0], head[1], waiting) for head, jobtype, waiting in best][: max(0, limit)]

    async def get_waiting_jobs(
        self, owner: Owner, jobtype: str, limit: int, *, priority_min: int, priority_max: int, bytes_max: int
    ) -> list[Held]:
        await self._answer()
        if limit < 1:
            return []
        self._own(owner)
        ready = sorted(
            (entry for entry in self._entries.values() if entry.place == "ready" and entry.job.jobtype == jobtype),
            key=lambda entry: (entry.score, entry.job.id),
        )
        ready = [entry for entry in ready if priority_min <= entry.score <= priority_max]
        taken: list[Held] = []
        size = 0
        fence = self._next_fence() if ready else 0
        for entry in ready[:limit]:
            size += len(codec.encode_job(entry.job))
            if taken and size > bytes_max:
                break
            entry.place, entry.score, entry.sysid = "held", fence, owner.sysid
            taken.append(self._held(entry))
        return taken

    def _held(self, entry: _Entry) -> Held:
        tries = self._tries.get(entry.job.id)
        return Held(entry.job, entry.score, (tries.count if tries else 0) + 1)

    async def get_held(self, owner: Owner) -> list[Held]:
        await self._answer()
        self._own(owner)
        ours = [e for e in self._entries.values() if e.place == "held" and e.sysid == owner.sysid]
        return [self._held(entry) for entry in sorted(ours, key=lambda e: (e.score, e.job.id))]

    async def release_jobs(self, owner: Owner, held: Sequence[Held]) -> None:
        await self._answer()
        if held:
            self._own(owner)
        for one in held:
            entry = self._entries.get(one.job.id)
            if entry and entry.place == "held" and entry.sysid == owner.sysid and entry.score == one.fence:
                self._put_back(entry, None)

    async def promote(self, limit: int) -> Promoted:
        await self._answer()
        now_ms = self._now_ms()
        later = sorted(
            (entry for entry in self._entries.values() if entry.place == "later"),
            key=lambda entry: (entry.score, entry.job.id),
        )
        due = [entry for entry in later if entry.score <= now_ms][:limit]
        for entry in due:
            self._put_back(entry, None)
        rest = later[len(due) :]
        return Promoted(len(due), max(0, rest[0].score - now_ms) if rest else None)

    # ------------------------------------------------------------ members

    async def reserve_sysid(self, sysid: str, previous_epoch_dead: bool) -> Owner:
        await self._answer()
        member = self._members.get(sysid)
        if member and member.epoch and not previous_epoch_dead:
            raise SysidTaken(f"another living daemon uses the sysid {sysid} (epoch {member.epoch})")
        epoch = self._next_fence()
        counter = max((member.counter if member else 0) + 1, self._now_ms() * 1000)
        self._members[sysid] = Member(counter, epoch)
        self._give_back(sysid, None)
        return Owner(sysid, epoch)

    async def renew_sysid(self, owner: Owner) -> dict[str, Member]:
        await self._answer()
        self._own(owner)
        counter = max(self._members[owner.sysid].counter + 1, self._now_ms() * 1000)
        self._members[owner.sysid] = Member(counter, owner.epoch)
        return dict(self._members)

    async def release_sysid(self, owner: Owner) -> None:
        await self._answer()
        member = self._members.get(owner.sysid)
        if member is None:
            return
        if member.epoch not in (0, owner.epoch):
            raise StaleOwner(f"epoch {owner.epoch} of {owner.sysid} was burnt; present: {member.epoch}")
        self._give_back(owner.sysid, None)
        del self._members[owner.sysid]

    async def reap(self, sysid: str, member: Member, limit: int) -> int:
        await self._answer()
        present = self._members.get(sysid)
        if present is None or (present.epoch != 0 and present != member):
            return 0
        self._members[sysid] = Member(present.counter, 0)
        moved = self._give_back(sysid, limit)
        if not moved:
            del self._members[sysid]
        return moved

    def _give_back(self, sysid: str, limit: int | None) -> int:
        held = [entry for entry in self._entries.values() if entry.place == "held" and entry.sysid == sysid]
        held = sorted(held, key=lambda entry: (entry.score, entry.job.id))[:limit]
        for entry in held:
            self._put_back(entry, None)
        return len(held)

    # ------------------------------------------------------------ looking and cleaning

    async def get_job(self, job_id: str) -> JobView | OnItsWay | None:
        await self._answer()
        entry = self._entries.get(job_id)
        if entry is None:
            number = codec.journal_of(job_id)
            if number is None:
                return None
            return codec.on_its_way(job_id, self._last.get(number, "" if number in self._journals else None))
        tries = self._tries.get(job_id, _Tries())
        return codec.job_view(
            entry.job,
            entry.place,
            entry.score,
            daemon=entry.sysid,
            failed=tries.count,
            history=list(tries.kept),
            outcome=self._outcomes.get(job_id),
            cancelled=job_id in self._outcomes and self._outcomes[job_id] is None,
            cancel_asked=("c", job_id) in self._notes,
            result=self._results[job_id][0] if job_id in self._results else None,
        )

    async def drop_result(self, job_id: str) -> None:
        await self._answer()
        self._results.pop(job_id, None)

    async def purge(self, limit: int) -> int:
        await self._answer()
        now_ms, config = self._now_ms(), self._config
        results = sorted((at, job_id) for job_id, (_, at) in self._results.items() if at <= now_ms)[:limit]
        for _, job_id in results:
            del self._results[job_id]
        old_ms = now_ms - config.tombstone_keep_s * 1000
        return len(results) + self._purge_ended(limit) + self._purge_notes(limit, old_ms)

    def _purge_ended(self, limit: int) -> int:
        old_ms = self._now_ms() - self._config.ended_keep_s * 1000
        ended = sorted((e.score, job_id) for job_id, e in self._entries.items() if e.place == "ended")
        over = len(ended) - self._config.ended_keep_jobs
        old = [job_id for rank, (at, job_id) in enumerate(ended) if rank < over or at <= old_ms][:limit]
        gone = [job_id for job_id in old if job_id not in self._results]
        for job_id in gone:
            del self._entries[job_id]
            for rows in (self._tries, self._outcomes, self._results):
                rows.pop(job_id, None)
        return len(gone)

    def _purge_notes(self, limit: int, old_ms: float) -> int:
        old = sorted((at, note) for note, at in self._notes.items() if at <= old_ms)[:limit]
        gone = [note for _, note in old if note[1] not in self._entries]
        for letter, job_id in gone:
            del self._notes[letter, job_id]
            if letter == "r":
                self._tries.pop(job_id, None)
            elif letter in "sd":
                self._outcomes.pop(job_id, None)
                self._results.pop(job_id, None)
        return len(gone)

    async def stats(self) -> StoreStats:
        await self._answer()
        lie = [entry.place for entry in self._entries.values()]
        types = len({entry.job.jobtype for entry in self._entries.values() if entry.place == "ready"})
        return StoreStats(
            waiting=lie.count("ready"),
            scheduled=lie.count("later"),
            running=lie.count("held"),
            ended=lie.count("ended"),
            dead=lie.count("dead"),
            types=types,
            used_memory=0,
        )

    async def identity(self) -> Identity:
        await self._answer()
        return Identity(f"fake-{self._life}", f"fake-{self._life}", "master")

    # ------------------------------------------------------------ shared

    async def _answer(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.away is not None:
            raise StoreAway(f"the store does not answer: {self.away}")

    def _now_ms(self) -> int:
        return self._clock.wall_ms()

    def _own(self, owner: Owner) -> None:
        member = self._members.get(owner.sysid)
        if member is None or member.epoch != owner.epoch:
            raise StaleOwner(f"epoch {owner.epoch} of {owner.sysid} was burnt")

    def _next_fence(self) -> int:
        self._fence = max(self._fence + 1, self._now_ms() * 1000)
        return self._fence
