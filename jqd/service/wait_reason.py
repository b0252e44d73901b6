"""Why a job waits: reasons, with a sentence for people and fields for programs."""

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
    """For people, without a full stop."""
    since_ms: int = 0
    until_ms: int = 0
    """When it is over by itself; 0: that is not known."""
    by: str = ""
    """Who made it so."""
    workers: tuple[tuple[str, str, str], ...] = ()
    """Workers that take such jobs, and get none now: name, state, reason."""
    ahead: int | None = None
    """Jobs of its type that come before it."""
    is_exact: bool = True
    """There are so many before it; else so many or fewer."""
    better: tuple[tuple[str, int], ...] = ()
    """Some of the other jobtypes whose best job is better, and how many of each are ready."""
    more_better: int = 0
    """Such jobtypes beside those."""
    holds: tuple[str, ...] = ()
    """Jobs in flight that a constraint counts."""
    deaths: int = 0
    """How many daemons died while they had the job in flight."""
