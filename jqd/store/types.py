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
    """0: burnt; a daemon under it can change nothing any more."""
    through: bool
    """It came through recovery in this life of the store."""


class WaitingType(NamedTuple):
    """A jobtype that has jobs ready to run."""

    jobtype: str
    priority: int
    """Of the best one; smaller runs first."""
    head_id: str
    """The oldest of that priority, which is next."""
    waiting: int
    suspect: bool = False
    """That job was in flight at two deaths of daemons: it runs by itself now, at an empty daemon."""
    rank: int | None = None
    """Where jobs age: the priority, and in which period the job became ready."""


class Ages(NamedTuple):
    """The ageing parameters of a claim."""

    period_ms: int
    no_worse_than: int
    """A rank: no job behind it."""
    priority: int
    """Of the job that was seen first."""

    @property
    def words(self) -> str:
        """Return them as the script takes them."""
        return f"{self.period_ms} {self.no_worse_than} {self.priority}"


class Promoted(NamedTuple):
    moved: int
    next_due_ms: int | None
    """Milliseconds until the next job falls due, 0 when more are due already, None when none has a date."""
    died: Mapping[str, int] = {}
    """Jobtype → how many of it died in the store itself since somebody asked: of these no outcome tells."""


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


class Renewed(NamedTuple):
    members: dict[str, Member]
    settled: bool
    cancels: list[tuple[str, int]]
    """Claims (id, fence) of ours whose cancel was asked since the last renewal, or that a later claim, told again, took
    from us. A hint: reported once at most."""


class DurableReply(NamedTuple):
    """The last report of a journal. Both numbers are of the growing sequence that fences are of."""

    since: int
    """All jobs that it keeps, and may apply again, were written after that; 0: no report yet."""
    at: int
    """When it reported that, or was first met."""


JOINS_MAX = 5  # times in a row that a daemon may join, never through, while others wait for it
JOINS_SOON_S = 60.0  # apart at most; as long as a daemon may make no progress before it resigns


class Ends(NamedTuple):
    """How some jobs ended, or are about to end."""

    outcomes: list[Outcome]
    """Of those that ended by one, without results; and the leases of those that workers hold by themselves."""
    asked: dict[str, int]
    """Ids of jobs in flight that end as cancelled when they are released → up to which generation; and of cancelled
    ones of which that is known."""
    gone: list[str]
    """Ids of the other cancelled ones, and of those that do not exist."""


class KeptJob(NamedTuple):
    """Since when each journal keeps jobs."""

    now: int
    """Later than all that was applied before."""
    began: int
    """Earlier than all reports of this life of the store; earlier ones may be forgotten."""
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
    """Of the attempt; 0: not known."""
    start: int
    """How many bytes it had printed before these."""
    data: bytes
    """UTF-8. The last line has its end, too."""

    @property
    def end(self) -> int:
        """How many bytes it printed with these."""
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
    """Who holds it by itself; "" unless one does."""
    silence_s: int
    """The worker timeout; 0 unless a worker holds it."""
    cancelled: bool
    """Its cancel was asked."""
    log_end: int | None = None
    """Somebody watches what it prints, and knows so many bytes of this attempt."""


class Lease(NamedTuple):
    """What one worker holds under one claim."""

    fence: int
    worker: str
    silence_s: int
    """The worker timeout; 0: it was found before, by a daemon that wrote no outcomes."""
    jobs: list[Held]
    """With nil arguments."""


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
    """Those of the caller's own signs that no setting knows: these must be saved again."""
    more: bool
    now_ms: int
    """By the store's clock."""


class Release(enum.StrEnum):
    """What becomes of jobs that are given back without an outcome."""

    UNGET = "unget"
    """Ready at once, untried. A worker may have begun them, so they do not expire any more.

    docs/adr/roads-not-taken.md, Expiry."""
    UNSENT = "unsent"
    """As UNGET, but no worker began them: those that had to begin by now are dead."""
    RETRY = "retry"
    """Eligible again after a delay, untried."""
    ARCHIVE = "archive"
    """Ended: it is kept to be looked at, and never runs."""


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
    life: str
    """Of the store, in which the job existed: a missing job in that life has been deleted since."""


class QueuePlace(NamedTuple):
    """What waits before a job that is ready."""

    ahead: int
    """Jobs of its type."""
    exact: bool
    """False: so many at most."""
    deaths: int
    """Of daemons that had it in flight."""
    suspect: bool
    """It runs by itself, at an empty daemon."""
    better_types: int
    """Other jobtypes whose best job is better."""
    better: list[tuple[str, int]]
    """Some of those, and how many jobs of each are ready."""
    limited_by: str = ""
    """The constraint that its queue waits for, and where it has keys `WITHIN` and the key: both may have blanks."""
    until_ms: int = 0
    """When that is looked at again; 0: when one of its jobs in flight is released."""
    holds: tuple[str, ...] = ()
    """Some of those jobs."""


class OnItsWay(NamedTuple):
    """The job is not in the store, but its journal has not been applied that far: it may still come."""

    last_id: str
    """The last id applied of that journal, "" when none was."""
    held: bool = False
    """A daemon says that it holds it."""


class JobView(Job, frozen=True, kw_only=True, gc=False):
    """One job with all that is known of it. In a page of jobs the argument is nil."""

    state: State
    attempts: int
    """Attempts begun, the present one included."""
    started_at_ms: int
    """Of the present or last attempt; 0 when there was none."""
    daemon: str
    """The sysid that holds it, or empty."""
    outcome: Outcome | None
    """Of the last attempt that ended, without its result."""
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
    """Who holds it by itself, or empty."""
    progress: bytes | None = None
    """One MessagePack value: the last progress of its worker, while it is in flight."""
    snoozes: int = 0
    """How often it was put off."""
    interruptions: int = 0
    log: str = ""
    """The end of what its last attempt printed, if that failed; only of the newest failures."""


class Page(NamedTuple):
    jobs: list[JobView]
    """Newest first, without their results."""
    cursor: str
    """Where to go on; "" when that was all."""
    looked: int = 0
    """How many jobs were looked at for it."""
    in_parts: bool = False
    """There are more places than are looked through side by side: what lies in one part of them is told before what
    lies in the next, whatever is newer."""
