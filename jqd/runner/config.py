"""The runner's settings."""

from dataclasses import dataclass, field
from typing import Literal

from jqd.domain.results import RESULT_BYTES_MAX
from jqd.domain.setting_text import SECRET, WHOLE
from jqd.domain.signature import why_no_secrets
from jqd.domain.units import Bytes, Count, Seconds, Times
from jqd.runner.outcome import MAX_INTERRUPTIONS
from jqd.runner.ssrf import SsrfGuard


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """How workers are reached, what one request and answer may hold, and how long each step may take."""

    timeout_margin_s: Seconds = 0.5
    """How late after a job's timeout its outcome still counts."""
    connect_timeout_s: Seconds = 5.0
    """How long connecting to a worker may take; then its jobs go back, with no attempt counted."""
    result_bytes_max: Bytes = RESULT_BYTES_MAX
    """Size of a kept result as MessagePack, in the store's memory. A larger one is dropped.
    Allowed: above 0, at most 16 MiB"""
    answer_bytes_max: Bytes = 256 << 20
    """Size of a worker's answer with all its results."""
    batch_bytes_max: Bytes = 4 << 20
    """Size of the arguments in one request; a larger job has a request to itself."""
    connections_max: Count = 1024
    """Connections to all workers together, at most half of the limit of open files; raise it for many workers that take
    one job a request."""
    keepalive_s: Seconds = 4.0
    """How long an idle connection is kept; below what the workers' server has."""
    untaken_jobs_max: Count = 20_000
    """Outcomes that wait for the disk; with more no job is started."""
    untaken_bytes_max: Bytes = 64 << 20
    """Size of their results."""
    linger_s: Seconds = 1.0
    """How long an answer may take to end after its last outcome."""
    tick_s: Seconds = 0.05
    """How late a timeout may be noticed."""
    backoff_first_s: Seconds = 0.5
    """First pause of a worker that is away or overloaded."""
    backoff_cap_s: Seconds = 30.0
    """Longest such pause."""
    max_interruptions: Times = MAX_INTERRUPTIONS
    """How often a job may begin again because its worker or daemon was stopped: at one more it is dead
    (PYTHON.md#stop)."""
    retry_after_max_s: Seconds = 3_600.0
    """The longest pause that a worker may ask for."""
    worker_networks: tuple[str, ...] = ()
    """Networks that workers may be in, whoever registers them; set it behind a proxy (WORKERS.md).
    Allowed: a list like `["10.1.0.0/16"]`"""
    callback_networks: tuple[str, ...] = ()
    """Networks beside public addresses that callbacks may go to (HTTP.md#callbacks).
    Allowed: a list like `["10.1.0.0/16"]`"""
    callback_secret: str = field(default="", metadata={SECRET: WHOLE})
    """Signs callbacks (HTTP.md#callbacks); better in a file: `JQD_RUNNER__CALLBACK_SECRET_FILE`. The same at all
    daemons.
    Allowed: `whsec_` and 24 to 64 bytes in base64"""
    allow_code: bool = False
    """Whether handlers may be code (HTTP.md#handlers-in-code). Whoever sets one runs code where code workers run."""
    sandbox: Literal["none", "bwrap"] = "none"
    """What code workers run code in. Only with bwrap may it be set for other tenants than the one without a name."""

    def __post_init__(self) -> None:
        if self.result_bytes_max > RESULT_BYTES_MAX:
            raise ValueError(
                f"runner.result_bytes_max = {self.result_bytes_max} must be at most {RESULT_BYTES_MAX} (16 MiB): "
                "journal, store and workers take no larger result; store it elsewhere and return where"
            )
        for name, networks in (
            ("worker_networks", self.worker_networks),
            ("callback_networks", self.callback_networks),
        ):
            try:
                SsrfGuard(networks)
            except ValueError as error:
                raise ValueError(f"runner.{name} lists networks such as 10.1.0.0/16: {error}") from error
        if self.callback_secret and (why := why_no_secrets([self.callback_secret])):
            raise ValueError(f"runner.callback_secret: {why}")
