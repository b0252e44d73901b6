"""Settings of a code worker: from which daemons it pulls jobs, and what the code may use of the machine."""

from typing import Literal

import msgspec

from jqd.domain.errors import ConfigError
from jqd.worker.lease import SILENCE_S_MIN

Sandbox = Literal["none", "bwrap"]
MIB = 1 << 20
THREADS_MIN, THREADS_EACH = 64, 4  # node has eleven in one process, numpy one for each core; a shell pipeline has few


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one context: its process with all descendants."""

    memory_mib: int = 512
    """Resident memory of all processes together; also address space of each, except for node, which reserves more."""
    processes: int = 64
    """Processes at once; a shell pipeline has a handful."""
    files: int = 256
    """Open files at once, of each process."""
    file_mib: int = 1024
    """Size of the largest file that it may write."""
    output_mib: int = 16
    """Output of one attempt; its last 64 KiB are kept."""
    cpu_s: int = 3600
    """Processor time of each process in its whole life: as long as a context may live."""

    @property
    def threads(self) -> int:
        """Limit of the threads of one context at once, so that the worker can start some, too."""
        return THREADS_MIN + THREADS_EACH * self.processes

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} {getattr(self, name)} leaves the code nothing to run with; it is 1 or more")


class CodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a code worker. They are passed on a command line, which others can read, so the token is not one of
    them."""

    daemons: list[str]
    concurrency: int = 4
    """Batches at once, each in its own process."""
    name: str | None = None
    drain_s: float = 30.0
    silence_s: float = 10.0
    """A worker that is silent for so long counts as dead: its jobs run again elsewhere."""
    log_level: str = "info"
    limits: Limits = Limits()
    sandbox: Sandbox = "none"
    network: bool = False
    """Whether code in a sandbox reaches the network."""
    environment: list[str] = []
    """Variables that code gets from the worker's own environment, besides the few that all code gets."""
    user: str = ""
    """The user that code runs as; empty: the worker's own. Required if the worker is root."""
    python: str = ""
    """The interpreter for `lang: python`; empty: the worker's own."""
    batches_max: int = 1000
    """A context ends after so many batches, so that leaks in it stay small."""
    age_s_max: float = 3600.0
    """A context ends when it is older than this."""
    idle_s: float = 300.0
    """A context ends after so many seconds without a batch."""

    def __post_init__(self) -> None:
        if self.silence_s < SILENCE_S_MIN:
            raise ConfigError(f"silence of {self.silence_s:g} s: a worker that is merely busy would lose its jobs")
        if self.concurrency < 1:
            raise ConfigError(f"concurrency {self.concurrency} would run nothing; it is 1 or more")
