"""One lease of jobs of one type. It is renewed until a daemon has taken the outcome of each.

An outcome that is not taken is sent again, for as long as it takes: the job is ours until a daemon answers that it is
not.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import httpx2
import msgspec
import trio

from jqd.client.path import job_path
from jqd.domain.backoff import Backoff
from jqd.domain.log import get_logger
from jqd.domain.media import MSGPACK

HEARTBEATS = 3  # heartbeats in the time for which a worker may be silent: a lost one costs nothing
HEARTBEATS_AT_ONCE = 10  # a hundred jobs, each heard in time by a daemon that takes a third of a second for each
SILENCE_S_MIN = 2.0  # of a worker that beats three times in it
LINES_S = 1.0  # between lines of a job that somebody follows
CALL_S = 5.0  # of a heartbeat
REPORT_S = 30.0  # of a report, which may have results of many MiB
REPORT_BYTES_MAX = 4 << 20  # of outcomes in one report, unless one alone has more
REPORT_JOBS_MAX = 100  # as many as a lease has
POLL_S = 2.0  # whoever waits longer for jobs would not hear of a new handler, or of the end
POLL_CALL_S = POLL_S + 15.0  # a daemon may wait for a hand-over
BACKOFF = Backoff(first_s=0.2, factor=2.0, cap_s=5.0)  # between reports that are not taken
GONE = (404, 409)  # the job is not ours any more: it ended, or was given to somebody else
REFUSED = (400, 413, 422)  # a report as a whole: it is too large, or an outcome in it that nobody can read
INVALID_RESPONSE = "INVALID_RESPONSE"
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # MessagePack that nobody here can read
UNANSWERED = (httpx2.TransportError, trio.TooSlowError)  # a daemon that answers, if only 503, is there
HEADERS = {"content-type": MSGPACK, "accept": MSGPACK}
_encode = msgspec.msgpack.Encoder().encode
T = TypeVar("T")


class Outcome(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One outcome in the body of `POST /v1/outcomes`."""

    job_id: str
    lease_id: str = ""
    type: str | None = None
    """`refused` of a job that goes back untried. None: `status` says all."""
    status: int | None = None
    finished_at: str = ""
    result: Any = None
    result_bytes: int = 0
    reason: str = ""
    should_retry: bool | None = None
    retry_after: float | None = None
    interrupted: bool = False
    error: Any = None
    message: str = ""
    jobs: Any = ()
    log: str = ""
    log_from: int = 0
    """How many bytes were printed before that."""


class NoLease(Exception):
    """The daemon gave no answer, or another one than jobs."""


async def ask(http: httpx2.AsyncClient, daemon: str, asked: dict[str, Any], decode: Callable[[bytes], T]) -> T:
    """Ask for jobs, and wait POLL_S for some. `decode` raises UNREADABLE. Raises NoLease."""
    try:
        with trio.fail_after(POLL_CALL_S):
            body = _encode({"wait": POLL_S} | asked)
            answer = await http.post(f"{daemon}/v1/leases", content=body, headers=HEADERS, timeout=POLL_CALL_S)
        if answer.status_code == 200:
            return decode(answer.content)
    except (httpx2.HTTPError, *UNREADABLE, trio.TooSlowError) as error:
        raise NoLease(repr(error)) from error
    raise NoLease(f"answered {answer.status_code}")


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
        job_ids: Sequence[str],
        http: httpx2.AsyncClient,
        daemon: Callable[[], str],
        silence_s: float,
        away: Callable[[], None],
        room: str = "worker",
    ) -> None:
        """`daemon`: returns the URL to report to; any of its store will do. `away`: called when it does not
        answer. `silence_s`: after which the lease is lost. `room`: begins the names of log lines.
        """
        self.unwanted: dict[str, bool] = {}
        """Jobs that are not to be begun any more: whether their lease is lost; else they were cancelled."""
        self.stop: Callable[[str], None] = lambda job_id: None
        """Stops a job that is unwanted, if it runs here."""
        self.printed: Callable[[str, int], tuple[int, str]] = lambda job_id, start: (0, "")
        """Returns where the whole lines begin that a job printed from a byte on, and these, to be sent to followers."""
        self._ours = dict.fromkeys(job_ids)  # those whose outcome is not taken yet
        self._ended: dict[str, Outcome] = {}
        self._followed: dict[str, int] = {}  # by somebody who has what it printed up to that byte
        self._report_jobs_max = REPORT_JOBS_MAX
        """Fewer once a report was refused, so that one outcome holds up no other."""
        self._more, self._all = trio.Event(), trio.Event()
        self._away = away
        self._lease_id, self._http, self._daemon, self._beat_s = lease_id, http, daemon, silence_s / HEARTBEATS
        self._source = random.Random()
        self._room, self._log = room, get_logger(room)

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
        """Renew the lease, and learn of cancelled jobs; send what a job prints that somebody follows."""
        due_s = trio.current_time() + self._beat_s
        while True:
            wait_s = due_s - trio.current_time()
            await trio.sleep(max(0.0, min(wait_s, LINES_S) if self._followed else wait_s))
            if trio.current_time() < due_s:
                with trio.move_on_at(due_s):
                    for job_id in [one for one in self._followed if self._lines(one)]:
                        await self._beat(job_id)
                continue
            due_s = trio.current_time() + self._beat_s
            waiting = iter(list(self._ours))
            async with trio.open_nursery() as nursery:
                for _ in range(min(HEARTBEATS_AT_ONCE, len(self._ours))):
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
        except (httpx2.HTTPError, *UNREADABLE, trio.TooSlowError) as error:
            self._log.warning(
                f"{self._room}.not_reported", jobs=len(outcomes), daemon=self._daemon(), error=repr(error)
            )
            if isinstance(error, UNANSWERED):
                self._away()
            return False
        taken = [self._taken(outcome, row) for outcome, row in zip(outcomes, rows, strict=False)]
        return all(taken)

    def _taken(self, outcome: Outcome, row: _Row) -> bool:
        job_id = outcome.job_id
        if row.status >= 500 or row.status == 429:
            return False
        if row.status == 422 and self._mend(outcome, row.detail):
            return True  # it is sent again at once, with less
        if row.status not in (200, *GONE) and outcome.type != "refused" and outcome.status != 422:
            # What it says cannot be taken, and would not be next time. It has failed then, for good.
            why = f"{INVALID_RESPONSE}: {row.detail}"
            self.put(Outcome(job_id=job_id, status=422, message=why, log=outcome.log, log_from=outcome.log_from))
            return False
        if row.status != 200:
            self._log.warning(f"{self._room}.outcome_dropped", job_id=job_id, status=row.status, why=row.detail)
        self._drop(job_id)
        return True

    def _mend(self, outcome: Outcome, why: str) -> bool:
        """Change an outcome that no daemon takes as it is. Returns False: there is nothing to change."""
        return False

    def _drop(self, job_id: str) -> None:
        self._ended.pop(job_id, None)
        self._ours.pop(job_id, None)
        if not self._ours:
            self._all.set()

    async def _beat(self, job_id: str) -> None:
        try:
            with trio.fail_after(CALL_S):
                path = f"{job_path(job_id)}/heartbeat"
                answer = await self._post(path, {"lease_id": self._lease_id} | self._lines(job_id), CALL_S)
            answered = _decode_beat(answer.content) if answer.status_code == 200 else _Beat()
        except (httpx2.HTTPError, *UNREADABLE, trio.TooSlowError) as error:
            self._log.debug(f"{self._room}.not_heard", job_id=job_id, daemon=self._daemon(), error=repr(error))
            if isinstance(error, UNANSWERED):
                self._away()
            return
        if answered.log_end is None:
            self._followed.pop(job_id, None)
        else:
            self._followed[job_id] = answered.log_end
        is_lost = answer.status_code in GONE
        if job_id not in self._ours or job_id in self._ended or not (is_lost or answered.cancelled):
            return
        self._log.info(f"{self._room}.{'lease_lost' if is_lost else 'cancelled'}", job_id=job_id)
        self.unwanted[job_id] = is_lost
        self.stop(job_id)
        if is_lost:
            self._drop(job_id)

    def _lines(self, job_id: str) -> dict[str, object]:
        """Return what the job has printed since those who follow it last got lines."""
        if job_id not in self._followed:
            return {}
        start, text = self.printed(job_id, self._followed[job_id])
        return {"log": text, "log_from": start} if text else {}

    async def _post(self, path: str, body: object, timeout_s: float) -> httpx2.Response:
        url = f"{self._daemon()}{path}"
        return await self._http.post(url, content=_encode(body), headers=HEADERS, timeout=timeout_s)
