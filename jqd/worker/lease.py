"""A lease: jobs of one type that a daemon gave to this worker. It is renewed until a daemon has taken each job's
outcome.

An outcome is sent again until a daemon takes it, or answers that the job no longer belongs to this worker.
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
from jqd.domain.media import MSGPACK, language_of

HEARTBEATS = 3  # number within the time for which a worker may be silent, as one may be lost
HEARTBEATS_AT_ONCE = 10  # in time for a hundred jobs, even if the daemon takes a third of a second for each
SILENCE_S_MIN = 2.0  # shortest silence after which a lease may be lost
LINES_S = 1.0  # between lines sent of a job that somebody follows
CALL_S = 5.0  # timeout of a heartbeat
REPORT_S = 30.0  # timeout of a report, which may have results of many MiB
REPORT_BYTES_MAX = 4 << 20  # outcomes in one report, unless a single one is larger
REPORT_JOBS_MAX = 100  # as many as a lease has
POLL_S = 2.0  # how long a request for jobs waits; longer would delay new handlers and the end
POLL_CALL_S = POLL_S + 15.0  # timeout of such a request: a daemon may wait for a hand-over
BACKOFF = Backoff(first_s=0.2, factor=2.0, cap_s=5.0)  # between reports that no daemon takes
GONE = (404, 409)  # the job no longer belongs to this worker: it ended, or was given to another
TOO_LARGE = 413  # also from a proxy: it would say so for ever
REFUSED = (400, TOO_LARGE, 422)  # statuses for a whole report: too large, or with an unreadable outcome
INVALID_RESPONSE = "INVALID_RESPONSE"
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # raised for unreadable MessagePack
UNANSWERED = (httpx2.TransportError, trio.TooSlowError)  # the daemon is unavailable
HEADERS = {"content-type": MSGPACK, "accept": MSGPACK}
_encode = msgspec.msgpack.Encoder().encode
T = TypeVar("T")


class Outcome(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The outcome of one job in the body of `POST /v1/outcomes`."""

    job_id: str
    lease_id: str = ""
    type: str | None = None
    """`refused` for a job that is handed back without an attempt; None: `status` says how it ended."""
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
    """How many bytes were printed before `log`."""


class NoLease(Exception):
    """A request for jobs failed: the daemon did not answer, refused, or its answer cannot be read."""


async def ask(http: httpx2.AsyncClient, daemon: str, asked: dict[str, Any], decode: Callable[[bytes], T]) -> T:
    """Ask a daemon for jobs, and return its decoded answer. If there are no jobs, the daemon waits up to POLL_S for
    some. `asked`: the other fields of the request. Raises NoLease."""
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
    """Up to which byte somebody who watches the job has its output; None: nobody watches it."""


_decode_reports = msgspec.msgpack.Decoder(_Reports).decode
_decode_beat = msgspec.msgpack.Decoder(_Beat).decode


class Lease:
    """Renews one lease, and reports the outcomes of its jobs."""

    def __init__(
        self,
        lease_id: str,
        job_ids: Sequence[str],
        http: httpx2.AsyncClient,
        daemon: Callable[[], str],
        silence_s: float,
        on_no_answer: Callable[[], None],
        log_prefix: str = "worker",
    ) -> None:
        """`daemon`: returns the URL of a daemon of the store, for reports. `on_no_answer`: called when that daemon does
        not answer.

        `silence_s`: the lease is lost after so long without a heartbeat. `log_prefix`: prefix of log events.
        """
        self.unwanted: dict[str, bool] = {}
        """Job id → why it must not begin: True: its lease is lost; False: it was cancelled."""
        self.stop: Callable[[str], None] = lambda job_id: None
        """Called with the id of an unwanted job, to stop it if it runs here."""
        self.printed: Callable[[str, int], tuple[int, str]] = lambda job_id, start: (0, "")
        """Returns the whole lines that a job (id) printed from a byte on, preceded by the byte where they begin."""
        self._ours = dict.fromkeys(job_ids)  # jobs whose outcome is not taken yet
        self._ended: dict[str, Outcome] = {}
        self._followed: dict[str, int] = {}  # jobs that somebody follows → byte up to which he has the output
        self._report_jobs_max = REPORT_JOBS_MAX
        """Limit of outcomes in one report. Lowered when a report was refused, so that one bad outcome does not block
        others."""
        self._more, self._all = trio.Event(), trio.Event()
        self._on_no_answer = on_no_answer
        self._lease_id, self._http, self._daemon, self._beat_s = lease_id, http, daemon, silence_s / HEARTBEATS
        self._source = random.Random()
        self._log_prefix, self._log = log_prefix, get_logger(log_prefix)

    def put(self, outcome: Outcome) -> None:
        """Store the outcome of a job for the next report. Ignored if the job no longer belongs to this worker."""
        if outcome.job_id in self._ours:
            outcome.lease_id = self._lease_id
            self._ended[outcome.job_id] = outcome
            self._more.set()

    async def wait_taken(self) -> None:
        """Wait until, for each job, a daemon has taken the outcome or the job no longer belongs to this worker."""
        if self._ours:
            await self._all.wait()

    async def beat(self) -> None:
        """Send heartbeats for ever, which renew the lease. If an answer says that a job was cancelled or its lease is
        lost, stop the job. If it says that somebody watches a job, send the job's new output too."""
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
            if await self._send(self._next_report()):
                failures = 0
            else:
                failures += 1
                await trio.sleep(BACKOFF.delay_s(failures, self._source))

    def _next_report(self) -> list[Outcome]:
        """Return the outcomes for the next report, as many as its limits allow, but at least one."""
        outcomes: list[Outcome] = []
        size = 0
        for outcome in islice(self._ended.values(), self._report_jobs_max):
            size += len(_encode(outcome))
            if outcomes and size > REPORT_BYTES_MAX:
                break
            outcomes.append(outcome)
        return outcomes

    async def _send(self, outcomes: Sequence[Outcome]) -> bool:
        """Report outcomes to a daemon. Returns False if some of them must be sent again after a pause."""
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
                f"{self._log_prefix}.not_reported", jobs=len(outcomes), daemon=self._daemon(), error=repr(error)
            )
            if isinstance(error, UNANSWERED):
                self._on_no_answer()
            return False
        taken = [self._taken(outcome, row) for outcome, row in zip(outcomes, rows, strict=False)]
        return all(taken)

    def _taken(self, outcome: Outcome, row: _Row) -> bool:
        job_id = outcome.job_id
        if row.status >= 500 or row.status == 429:
            return False
        if row.status == 422 and self._correct(outcome, row.detail):
            return True  # the changed outcome is sent again at once
        if row.status not in (200, *GONE) and outcome.type != "refused" and outcome.status != 422:
            # No daemon will take this outcome, so the job has failed for good.
            why = f"{INVALID_RESPONSE}: {row.detail}"
            self.put(Outcome(job_id=job_id, status=422, message=why, log=outcome.log, log_from=outcome.log_from))
            return False
        if row.status != 200:
            self._log.warning(f"{self._log_prefix}.outcome_dropped", job_id=job_id, status=row.status, why=row.detail)
        self._drop(job_id)
        return True

    def _correct(self, outcome: Outcome, why: str) -> bool:
        """Correct an outcome that a daemon refused, so that it can be sent again. Returns whether it was changed: here
        always False, as only subclasses can. `why`: the daemon's reason."""
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
            self._log.debug(f"{self._log_prefix}.not_heard", job_id=job_id, daemon=self._daemon(), error=repr(error))
            if isinstance(error, UNANSWERED):
                self._on_no_answer()
            return
        if answered.log_end is None:
            self._followed.pop(job_id, None)
        else:
            self._followed[job_id] = answered.log_end
        is_lost = answer.status_code in GONE
        if job_id not in self._ours or job_id in self._ended or not (is_lost or answered.cancelled):
            return
        self._log.info(f"{self._log_prefix}.{'lease_lost' if is_lost else 'cancelled'}", job_id=job_id)
        self.unwanted[job_id] = is_lost
        self.stop(job_id)
        if is_lost:
            self._drop(job_id)

    def _lines(self, job_id: str) -> dict[str, object]:
        """Return heartbeat fields with the output that those who watch the job do not have yet; empty if nobody watches
        it or nothing is new."""
        if job_id not in self._followed:
            return {}
        start, text = self.printed(job_id, self._followed[job_id])
        return {"log": text, "log_from": start} if text else {}

    async def _post(self, path: str, body: object, timeout_s: float) -> httpx2.Response:
        """Send a request to the daemon, and return its answer. Raises httpx2's errors, also if a proxy before the
        daemon answered in its place: what that says of a job or an outcome is not to be believed."""
        url = f"{self._daemon()}{path}"
        answer = await self._http.post(url, content=_encode(body), headers=HEADERS, timeout=timeout_s)
        kind = answer.headers.get("content-type", "")
        if language_of(kind) != "msgpack" and answer.status_code != TOO_LARGE:
            raise httpx2.RemoteProtocolError(f"{answer.status_code} as {kind or 'nothing'}, so not from a daemon")
        return answer
