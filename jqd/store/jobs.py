"""The store's methods on jobs: one method, one script of the same name (docs/STORE.md)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from jqd.errors import ConfigError
from jqd.job import Fate, Held, Job, Outcome
from jqd.jobid import journal_number
from jqd.log import get_logger
from jqd.record import Lane
from jqd.store import codec
from jqd.store.interface import (
    CALL_JOBS_MAX,
    JobView,
    OnItsWay,
    Owner,
    Promoted,
    StoreStats,
    WaitingType,
)
from jqd.store.keys import Keys, lane_field, last_field

BYTES_MAX = 4 << 20  # rows one script reads to move jobs about: some milliseconds of copying
PAGE_JOBS = 500  # jobs per call where a method works in steps by itself
TYPES_PER_CALL = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where the store is and how long it keeps what is over."""

    url: str
    prefix: str = "jqd"
    timeout_s: float = 5.0  # of one answer; a script takes milliseconds, so this is a server in trouble
    connections_max: int = 8  # calls at once, each in a thread; the server does one at a time anyway
    ended_keep_s: float = 86_400.0  # a day to look at what ended
    ended_keep_jobs: int = 100_000  # about 50 MiB at 200 B a job
    result_ttl_s: float = 3_600.0  # an hour to fetch a kept result
    tombstone_keep_s: float = 172_800.0  # twice the journal's retention: a note must outlive the frame it waits for
    history_max: int = 10  # failed attempts kept of one job
    i_accept_loss: bool = False  # use a server although its settings would lose jobs (doctor.py)

    def __post_init__(self) -> None:
        for name in ("timeout_s", "connections_max", "ended_keep_s", "result_ttl_s", "tombstone_keep_s", "history_max"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"store.{name} must be above 0; got {getattr(self, name)}")
        if self.ended_keep_jobs < 0:
            raise ConfigError(f"store.ended_keep_jobs must not be negative; got {self.ended_keep_jobs}")
        Keys(self.prefix)


class Caller(Protocol):
    """What the methods need of a connection."""

    @property
    def identity(self) -> str:
        """Which life of which server we looked at last."""
        ...

    async def call(self, name: str, *arguments: Any) -> object:
        """Run a script; `now_ms` is put before the arguments."""
        ...

    async def info(self, *sections: str) -> dict[str, object]:
        """Facts about the server."""
        ...


class JobMethods:
    """Half of `RedisStore`."""

    def __init__(self, config: StoreConfig, keys: Keys, caller: Caller) -> None:
        self._config = config
        self._keys = keys
        self._caller = caller
        self._journals: set[int] = set()  # numbers of journals we apply ourselves: known, whatever the store remembers
        self._log = get_logger("store")

    # ------------------------------------------------------------ journal → store

    async def apply_jobs(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> None:
        """See Store."""
        _bound(jobs)
        groups: dict[tuple[str, int, int], list[object]] = {}
        for job in jobs:
            common = job.jobtype, job.priority, job.eligible_at_ms
            groups.setdefault(common, []).extend((job.id, codec.encode_job(job)))
        flat: list[object] = []
        for common, fields in groups.items():
            flat += (*common, len(fields) // 2, *fields)
        last = (last_field(journal_number(journal_id)), codec.newest_id(job.id for job in jobs))
        await self._caller.call("apply_jobs", *self._lane(journal_id, Lane.JOBS, start, end), *last, *flat)

    async def apply_outcomes(self, journal_id: str, start: int, end: int, outcomes: Sequence[Outcome]) -> list[str]:
        """See Store."""
        _bound(outcomes)
        flat: list[object] = []
        for one in outcomes:
            flat += (int(one.fate), one.job_id, one.fence, codec.encode_outcome(one), _extra(one))
        limits = (_ms(self._config.result_ttl_s), self._config.history_max)
        lane = self._lane(journal_id, Lane.OUTCOMES, start, end)
        answer = await self._caller.call("apply_outcomes", *lane, *limits, *flat)
        return [codec.text(self._keys, "outcome", job_id) for job_id in codec.list_of(self._keys, "outcome", answer)]

    async def apply_cancels(self, journal_id: str, start: int, end: int, job_ids: Sequence[str]) -> None:
        """See Store."""
        _bound(job_ids)
        await self._caller.call("apply_cancels", *self._lane(journal_id, Lane.CANCELS, start, end), *job_ids)

    async def applied(self, journal_id: str) -> dict[Lane, int]:
        """See Store."""
        self._note_journal(journal_id)
        fields = [lane_field(journal_id, lane) for lane in Lane]
        answer = await self._caller.call(
            "applied", self._caller.identity, last_field(journal_number(journal_id)), *fields
        )
        positions = codec.list_of(self._keys, "applied", answer)
        return {
            lane: 0 if position is None else codec.whole(self._keys, "applied", position)
            for lane, position in zip(Lane, positions, strict=True)
        }

    async def skip(self, journal_id: str, lane: Lane, start: int, end: int) -> None:
        """See Store."""
        await self._caller.call("skip", *self._lane(journal_id, lane, start, end))

    # ------------------------------------------------------------ store → runner

    async def get_waiting_jobtypes(self, jobtypes: Sequence[str] | None, limit: int) -> list[WaitingType]:
        """See Store."""
        if limit < 1:
            return []
        found = []
        for part in [()] if jobtypes is None else _pages(jobtypes, TYPES_PER_CALL):
            answer = await self._caller.call("get_waiting_jobtypes", limit, *part)
            flat = codec.list_of(self._keys, "types", answer)
            for jobtype, priority, head_id, waiting in zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True):
                found.append(
                    WaitingType(
                        codec.text(self._keys, "types", jobtype),
                        codec.whole(self._keys, "ready", priority),
                        codec.text(self._keys, "ready", head_id),
                        codec.whole(self._keys, "ready", waiting),
                    )
                )
        found.sort(key=lambda row: (row.priority, row.head_id))
        return found[:limit]

    async def get_waiting_jobs(
        self, owner: Owner, jobtype: str, limit: int, *, priority_min: int, priority_max: int, bytes_max: int
    ) -> list[Held]:
        """See Store."""
        limit = min(limit, CALL_JOBS_MAX)
        if limit < 1:
            return []
        answer = await self._caller.call(
            "get_waiting_jobs",
            *owner,
            jobtype,
            limit,
            priority_min,
            priority_max,
            bytes_max,
            self._caller.identity,
        )
        first, *flat = codec.list_of(self._keys, "ready", answer)
        fence = codec.whole(self._keys, "fence", first)
        rows = [
            (codec.text(self._keys, "ready", job_id), fence, row, tries)
            for job_id, row, tries in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        ]
        return await self._readable(owner, rows)

    async def get_held(self, owner: Owner) -> dict[str, int]:
        """See Store."""
        held: dict[str, int] = {}
        first = 0  # what leaves the hand while we read moves others up: one may be missed, and is found the next time
        while True:
            flat = codec.list_of(self._keys, "held", await self._caller.call("get_held", *owner, first, CALL_JOBS_MAX))
            if not flat:
                return held
            for job_id, fence in zip(flat[::2], flat[1::2], strict=True):
                held[codec.text(self._keys, "held", job_id)] = codec.whole(self._keys, "held", fence)
            first += CALL_JOBS_MAX

    async def reassert(self, owner: Owner, holds: Mapping[str, int]) -> list[str]:
        """See Store."""
        lost: list[str] = []
        for part in _pages(list(holds.items()), PAGE_JOBS):
            flat = (value for pair in part for value in pair)
            answer = await self._caller.call("reassert", *owner, self._caller.identity, *flat)
            lost += (codec.text(self._keys, "held", job_id) for job_id in codec.list_of(self._keys, "held", answer))
        return lost

    async def _readable(self, owner: Owner, rows: Iterable[tuple[str, int, object, object]]) -> list[Held]:
        """Those that can be run. One bad row must not stop its neighbours: it goes to the dead set, loudly."""
        held, unreadable = [], []
        for job_id, fence, row, tries in rows:
            try:
                held.append(codec.decode_held(self._keys, job_id, fence, row, tries))
            except codec.Unreadable as error:
                self._log.error("store.unreadable", id=job_id, error=str(error))
                unreadable.append(job_id)
        if unreadable:
            await self._caller.call("bury", *owner, *unreadable)
        return held

    async def release_jobs(self, owner: Owner, held: Mapping[str, int]) -> None:
        """See Store."""
        for part in _pages(list(held.items()), PAGE_JOBS):
            await self._caller.call("release_jobs", *owner, *(value for pair in part for value in pair))

    async def promote(self, limit: int) -> Promoted:
        """See Store."""
        answer = await self._caller.call("promote", min(limit, CALL_JOBS_MAX), BYTES_MAX)
        match codec.list_of(self._keys, "later", answer):
            case [moved]:  # an array of a script ends at its first nil
                return Promoted(codec.whole(self._keys, "later", moved), None)
            case [moved, due]:
                return Promoted(
                    codec.whole(self._keys, "later", moved),
                    None if due is None else codec.whole(self._keys, "later", due),
                )
            case other:
                raise codec.Unreadable(f"promote answered {len(other)} values instead of two")

    # ------------------------------------------------------------ looking and cleaning

    async def get_job(self, job_id: str) -> JobView | OnItsWay | None:
        """See Store."""
        number = codec.journal_of(job_id)
        answer = await self._caller.call(
            "get_job", job_id, "" if number is None else last_field(number), self._caller.identity
        )
        fields = codec.list_of(self._keys, "jobs", answer)
        if len(fields) != 9:
            raise codec.Unreadable(f"get_job answered {len(fields)} values instead of nine")
        place_, score, sysid, row, tries, outcome, result, asked, last_id = fields
        place = codec.text(self._keys, "jobs", place_)
        if place in ("unseen", "early"):
            last = codec.text(self._keys, "applied", last_id) if last_id is not None else None
            if place == "early":  # somebody holds it: it exists, whatever the ids say
                return OnItsWay(last or "")
            return codec.on_its_way(job_id, "" if last is None and number in self._journals else last)
        if place == "nowhere":
            raise codec.Unreadable(
                f"the key {self._keys['jobs']} holds job {job_id!r}, but no set of {self._keys['ready']}:…, "
                "later, held, ended or dead does: keys were deleted by hand"
            )
        failed, history = codec.decode_tries(self._keys, job_id, tries)
        ended = None
        if outcome is not None and outcome != codec.CANCELLED:
            ended = codec.decode_outcome(self._keys, "outcome", job_id, outcome)
        return codec.job_view(
            codec.decode_job(self._keys, job_id, row),
            place,
            codec.whole(self._keys, place, score),
            daemon="" if sysid is None else codec.text(self._keys, "members", sysid),
            failed=failed,
            history=history,
            outcome=ended,
            cancelled=outcome == codec.CANCELLED,
            cancel_asked=asked is not None,
            result=result if isinstance(result, bytes) else None,
        )

    async def drop_result(self, job_id: str) -> None:
        """See Store."""
        await self._caller.call("drop_result", job_id)

    async def purge(self, limit: int) -> int:
        """See Store."""
        config = self._config
        keep = (_ms(config.ended_keep_s), config.ended_keep_jobs, _ms(config.tombstone_keep_s))
        return codec.whole(self._keys, "ended", await self._caller.call("purge", min(limit, CALL_JOBS_MAX), *keep))

    async def stats(self) -> StoreStats:
        """See Store."""
        answer = codec.list_of(self._keys, "jobs", await self._caller.call("stats"))
        total, later, running, ended, dead, types = (codec.whole(self._keys, "jobs", number) for number in answer)
        memory = (await self._caller.info("memory")).get("used_memory", 0)
        return StoreStats(
            waiting=max(0, total - later - running - ended - dead),
            scheduled=later,
            running=running,
            ended=ended,
            dead=dead,
            types=types,
            used_memory=memory if isinstance(memory, int) else 0,
        )

    async def unfinished(self, job_ids: Sequence[str]) -> list[str]:
        """See Store."""
        _bound(job_ids)
        if not job_ids:
            return []
        answer = codec.list_of(
            self._keys, "jobs", await self._caller.call("unfinished", self._caller.identity, *job_ids)
        )
        return [codec.text(self._keys, "jobs", job_id) for job_id in answer]

    def _lane(self, journal_id: str, lane: Lane, start: int, end: int) -> tuple[str, int, int]:
        assert 0 <= start <= end, f"positions {start} to {end} run backwards"
        self._note_journal(journal_id)
        return lane_field(journal_id, lane), start, end

    def _note_journal(self, journal_id: str) -> None:
        self._journals.add(journal_number(journal_id))


def _extra(outcome: Outcome) -> bytes | str:
    """What a script needs beside the packed outcome; see apply_outcomes.lua."""
    if outcome.fate is Fate.RETRY:
        return f"{outcome.attempt} {outcome.priority} {outcome.delay_ms} {outcome.jobtype}"
    return outcome.result if outcome.fate is Fate.SUCCEEDED and outcome.keep_result else b""


def _bound(records: Sequence[object]) -> None:
    if len(records) > CALL_JOBS_MAX:
        raise ValueError(f"{len(records)} records in one call; {CALL_JOBS_MAX} at most, or the server stands still")


def _pages(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
