"""What the store's methods take and give."""

import enum
from typing import NamedTuple

from jqd.domain.job import Held, Job, Outcome, State
from jqd.domain.settings import Setting
from jqd.store.counts import Counts

CALL_JOBS_MAX = 2_000  # records in one call: four times what a caller should send, so a script stays below about 20 ms


class Owner(NamedTuple):
    """Under which name and epoch a daemon holds jobs."""

    sysid: str
    epoch: int


class Member(NamedTuple):
    """A daemon's heartbeat as the store shows it. Both numbers only grow, even when the store is emptied."""

    counter: int
    epoch: int
    """0: burnt, whoever lived under it can change nothing any more."""
    through: bool
    """It came through the recovery barrier of this life of the store."""


class WaitingType(NamedTuple):
    """A jobtype that has jobs ready to run."""

    jobtype: str
    priority: int
    """The best one waiting; smaller runs first."""
    head_id: str
    """The job that is next: the oldest of that priority."""
    waiting: int
    suspect: bool = False
    """That job was in hand at two deaths of daemons: it runs by itself now, in an empty hand."""
    rank: int | None = None
    """Where jobs age: the priority, and in which period the job became ready."""


class Ages(NamedTuple):
    """A claim where jobs age."""

    period_ms: int
    no_worse_than: int
    """A rank: no job behind it."""
    priority: int
    """Of the job that was seen first."""

    @property
    def words(self) -> str:
        """As the script takes it."""
        return f"{self.period_ms} {self.no_worse_than} {self.priority}"


class Promoted(NamedTuple):
    """What a look at the dates brought."""

    moved: int
    next_due_ms: int | None
    """Milliseconds until the next job falls due, 0 when more are due already, None when none has a date."""


class StoreStats(NamedTuple):
    """Numbers of jobs by where they lie, and the server's memory in bytes. A jobtype counts in each partition."""

    waiting: int
    """Ready to run, also if they failed before."""
    scheduled: int
    """Have a date, also if that is of their next try."""
    running: int
    ended: int
    dead: int
    types: int
    used_memory: int
    unreachable: tuple[int, ...] = ()
    """Partitions that are counted nowhere here, for they did not answer."""
    counts: Counts = Counts()
    """Numbers of jobs by their states, and of what happened in the last minute."""


class StoreLook(NamedTuple):
    """Who answers."""

    identity: str
    """Changes whenever the store may be older than it was, emptied, or another one."""
    settled: bool
    """All daemons came through the recovery barrier under this very identity."""
    fence: int = 0
    """The last fence or epoch that it had given."""


class Renewed(NamedTuple):
    """What a renewal brings back."""

    members: dict[str, Member]
    settled: bool
    cancels: list[tuple[str, int]]
    """Claims (id, fence) in our hand whose cancel was asked since the last renewal. A hint: told once at most."""


class DurableReply(NamedTuple):
    """What a journal told last. Both are of the growing sequence that fences are of."""

    since: int
    """All jobs that it keeps, and may apply again, were written after that; 0: it has not told yet."""
    at: int
    """When it told that, or was first met."""


SEATS_MAX = 5  # seats in a row, never through: who is killed and started a few times is waited for
SEATS_SOON_S = 60.0  # apart at most; as long as a daemon may get nowhere before it gives its seat up


class Ends(NamedTuple):
    """How some jobs ended, or are about to."""

    outcomes: list[Outcome]
    """Of those that ended by one, less their results; and how those went on that workers hold by themselves."""
    asked: dict[str, int]
    """Ids of those in a hand that are cancelled when they leave it → up to which generation."""
    gone: list[str]
    """Ids of those that were cancelled, or are not here."""


class KeptJob(NamedTuple):
    """Since when journals keep jobs."""

    now: int
    """Later than all that was applied before."""
    began: int
    """Earlier than all that was told in this life of the store; what was told before may be forgotten."""
    journals: dict[str, DurableReply]


class Hold(enum.IntEnum):
    """What is true of a claim that a worker names."""

    STANDS = 1
    """The job is held under it: an outcome counts."""
    LATE = 2
    """It is not, and the job has not ended: only a success counts, for the job did run."""
    OVER = 3
    """The job has ended, or is not here."""


class Entrusted(NamedTuple):
    """A claim that a worker names, as the store knows it."""

    hold: Hold
    held: Held | None
    """The job with a nil argument, and its present attempt. None when it is over, or has not come to this store yet."""
    worker: str
    """Who holds it by itself; "" unless one does."""
    silence_s: int
    """For how long that worker may be silent; 0 unless one holds it."""
    cancelled: bool
    """Somebody wants it stopped."""


class Lease(NamedTuple):
    """What one worker holds under one claim."""

    fence: int
    worker: str
    silence_s: int
    """For how long it was allowed to be silent; 0: it was found silent before, and whoever found it is gone."""
    jobs: list[Held]
    """With nil arguments."""


class Silent(NamedTuple):
    """What a look for silent workers found."""

    now: int
    """Where the sequence stands that numbers signs of life: what comes later has a higher one."""
    silences_s: tuple[int, ...]
    """The lengths that leases have; 0 for those that were found silent."""
    given_back: int
    """Jobs of which nothing was heard in this life of the store: they are ready again, untried."""
    leases: list[Lease]
    """Set aside: nothing that their workers say counts any more, but a success."""


class Followed(NamedTuple):
    """What became known since a daemon asked last."""

    rules_at: int
    """Number of the last rule it was told; for the next call."""
    settings: list[Setting]
    signs_at: int
    alive: dict[str, int]
    """Ids of workers that some daemon heard of, and how many milliseconds ago that was."""
    unknown: list[str]
    """Those of the caller's own signs that no rule knows: they must be said again."""
    more: bool
    """Not all was told."""
    now_ms: int
    """When that was, by the store's clock."""


class Release(enum.StrEnum):
    """What becomes of jobs that are given back without an outcome."""

    UNGET = "unget"
    """Ready at once, untried. A worker may have begun them, so they do not expire any more.

    docs/adr/roads-not-taken.md, Expiry."""
    UNSENT = "unsent"
    """The same, and no worker began them, for none was told, or it refused: who had to begin by now is dead."""
    RETRY = "retry"
    """Eligible again after a delay, untried."""
    ARCHIVE = "archive"
    """Ended: it is kept to be looked at, and never runs."""


class Suspects(enum.StrEnum):
    """How jobs are taken that were in hand at two deaths of daemons."""

    ALONE = "alone"
    """One, by itself, by an empty hand, which gets nothing more for a while; a hand that is not empty takes others."""
    COMPANY = "company"
    """One, by a hand that is not empty."""
    NONE = "none"
    """None: the jobs behind them."""


class EditGiven(NamedTuple):
    """A change of a job may be journaled."""

    revision: int
    life: str
    """Of the store, in which the job was there: a missing job in that life has been deleted since."""


class QueuePlace(NamedTuple):
    """What waits before a job that is ready."""

    ahead: int
    """Jobs of its type."""
    exact: bool
    """False: so many at most."""
    deaths: int
    """Of daemons that had it in hand."""
    suspect: bool
    """It runs by itself, in an empty hand."""
    better_types: int
    """Other jobtypes whose best job is better."""
    better: list[tuple[str, int]]
    """Some of those, and how many jobs of each are ready."""
    limited_by: str = ""
    """The constraint that its queue waits for, and where it has keys `WITHIN` and the key: both may have blanks."""
    until_ms: int = 0
    """When that is looked at again; 0: when a job that it has in a hand leaves it."""
    holds: tuple[str, ...] = ()
    """Some of those jobs."""


class OnItsWay(NamedTuple):
    """The job, or what was last acknowledged under its pusher's id, is not in the store, but its journal has not been
    applied that far: it may still come."""

    last_id: str
    """The last id applied of that journal, "" when none was."""
    held: bool = False
    """A daemon says that it has it in hand."""


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
    result: bytes | None
    """One MessagePack value; None when it was not kept, or is dropped."""
    revision: int = 0
    """Grows with every change; 0 for a job that is as it was pushed under an id of ours."""
    generation: int = 0
    """The revision of the latest change that was no mere edit. A cancel names it."""
    missed: bool = False
    """The latest change found it in a hand or ended, and left it there."""
    worker: str = ""
    """Who holds it by itself, or empty."""
    progress: bytes | None = None
    """One MessagePack value: what its worker last said of how far it is, while it is in a hand."""
    snoozes: int = 0
    """How often it was put off."""
    interruptions: int = 0
    log: str = ""
    """The end of what its last attempt printed, if that failed; only of the newest failures."""


class Page(NamedTuple):
    """Some jobs, newest first."""

    jobs: list[JobView]
    """Without their arguments and results."""
    cursor: str
    """Where to go on; "" when that was all."""
