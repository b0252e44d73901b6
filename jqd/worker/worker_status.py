"""What a worker says of itself: to its daemons in its registration, and in its own log while something is wrong."""

from collections.abc import Callable, Mapping
from typing import Any

import trio

from jqd.domain.log import get_logger
from jqd.worker.executors import named
from jqd.worker.job import Declared
from jqd.worker.service import Service

LOOK_S = 1.0  # how late a daemon may hear of trouble
STUCK_EVERY_S = 60.0  # between two lines about jobs that are stuck: seen in any log, and no flood
TROUBLE_CHARS_MAX = 1_000
STUCK = "they were given up at their timeout and still hold their threads: bound the calls in these functions"


class WorkerStatus:
    def __init__(self, service: Service, jobs: Mapping[str, Declared], card: Mapping[str, Any]) -> None:
        self._service, self._jobs, self._card = service, jobs, card
        self._trouble: str | None = None
        self._log = get_logger("worker")

    def card(self) -> dict[str, Any]:
        """What its registration says now. Each job says all its options: what it leaves out, it has none of."""
        jobs = [{"name": job.name, **job.declared} for job in self._jobs.values()]
        trouble = {"trouble": self._trouble} if self._trouble else {}
        return {**self._card, "jobs": jobs} | trouble

    async def watch(self, changed: Callable[[], None]) -> None:
        """Notice trouble, and call `changed` when there is some, or no longer; say again and again which jobs hang."""
        said_s = trio.current_time() - STUCK_EVERY_S
        while True:
            await trio.sleep(LOOK_S)
            trouble = (self._service.trouble() or "")[:TROUBLE_CHARS_MAX] or None
            if (trouble is None) != (self._trouble is None):
                self._trouble = trouble
                changed()
            stuck = self._service.stuck()
            if stuck and trio.current_time() - said_s >= STUCK_EVERY_S:
                said_s = trio.current_time()
                say = self._log.error if trouble else self._log.warning
                say("worker.stuck", jobs=named(stuck), threads=len(stuck), takes_jobs=trouble is None, next=STUCK)


def slots_of(jobs: Mapping[str, Declared], concurrency: int, processes: int) -> int:
    """Jobs at once: of plain functions in processes as many as there are, of all others `concurrency`."""
    plain = [job.loop is None for job in jobs.values()]
    return max(processes if processes and any(plain) else 0, concurrency if not processes or not all(plain) else 0, 1)
