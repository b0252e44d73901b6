"""Arguments and results of the store's methods."""

import enum
from collections.abc import Mapping
from typing import NamedTuple

from jqd.domain.job import Held, Job, Outcome, State
from jqd.domain.results import LargeResult
from jqd.domain.settings import Setting
from jqd.store.counts import Counts, Totals

CALL_JOBS_MAX = 2_000  # records in one call: four times what callers should send; a function then takes some 20 ms


class Owner(NamedTuple):
    """The name (sysid) and epoch under which a daemon holds jobs."""

    sysid: str
    epoch: int


class Member(NamedTuple):
    """A daemon's row in the store. Its counter and epoch only grow, even when the store is emptied."""

    counter: int
    epoch: int
    """0: the epoch was revoked, so that this daemon can no longer change anything."""
    through: bool
    """Whether the daemon completed recovery in this life of the store."""


class WaitingType(NamedTuple):
    """A jobtype that has jobs ready to run."""

    jobtype: str
    priority: int
    """The priority of the best ready job; smaller runs first."""
    head_id: str
    """The id of the oldest job of that priority, which is next."""
    waiting: int
    suspect: bool
    """Whether the next job was in flight at two deaths of daemons: it runs alone, at an otherwise empty daemon."""
    rank: int
    """The priority; where jobs age, plus the number of the period in which the job became ready."""


class Ages(NamedTuple):
    """How a claim takes the age of jobs into account."""

    no_worse_than: int
    """The worst rank that is claimed; a smaller rank is better."""
    priority: int
    """The priority by which the jobtype was found; smaller runs first."""

    @property
    def words(self) -> str:
        """Return both numbers as one argument of get_waiting_jobs.lua: "no_worse_than priority"."""
        return f"{self.no_worse_than} {self.priority}"


class Promoted(NamedTuple):
    moved: int
    next_due_ms: int | None
    """Milliseconds until the next job falls due; 0: more are due already; None: no job has a date."""
    died: Mapping[str, int] = {}
    """Jobtype → how many jobs the store itself ended (expired ones, say) since the last call; they have no outcome."""
    is_any: bool = True
    """Whether any job is ready now, even if a constraint keeps it waiting."""


class Purged(NamedTuple):
    """What one call of `purge` did."""

    rows: int
    """How many jobs, results and notes were deleted."""
    moved: int
    """How many jobs must stay and got a later date, so that the next call finds the jobs behind them."""


class Cleaned(NamedTuple):
    """The result of one call that deletes jobs which ended long ago (`clean_ended`)."""

    gone: int
    """How many jobs were deleted."""
    examined: int
    """How many jobs were examined; 0: none are left."""
    before_ms: int
    """`before_ms` of the next call: jobs that must stay were put behind this date."""


class StoreStats(NamedTuple):
    """Numbers of jobs by the set of the store that has them, and the server's memory in bytes."""

    waiting: int
    """Jobs ready to run, including jobs that failed before."""
    scheduled: int
    """Jobs with a date to come, which may be that of a retry."""
    running: int
    ended: int
    dead: int
    types: int
    """Jobtypes, counted once in each partition."""
    used_memory: int
    unreachable: tuple[int, ...] = ()
    """Partitions that did not answer and are not counted."""
    counts: Counts = Counts()
    totals: Totals = Totals()


class StoreLook(NamedTuple):
    """What the server that answers says of its store: its life (a time without loss of data), and whether all daemons
    are through recovery."""

    identity: str
    """Changes whenever the store may be older than it was, was emptied, or is another one."""
    settled: bool
    """Whether all daemons came through recovery under this identity."""
    fence: int = 0
    """The last fence or epoch that the store gave."""
    since: int = 0
    """A number below all fences that were given in this life of the store."""


class Renewed(NamedTuple):
    members: dict[str, Member]
    settled: bool
    cancels: list[tuple[str, int]]
    """Claims (id, fence) of this daemon to stop: the job was cancelled since the last renewal, or another daemon
    claimed it again under a later fence. A hint: each is given at most once.
    """
    behind: tuple[str, ...] = ()
    """Members that still have jobs to apply again, which the store forgot."""


class DurableReply(NamedTuple):
    """Since when a journal keeps jobs, by its last `save_kept`. Both numbers come from the sequence that also gives
    fences."""

    since: int
    """Jobs that the journal keeps, and may apply again, were written after this number; 0: it has not reported."""
    at: int
    """The number when the journal reported, or when the store first met it."""


JOINS_MAX = 5  # times in a row that a daemon may join without coming through recovery, while others wait for it
JOINS_SOON_S = 60.0  # between two such joins at most; as long as a daemon may make no progress before it resigns


class Ends(NamedTuple):
    """The answer of `get_ends`: how some jobs ended or will end."""

    outcomes: list[Outcome]
    """Outcomes of jobs that ended, without results. For a job that a worker holds by itself: its hand-over to the
    worker."""
    asked: dict[str, int]
    """Id → the generation up to which a cancel applies. Has jobs in flight that end as cancelled when they are
    released, and cancelled jobs for which this is known.
    """
    gone: list[str]
    """Ids of all other cancelled jobs, and of jobs that do not exist."""


class KeptJob(NamedTuple):
    """The answer to `save_kept`: since when each journal keeps jobs."""

    now: int
    """The present number of the store's sequence, above that of every record applied so far."""
    began: int
    """The number when this life of the store began; earlier reports may be lost."""
    journals: dict[str, DurableReply]


class Hold(enum.IntEnum):
    """Whether a claim that a worker names still stands."""

    STANDS = 1
    """The job is held under this claim: its outcome counts."""
    LATE = 2
    """The claim is over but the job has not ended: only a success counts, for the job did run."""
    OVER = 3
    """The job has ended or does not exist."""


class Log(NamedTuple):
    """What an attempt printed, or a part of that."""

    fence: int
    """The fence of the attempt; 0: not known."""
    start: int
    """How many bytes the attempt printed before `data`."""
    data: bytes
    """UTF-8 text; each line ends with a line end, the last one, too."""

    @property
    def end(self) -> int:
        """Return how many bytes the attempt printed up to the end of `data`."""
        return self.start + len(self.data)

    @property
    def text(self) -> str:
        """Return the log as text, for people."""
        return self.data.decode("utf-8", "replace").removesuffix("\n")


NO_LOG = Log(0, 0, b"")


class Entrusted(NamedTuple):
    """A claim (job, fence) that a worker names, and its state in the store."""

    hold: Hold
    held: Held | None
    """The job (with a nil argument) and its attempt. None: the job has ended, or is not in this store yet."""
    worker: str
    """The worker that holds the job by itself (lease); "": none does."""
    silence_s: int
    """The worker timeout in seconds; 0 unless a worker holds the job."""
    cancelled: bool
    """Whether the job is to be cancelled but has not ended yet."""
    log_end: int | None = None
    """How many bytes of this attempt's log those who watch it have; None: nobody watches."""


class Lease(NamedTuple):
    """The jobs that one worker holds under one claim (fence)."""

    fence: int
    worker: str
    silence_s: int
    """The worker timeout in seconds; 0: another daemon found that it had passed, but wrote no outcomes."""
    jobs: list[Held]
    """The jobs of the lease, with nil arguments."""


class SilentLeases(NamedTuple):
    """Leases that `find_silent` found: their workers gave no sign of life in time."""

    now: int
    """The present number of the sequence that counts signs of life."""
    silences_s: tuple[int, ...]
    """All timeouts that leases have; 0 stands for leases whose timeout was found to have passed before."""
    given_back: int
    """How many jobs became ready again, untried: their leases had no sign of life in this life of the store."""
    leases: list[Lease]
    """The leases that timed out. From now on only a success counts for their jobs."""


class Followed(NamedTuple):
    """Settings that changed since a daemon last asked, and signs of life of workers."""

    rules_at: int
    """Number of the last change in `settings`, to be given to the next call."""
    settings: list[Setting]
    signs_at: int
    """Number of the last sign of life in `alive`, to be given to the next call."""
    alive: dict[str, int]
    """Id of a worker that gave some daemon a sign of life → how many ms ago."""
    unknown: list[str]
    """Ids of the caller's own live workers whose registration the store lacks: save them again."""
    more: bool
    """Whether further changes are left for the next call."""
    now_ms: int
    """The present time by the store's clock."""
    settled: bool
    """Whether all daemons came through recovery in this life of the store: so it has the settings in their journals."""


class Release(enum.StrEnum):
    """How jobs are given back without an outcome."""

    UNGET = "unget"
    """Jobs become ready at once; no attempt is counted. A worker may have begun them, so they can no longer expire.

    See docs/adr/roads-not-taken.md, Expiry."""
    UNSENT = "unsent"
    """Like UNGET, but no worker began the jobs: those that have expired by now are dead."""


class Suspects(enum.StrEnum):
    """How a claim treats suspects: jobs that were in flight at two deaths of daemons."""

    ALONE = "alone"
    """An empty daemon gets one suspect, and nothing more for a while; any other daemon gets no suspect."""
    COMPANY = "company"
    """A daemon gets a suspect even if it is not empty."""
    NONE = "none"
    """The daemon gets only jobs that are no suspects."""


class EditGiven(NamedTuple):
    """The answer to `reserve_edit`: which change of a job may be journaled."""

    revision: int
    """The number of the change; 0: it must not be journaled, for the job's own id was given to another job."""
    life: str
    """The life of the store in which the job existed. A job that is missing in that life was deleted since."""


class QueuePlace(NamedTuple):
    """Which jobs run before a ready job, and what it waits for."""

    ahead: int
    """How many jobs of the same type are before it."""
    exact: bool
    """Whether `ahead` is exact; if not, it is an upper bound, as where jobs age."""
    deaths: int
    """At how many deaths of daemons the job was in flight."""
    suspect: bool
    """Whether the job runs alone, at an otherwise empty daemon."""
    better_types: int
    """How many other jobtypes have a job that runs before the best job of this type; 0 where jobs age."""
    better: list[tuple[str, int]]
    """Some of these better jobtypes, and how many ready jobs each has."""
    limited_by: str = ""
    """The constraint that the job waits for; if it has keys, `WITHIN` and the key follow."""
    until_ms: int = 0
    """When (ms) the constraint is checked again; 0: when a job in flight that it counts ends."""
    holds: tuple[str, ...] = ()
    """Ids of some jobs in flight that the constraint counts."""


class OnItsWay(NamedTuple):
    """A job that is not in the store but may still come, because its journal has not been applied that far."""

    last_id: str
    """The last job id that was applied from that journal; "": none was."""
    held: bool = False
    """Whether a daemon reported that it has the job in flight."""
    is_promised: bool = False
    """Whether the job, or a later content of it, was promised under the id that its pusher chose."""


class JobView(Job, frozen=True, kw_only=True, gc=False):
    """A job with all that is known of it. In a page of jobs the argument is nil."""

    state: State
    attempts: int
    """Attempts that began, including a running one."""
    started_at_ms: int
    """When the running or last attempt began (ms); 0: none did."""
    daemon: str
    """The sysid of the daemon that holds the job; "": none does."""
    outcome: Outcome | None
    """The outcome of the last attempt that ended, without its result."""
    history: list[Outcome]
    """Failed attempts, oldest first; only the last few are kept."""
    cancel_asked: bool
    result: bytes | LargeResult | None
    """One MessagePack value; None: it was not kept, or was dropped."""
    revision: int = 0
    """Grows with every change; 0 for an unchanged job under an id that jqd gave."""
    generation: int = 0
    """The revision of the latest change that was more than an edit. Cancels name it."""
    missed: bool = False
    """Whether the latest change did not apply because the job was in flight or had ended."""
    worker: str = ""
    """The worker that holds the job by itself (lease); "": none does."""
    progress: bytes | None = None
    """The last progress that its worker reported (one MessagePack value), while the job is in flight."""
    snoozes: int = 0
    """How often its worker postponed the job (`snooze`)."""
    interruptions: int = 0
    log: str = ""
    """The end of what its last attempt printed; kept for the newest failures only."""
    ended_at_ms: int = 0
    """When it failed or was cancelled, by the store's clock (Unix ms); 0 in any other state."""


class Page(NamedTuple):
    jobs: list[JobView]
    """Newest first, without their results."""
    cursor: str
    """Where the next page begins; "": there is none."""
    examined: int = 0
    """How many jobs were examined for this page."""
    in_parts: bool = False
    """Whether there were more sets of ids than one page merges. The sets are then listed group by group, so jobs of a
    later group may be newer.
    """
