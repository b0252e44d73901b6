"""The store's methods that apply a journal (jobs, changes, outcomes, cancels), reserve names, and make jobs ready."""

import operator
from collections.abc import Mapping, Sequence
from functools import partial

from jqd.domain.job import Change, ChangeKind, Job, Outcome
from jqd.domain.jobid import journal_number
from jqd.domain.outcome_followers import followers_in
from jqd.domain.record import Lane
from jqd.domain.results import PIECE_BYTES
from jqd.store import codec
from jqd.store.keys import lane_field, last_field
from jqd.store.methods import BYTES_MAX, ScriptMethods, bound, milliseconds
from jqd.store.names import NameGiven, NameJournaled, NameStanding, NameState, NameWanted
from jqd.store.outcome_groups import common_of, grouped
from jqd.store.types import CALL_JOBS_MAX, EditGiven, Promoted

_id = operator.attrgetter("id")


class JobMethods(ScriptMethods):
    # ------------------------------------------------------------ journal → store
    #
    # Calls of one lane may be made before earlier ones are answered; they run in order. Those that follow a failed call
    # are refused (PositionMismatch) or not sent (StoreAway).

    async def apply_jobs(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> int | None:
        """Add jobs of a journal, and move the position up to which the journal's jobs are applied from `start` to
        `end`, in one step.

        Returns how many jobs were new. If the position is `end` already, the same call was made before and its answer
        was lost: then nothing changes, and None is returned. Raises PositionMismatch if the position is neither.

        Takes at most CALL_JOBS_MAX jobs, best below 1 MiB. A job that the store has seen is left as it is. A copy
        (`job.copied`) is new only if its original was deleted before the store applied it (`skip`). Each job gets its
        unique key unless a later job has it."""
        bound(jobs)
        assert all(job.change is None for job in jobs), "a change has a lane of its own"
        groups: dict[tuple[str, int, int, int], list[object]] = {}
        copies: list[object] = []
        keys = _keys(jobs)
        before = ""
        for job in sorted(jobs, key=_id):  # the function needs ascending ids; they nearly always are
            if job.id == before:
                continue  # a copy right behind its original
            before = job.id
            if job.copied is not None:
                copies += (job.id, *job.copied)
            groups.setdefault(common_of(job), []).extend((job.id, codec.encode_job(job)))
        flat: list[object] = [len(keys) // 3, len(copies) // 3, *keys, *copies]
        for common, fields in groups.items():
            flat += (*common, len(fields) // 2, *fields)
        place = self._lane(journal_id, Lane.JOBS, start, end)
        last = last_field(journal_number(journal_id)), codec.newest_id(job.id for job in jobs)
        return await self._move("apply_jobs", *place, *last, *flat)

    async def apply_changes(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> int | None:
        """Replace contents of jobs by later revisions, as each `job.change` says. Returns how many jobs were new;
        positions, None and errors as in `apply_jobs`."""
        bound(jobs)
        keys, lane = _keys(jobs), self._lane(journal_id, Lane.CHANGES, start, end)
        flat: list[object] = [*lane, self._config.history_max, len(keys) // 3, *keys]
        common: tuple[object, ...] = ()
        count_at, count = 0, 0
        for job in sorted(jobs, key=_id):
            assert job.change is not None, f"job {job.id} lies among the changes and is none"
            if common != (its := _common(job, job.change)):
                common, count_at, count = its, len(flat) + len(its), 0
                flat += (*its, 0)
            flat[count_at] = count = count + 1
            flat += _change(job, job.change)
        return await self._move("apply_changes", *flat)

    async def reserve_names(self, wanted: Sequence[NameWanted]) -> list[NameGiven]:
        """Reserve names: ids that pushers chose. A name is free again after `name_reserve_s`, unless its job is
        confirmed (`confirm_names`) or applied by then.

        The names in one call must differ. A repeated request with the same content gets the same answer, until the
        name's job is confirmed or applied. Raises StoreChanged; StoreUnsettled: the job that has a name may be in a
        journal only.
        """
        answer = await self._ask_names(wanted, milliseconds(self._config.name_reserve_s))
        life, names = self._caller.identity.partition(".")[2], iter(self._list("names", answer))
        text, whole = partial(codec.text, self._keys, "names"), partial(codec.whole, self._keys, "fence")
        return [NameGiven(NameState(text(one)), text(next(names)), whole(next(names)), life) for one in names]

    async def free_names(self, wanted: Sequence[NameWanted]) -> None:
        """Free names that `reserve_names` gave to a push that was then refused, so that no journal has its jobs.

        Raises StoreChanged, StoreUnsettled: then the names become free after `name_reserve_s`.
        """
        await self._ask_names(wanted, 0)

    async def _ask_names(self, wanted: Sequence[NameWanted], ttl_ms: int) -> object:
        bound(wanted)
        flat = (value for one in wanted for value in (one.name, one.job_id, one.digest, int(one.replace)))
        return await self._caller.call("reserve_names", self._caller.identity, ttl_ms, *flat)

    async def confirm_names(
        self, journaled: Sequence[NameJournaled], written: tuple[str, int] | None = None
    ) -> list[NameStanding]:
        """Note that jobs with reserved names are in a journal: from now on every daemon recognizes a repeat of their
        push as a duplicate. Returns what the store knows of each job, in order. Raises StoreChanged.

        A job whose answer is not STANDS must not be acknowledged. Without this call a name is taken when its job is
        applied.

        `written`: the journal's id and its position behind these jobs. A job that was applied from there and has been
        deleted since gets no name.
        """
        bound(journaled)
        flat = (value for one in journaled for value in (*one[:4], int(one.replaces)))
        ttl_ms = milliseconds(self._config.name_reserve_s)
        journal_id, position = written or ("", 1)  # "" is no journal
        numbers = ttl_ms, lane_field(journal_id, Lane.CHANGES), position
        answer = await self._caller.call("confirm_names", self._caller.identity, *numbers, *flat)
        return [*map(NameStanding, self._wholes("names", answer))]

    async def reserve_change(self, job_id: str) -> int:
        """Return a new number for a change of a job, greater than any fence and any number of a change so far. Raises
        StoreChanged.

        All jobs of a partition share these numbers; `job_id` only decides which partition is asked.
        """
        return self._whole("fence", await self._caller.call("reserve_change", self._caller.identity))

    async def reserve_edit(self, job_id: str, revision: int) -> EditGiven | None:
        """Return a new number for a change that replaces `revision`, the latest revision of a job. Raises StoreChanged,
        StoreUnsettled.

        Returns None if the job has a later revision, or if another change is reserved. A reservation ends after
        `name_reserve_s`. The number is 0 if the id that the job's pusher chose belongs to another job now.
        """
        ttl_ms = milliseconds(self._config.name_reserve_s)
        answer = await self._caller.call("reserve_edit", self._caller.identity, ttl_ms, job_id, revision)
        given, life = self._list("fence", answer)
        edit = EditGiven(self._whole("fence", given), self._text("life", life))
        return edit if edit.revision or edit.life else None

    async def apply_outcomes(
        self,
        journal_id: str,
        start: int,
        end: int,
        outcomes: Sequence[Outcome],
        *,
        old: bool = False,
        followers: Mapping[int, Sequence[Job]] | None = None,
        left_out: bool = False,
    ) -> list[int] | None:
        """Apply outcomes of a journal: end attempts, or note that workers hold jobs by themselves. In the same step
        move the position up to which the journal's outcomes are applied from `start` to `end`.

        Returns the indexes of outcomes that came too late to change anything; None if the same call was made before and
        its answer was lost. Raises PositionMismatch if the position is another one. Large results must be stored first
        (`put_results`).

        An outcome counts if the job is held under its fence. A success of an older fence counts while the job has not
        ended. If the job is not in the store yet, the outcome is kept until the job comes.

        `old`: an earlier process of this daemon wrote the outcomes, and may have died before it sent workers the jobs
        that they were to hold. `followers`: index of an outcome → the followers that the outcome brings; None: decode
        them here. `left_out`: do not apply the followers: they are void, or were copied to the journal's end."""
        bound(outcomes)
        assert all(len(one.result) <= PIECE_BYTES for one in outcomes if one.keep_result), "a large result was not put"
        limits = (milliseconds(self._config.result_ttl_s), self._config.history_max, int(old), int(left_out))
        brought = followers_in(outcomes) if followers is None else followers
        lane = self._lane(journal_id, Lane.OUTCOMES, start, end)
        answer = await self._caller.call_behind("apply_outcomes", *lane, *limits, *grouped(outcomes, brought))
        if answer is None:
            return None
        return self._wholes("outcome", answer)

    async def apply_cancels(self, journal_id: str, start: int, end: int, job_ids: Sequence[str]) -> list[str] | None:
        """Cancel jobs. In the same step move the position up to which the journal's cancels are applied from `start` to
        `end`. Returns the jobtype of each job, "" for a job that does not exist.

        A job that is not in flight ends at once. For a job in flight, or one that is not in the store yet, the cancel
        is noted. Returns None if the same call was made before. An id may be followed by the generation up to which the
        cancel applies (`record.cancel_of`). Raises PositionMismatch if the position is another one.
        """
        bound(job_ids)
        lane = self._lane(journal_id, Lane.CANCELS, start, end)
        answer = await self._caller.call_behind("apply_cancels", *lane, *job_ids)
        if answer is None:
            return None
        return self._texts("jobs", answer)

    async def applied(self, journal_id: str, *, is_ours: bool = True) -> dict[Lane, int]:
        """Return up to which position of this journal each lane was applied, 0 at first.

        `is_ours`: make the journal known to the store, which then keeps what it may need. Raises StoreChanged then."""
        fields = [lane_field(journal_id, lane) for lane in Lane]
        last = ""
        if is_ours:
            self._note_journal(journal_id)
            last = last_field(journal_number(journal_id))
        answer = await self._caller.call("applied", self._caller.identity, last, *fields)
        positions = self._list("applied", answer)
        return {
            lane: 0 if position is None else self._whole("applied", position)
            for lane, position in zip(Lane, positions, strict=True)
        }

    async def forget_journal(self, journal_id: str) -> None:
        """Forget up to where a journal was applied. Only for one that will apply nothing more, and has no daemon."""
        fields = [lane_field(journal_id, lane) for lane in Lane]
        await self._caller.call("forget_journal", last_field(journal_number(journal_id)), *fields)

    async def skip(self, journal_id: str, lane: Lane, start: int, end: int, *, gone: bool = False) -> int | None:
        """Move the position up to which a lane is applied from `start` to `end`, because the journal has no records of
        this lane between them. Returns `end`; None if the same call was made before. Raises PositionMismatch if the
        position is another one.

        `gone`: the journal had such records, and deleted them before they were applied; later copies of their jobs
        count as new."""
        return await self._move("skip", *self._lane(journal_id, lane, start, end), int(gone))

    async def promote(self, limit: int) -> Promoted:
        """Make up to `limit` jobs ready whose date has come."""
        answer = await self._caller.call("promote", min(limit, CALL_JOBS_MAX), BYTES_MAX)
        match self._list("later", answer):
            case [moved, due, died, is_any]:
                numbers = {
                    self._text("died", name): self._whole("died", one) for name, one in self._rows("died", died, 2)
                }
                next_due_ms = None if due is None else self._whole("later", due)
                return Promoted(self._whole("later", moved), next_due_ms, numbers, is_any=bool(is_any))
            case other:
                raise codec.Unreadable(f"promote answered {len(other)} values instead of four")

    def _lane(self, journal_id: str, lane: Lane, start: int, end: int) -> tuple[str, int, int]:
        assert 0 <= start <= end, f"positions {start} to {end} run backwards"
        self._note_journal(journal_id)
        return lane_field(journal_id, lane), start, end

    def _note_journal(self, journal_id: str) -> None:
        self.journals.add(journal_number(journal_id))


def _keys(jobs: Sequence[Job]) -> list[str]:
    """Return a flat list with three values for each job that has a unique key: key, job id, and until when it has the
    key."""
    with_keys = [(job.id, job.flow) for job in jobs if job.flow is not None and job.flow.unique]
    return [word for job_id, flow in with_keys for word in (flow.unique, job_id, flow.until)]


def _common(job: Job, change: Change) -> tuple[object, ...]:
    """Return the values that neighbouring changes mostly share, so that they are sent once."""
    follows = int(change.kind is not ChangeKind.NEW)
    return follows, change.life, job.jobtype + job.queue, job.priority, job.eligible_at_ms, job.expires_at_ms


def _change(job: Job, change: Change) -> tuple[object, ...]:
    is_pushed = change.generation == change.revision
    return (
        change.revision if is_pushed else f"{change.revision}:{change.generation}",
        "" if job.copied is None else "{} {}".format(*job.copied),
        job.name,
        change.digest,
        job.id,
        codec.encode_job(job),
    )
