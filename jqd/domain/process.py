"""Says which process of a `jqd serve --processes N` a daemon is. Each process is a daemon with a journal of its own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """The number of a process, and the URLs of the others."""

    number: int = 0
    processes: int = 1
    """How many processes share the port. One with this number or more is *surplus*: an earlier start had more."""
    urls: tuple[str, ...] = ()
    """The URL of each process for its siblings, by number; empty: there is no such process."""

    @property
    def surplus(self) -> str | None:
        """Return why a surplus process exists; None if this is no surplus process."""
        if self.number < self.processes:
            return None
        return (
            f"process {self.number} takes no pushes and begins no jobs: processes = {self.processes}. It is there for "
            "its journal, until no job of that can be needed; a start after that leaves it out"
        )


ALONE = Process()
