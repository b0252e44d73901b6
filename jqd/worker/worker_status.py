"""What a worker reports to its daemons: its registration and the progress of its jobs; and what troubles it.

    job.progress(…) ──▶ the item's voice ──▶ beats ──POST /v1/jobs/{id}/heartbeat──▶ the store, for all daemons to show

That is the call that workers have which pull their jobs: at most one a second for each job, one request at a time. What
cannot be told in time is not told, for the next word is newer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import httpx2
import msgspec
import trio

from jqd.domain.log import get_logger
from jqd.domain.media import MSGPACK
from jqd.worker.batch import Item
from jqd.worker.executors import named
from jqd.worker.job import Declared
from jqd.worker.service import Service

EVERY_S = 1.0  # as often as somebody who watches looks; each is a write in the store
CALL_TIMEOUT_S = 5.0
GONE = (404, 409)  # the job is not there, or in this lease, any more: there is nothing to tell


class Place(Protocol):
    daemon: str
    is_away: bool


class ProgressReporter:
    """Sends progress to the daemon. `spoke` is for any thread."""

    def __init__(self, places: Sequence[Place], http: httpx2.AsyncClient) -> None:
        self._places, self._http = places, http
        self._items: dict[Item, None] = {}
        self._trouble = ""
        self._log = get_logger("worker")

    def spoke(self, item: Item) -> None:
        if item.voice is not None and item.voice.far is not None and item.batch.lease_id:
            self._items[item] = None

    async def run(self) -> None:
        while True:
            await trio.sleep(EVERY_S)
            for item in list(self._items):
                self._items.pop(item, None)
                if item.voice is not None and (far := item.voice.far) is not None and not item.ended:
                    item.voice.far = None
                    await self._tell(item, *far)

    async def _tell(self, item: Item, done: float | None, message: str) -> None:
        told: Mapping[str, Any] = {"lease_id": item.batch.lease_id, "message": message}
        body = msgspec.msgpack.encode(told if done is None else {**told, "progress": done})
        trouble = "no daemon answers"
        for place in self._places:
            if place.is_away:
                continue
            try:
                with trio.fail_after(CALL_TIMEOUT_S):
                    url = f"{place.daemon}/v1/jobs/{item.job_id}/heartbeat"
                    answer = await self._http.post(url, content=body, headers={"content-type": MSGPACK})
            except (httpx2.HTTPError, trio.TooSlowError) as error:
                trouble = f"{place.daemon} is not reached: {type(error).__name__} {error}".rstrip()
                continue
            if answer.status_code == 404:
                trouble = ""  # the daemon of another store, perhaps
                continue
            trouble = "" if answer.status_code in (200, *GONE) else f"{place.daemon} answers {answer.status_code}"
            break
        if trouble and trouble != self._trouble:
            self._log.warning("worker.progress_untold", trouble=trouble, next="the jobs go on")
        self._trouble = trouble


LOOK_S = 1.0  # how late a daemon may hear of trouble
STUCK_EVERY_S = 60.0  # between two lines about jobs that are stuck: seen in any log, and no flood
TROUBLE_CHARS_MAX = 1_000
STUCK = "they were given up at their timeout and still hold their threads: bound the calls in these functions"


class WorkerStatus:
    def __init__(self, service: Service, jobs: Mapping[str, Declared], card: Mapping[str, Any]) -> None:
        self._service, self._jobs, self._card = service, jobs, card
        self._trouble: str | None = None
        self._log = get_logger("worker")

    def spec(self) -> dict[str, Any]:
        """Return the registration as it is now. Each job names all its options: what it leaves out, it has none of."""
        jobs = [{"name": job.name, **job.declared} for job in self._jobs.values()]
        trouble = {"trouble": self._trouble} if self._trouble else {}
        return {**self._card, "jobs": jobs} | trouble

    async def watch(self, changed: Callable[[], None]) -> None:
        """Watch for trouble, and call `changed` when some begins or ends; log again and again which jobs hang."""
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
    """Return the jobs at once: of plain functions as many as there are processes, of others `concurrency`."""
    plain = [job.loop is None for job in jobs.values()]
    return max(processes if processes and any(plain) else 0, concurrency if not processes or not all(plain) else 0, 1)
