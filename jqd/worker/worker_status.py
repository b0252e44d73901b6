"""What a worker reports about itself and its running jobs: the registration with its trouble, and jobs' progress and
output.

    job.progress(…) ──▶ the item's output ──▶ reporter ──POST /v1/jobs/{id}/heartbeat──▶ the store, for all daemons
    print(…) ─────────▶

Progress is sent at most once a second for each job, one request at a time. A report that cannot be sent in time is
dropped, as the next one is newer. Output is sent while somebody watches the job. The answer to a heartbeat says whether
anybody does, so a job that prints and runs for more than a second sends one now and then.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import httpx2
import msgspec
import trio

from jqd.domain.log import get_logger
from jqd.domain.media import MSGPACK
from jqd.worker.attempt_output import AttemptOutput
from jqd.worker.batch import Item
from jqd.worker.executors import jobs_text
from jqd.worker.job import Declared
from jqd.worker.service import Service

ASK_S = 5.0  # between questions whether somebody watches a job that prints: its first lines are seen so late at most
ASKS_MAX = 20  # such questions a second, to limit the load on daemons
EVERY_S = 1.0  # between reports, each a write in the store; often enough for somebody who watches
CALL_TIMEOUT_S = 5.0
GONE = (404, 409)  # the job is gone, or not in this lease any more: no trouble


class _Beaten(msgspec.Struct):
    log_end: int | None = None


class Place(Protocol):
    daemon: str
    is_away: bool


class ProgressReporter:
    """Sends progress and output of running jobs to a daemon. Any thread may call `note_output`."""

    def __init__(self, places: Sequence[Place], http: httpx2.AsyncClient) -> None:
        self._places, self._http = places, http
        self._items: dict[Item, None] = {}
        self._trouble = ""
        self._log = get_logger("worker")

    def note_output(self, item: Item) -> None:
        """Record that a job has new output or progress. `run` sends it soon."""
        if item.batch.lease_id:
            self._items[item] = None

    async def run(self) -> None:
        while True:
            await trio.sleep(EVERY_S)
            asked, now_s = 0, trio.current_time()
            for item in list(self._items):
                self._items.pop(item, None)
                output = item.output
                if output is None or item.ended:
                    continue
                if output.output is not None:
                    self._items[item] = None  # check it again in the next round: somebody may begin to watch it
                is_due = now_s - output.asked_s >= ASK_S and asked < ASKS_MAX
                lines = _lines(output)
                if output.far is not None or (output.output is not None and (lines is not None or is_due)):
                    asked += output.far is None and lines is None
                    output.asked_s = now_s
                    await self._send_lines(item, output, lines or (0, ""))

    async def _send_lines(self, item: Item, output: AttemptOutput, lines: tuple[int, str]) -> None:
        fields: dict[str, Any] = {"lease_id": item.batch.lease_id}
        if (far := output.far) is not None:
            output.far = None
            fields |= {"message": far[1]} | ({} if far[0] is None else {"progress": far[0]})
        if lines[1]:
            fields |= {"log_from": lines[0], "log": lines[1]}
        body = msgspec.msgpack.encode(fields)
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
            if answer.status_code == 200:
                output.log_end = _log_end(answer.content)
            trouble = "" if answer.status_code in (200, *GONE) else f"{place.daemon} answers {answer.status_code}"
            break
        if trouble and trouble != self._trouble:
            self._log.warning("worker.progress_not_sent", trouble=trouble, next="the jobs go on")
        self._trouble = trouble


def _lines(output: AttemptOutput) -> tuple[int, str] | None:
    """Return the output that those who watch the job do not have yet, as (position, lines): the byte where the lines
    begin, and the lines. None: nobody watches, or nothing is new."""
    if output.log_end is None or output.output is None:
        return None
    lines = output.output.since(output.log_end)
    return lines if lines[1] else None


def _log_end(body: bytes) -> int | None:
    """Return the byte up to which those who watch the job have its output, from the answer to a heartbeat; None: nobody
    watches, or the answer cannot be read."""
    try:
        return msgspec.msgpack.decode(body, type=_Beaten).log_end
    except msgspec.MsgspecError:
        return None


LOOK_S = 1.0  # how late a daemon may learn of trouble
STUCK_EVERY_S = 60.0  # between two log lines about stuck jobs
TROUBLE_CHARS_MAX = 1_000
STUCK = "they were given up at their timeout and still hold their threads: bound the calls in these functions"


class WorkerStatus:
    """The worker's registration, and its trouble: what keeps the worker from running jobs at present."""

    def __init__(self, service: Service, jobs: Mapping[str, Declared], spec: Mapping[str, Any]) -> None:
        self._service, self._jobs, self._spec = service, jobs, spec
        self._trouble: str | None = None
        self._log = get_logger("worker")

    def spec(self) -> dict[str, Any]:
        """Return the present body of the registration. It has only the options that a job declares; for the others the
        daemon's defaults hold."""
        jobs = [{"name": job.name, **job.declared} for job in self._jobs.values()]
        trouble = {"trouble": self._trouble} if self._trouble else {}
        return {**self._spec, "jobs": jobs} | trouble

    async def watch(self, changed: Callable[[], None]) -> None:
        """Check for trouble every LOOK_S, and call `changed` when it begins or ends. Log stuck jobs every
        STUCK_EVERY_S."""
        logged_s = trio.current_time() - STUCK_EVERY_S
        while True:
            await trio.sleep(LOOK_S)
            trouble = (self._service.trouble() or "")[:TROUBLE_CHARS_MAX] or None
            if (trouble is None) != (self._trouble is None):
                self._trouble = trouble
                changed()
            stuck = self._service.stuck()
            if stuck and trio.current_time() - logged_s >= STUCK_EVERY_S:
                logged_s = trio.current_time()
                log = self._log.error if trouble else self._log.warning
                log("worker.stuck", jobs=jobs_text(stuck), threads=len(stuck), takes_jobs=trouble is None, next=STUCK)


def slots_of(jobs: Mapping[str, Declared], concurrency: int, processes: int) -> int:
    """Return the number of slots: how many jobs run at once. With `processes`, plain functions run one in each
    process."""
    plain = [job.loop is None for job in jobs.values()]
    return max(processes if processes and any(plain) else 0, concurrency if not processes or not all(plain) else 0, 1)
