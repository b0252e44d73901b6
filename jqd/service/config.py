"""Settings of the service: defaults and limits of jobs, and the longest waits."""

from dataclasses import dataclass

from msgspec import UNSET

from jqd.domain.job import MAX_RETRY_MAX
from jqd.domain.job_spec import JobOptions
from jqd.domain.units import Bytes, Count, Seconds


@dataclass(frozen=True, slots=True)
class JobConfig:
    """Defaults for options of jobs that neither the pusher nor a registration gives."""

    expires_in_s: Seconds | None = None
    """The default `expires_in` (HTTP.md#pushing-jobs-post-v1jobs): a job fails if it has not begun within this time
    after its date or push. Set it if jobs that no worker takes must not stay."""
    retry_for_s: Seconds | None = None
    """For this time after its date, push, or latest retry by hand a job is tried again when it fails, and not
    afterwards. Jobs without their own `max_retry` are tried until then, however often."""

    @property
    def usual(self) -> JobOptions:
        """Return these defaults as options."""
        return JobOptions(
            max_retry=UNSET if self.retry_for_s is None else MAX_RETRY_MAX,
            expires_in=UNSET if self.expires_in_s is None else self.expires_in_s,
        )


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The largest jobs and pushes, and the longest waits."""

    job_bytes_max: Bytes = 1 << 20
    """The largest job; better put big data elsewhere and push where it is.
    Allowed: above 0, at most `api.array_bytes_max`"""
    array_bytes_max: Bytes = 16 << 20
    """The largest push; `journal.frame_bytes_max` must hold it.
    Allowed: above 0, at most three quarters of `api.bodies_bytes_max`"""
    array_jobs_max: Count = 10_000
    """The most jobs in one push."""
    wait_s_max: Seconds = 60.0
    """The longest `wait`; below the idle time of your load balancer."""
    poll_s: Seconds = 1.0
    """How often a daemon asks the store whether awaited jobs have ended at other daemons."""
    cancel_s: Seconds = 2.0
    """How long a cancel or a change waits for the store before it answers that it is recorded."""
    find_s: Seconds = 1.0
    """How long a tenant's request waits for a job on its way into the store."""
    store_s: Seconds = 10.0
    """How long `ack=store` waits before it becomes `fsync`; give it `3s` or more."""

    def __post_init__(self) -> None:
        if self.job_bytes_max > self.array_bytes_max:
            raise ValueError(
                f"job_bytes_max = {self.job_bytes_max} must not be more than array_bytes_max = {self.array_bytes_max}: "
                "a job is pushed in an array, if only of one"
            )
