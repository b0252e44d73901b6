"""The store in dicts, held to the same contract as the real one (`tests/contract`).

store = FakeStore(clock)
store.away = "cable pulled"      # every method raises StoreAway until it is None again
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from jqd.store import (
    CALL_JOBS_MAX,
    Ends,
    JobView,
    OnItsWay,
    Owner,
    Promoted,
    StoreStats,
    Suspects,
    Told,
    WaitingType,
    codec,
)
from jqd.testing.looks import FakeLooks
from jqd.testing.members import Entry, Tries
from jqd.words.errors import PositionMismatch
from jqd.words.job import NIL, Fate, Held, Job, Outcome, Wanted
from jqd.words.jobid import journal_number
from jqd.words.record import Lane, split_cancel


class FakeStore(FakeLooks):
    """One client of a store. `jqd.store.Store` says what each method promises."""

    # ------------------------------------------------------------ journal → store

    async def apply_jobs(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> None:
        await self._apply(Lane.JOBS, journal_id, start, end, jobs)

    async def apply_changes(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> None:
        await self._apply(Lane.CHANGES, journal_id, start, end, jobs)

    async def _apply(self, lane: Lane, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> None:
        await self._answer()
        if not self._advance(journal_id, lane, start, end, len(jobs)):
            return
        for job in jobs:
            if job.change is None and job.id not in self._data.entries and not self._was_here(journal_id, job):
                self._data.entries[job.id] = self._placed(msgspec.structs.replace(job, copied=None))
        for job in jobs:
            if job.change is not None and (job.id in self._data.entries or not self._was_here(journal_id, job)):
                self._apply_change(job, job.change)
        number = journal_number(journal_id)
        if lane is not Lane.JOBS:
            return
        ours = (job.id for job in jobs if job.change is None or codec.journal_of(job.id) == number)
        self._data.last[number] = max(self._data.last.get(number, ""), codec.newest_id(ours))

    def _placed(self, job: Job) -> Entry:
        if (early := self._data.early.pop(job.id, None)) is not None:
            self._data.notes.pop(("r", job.id), None)
            return Entry(job, "held", early[1], early[0])
        notes = {letter: self._data.notes.pop((letter, job.id), None) for letter in "sdcr"}
        due_ms = max(job.eligible_at_ms, notes["r"] or 0)
        if notes["s"] is not None:
            return Entry(job, "ended", notes["s"])
        if notes["d"] is not None:
            return Entry(job, "dead", notes["d"])
        if notes["c"] is not None:
            self._data.outcomes[job.id] = None
            self._data.cancelled.add(job.id)
            return Entry(job, "ended", self._now_ms())
        return Entry(job, "later", due_ms) if due_ms > self._now_ms() else Entry(job, "ready", job.priority)

    async def apply_outcomes(self, journal_id: str, start: int, end: int, outcomes: Sequence[Outcome]) -> list[str]:
        await self._answer()
        if not self._advance(journal_id, Lane.OUTCOMES, start, end, len(outcomes)):
            return []
        stale = [one.job_id for one in outcomes if not self._settle(one)]
        for one in outcomes:
            self._data.asked.pop(one.job_id, None)
        return stale

    def _settle(self, one: Outcome) -> bool:
        """Whether the outcome changed anything."""
        entry = self._data.entries.get(one.job_id)
        if entry is None:
            early = self._data.early.get(one.job_id)
            if early is not None and early[1] != one.fence and one.fate is not Fate.SUCCEEDED:
                return False
            noted = self._note(one)
            if noted:
                self._data.early.pop(one.job_id, None)
            return noted
        if entry.place == "held" and entry.score == one.fence:
            if self._began(one.job_id) > one.meant_for:
                self._put_back(entry, None)
                return False
            if one.fate is Fate.RETRY:
                self._fail(one)
                last = msgspec.structs.replace(one, result=NIL)
                self._put_back(entry, self._now_ms() + one.delay_ms if one.delay_ms else None, last)
            else:
                self._finish(one, entry)
        elif self._beats_cancel(one, entry):
            self._data.cancelled.discard(one.job_id)
            entry.score = self._keep(one)
        elif (
            entry.place in ("ended", "dead") or not self._counts(one, entry) or self._began(one.job_id) > one.meant_for
        ):
            self._note_late_end(one, entry)
            return False
        elif one.fate is Fate.RETRY:
            self._fail(one)
        else:
            self._finish(one, entry)
        return True

    def _beats_cancel(self, one: Outcome, entry: Entry) -> bool:
        """A success did run: it beats the cancel that ended its job, in whatever order both come."""
        ended_so = entry.place == "ended" and one.job_id in self._data.cancelled
        return ended_so and one.fate is Fate.SUCCEEDED and self._began(one.job_id) <= one.meant_for

    def _counts(self, one: Outcome, entry: Entry) -> bool:
        """A success did run; any outcome counts of a claim the store has forgotten, unless it knows a later one."""
        later = entry.place == "held" and entry.score > one.fence
        return one.fate is Fate.SUCCEEDED or (self._is_forgotten(one.fence) and not later)

    def _finish(self, one: Outcome, entry: Entry) -> None:
        asked = self._data.notes.pop(("c", one.job_id), None) is not None
        cancelled = asked and one.fate is not Fate.SUCCEEDED
        place = "dead" if one.fate is Fate.DEAD and not cancelled else "ended"
        entry.place, entry.score, entry.sysid = place, self._keep(one), ""
        if cancelled:
            self._data.cancelled.add(one.job_id)

    def _keep(self, one: Outcome) -> int:
        place = self._now_ms()  # among the ended: with a kept result, as if it ended when that is dropped
        if one.fate is Fate.SUCCEEDED and one.keep_result:
            place += round(self._config.result_ttl_s * 1000)
            self._data.results[one.job_id] = one.result, place
        self._data.outcomes[one.job_id] = msgspec.structs.replace(one, result=NIL)
        return place

    def _fail(self, one: Outcome) -> None:
        tries = self._data.tries.setdefault(one.job_id, Tries())
        tries.count = max(tries.count + 1, one.attempt)
        tries.kept = [*tries.kept, msgspec.structs.replace(one, result=NIL)][-self._config.history_max :]

    def _note(self, one: Outcome) -> bool:
        if ("s", one.job_id) in self._data.notes or ("d", one.job_id) in self._data.notes:
            self._note_late_end(one, None)
            return False
        if one.fate is Fate.RETRY:
            self._fail(one)
            self._data.notes["r", one.job_id] = self._now_ms() + one.delay_ms
        else:
            self._data.notes["d" if one.fate is Fate.DEAD else "s", one.job_id] = self._keep(one)
        return True

    async def apply_cancels(self, journal_id: str, start: int, end: int, job_ids: Sequence[str]) -> None:
        await self._answer()
        if not self._advance(journal_id, Lane.CANCELS, start, end, len(job_ids)):
            return
        for record in job_ids:
            self._cancel(*split_cancel(record))

    def _cancel(self, job_id: str, generation: int) -> None:
        if self._began(job_id) > generation:
            return
        if generation > self._data.cancelled_to.get(job_id, 0):
            self._data.cancelled_to[job_id] = generation
        self._data.fence = max(self._data.fence, generation)
        entry = self._data.entries.get(job_id)
        holder = self._data.early[job_id][0] if job_id in self._data.early else entry.sysid if entry else ""
        if holder:
            self._data.asked[job_id] = holder
        if entry is None or entry.place == "held":
            self._data.notes["c", job_id] = self._now_ms()
        elif entry.place in ("ready", "later"):
            self._end_cancelled(entry)

    async def applied(self, journal_id: str) -> dict[Lane, int]:
        await self._answer()
        self._expect_life()
        self._data.last.setdefault(journal_number(journal_id), "")
        self._data.kept.setdefault(journal_id, Told(0, self._now_ms() * 1000))
        return {lane: self._data.positions.get((journal_id, lane), 0) for lane in Lane}

    async def skip(self, journal_id: str, lane: Lane, start: int, end: int, *, gone: bool = False) -> None:
        await self._answer()
        if self._advance(journal_id, lane, start, end, 0) and gone:
            self._data.gone.setdefault(journal_id, []).append((start, end))

    def _was_here(self, journal_id: str, job: Job) -> bool:
        """Whether this life had the job where it was copied from: then a missing one has ended and was deleted."""
        ranges = self._data.gone.get(journal_id, [])
        return any(not any(low <= at < high for low, high in ranges) for at in job.copied or ())

    def _advance(self, journal_id: str, lane: Lane, start: int, end: int, records: int) -> bool:
        assert 0 <= start <= end, f"positions {start} to {end} run backwards"
        _bound(records)
        self._journals.add(journal_number(journal_id))
        stored = self._data.positions.get((journal_id, lane), 0)
        if stored not in (start, end):
            raise PositionMismatch(f"the store has applied this journal up to {stored}", stored=stored)
        self._data.positions[journal_id, lane] = end
        return stored == start

    # ------------------------------------------------------------ store → runner

    async def get_waiting_jobtypes(self, wanted: Sequence[Wanted], limit: int) -> list[WaitingType]:
        await self._answer()
        found: dict[str, list[tuple[int, str]]] = {}
        waiting = Counter(entry.job.jobtype for entry in self._data.entries.values() if entry.place == "ready")
        for entry in self._data.entries.values():
            if entry.place == "ready" and any(_is_meant(wish, entry.job.jobtype, entry.score) for wish in wanted):
                found.setdefault(entry.job.jobtype, []).append((entry.score, entry.job.id))
        best = sorted((min(jobs), jobtype, waiting[jobtype]) for jobtype, jobs in found.items())
        rows = [
            WaitingType(jobtype, head[0], head[1], count, self._is_suspect(head[1])) for head, jobtype, count in best
        ]
        return rows[: max(0, limit)]

    async def get_waiting_jobs(
        self,
        owner: Owner,
        jobtype: str,
        limit: int,
        *,
        priority_min: int,
        priority_max: int,
        bytes_max: int,
        suspects: Suspects = Suspects.ALONE,
    ) -> list[Held]:
        await self._answer()
        if limit < 1:
            return []
        self._own(owner)
        if not self._is_life() or not self._all_through() or self._runs_alone(owner.sysid):
            return []
        ready = sorted(
            (entry for entry in self._data.entries.values() if entry.place == "ready" and entry.job.jobtype == jobtype),
            key=lambda entry: (entry.score, entry.job.id),
        )
        ready = [entry for entry in ready if priority_min <= entry.score <= priority_max][:limit]
        ready = self._apart(owner.sysid, ready, suspects)
        taken: list[Held] = []
        size = 0
        fence = self._next_fence() if ready else 0
        for entry in ready:
            size += len(codec.encode_job(entry.job))
            if taken and size > bytes_max:
                break
            entry.place, entry.score, entry.sysid = "held", fence, owner.sysid
            taken.append(self._held(entry))
        return taken

    def _held(self, entry: Entry) -> Held:
        tries = self._data.tries.get(entry.job.id)
        return Held(entry.job, entry.score, (tries.count if tries else 0) + 1, self._began(entry.job.id))

    async def promote(self, limit: int) -> Promoted:
        await self._answer()
        now_ms = self._now_ms()
        later = sorted(
            (entry for entry in self._data.entries.values() if entry.place == "later"),
            key=lambda entry: (entry.score, entry.job.id),
        )
        due = [entry for entry in later if entry.score <= now_ms][:limit]
        for entry in due:
            self._put_back(entry, None)
        rest = later[len(due) :]
        return Promoted(len(due), max(0, rest[0].score - now_ms) if rest else None)

    # ------------------------------------------------------------ looking and cleaning

    async def get_job(self, job_id: str) -> JobView | OnItsWay | None:
        await self._answer()
        self._expect_life()
        entry = self._data.entries.get(job_id)
        if entry is None:
            number = codec.journal_of(job_id)
            if job_id in self._data.early:
                return OnItsWay(self._data.last.get(-1 if number is None else number, ""), held=True)
            if number is None:
                return None
            return codec.on_its_way(job_id, self._data.last.get(number, "" if number in self._journals else None))
        if self._awaits_newer(entry):
            return OnItsWay("", held=entry.place == "held")
        return self._view(entry)

    async def drop_result(self, job_id: str) -> None:
        await self._answer()
        self._data.results.pop(job_id, None)

    async def purge(self, limit: int) -> int:
        await self._answer()
        now_ms, config = self._now_ms(), self._config
        results = sorted((at, job_id) for job_id, (_, at) in self._data.results.items() if at <= now_ms)[:limit]
        for _, job_id in results:
            del self._data.results[job_id]
        old_ms = now_ms - config.tombstone_keep_s * 1000
        return len(results) + self._purge_ended(limit) + self._purge_notes(limit, old_ms)

    def _purge_ended(self, limit: int) -> int:
        old_ms = self._now_ms() - self._config.ended_keep_s * 1000
        ended = sorted((e.score, job_id) for job_id, e in self._data.entries.items() if e.place == "ended")
        over = len(ended) - self._config.ended_keep_jobs
        old = [job_id for rank, (at, job_id) in enumerate(ended) if rank < over or at <= old_ms][:limit]
        gone = self._deletable([job_id for job_id in old if job_id not in self._data.results])
        self._delete(gone)
        return len(gone)

    def _purge_notes(self, limit: int, old_ms: float) -> int:
        old = sorted((at, note) for note, at in self._data.notes.items() if at <= old_ms)[:limit]
        here = self._data.entries.keys() | self._data.early.keys()
        gone = [note for _, note in old if note[0] in "nz" or note[1] not in here]
        for letter, job_id in gone:
            del self._data.notes[letter, job_id]
            if letter == "r":
                self._data.tries.pop(job_id, None)
            elif letter == "c":
                self._data.cancelled_to.pop(job_id, None)
            elif letter == "n":
                self._give_up(job_id)
            elif letter == "z":
                self._data.late.pop(job_id, None)
            elif letter in "sd":
                self._data.outcomes.pop(job_id, None)
                self._data.results.pop(job_id, None)
        return len(gone)

    async def stats(self) -> StoreStats:
        await self._answer()
        lie = [entry.place for entry in self._data.entries.values()]
        types = len({entry.job.jobtype for entry in self._data.entries.values() if entry.place == "ready"})
        return StoreStats(
            waiting=lie.count("ready"),
            scheduled=lie.count("later"),
            running=lie.count("held"),
            ended=lie.count("ended"),
            dead=lie.count("dead"),
            types=types,
            used_memory=0,
        )

    async def unfinished(self, job_ids: Sequence[str], *, dead: bool = False) -> list[str]:
        _bound(len(job_ids))
        if not job_ids:
            return []
        await self._answer()
        self._expect_life()
        alive = ("ready", "later", "held", *(["dead"] if dead else []))
        return [i for i in job_ids if i in self._data.entries and self._data.entries[i].place in alive]

    async def get_ends(self, job_ids: Sequence[str]) -> Ends:
        await self._answer()
        self._expect_life()
        found = Ends([], {}, [])
        for job_id in job_ids:
            entry, outcome = self._data.entries.get(job_id), self._data.outcomes.get(job_id)
            if entry is None or job_id in self._data.cancelled:
                found.gone.append(job_id)
            elif entry.place in ("ended", "dead"):
                if outcome is not None:
                    generation = outcome.generation or (self._began(job_id) if outcome.reason == "crash" else 0)
                    told = msgspec.structs.replace(outcome, generation=generation, keep_result=False)
                    found.outcomes.append(told)
            elif ("c", job_id) in self._data.notes:
                found.asked[job_id] = self._data.cancelled_to.get(job_id, 0)
        return found


def _is_meant(wish: Wanted, jobtype: str, priority: int) -> bool:
    named = wish.jobtype == jobtype or (wish.jobtype is None and jobtype not in wish.besides)
    return named and wish.priority_min <= priority <= wish.priority_max


def _bound(records: int) -> None:
    if records > CALL_JOBS_MAX:
        raise ValueError(f"{records} records in one call; {CALL_JOBS_MAX} at most")
