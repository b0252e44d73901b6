"""One lease of jobs of one type. It is renewed until a daemon has taken the outcome of each.

An outcome that is not taken is sent again, for as long as it takes: the job is ours until a daemon says otherwise.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from urllib.parse import quote

import httpx2
import msgspec
import trio

from jqd.code.batch import Batch
from jqd.code.outcome import INVALID_RESPONSE, LeasedJob, Outcome, failed
from jqd.code.output import Log
from jqd.domain.backoff import Backoff
from jqd.domain.log import get_logger
from jqd.domain.media import MSGPACK

BEATS = 3  # heartbeats in the time for which a worker may be silent: a lost one costs nothing
BEATS_AT_ONCE = 10  # a hundred jobs, each heard in time by a daemon that takes a third of a second for each
CALL_S = 5.0  # of a heartbeat
REPORT_S = 30.0  # of a report, which may have results of many MiB
REPORT_BYTES_MAX = 4 << 20  # of outcomes in one report, unless one alone has more
REPORT_JOBS_MAX = 100  # as many as a lease has
BACKOFF = Backoff(first_s=0.2, factor=2.0, cap_s=5.0)  # between reports that are not taken
GONE = (404, 409)  # the job is not ours any more: it ended, or was given to somebody else
REFUSED = (400, 413, 422)  # a report as a whole: it is too large, or an outcome in it that nobody can read
OF_JOBS = "jobs: "  # how a daemon begins to say what is wrong with the jobs that an outcome asks for
AS_A_WHOLE = "; nothing of this outcome was taken"  # and how it ends
STRUCK_MAX = 20  # of one outcome, one report each; more of them, and no line of it counts
STRUCK_CHARS = 128  # of the name in such a line: as long as a jobtype's may be
_PLACE = re.compile(rf"{OF_JOBS}jobs/([0-9]+)")
_encode = msgspec.msgpack.Encoder().encode


class _Row(msgspec.Struct):
    status: int
    detail: str = ""


class _Reports(msgspec.Struct):
    outcomes: list[_Row]


class _Beat(msgspec.Struct):
    cancelled: bool = False
    log_end: int | None = None
    """Somebody follows the job, and has what it printed up to that byte."""


_decode_reports = msgspec.msgpack.Decoder(_Reports).decode
_decode_beat = msgspec.msgpack.Decoder(_Beat).decode


class Lease:
    def __init__(
        self,
        lease_id: str,
        jobs: Sequence[LeasedJob],
        http: httpx2.AsyncClient,
        daemon: Callable[[], str],
        silence_s: float,
    ) -> None:
        """`daemon`: returns the URL to report to; any of its store will do.

        `silence_s`: after which the lease is lost.
        """
        self.jobs = list(jobs)
        self.unwanted: dict[str, bool] = {}
        """Jobs that are not to be begun any more: whether their lease is lost; else they were cancelled."""
        self.batch: Batch | None = None
        """What runs now."""
        self._ours = {job.job_id: job for job in jobs}  # those whose outcome is not taken yet
        self._ended: dict[str, Outcome] = {}
        self._struck: dict[str, int] = {}  # how many of the jobs that it asked for cannot be pushed
        self._followed: dict[str, int] = {}  # by somebody who has what it printed up to that byte
        self._report_jobs_max = REPORT_JOBS_MAX
        """Fewer once a report was refused, so that one outcome holds up no other."""
        self._more, self._all = trio.Event(), trio.Event()
        self._lease_id, self._http, self._daemon, self._beat_s = lease_id, http, daemon, silence_s / BEATS
        self._source = random.Random()
        self._log = get_logger("code")

    def put(self, outcome: Outcome) -> None:
        """Take the outcome of a job, or that it goes back. A job that is not ours any more is ignored."""
        if outcome.job_id in self._ours:
            outcome.lease_id = self._lease_id
            self._ended[outcome.job_id] = outcome
            self._more.set()

    async def wait_taken(self) -> None:
        """Wait until the outcomes of all jobs are taken, or the jobs are not ours any more."""
        if self._ours:
            await self._all.wait()

    async def beat(self) -> None:
        """Renew the lease, and learn of cancelled jobs."""
        while True:
            await trio.sleep(self._beat_s)
            waiting = iter(list(self._ours))
            async with trio.open_nursery() as nursery:
                for _ in range(min(BEATS_AT_ONCE, len(self._ours))):
                    nursery.start_soon(self._beat_each, waiting)

    async def _beat_each(self, job_ids: Iterator[str]) -> None:
        for job_id in job_ids:
            if job_id in self._ours:
                await self._beat(job_id)

    async def report(self) -> None:
        failures = 0
        while True:
            if not self._ended:
                await self._more.wait()
                self._more = trio.Event()
                continue
            if await self._send(self._some()):
                failures = 0
            else:
                failures += 1
                await trio.sleep(BACKOFF.delay_s(failures, self._source))

    def _some(self) -> list[Outcome]:
        """Return outcomes for one report: as many as it may have, at least one."""
        some: list[Outcome] = []
        size = 0
        for outcome in islice(self._ended.values(), self._report_jobs_max):
            size += len(_encode(outcome))
            if some and size > REPORT_BYTES_MAX:
                break
            some.append(outcome)
        return some

    async def _send(self, outcomes: Sequence[Outcome]) -> bool:
        """Report outcomes. Returns False: not all of them were taken, for now."""
        try:
            with trio.fail_after(REPORT_S):
                answer = await self._post("/v1/outcomes", outcomes, REPORT_S)
            if answer.status_code in REFUSED:
                self._report_jobs_max = max(1, len(outcomes) // 2)
            if answer.status_code in REFUSED and len(outcomes) == 1:
                rows = [_Row(answer.status_code, "its outcome is too large for a request, or too deep to be read")]
            else:
                answer.raise_for_status()
                rows = _decode_reports(answer.content).outcomes
        except (httpx2.HTTPError, msgspec.MsgspecError, trio.TooSlowError) as error:
            self._log.warning("code.not_reported", jobs=len(outcomes), daemon=self._daemon(), error=repr(error))
            return False
        taken = [self._taken(outcome, row) for outcome, row in zip(outcomes, rows, strict=False)]
        return all(taken)

    def _taken(self, outcome: Outcome, row: _Row) -> bool:
        job_id = outcome.job_id
        if row.status >= 500 or row.status == 429:
            return False
        if row.status == 422 and outcome.jobs and row.detail.startswith(OF_JOBS):
            self._strike(outcome, row.detail)
            return True  # it is sent again at once, with less
        if row.status != 200 and row.status not in GONE and outcome.status is not None and outcome.status != 422:
            # What it says cannot be taken, and would not be next time. It has failed then, for good.
            log = Log(outcome.log_from, outcome.log)
            self.put(failed(self._ours[job_id], f"{INVALID_RESPONSE}: {row.detail}", log, status=422))
            return False
        if row.status != 200:
            self._log.warning("code.outcome_dropped", job_id=job_id, status=row.status, why=row.detail)
        self._drop(job_id)
        return True

    def _strike(self, outcome: Outcome, why: str) -> None:
        """Take the job out that cannot be pushed, and say so in the log: what has succeeded stays a success."""
        jobs, named = list(outcome.jobs), _PLACE.match(why)
        struck = self._struck[outcome.job_id] = self._struck.get(outcome.job_id, 0) + 1
        if named is not None and int(named[1]) < len(jobs) and struck < STRUCK_MAX:
            told = f"J: {str(jobs.pop(int(named[1])).get('name', ''))[:STRUCK_CHARS]}"
        else:
            told, jobs = f"{len(jobs)} J: lines", []
        self._log.warning("code.line_refused", job_id=outcome.job_id, line=told, why=why)
        why = why.removeprefix(OF_JOBS).removesuffix(AS_A_WHOLE)
        line = f"jqd: no job was pushed for {told!r}: {why}"
        outcome.jobs, outcome.log = jobs, f"{outcome.log}\n{line}".lstrip("\n")

    def _drop(self, job_id: str) -> None:
        self._ended.pop(job_id, None)
        self._ours.pop(job_id, None)
        self._struck.pop(job_id, None)
        if not self._ours:
            self._all.set()

    async def _beat(self, job_id: str) -> None:
        try:
            with trio.fail_after(CALL_S):
                path = f"/v1/jobs/{quote(job_id, safe='')}/heartbeat"
                answer = await self._post(path, {"lease_id": self._lease_id} | self._lines(job_id), CALL_S)
            told = _decode_beat(answer.content) if answer.status_code == 200 else _Beat()
        except (httpx2.HTTPError, msgspec.MsgspecError, trio.TooSlowError) as error:
            self._log.debug("code.not_heard", job_id=job_id, daemon=self._daemon(), error=repr(error))
            return
        if told.log_end is None:
            self._followed.pop(job_id, None)
        else:
            self._followed[job_id] = told.log_end
        is_lost = answer.status_code in GONE
        if job_id not in self._ours or job_id in self._ended or not (is_lost or told.cancelled):
            return
        self._log.info("code.lease_lost" if is_lost else "code.cancelled", job_id=job_id)
        self.unwanted[job_id] = is_lost
        if self.batch is not None:
            self.batch.stop(job_id)
        if is_lost:
            self._drop(job_id)

    def _lines(self, job_id: str) -> dict[str, object]:
        """What it has printed since those know it who follow it."""
        output = self.batch.printed(job_id) if self.batch is not None and job_id in self._followed else None
        if output is None:
            return {}
        log = output.since(self._followed[job_id])
        return {"log": log.text, "log_from": log.start} if log.text else {}

    async def _post(self, path: str, body: object, timeout_s: float) -> httpx2.Response:
        headers = {"content-type": MSGPACK, "accept": MSGPACK}
        return await self._http.post(
            f"{self._daemon()}{path}", content=_encode(body), headers=headers, timeout=timeout_s
        )
