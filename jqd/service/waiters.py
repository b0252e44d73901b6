"""Who waits for jobs to end: they register here, and are woken by what this daemon applies, and by `find.watch`."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import trio


class Waiters:
    """Events by job. A hint only: whoever waits looks the job up again."""

    def __init__(self) -> None:
        self._bells: dict[str, list[trio.Event]] = {}

    @property
    def job_ids(self) -> list[str]:
        """Return the jobs that are waited for."""
        return list(self._bells)

    @contextmanager
    def waiting(self, job_id: str) -> Iterator[trio.Event]:
        """Give an event that is set when the job may have ended."""
        bell = trio.Event()
        self._bells.setdefault(job_id, []).append(bell)
        try:
            yield bell
        finally:
            bells = self._bells[job_id]
            bells.remove(bell)
            if not bells:
                del self._bells[job_id]

    def ring(self, job_ids: Iterable[str]) -> None:
        if self._bells:
            for job_id in job_ids:
                for bell in self._bells.get(job_id, ()):
                    bell.set()
