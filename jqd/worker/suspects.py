"""Jobs that shared a process which died, or stood still: one of them did it, and each is tried alone to tell which."""

from collections.abc import Iterable

SUSPECTS_MAX = 10_000  # remembered by their ids; the oldest goes first


class Suspects:
    """The ids of jobs that are to run alone here when they come again."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._ids

    def add(self, ids: Iterable[str]) -> None:
        """Remember these, and of all the newest SUSPECTS_MAX."""
        self._ids.update(dict.fromkeys(ids))
        while len(self._ids) > SUSPECTS_MAX:
            del self._ids[next(iter(self._ids))]

    def clear(self, job_id: str) -> None:
        """It was alone and nothing happened."""
        self._ids.pop(job_id, None)
