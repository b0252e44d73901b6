"""Describes which of the processes of a `jqd serve --processes N` a daemon is. Each process is a daemon with a journal
of its own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """The number of this process, and how to reach the others."""

    number: int = 0
    processes: int = 1
    """How many processes share the port. A process with this number or a higher one is *surplus*: the last start had
    more processes."""
    urls: tuple[str, ...] = ()
    """The URL of each process for the other processes, by process number; an empty URL: there is no such process."""

    @property
    def surplus(self) -> str | None:
        """Return a sentence that says why this process exists although fewer processes are configured now; None if it
        is one of the configured ones."""
        if self.number < self.processes:
            return None
        return (
            f"process {self.number} takes no pushes and begins no jobs: processes = {self.processes}. It is there for "
            "its journal, until no job of that can be needed; a start after that leaves it out"
        )


ALONE = Process()
