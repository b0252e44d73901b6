"""Which of the processes of one `jqd serve --processes N` a daemon is. Each is a daemon of its own, with a journal."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """Its number, and how the others are reached."""

    number: int = 0
    processes: int = 1
    """How many share the port. Those from this number on are *surplus*: an earlier start had more."""
    urls: tuple[str, ...] = ()
    """Where each process is reached by the others alone, by number; empty: there is no such process."""

    @property
    def surplus(self) -> str | None:
        """Return what a surplus process is there for; None: it is none."""
        if self.number < self.processes:
            return None
        return (
            f"process {self.number} takes no pushes and begins no jobs: processes = {self.processes}. It is there for "
            "its journal, until no job of that can be needed; a start after that leaves it out"
        )


ALONE = Process()
