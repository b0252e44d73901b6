"""Limits of what the service takes, each with its unit and reason."""

from dataclasses import dataclass

from msgspec import UNSET

from jqd.domain.job import MAX_RETRY_MAX
from jqd.domain.job_options import JobOptions
from jqd.domain.units import Bytes, Count, Seconds


@dataclass(frozen=True, slots=True)
class JobConfig:
    """What counts for jobs whose pushers, and whoever registered for them, say nothing."""

    expires_in_s: Seconds | None = None  # none began in that time: nobody serves it, or nobody waits for it any more
    retry_for_s: Seconds | None = None
    """So long after its date, or its push, a job is tried again, however often. None: as often as `max_retry` says."""

    @property
    def usual(self) -> JobOptions:
        """As options."""
        return JobOptions(
            max_retry=UNSET if self.retry_for_s is None else MAX_RETRY_MAX,
            expires_in=UNSET if self.expires_in_s is None else self.expires_in_s,
        )


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """How large a job may be, and how long is waited for what."""

    job_bytes_max: Bytes = 1 << 20  # one job: a script call of the store must stay near 1 MiB
    array_bytes_max: Bytes = 16 << 20  # a whole request: half a journal frame, so that conversion from JSON still fits
    array_jobs_max: Count = 10_000  # some 10 ms of work in one piece
    wait_s_max: Seconds = 60.0  # a long poll: below the idle time of common load balancers
    poll_s: Seconds = 1.0  # jobs also end through other daemons: a waiter looks this often
    cancel_s: Seconds = 2.0  # how long a cancel waits for the store before it answers that it is recorded
    find_s: Seconds = 1.0  # a job on its way into the store is waited for by who must not know of others': it takes ms
    store_s: Seconds = 10.0  # how long an ack of the store waits for it before it comes down to fsync

    def __post_init__(self) -> None:
        if self.job_bytes_max > self.array_bytes_max:
            raise ValueError(
                f"job_bytes_max = {self.job_bytes_max} must not be more than array_bytes_max = {self.array_bytes_max}: "
                "a job is pushed in an array, if only of one"
            )
