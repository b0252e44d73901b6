"""The reason why a job waits: a sentence for people, and fields for programs."""

import enum
from typing import NamedTuple


class Cause(enum.StrEnum):
    """The reasons why a job waits."""

    NOT_INGESTED = "not_ingested"
    STORE_AWAY = "store_away"
    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    RETRYING = "retrying"
    PAUSED = "paused"
    VERSION_GONE = "version_gone"
    NO_WORKER = "no_worker"
    OTHER_PRIORITIES = "other_priorities"
    WORKERS_DOWN = "workers_down"
    SUSPECT = "suspect"
    LIMITED = "limited"
    NOT_READY = "not_ready"
    BEHIND = "behind"
    NEXT = "next"
    RUNNING = "running"
    ENDED = "ended"


class WaitReason(NamedTuple):
    """Why one job waits."""

    reason: Cause
    text: str
    """The sentence for people, without a full stop."""
    since_ms: int = 0
    until_ms: int = 0
    """When the wait ends by itself (Unix ms); 0: unknown."""
    by: str = ""
    """The token that paused the jobs, or the worker that runs the job."""
    workers: tuple[tuple[str, str, str], ...] = ()
    """Workers that take such jobs but get none now: (name, state, why) of each."""
    ahead: int | None = None
    """Number of jobs of the same type that are started before it."""
    is_exact: bool = True
    """Whether `ahead` is exact; else it is an upper bound."""
    better: tuple[tuple[str, int], ...] = ()
    """Other jobtypes whose first job is started before it: (name, number of ready jobs)."""
    more_better: int = 0
    """Number of further jobtypes like those in `better`."""
    holds: tuple[str, ...] = ()
    """Ids of jobs in flight that use up the constraint which holds the job back."""
    deaths: int = 0
    """How many daemons died while they had the job in flight."""
