"""Part of the fake store: names, and contents of jobs that the store agreed to."""

from collections.abc import Sequence

import msgspec

from jqd.store import EditGiven, NameGiven, NameJournaled, NameWanted, Standing, Suspects, Verdict
from jqd.testing.members import SUSPECT_DEATHS, Entry, FakeMembers, Name, Tries
from jqd.words.errors import StoreUnsettled
from jqd.words.job import NIL, Change, Fate, Job, Outcome


class FakeChanges(FakeMembers):
    """What `lua/include/change.lua` does, in dicts."""

    async def reserve_names(self, wanted: Sequence[NameWanted]) -> list[NameGiven]:
        """See Store."""
        await self._answer()
        self._expect_settled()
        return [self._name(one) for one in wanted]

    def _name(self, one: NameWanted) -> NameGiven:
        row = self._data.names.get(one.name)
        verdict = self._verdict(row, one)
        job_id = row.job_id if row else one.job_id
        if verdict in (Verdict.DUPLICATE, Verdict.CONFLICT):
            return NameGiven(verdict, job_id, 0)
        again = verdict is Verdict.NEW and row is not None and row.digest == one.digest
        again = again and row is not None and self._data.cancelled_to.get(job_id, 0) < row.revision
        revision = row.revision if again and row is not None else self._next_fence()
        if verdict is Verdict.NEW:
            until_ms = self._now_ms() + round(self._config.name_reserve_s * 1000)
            self._data.names[one.name] = Name(revision, job_id, until_ms, one.digest)
            self._data.notes["n", one.name] = self._now_ms()
        else:
            self._await_change(job_id, revision)
        return NameGiven(verdict, job_id, revision)

    def _verdict(self, row: Name | None, one: NameWanted) -> Verdict:
        if row is None:
            return Verdict.NEW
        if one.replace:
            return Verdict.REPLACE
        if row.digest == one.digest:
            return Verdict.NEW if row.until_ms else Verdict.DUPLICATE
        return Verdict.CONFLICT if not row.until_ms or row.until_ms > self._now_ms() else Verdict.NEW

    async def confirm_names(self, journaled: Sequence[NameJournaled]) -> list[Standing]:
        """See Store."""
        await self._answer()
        self._expect_life()
        return [self._stands(one) for one in journaled]

    def _stands(self, one: NameJournaled) -> Standing:
        row = self._data.names.get(one.name)
        if one.replaces and self._is_overtaken(one):
            return Standing.OVERTAKEN
        same = row is not None and (row.job_id, row.digest) == (one.job_id, one.digest)
        if same and row is not None and row.revision == one.revision and not row.until_ms:
            return Standing.STANDS  # it is applied already
        if row is None or row.revision <= one.revision or (same and row.until_ms):
            self._data.names[one.name] = Name(one.revision, one.job_id, 0, one.digest)
            self._data.notes["n", one.name] = self._now_ms()
            return Standing.STANDS
        return Standing(row.job_id == one.job_id and not row.until_ms and (same or one.replaces))

    def _is_overtaken(self, one: NameJournaled) -> bool:
        late = self._now_ms() - one.revision // 1000 > round(self._config.name_reserve_s * 1000)
        given, _ = self._data.awaited.get(one.job_id, (0, 0))
        return late and max(given, self._data.generations.get(one.job_id, (0, 0, False))[0]) > one.revision

    def _give_up(self, name: str) -> None:
        """A content that never came: the name is free, or stands for the older content again."""
        row = self._data.names.get(name)
        entry = self._data.entries.get(row.job_id) if row else None
        if row is not None and entry is None:
            del self._data.names[name]
        elif row is not None and entry is not None and self._awaits_newer(entry):
            revision, _, _ = self._data.generations.get(row.job_id, (0, 0, False))
            self._data.names[name] = Name(revision, row.job_id, 0, "")

    def _awaits_newer(self, entry: Entry) -> bool:
        """Whether a later content was acknowledged under its name, and is on its way."""
        row = self._data.names.get(entry.job.name)
        revision, _, _ = self._data.generations.get(entry.job.id, (0, 0, False))
        return row is not None and row.job_id == entry.job.id and not row.until_ms and row.revision > revision

    async def reserve_change(self, job_id: str) -> int:
        """See Store."""
        await self._answer()
        self._expect_life()
        return self._next_fence()

    async def reserve_edit(self, job_id: str, revision: int) -> EditGiven | None:
        """See Store."""
        await self._answer()
        self._expect_settled()
        entry = self._data.entries.get(job_id)
        present, _, _ = self._data.generations.get(job_id, (0, 0, False))
        awaited, until_ms = self._data.awaited.get(job_id, (0, 0))
        about = awaited > present and until_ms > self._now_ms()
        if entry is None or present != revision or about or self._awaits_newer(entry):
            return None
        given = self._next_fence()
        self._await_change(job_id, given)
        return EditGiven(given, self._data.life)

    def _await_change(self, job_id: str, revision: int) -> None:
        self._data.awaited[job_id] = revision, self._now_ms() + round(self._config.name_reserve_s * 1000)

    def _expect_settled(self) -> None:
        self._expect_life()
        if self._data.settled != self._identity or not self._all_through():
            raise StoreUnsettled("the daemons are telling the store what it forgot; how jobs stand it knows only then")

    async def resolve(self, name: str) -> str | None:
        """See Store."""
        await self._answer()
        self._expect_life()
        row = self._data.names.get(name)
        if row is None:
            self._expect_settled()
        return row.job_id if row else None

    def _began(self, job_id: str) -> int:
        """The generation of a job's content."""
        return self._data.generations.get(job_id, (0, 0, False))[1]

    def _apply_change(self, job: Job, change: Change) -> None:
        self._data.fence = max(self._data.fence, change.revision)
        entry = self._data.entries.get(job.id)
        revision, generation, _ = self._data.generations.get(job.id, (0, 0, False))
        if (revision >= change.revision) if entry is not None else self._is_over(change):
            self._forget_awaited(job.id, change)
            return
        waits = True
        if job.name and not self._take_name(job, change):
            entry = entry or Entry(job, "ended", 0)
            self._end_cancelled(entry)
            waits = False
        elif entry is not None:
            waits = self._place_again(entry, job, change)
        else:
            entry = self._place_unseen(job, change)
        if change.generation > generation and (tries := self._data.tries.get(job.id)) is not None:
            tries.count = max((one.attempt for one in tries.kept if one.fence > change.generation), default=0)
        entry.job = msgspec.structs.replace(job, change=None, copied=None)
        self._data.entries[job.id] = entry
        self._data.generations[job.id] = change.revision, max(generation, change.generation), not waits
        self._forget_awaited(job.id, change)

    def _is_over(self, change: Change) -> bool:
        """Whether a job that is not here was, in this life, and is deleted: then its change begins nothing anew."""
        return bool(change.life) and change.life == self._data.life

    def _forget_awaited(self, job_id: str, change: Change) -> None:
        if self._data.awaited.get(job_id, (0, 0))[0] <= change.revision:
            self._data.awaited.pop(job_id, None)

    def _take_name(self, job: Job, change: Change) -> bool:
        row = self._data.names.get(job.name)
        if row is not None and row.revision > change.revision:
            return row.job_id == job.id
        if row is not None and row.job_id != job.id:
            other = self._data.entries.get(row.job_id)
            if other is not None and other.place in ("ready", "later"):
                self._end_cancelled(other)
        digest = change.digest or (row.digest if row else "")
        self._data.names[job.name] = Name(change.revision, job.id, 0, digest)
        self._data.notes.pop(("n", job.name), None)
        return True

    def _place_again(self, entry: Entry, job: Job, change: Change) -> bool:
        """Whether it waits now, in the place of what was."""
        if self._data.cancelled_to.get(job.id, 0) < change.generation:
            self._data.notes.pop(("c", job.id), None)
        if entry.place in ("ended", "dead"):
            if not self._end_stands(job.id, change) and not self._meets_late_end(entry, change):
                self._begin_anew(job.id)
                self._put(entry, job, change)
        elif entry.place != "held":
            self._put(entry, job, change)
        return entry.place in ("ready", "later")

    def _place_unseen(self, job: Job, change: Change) -> Entry:
        early = self._data.early.pop(job.id, None)
        if early is not None:
            self._data.notes.pop(("r", job.id), None)
            return Entry(job, "held", early[1], early[0])
        notes = {letter: self._data.notes.pop((letter, job.id), None) for letter in "sdcr"}
        ended = notes["s"] if notes["s"] is not None else notes["d"]
        entry = Entry(job, "ready", job.priority)
        if ended is not None and self._end_stands(job.id, change):
            entry.place, entry.score = "ended" if notes["s"] is not None else "dead", ended
        elif not self._meets_late_end(entry, change):
            if notes["c"] is not None and self._data.cancelled_to.get(job.id, 0) >= change.generation:
                self._end_cancelled(entry)
            else:
                if ended is not None:
                    self._begin_anew(job.id)
                self._put(entry, job, change)
        return entry

    def _note_late_end(self, one: Outcome, entry: Entry | None) -> None:
        if (entry is not None and entry.place not in ("ended", "dead")) or one.fate is Fate.RETRY:
            return
        last = self._data.outcomes.get(one.job_id)
        cancelled = one.job_id in self._data.cancelled
        known = self._data.cancelled_to.get(one.job_id, 0) if cancelled else last.meant_for if last else -1
        late = self._data.late.get(one.job_id)
        if one.meant_for > max(known, late.meant_for if late else known):
            self._data.late[one.job_id] = msgspec.structs.replace(one, result=NIL)
            self._data.notes["z", one.job_id] = self._now_ms()

    def _meets_late_end(self, entry: Entry, change: Change) -> bool:
        job_id = entry.job.id
        late = self._data.late.get(job_id)
        if late is None or late.meant_for < change.generation:
            return False
        self._forget_end(job_id)
        del self._data.late[job_id], self._data.notes["z", job_id]
        self._data.outcomes[job_id] = late
        entry.place, entry.score = "dead" if late.fate is Fate.DEAD else "ended", self._now_ms()
        return True

    def _put(self, entry: Entry, job: Job, change: Change) -> None:
        cancelled = self._data.cancelled_to.get(job.id, 0)
        if cancelled and cancelled >= change.generation:
            self._end_cancelled(entry)
            return
        due = job.eligible_at_ms > self._now_ms()
        entry.place, entry.score = ("later", job.eligible_at_ms) if due else ("ready", job.priority)

    def _end_stands(self, job_id: str, change: Change) -> bool:
        """Whether what ended the job was meant for this content or a later one."""
        if job_id in self._data.cancelled:
            return self._data.cancelled_to.get(job_id, 0) >= change.generation
        outcome = self._data.outcomes.get(job_id)
        if outcome is not None and outcome.reason == "crash" and not outcome.generation:
            return self._began(job_id) >= change.generation  # of the content that is here
        return outcome is not None and outcome.meant_for >= change.generation

    def _end_cancelled(self, entry: Entry) -> None:
        job_id = entry.job.id
        self._data.notes.pop(("c", job_id), None)
        self._data.outcomes[job_id] = None
        self._data.cancelled.add(job_id)
        entry.place, entry.score, entry.sysid = "ended", self._now_ms(), ""

    def _begin_anew(self, job_id: str) -> None:
        """The end of a content that another one takes the place of: if it failed, that stays in the job's history."""
        last = self._data.outcomes.get(job_id)
        self._forget_end(job_id)
        if last is not None and last.fence and last.fate in (Fate.FAILED, Fate.DEAD):
            tries = self._data.tries.setdefault(job_id, Tries())
            tries.count += 1
            tries.kept = [*tries.kept, last][-self._config.history_max :]

    def _forget_end(self, job_id: str) -> None:
        self._data.outcomes.pop(job_id, None)
        self._data.cancelled.discard(job_id)
        self._data.results.pop(job_id, None)

    # ------------------------------------------------------------ jobs that were in hand at deaths

    def _is_suspect(self, job_id: str) -> bool:
        return self._data.deaths.get(job_id, (0, 0))[0] >= SUSPECT_DEATHS

    def _runs_alone(self, sysid: str) -> bool:
        until_ms, job_id = self._data.alone.get(sysid, (0, ""))
        entry = self._data.entries.get(job_id)
        return until_ms > self._now_ms() and entry is not None and entry.place == "held" and entry.sysid == sysid

    def _apart(self, sysid: str, ready: list[Entry], suspects: Suspects) -> list[Entry]:
        """A suspect by itself for an empty hand, else those that are none."""
        empty = not any(entry.sysid == sysid for entry in self._data.entries.values())
        empty = empty and all(holder != sysid for holder, _ in self._data.early.values())
        may = suspects is Suspects.COMPANY or (suspects is Suspects.ALONE and empty)
        if ready and may and self._is_suspect(ready[0].job.id):
            if suspects is Suspects.ALONE:
                self._data.alone[sysid] = self._now_ms() + round(self._config.alone_s * 1000), ready[0].job.id
            return ready[:1]
        return [entry for entry in ready if not self._is_suspect(entry.job.id)]
