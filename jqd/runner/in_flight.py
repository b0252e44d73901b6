"""The jobs in flight at this daemon, from their claim until the store knows how they ended.

    take ──▶ QUEUED ──sent──▶ RUNNING ──outcome──▶ STOPPED ──get_stopped──▶ (taken) ──forget──▶ gone
               │                 │                    ▲
               └────back, untried┴────────────────────┘

The daemon's lease covers all three phases; `at_work` counts only the first two. If the answer to a claim was lost, the
store's list of this daemon's jobs is compared with this list to find the jobs.
"""

import enum
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import msgspec
import trio

from jqd.domain.errors import JournalRefused
from jqd.domain.groups import in_groups
from jqd.domain.job import INTERRUPTED, NIL, Fate, Held, Outcome

TAKE_BYTES_MAX = 8 << 20  # of results and errors taken at once: they become one journal frame, which has its own limit


class Phase(enum.IntEnum):
    QUEUED = 1
    """Not sent yet, or to be sent again."""
    RUNNING = 2
    """Its request may have reached the worker, and it has no outcome yet."""
    STOPPED = 3
    """It ended, or is to be handed back. The outcomes loop takes it from here and tells the store."""


# Constants: reading an enumeration's member costs as much as a call, for each job.
QUEUED, RUNNING, STOPPED = Phase
SUCCEEDED, ENTRUSTED = Fate.SUCCEEDED, Fate.ENTRUSTED


@dataclass(slots=True, eq=False)
class InFlightJob:
    held: Held
    worker_id: str
    phase: Phase = QUEUED
    started_at_ms: int = 0
    """When it was last sent, by the wall clock in ms; 0: not yet."""
    begun: bool = False
    """Whether a worker may have begun the job: it said so, or an earlier request was sent. A later refusal does not
    reset this."""
    taken: bool = False
    """Whether the outcomes loop has taken the outcome, or the job that is to be handed back."""
    outcome: Outcome | None = None
    """How the attempt ended, without its result. Kept until the store knows it."""
    is_durable: bool = False
    """Whether the outcome is on disk, in the journal."""
    cancelled: bool = False
    """Whether the job was cancelled, so that it is not sent again."""

    @property
    def is_entrusted(self) -> bool:
        """Whether the worker will report the job in a request of its own (it answered 202, or pulled it), so that the
        daemon no longer waits for it."""
        return self.outcome is not None and self.outcome.fate is Fate.ENTRUSTED

    @property
    def lease(self) -> int:
        """The fence (number) of the job's claim if its worker will report it in a request of its own; else 0."""
        return self.held.fence if self.is_entrusted else 0


class Stopped(NamedTuple):
    """Jobs that stopped since the last call of `get_stopped`: some with an outcome, others that the caller hands back
    to the store. No job appears twice."""

    outcomes: list[Outcome]
    returned: list[Held]
    """Jobs to hand back without counting an attempt: not sent, refused by the worker, or the daemon's lease was not
    trusted."""
    undelivered: Sequence[tuple[str, int]] = ()
    """Claims (id, fence) that the store records as held by a pull worker that never got the jobs. The store is to
    release them."""
    unsent: Sequence[Held] = ()
    """The jobs in `returned` that no worker began, because they were not sent or were refused."""
    maybe_delivered: Sequence[tuple[str, int]] = ()
    """The claims in `undelivered` whose jobs the worker may have got after all: its connection broke during the
    answer."""


@dataclass(slots=True)
class Counters:
    posts: int = 0
    sent: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    returned: int = 0
    interrupted: int = 0
    timeouts: int = 0
    splits: int = 0
    lost: int = 0
    garbled: int = 0
    unreachable: int = 0
    crowded: int = 0
    back_offs: int = 0
    unknown_ids: int = 0
    repeated_ids: int = 0
    unclear: int = 0
    cancels_sent: int = 0
    entrusted: int = 0


class InFlightJobs:
    """The jobs in flight at this daemon. It alone changes their phases, and counts the changes."""

    def __init__(self) -> None:
        self.counters = Counters()
        self._entries: dict[str, InFlightJob] = {}
        self._outcomes: deque[tuple[InFlightJob, Outcome, int]] = deque()  # not taken yet, with their bytes
        self._returned: deque[InFlightJob] = deque()
        self._undelivered: deque[tuple[tuple[str, int], bool]] = deque()
        self.at_work = 0
        self.untaken_bytes = 0
        self._unnoted: list[InFlightJob] = []  # their outcomes were taken, and are not on disk yet
        self._refusal: JournalRefused | None = None
        self._waiters: dict[InFlightJob, trio.Event] = {}  # set when its outcome is on disk, or refused
        self._some_stopped = trio.Event()
        self._idle = trio.Event()
        self._idle.set()

    @property
    def untaken(self) -> int:
        return len(self._outcomes)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, job_id: str) -> InFlightJob | None:
        return self._entries.get(job_id)

    def ended(self, job_id: str) -> Outcome | None:
        """Return how a job's attempt ended here, without its result; None: it has no outcome, or the store knows it
        already."""
        entry = self._entries.get(job_id)
        return entry.outcome if entry is not None else None

    def fences(self) -> dict[str, int]:
        """Return id → fence (the number of its claim) of all jobs in flight: queued, running, or stopped and not yet
        known to the store."""
        return {job_id: entry.held.fence for job_id, entry in self._entries.items()}

    def generations(self) -> dict[str, int]:
        return {job_id: entry.held.generation for job_id, entry in self._entries.items() if entry.held.generation}

    def take(self, worker_id: str, held: Sequence[Held]) -> list[InFlightJob]:
        """Add claimed jobs, and return their entries. An earlier attempt of a job that is still listed must have
        stopped, and is replaced."""
        entries: list[InFlightJob] = []
        for each in held:
            known = self._entries.get(each.job.id)
            assert known is None or (known.phase is STOPPED and known.held.fence < each.fence), (
                f"job {each.job.id} is in flight already (fence {known.held.fence}, now {each.fence})"
            )
            entry = self._entries[each.job.id] = InFlightJob(each, worker_id)
            entries.append(entry)
        if entries:
            self.at_work += len(entries)
            if self._idle.is_set():
                self._idle = trio.Event()
        return entries

    def sent(self, entries: Iterable[InFlightJob], at_ms: int) -> None:
        for entry in entries:
            assert entry.phase is not STOPPED, f"job {entry.held.job.id} is sent, but it has stopped"
            entry.phase, entry.started_at_ms = RUNNING, at_ms

    def requeue(self, entries: Iterable[InFlightJob]) -> None:
        for entry in entries:
            assert entry.phase is not STOPPED, f"job {entry.held.job.id} is queued, but it has stopped"
            entry.begun = entry.begun or entry.phase is RUNNING
            entry.phase = QUEUED

    def stop(self, ended: Sequence[tuple[InFlightJob, Outcome]]) -> None:
        for entry, outcome in ended:
            assert outcome.job_id == entry.held.job.id
            assert entry.phase is not STOPPED, f"job {outcome.job_id} stopped twice"
            entry.phase = STOPPED
            entry.outcome = outcome if outcome.result == NIL else msgspec.structs.replace(outcome, result=NIL)
            if outcome.fate is SUCCEEDED:
                self.counters.succeeded += 1
            elif outcome.fate is ENTRUSTED:
                self.counters.entrusted += 1
            else:
                self._count(outcome)
            is_bare = outcome.fate is SUCCEEDED and not outcome.message and not outcome.log
            weight = len(outcome.result) + len(outcome.follows) if is_bare else outcome.content_bytes
            self._outcomes.append((entry, outcome, weight))
            self.untaken_bytes += weight
        if ended:
            self._some_stopped.set()
        self.at_work -= len(ended)
        if not self.at_work:
            self._idle.set()

    def _count(self, outcome: Outcome) -> None:
        counters = self.counters
        match outcome.fate:
            case Fate.FAILED:
                counters.failed += 1
            case Fate.RETRY if outcome.reason == INTERRUPTED:
                counters.interrupted += 1
            case Fate.RETRY:
                counters.retried += 1
            case _:
                counters.dead += 1

    def release(self, entry: InFlightJob, *, refused: bool = False) -> None:
        """Stop a job without an outcome: the loop `outcomes` then hands it back to the store, and no attempt is
        counted. `refused`: the worker says that it did not begin the job; then the job counts as not sent."""
        assert entry.phase is not STOPPED, f"job {entry.held.job.id} stopped twice"
        entry.phase = STOPPED
        self.at_work -= 1
        if not self.at_work:
            self._idle.set()
        self.counters.returned += 1
        if refused and not entry.begun:
            entry.started_at_ms = 0  # the same as not sent
        self._returned.append(entry)
        self._some_stopped.set()

    def release_undelivered(self, claims: Iterable[tuple[str, int]], *, maybe_delivered: bool = False) -> None:
        """List claims (id, fence) of jobs that their pull worker did not get, to be released in the store.
        `maybe_delivered`: it may have got the jobs."""
        self._undelivered.extend((claim, maybe_delivered) for claim in claims)
        self._some_stopped.set()

    def get_stopped(self, limit: int) -> Stopped:
        """Take up to `limit` outcomes, fewer if they are large, and up to `limit` jobs to hand back. No later call has
        them again.

        While the journal refuses outcomes, none are taken."""
        unsent: list[Held] = []
        undelivered = [self._undelivered.popleft() for _ in range(min(limit, len(self._undelivered)))]
        known = [claim for claim, may_know in undelivered if may_know]
        stopped = Stopped([], [], [claim for claim, _ in undelivered], unsent, known)
        taken_bytes = 0
        limit_bytes = TAKE_BYTES_MAX if self._refusal is None else 0
        while self._outcomes and len(stopped.outcomes) < limit and taken_bytes < limit_bytes:
            entry, outcome, weight = self._outcomes.popleft()
            entry.taken = True
            self._unnoted.append(entry)
            taken_bytes += weight
            stopped.outcomes.append(outcome)
        while self._returned and len(stopped.returned) < limit:
            entry = self._returned.popleft()
            entry.taken = True
            stopped.returned.append(entry.held)
            if not entry.started_at_ms:
                unsent.append(entry.held)
        self.untaken_bytes -= taken_bytes
        if not (self._outcomes or self._returned or self._undelivered) and self._some_stopped.is_set():
            self._some_stopped = trio.Event()
        return stopped

    def mark_durable(self) -> None:
        self._refusal = None
        for entry in self._unnoted:
            entry.is_durable = True
            if self._waiters and (waiters := self._waiters.pop(entry, None)) is not None:
                waiters.set()
        self._unnoted.clear()

    def refused(self, error: JournalRefused) -> None:
        """Note that the journal refuses outcomes. Until `mark_durable` none are taken by `get_stopped`. Interrupted
        jobs whose outcome was not taken yet are handed back to the store instead."""
        self._refusal = error
        outcomes, self._outcomes = self._outcomes, deque()
        for entry, outcome, weight in outcomes:
            if outcome.reason == INTERRUPTED:
                entry.outcome = None
                self.untaken_bytes -= weight
                self._returned.append(entry)
            else:
                self._outcomes.append((entry, outcome, weight))
        for waiters in self._waiters.values():
            waiters.set()
        self._waiters.clear()

    async def wait_durable(self, entry: InFlightJob) -> None:
        """Wait until a job's outcome is on disk, in the journal. Raises JournalRefused while the journal takes none."""
        while not entry.is_durable:
            if self._refusal is not None:
                raise JournalRefused(str(self._refusal), full=self._refusal.full)
            await self._waiters.setdefault(entry, trio.Event()).wait()

    def forget(self, claims: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Forget jobs whose end the store knows, by their claims (id, fence). Returns the claims that match no such
        job. A job that was claimed again since, under a later fence, stays."""
        others = []
        for job_id, fence in claims:
            entry = self._entries.get(job_id)
            if entry is not None and entry.taken and entry.held.fence == fence:
                del self._entries[job_id]
            else:
                others.append((job_id, fence))
        return others

    async def wait_stopped(self) -> None:
        await self._some_stopped.wait()

    async def wait_idle(self) -> None:
        await self._idle.wait()

    def stats(self) -> dict[str, int]:
        return {"in_flight": len(self), "at_work": self.at_work, "untaken": self.untaken, **asdict(self.counters)}


def posts_of(entries: Sequence[InFlightJob], jobs_max: int, bytes_max: int) -> Iterator[list[InFlightJob]]:
    """Divide `entries`, in order, into requests of at most `jobs_max` jobs and `bytes_max` bytes. A larger job gets a
    request to itself."""
    return in_groups(entries, lambda entry: len(entry.held.job.argument), jobs_max, bytes_max)
