"""Arguments and results of the store's methods."""

import enum
from collections.abc import Mapping
from typing import NamedTuple

from jqd.domain.job import Held, Job, Outcome, State
from jqd.domain.results import LargeResult
from jqd.domain.settings import Setting
from jqd.store.counts import Counts, Totals

CALL_JOBS_MAX = 2_000  # records in one call: four times what callers should send, so a script stays below about 20 ms


class Owner(NamedTuple):
    """The name and epoch under which a daemon holds jobs."""

    sysid: str
    epoch: int


class Member(NamedTuple):
    """A daemon's heartbeat in the store. Both numbers only grow, even when the store is emptied."""

    counter: int
    epoch: int
    """The epoch; 0: revoked, so that the daemon can change nothing any more."""
    through: bool
    """Whether it completed recovery in this life of the store."""


class WaitingType(NamedTuple):
    """A jobtype that has jobs ready to run."""

    jobtype: str
    priority: int
    """The priority of the best ready job; smaller runs first."""
    head_id: str
    """The id of the oldest job of that priority, which is next."""
    waiting: int
    suspect: bool
    """Whether the next job was in flight at two deaths of daemons: it runs alone now, at an empty daemon."""
    rank: int
    """The priority; where jobs age with the number of the period in which the job became ready."""


class Ages(NamedTuple):
    """The ageing parameters of a claim."""

    no_worse_than: int
    """The worst rank that is claimed; a smaller rank is better."""
    priority: int
    """The priority of the job that was found first at the last look; smaller runs first."""

    @property
    def words(self) -> str:
        """Return them as the script takes them."""
        return f"{self.no_worse_than} {self.priority}"


class Promoted(NamedTuple):
    moved: int
    next_due_ms: int | None
    """Milliseconds until the next job falls due, 0 when more are due already, None when none has a date."""
    died: Mapping[str, int] = {}
    """Jobtype → number of jobs that died in the store itself (expired, say) since the last call; they have no outcome.
    """
    is_any: bool = True
    """Whether any jobs are ready now, those that constraints keep waiting too."""


class Purged(NamedTuple):
    """What one call of `purge` did."""

    rows: int
    """How many went."""
    moved: int
    """How many stay and were put behind others, which are found by the next call."""


class Cleaned(NamedTuple):
    """What one call of `clean_ended` did."""

    gone: int
    looked: int
    """At how many jobs; 0: there are none any more."""
    before_ms: int
    """The date that counts for the calls that go on from here: what stays is put behind it."""


class StoreStats(NamedTuple):
    """Numbers of jobs by where they lie, and the server's memory in bytes. A jobtype counts in each partition."""

    waiting: int
    """Ready to run, also if they failed before."""
    scheduled: int
    """With a date, also if that is of their next try."""
    running: int
    ended: int
    dead: int
    types: int
    used_memory: int
    unreachable: tuple[int, ...] = ()
    """Partitions that are not counted, for they did not answer."""
    counts: Counts = Counts()
    totals: Totals = Totals()


class StoreLook(NamedTuple):
    """The server that answers, and the life of its store."""

    identity: str
    """Changes whenever the store may be older than it was, emptied, or another one."""
    settled: bool
    """All daemons came through recovery under this very identity."""
    fence: int = 0
    """The last fence or epoch that it had given."""
    since: int = 0
    """All fences that were given in this life are above."""


class Renewed(NamedTuple):
    members: dict[str, Member]
    settled: bool
    cancels: list[tuple[str, int]]
    """Our claims (id, fence) whose jobs were cancelled since the last renewal, or that lost their job to a later claim
    which was applied again. A hint: each is reported at most once.
    """
    behind: tuple[str, ...] = ()
    """Members that have jobs to tell again, which the store forgot."""


class DurableReply(NamedTuple):
    """The last report of a journal. Both numbers are of the growing sequence that fences are of."""

    since: int
    """Number of the sequence after which all jobs that the journal keeps (and may apply again) were written; 0: no
    report yet.
    """
    at: int
    """Number of the sequence at its report, or when the store first met this journal."""


JOINS_MAX = 5  # times in a row that a daemon may join, never through, while others wait for it
JOINS_SOON_S = 60.0  # apart at most; as long as a daemon may make no progress before it resigns


class Ends(NamedTuple):
    """How some jobs ended, or are about to end."""

    outcomes: list[Outcome]
    """The outcomes of jobs that ended, without results, and the hand-overs of jobs that workers hold by themselves."""
    asked: dict[str, int]
    """Ids of jobs in flight that end as cancelled when they are released, and of ended cancelled jobs of which it is
    known → up to which generation the cancel applies.
    """
    gone: list[str]
    """Ids of the other cancelled jobs, and of jobs that do not exist."""


class KeptJob(NamedTuple):
    """Since when each journal keeps jobs."""

    now: int
    """The present number of the sequence: above those of all records applied so far."""
    began: int
    """A number of the sequence before all reports in this life of the store; older reports may be lost."""
    journals: dict[str, DurableReply]


class Hold(enum.IntEnum):
    """The state of a claim that a worker names."""

    STANDS = 1
    """The job is held under it: an outcome counts."""
    LATE = 2
    """It is not, and the job has not ended: only a success counts, for the job did run."""
    OVER = 3
    """The job has ended, or does not exist."""


class Log(NamedTuple):
    """What an attempt printed, or a part of that."""

    fence: int
    """The fence of the attempt; 0: not known."""
    start: int
    """How many bytes the attempt had printed before `data`."""
    data: bytes
    """The text in UTF-8; each line ends with a line end, the last one too."""

    @property
    def end(self) -> int:
        """Return how many bytes the attempt had printed at the end of `data`."""
        return self.start + len(self.data)

    @property
    def text(self) -> str:
        """Return the log as text, for people."""
        return self.data.decode("utf-8", "replace").removesuffix("\n")


NO_LOG = Log(0, 0, b"")


class Entrusted(NamedTuple):
    """A claim that a worker names, as the store knows it."""

    hold: Hold
    held: Held | None
    """The job with a nil argument, and its present attempt. None when it is over, or has not come to this store yet."""
    worker: str
    """The worker that holds the job by itself (lease); "": none does."""
    silence_s: int
    """The worker timeout; 0 unless a worker holds it."""
    cancelled: bool
    """Whether somebody cancelled the job; it has not ended yet."""
    log_end: int | None = None
    """How many printed bytes of this attempt a listener has; None: nobody follows the log."""


class Lease(NamedTuple):
    """What one worker holds under one claim."""

    fence: int
    worker: str
    silence_s: int
    """The worker timeout; 0: it was found before, by a daemon that wrote no outcomes."""
    jobs: list[Held]
    """The jobs of the lease, with nil arguments."""


class SilentLeases(NamedTuple):
    """Worker timeouts that were found."""

    now: int
    """The present number of the sequence that numbers signs of life."""
    silences_s: tuple[int, ...]
    """The timeouts that leases have; 0 for leases set aside before."""
    given_back: int
    """Jobs without any sign of life in this life of the store: they are ready again, untried."""
    leases: list[Lease]
    """Set aside: of what their workers report only a success counts."""


class Followed(NamedTuple):
    """The settings that changed since a daemon's last question."""

    rules_at: int
    """Number of the last setting in it; for the next call."""
    settings: list[Setting]
    signs_at: int
    alive: dict[str, int]
    """Ids of workers that gave some daemon a sign of life, and how many milliseconds ago."""
    unknown: list[str]
    """Ids of the caller's own live workers that have no registration in the store: these must be saved again."""
    more: bool
    now_ms: int
    """The present time by the store's clock."""


class Release(enum.StrEnum):
    """What becomes of jobs that are given back without an outcome."""

    UNGET = "unget"
    """Ready at once, untried. A worker may have begun them, so they do not expire any more.

    docs/adr/roads-not-taken.md, Expiry."""
    UNSENT = "unsent"
    """As UNGET, but no worker began them: those that had to begin by now are dead."""


class Suspects(enum.StrEnum):
    """How suspects (jobs in flight at two deaths of daemons) are claimed."""

    ALONE = "alone"
    """One, by itself, by an empty daemon, which gets nothing more for a while; one that is not empty gets others."""
    COMPANY = "company"
    """One, by a daemon that is not empty."""
    NONE = "none"
    """Only the jobs behind them."""


class EditGiven(NamedTuple):
    """A change of a job may be journaled."""

    revision: int
    """0: it may not, for its own id is another job's."""
    life: str
    """The life of the store in which the job existed: if it is missing in that life, it was deleted since."""


class QueuePlace(NamedTuple):
    """What runs before a job that is ready."""

    ahead: int
    """How many jobs of its type are before it."""
    exact: bool
    """Whether `ahead` is exact; False: it is an upper bound."""
    deaths: int
    """How many daemons died while they had the job in flight."""
    suspect: bool
    """Whether it runs alone, at an empty daemon."""
    better_types: int
    """How many other jobtypes have a better best job."""
    better: list[tuple[str, int]]
    """Some of those, and how many jobs of each are ready."""
    limited_by: str = ""
    """The constraint that its queue waits for, and where it has keys `WITHIN` and the key: both may have blanks."""
    until_ms: int = 0
    """When that constraint is checked again; 0: when one of its jobs in flight ends."""
    holds: tuple[str, ...] = ()
    """Ids of some jobs in flight that the constraint counts."""


class OnItsWay(NamedTuple):
    """The job is not in the store, but its journal has not been applied that far: it may still come."""

    last_id: str
    """The last id applied of that journal, "" when none was."""
    held: bool = False
    """Whether a daemon reported that the job is in flight there."""
    is_promised: bool = False
    """Whether it, or a later content of it, was promised under its pusher's own id."""


class JobView(Job, frozen=True, kw_only=True, gc=False):
    """One job with all that is known of it. In a page of jobs the argument is nil."""

    state: State
    attempts: int
    """Attempts begun, the present one included."""
    started_at_ms: int
    """When the present or last attempt began; 0 when there was none."""
    daemon: str
    """The sysid that holds it, or empty."""
    outcome: Outcome | None
    """The outcome of the last attempt that ended, without its result."""
    history: list[Outcome]
    """Failed attempts, oldest first; only the last few are kept."""
    cancel_asked: bool
    result: bytes | LargeResult | None
    """One MessagePack value; None when it was not kept, or is dropped."""
    revision: int = 0
    """Grows with every change; 0 for a job that is as it was pushed under an id of ours."""
    generation: int = 0
    """The revision of the latest change that was no mere edit. A cancel names it."""
    missed: bool = False
    """The latest change found it in flight or ended, and did not apply."""
    worker: str = ""
    """The worker that holds it by itself (lease); "": none does."""
    progress: bytes | None = None
    """One MessagePack value: the last progress of its worker, while it is in flight."""
    snoozes: int = 0
    """How often its worker put it off (`snooze`)."""
    interruptions: int = 0
    log: str = ""
    """The end of what its last attempt printed, if that failed; only of the newest failures."""


class Page(NamedTuple):
    jobs: list[JobView]
    """Newest first, without their results."""
    cursor: str
    """Where the next page begins; "" when there is none."""
    looked: int = 0
    """How many jobs were looked at for it."""
    in_parts: bool = False
    """There are more places (sets of ids) than one page merges: jobs in one group of places are listed before those
    in the next, even if the latter are newer.
    """
