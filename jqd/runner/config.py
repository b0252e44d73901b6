"""What the runner may be told by configuration."""

from dataclasses import dataclass

from jqd.domain.units import Bytes, Count, Seconds, Times
from jqd.runner.outcome import MAX_INTERRUPTIONS
from jqd.runner.ssrf import SsrfGuard


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """Limits of the runner."""

    timeout_margin_s: Seconds = 0.5  # an outcome on its way when the timeout strikes still counts
    connect_timeout_s: Seconds = 5.0  # to reach a worker; beyond it its jobs go back, which costs them no attempt
    result_bytes_max: Bytes = 1 << 20  # of one job's result: it lives in the store's memory
    answer_bytes_max: Bytes = 64 << 20  # of one answer with all its results
    batch_bytes_max: Bytes = 4 << 20  # of the arguments in one POST; a single larger job has a POST to itself
    connections_max: Count = 1024  # to all workers together, where the limit of open files allows as many
    keepalive_s: Seconds = 4.0  # common servers close after 5 s; closing first avoids a race
    untaken_jobs_max: Count = 20_000  # outcomes that the journal has not taken yet: beyond it no job is started
    untaken_bytes_max: Bytes = 64 << 20  # of their results: while a disk is full, memory must not fill up
    linger_s: Seconds = 1.0  # for an answer to end after its last outcome, so that its connection can be kept
    tick_s: Seconds = 0.05  # how late a timeout may be noticed
    backoff_first_s: Seconds = 0.5  # a worker that is away or overloaded gets nothing for so long at first
    backoff_cap_s: Seconds = 30.0  # and at most for so long: one that comes back is found by then
    max_interruptions: Times = MAX_INTERRUPTIONS
    retry_after_max_s: Seconds = 3_600.0  # a worker may ask for a longer pause; it gets jobs again after an hour
    worker_networks: tuple[str, ...] = ()
    """Networks that workers may be in, such as 10.1.0.0/16, whoever registers them. Empty: see `reach.py`."""

    def __post_init__(self) -> None:
        try:
            SsrfGuard(self.worker_networks)
        except ValueError as error:
            raise ValueError(f"runner.worker_networks lists networks such as 10.1.0.0/16: {error}") from error
