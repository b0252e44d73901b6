"""Long polls that wait for jobs to end: they register here, and ingest of outcomes and cancels wakes them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import trio


class Waiters:
    """Events by job. A hint only: a job may end through another daemon, so waiters also look by time."""

    def __init__(self) -> None:
        self._bells: dict[str, list[trio.Event]] = {}

    @contextmanager
    def waiting(self, job_id: str) -> Iterator[trio.Event]:
        """An event that is set when an ending of this job is applied here."""
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
