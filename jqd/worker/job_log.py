"""Logs a line for each job that begins and ends, up to a rate; above it a count.

A worker may run 15,000 jobs a second, and two lines for each would take longer than the jobs. So LINES_PER_S jobs a
second are logged one by one, and of the others how many succeeded. Failures are always logged, where they happen.
"""

import sys

import trio

from jqd.domain.clock import Clock
from jqd.domain.log import get_logger, logs_debug
from jqd.worker.batch import Item

LINES_PER_S = 20  # jobs that begin: more than one reads, and at most some hundred microseconds a second
COUNT_S = 1.0  # between two lines with counts


class JobLog:
    """Logs jobs, from any thread. When two come at once a line may be lost, or one in a count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._log = get_logger("worker")
        self._logged, self._second, self._unlogged, self._most = 0, 0, 0, LINES_PER_S

    def began(self, item: Item) -> None:
        now_s = self._clock.mono_s()
        item.begun_s = item.begun_s or now_s
        if (second := int(now_s)) != self._second:
            self._second, self._logged = second, 0
            # Asked once a second: it takes as long as a small job.
            self._most = sys.maxsize if logs_debug() else LINES_PER_S
        self._logged += 1
        item.is_logged = self._logged <= self._most
        if item.is_logged:
            self._log.info("worker.job_started", **job_fields(item))

    def succeeded(self, item: Item) -> None:
        if item.is_logged:
            ms = round((self._clock.mono_s() - (item.begun_s or 0.0)) * 1000)
            self._log.info("worker.job_succeeded", **job_fields(item), ms=ms)
        else:
            self._unlogged += 1

    def count(self) -> None:
        count, self._unlogged = self._unlogged, 0
        if count:
            self._log.info("worker.jobs_succeeded", count=count, why=f"above {LINES_PER_S} a second jobs are counted")

    async def run(self) -> None:
        try:
            while True:
                await trio.sleep(COUNT_S)
                self.count()
        finally:
            self.count()


def job_fields(item: Item) -> dict[str, object]:
    return {"job_id": item.job_id, "name": item.job.name, "attempt": item.job.attempt}
