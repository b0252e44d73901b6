"""Settings of a code worker: from which daemons it pulls jobs, and what the code may use of the machine."""

from typing import Literal

import msgspec

from jqd.domain.errors import ConfigError
from jqd.worker.lease import SILENCE_S_MIN

Sandbox = Literal["none", "bwrap"]
MIB = 1 << 20
THREADS_MIN, THREADS_EACH = 64, 4  # node has eleven in one process, numpy one for each core; a shell pipeline has few


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one context: a process that runs code, with all its descendants."""

    memory_mib: int = 512
    """Resident memory of all processes together. It also limits the address space of each, except for node, which
    reserves more than it uses."""
    processes: int = 64
    """Processes that run at the same time; a shell pipeline has a handful."""
    files: int = 256
    """Files that each process has open at the same time."""
    file_mib: int = 1024
    """Size of the largest file that the code may write."""
    output_mib: int = 16
    """Output of one attempt. Its last 64 KiB are kept as the log."""
    cpu_s: int = 3600
    """Processor time of each process in its whole life. The default is as long as a context may live."""

    @property
    def threads(self) -> int:
        """Threads of one context at the same time. The limit leaves some for the worker itself."""
        return THREADS_MIN + THREADS_EACH * self.processes

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} {getattr(self, name)} leaves the code nothing to run with; it is 1 or more")


class CodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a code worker. They are passed on a command line, which other users can read; so the token is not
    among them."""

    daemons: list[str]
    concurrency: int = 4
    """Batches that run at the same time, each in its own process."""
    name: str | None = None
    drain_s: float = 30.0
    silence_s: float = 10.0
    """After so many seconds without a heartbeat this worker counts as dead: its jobs run again elsewhere."""
    log_level: str = "info"
    limits: Limits = Limits()
    sandbox: Sandbox = "none"
    network: bool = False
    """Whether code in a sandbox can use the network."""
    environment: list[str] = []
    """Names of the worker's environment variables that code gets, besides the few that all code gets."""
    user: str = ""
    """User that code runs as; empty: the worker's user. Required if the worker is root."""
    python: str = ""
    """Path of the interpreter for `lang: python`; empty: the worker's own."""
    batches_max: int = 1000
    """A context ends after so many batches, so that memory leaks in it stay small."""
    age_s_max: float = 3600.0
    """A context ends after so many seconds."""
    idle_s: float = 300.0
    """A context ends after so many seconds in which it ran no batch."""

    def __post_init__(self) -> None:
        if self.silence_s < SILENCE_S_MIN:
            raise ConfigError(f"silence of {self.silence_s:g} s: a worker that is merely busy would lose its jobs")
        if self.concurrency < 1:
            raise ConfigError(f"concurrency {self.concurrency} would run nothing; it is 1 or more")
