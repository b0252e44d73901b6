"""The client for programs that push jobs: push them, look at them, wait for them, cancel them. Its calls block; threads
may share it.

with Client("http://127.0.0.1:7420") as client:
    job_id = client.push("resize", {"path": "a.png"}, keep_result=True)
    print(client.result(job_id, wait=60))
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from types import TracebackType
from typing import Any, Self, Unpack
from uuid import uuid4

import msgspec

from jqd.client.abandoned import is_abandoned
from jqd.client.answer import item_errors, odd
from jqd.client.buffer import Buffer, Limits
from jqd.client.environ import daemon_token, daemon_urls
from jqd.client.errors import (
    Conflict,
    ItemError,
    JobFailed,
    JqdClientError,
    LessSafe,
    NoResult,
    TimedOut,
    Unavailable,
    Unreachable,
)
from jqd.client.events import JobEvent, JobEvents, read_events
from jqd.client.http import Http, encode, query
from jqd.client.job_info import Ack, Cancel, JobInfo, PushedJob, job_info, job_map, listed_job
from jqd.client.manage import Manage
from jqd.client.path import job_path
from jqd.client.pushed_list import PushedList
from jqd.client.send import how_safe, less, send_own, send_push, split_requests, unnamed
from jqd.client.tracing import sending
from jqd.client.transport import Transport
from jqd.domain.clock import Clock, SystemClock
from jqd.domain.job_spec import PushOptions
from jqd.domain.units import Duration, duration_s

TIMEOUT_S_DEFAULT = 10.0  # for an answer: many times a push's time, short enough to notice a dead daemon
WAIT_S_MAX = 20.0  # one long poll: shorter than what proxies cut off
WAITERS_MAX = 16  # requests that one `wait` makes at once
COUNTERS_QUIET_S = 10.0  # longest silence of the counters' stream; they come each second
Maps = Sequence[Mapping[str, Any]]
POLL_S_MIN = 0.05  # between polls of a daemon that answers a long poll at once


class Client(Manage):
    """Talks to a daemon, or to one of several daemons of one store.

    `url`: one URL, or several (a list, or text with commas): the client asks one daemon until it does not answer, then
    the next. By default the daemons that `JQD_URL` names (with `JQD_TOKEN`), else the one on this machine. `timeout_s`:
    for one answer, on top of the time that a call asks the daemon to wait. `token`: sent as a bearer token. `tenant`:
    the tenant to act for, if the token is for all tenants.

    With several URLs, each push without a `job_id` gets an id from this client, so that two daemons never take it
    twice. Only the store knows which ids are in use. While it is unavailable, such a push is sent to one daemon without
    the id, if no daemon can have taken it before.

    A client made before a process forks can be used in both processes: the child makes its own connections (but not
    with a `transport`). Every method raises `Unreachable` if no answer came, and other `JqdClientError`s by the answer.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        timeout_s: float = TIMEOUT_S_DEFAULT,
        token: str | None = None,
        tenant: str | None = None,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        if url is None:
            url, token = daemon_urls(), token or daemon_token()
        self._http = Http(url, timeout_s=timeout_s, token=token, tenant=tenant, transport=transport)
        self._clock = clock or SystemClock()

    @property
    def url(self) -> str:
        """Return the URL of the daemon that is asked first at present."""
        return self._http.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # ------------------------------------------------------------ push

    def push(self, name: str, argument: Any = None, *, ack: Ack | None = None, **options: Unpack[PushOptions]) -> str:
        """Push one job; returns its id once the job is safe on the daemon's disk (or as safe as `ack` asks for).

        `argument`: any MessagePack value. `priority`: smaller runs first. `timeout`: how long one attempt may take.
        Durations are seconds, or text like "20s" or "5m". `backoff`: the wait after the first failed attempt, which
        grows as the daemon's own does; or a list of all waits, whose last one repeats. `job_id`: your own id for the
        job; pushing the same job again then returns the same id and counts once. Only a push with a `job_id` is
        repeated when its connection breaks, and not with `replace`, which would run the job a second time. `run_at`
        (aware datetime, Unix seconds or ISO 8601) and `delay`: earliest start. `expires_in`: how long after that, or
        after the push, the job is dead unless an attempt has begun. Options left out have the daemon's defaults. Raises
        `LessSafe` when the job was taken, but is less safe than `ack` asks for.
        """
        return self.push_one(job_map(name, argument, **options), ack=ack).job_id

    def push_one(self, job: Mapping[str, Any], *, ack: Ack | None = None) -> PushedJob:
        """Push one job, given as the map that `POST /v1/jobs` takes; returns its id and whether it was known already.
        Raises `LessSafe` if the job was taken, but is less safe than `ack` asks for."""
        named = self._named(job)
        with sending([named], self.url) as traced:
            body, params = encode(traced[0]), query(ack=ack)
            if named is job:
                answer = send_push(self._http, body, params, [named], bare=None)
            else:
                answer = send_own(self._http, body, params, [named], bare=lambda: encode(unnamed(traced[0])))
        given = answer.body.get("job_id") if isinstance(answer.body, dict) else None
        if not isinstance(given, str):
            raise odd("a push", answer)
        if reached := less(ack, answer.body):
            raise LessSafe(how_safe(f"job {given} was", ack, reached), job_ids=[given], ack=reached)
        return PushedJob(given, named is job and bool(answer.body.get("duplicate")))

    def push_many(
        self, jobs: Iterable[Mapping[str, Any]], *, atomic: bool = False, ack: Ack | None = None
    ) -> list[str]:
        """Push many jobs, each a map with the parameters of `push` by name; returns their ids in the same order.

        Long lists go in several requests. Raises `PartlyPushed` when some jobs were taken and others not. With `atomic`
        all go in one request, and all are taken or none: `Invalid`, `Conflict` or `TooLarge` says why. Raises
        `LessSafe` when all were taken, but some are less safe than `ack` asks for.
        """
        return [each.job_id for each in self.push_all(jobs, atomic=atomic, ack=ack)]

    def push_all(
        self, jobs: Iterable[Mapping[str, Any]], *, atomic: bool = False, ack: Ack | None = None
    ) -> list[PushedJob]:
        """Push many jobs, maps with the parameters of `push`. Returns each job's id, and whether the push was known
        already. `atomic`: take all jobs or none. Raises `PartlyPushed` if some were taken, `LessSafe` if they are less
        safe than `ack` asks for."""
        given = [listed_job(index, job) for index, job in enumerate(jobs)]
        with sending([self._named(job) for job in given], self.url) as listed:
            return self._push_all(given, listed, atomic=atomic, ack=ack)

    def _push_all(self, given: Maps, listed: Maps, *, atomic: bool, ack: Ack | None) -> list[PushedJob]:
        encoded = [encode(job) for job in listed]
        pushed = PushedList(given, ack)
        for start, stop in [(0, len(encoded))] if atomic and encoded else split_requests(encoded):
            try:
                params = query(ack=ack, atomic=atomic or None)
                made = not any(job.get("job_id") is not None for job in given[start:stop])
                answer = self._push_list(encoded[start:stop], params, listed[start:stop], ids_made=made)
            except JqdClientError as error:
                pushed.add_refusal(error, stop - start)
            else:
                pushed.add(*answer)
        return pushed.result()

    def buffer(self, **limits: Unpack[Limits]) -> Buffer:
        """Return a `Buffer` for many pushes for which nobody waits one by one: `with client.buffer() as buffer:`."""
        return Buffer(self.push_all, **limits)

    def _named(self, job: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the job, with a new id if it has none and several daemons may be asked to take it."""
        if len(self._http.urls) == 1 or job.get("job_id") is not None or job.get("replace") or job.get("unique"):
            return job
        return {**job, "job_id": uuid4().hex}

    def _push_list(
        self, encoded: Sequence[bytes], params: dict[str, str], jobs: Maps, *, ids_made: bool
    ) -> tuple[list[str | None], list[ItemError], dict[str, Any]]:
        body = encode([msgspec.Raw(job) for job in encoded])
        if ids_made:
            answer = send_own(self._http, body, params, jobs, bare=lambda: encode([*map(unnamed, jobs)]))
        else:
            answer = send_push(self._http, body, params, jobs, bare=None)
        fields = answer.body if isinstance(answer.body, dict) else {}
        job_ids = fields.get("job_ids")
        if not isinstance(job_ids, list) or len(job_ids) != len(encoded):
            raise odd("a push of many jobs", answer)
        if not all(job_id is None or isinstance(job_id, str) for job_id in job_ids):
            raise odd("a push of many jobs", answer)
        return job_ids, item_errors(fields.get("errors")), fields

    # ------------------------------------------------------------ look and wait

    def get(self, job_id: str, wait: Duration | None = None, *, whole: bool = False) -> JobInfo:
        """Return the job as it is now. With `wait` (10, "1m"), return it as soon as it has ended, or at the latest
        after this time.

        `whole`: include an argument above 64 KiB. Raises NotFound.
        """
        return self._get(job_id, _wait_s(wait), whole=whole)[0]

    def _get(self, job_id: str, wait: float, *, whole: bool = False) -> tuple[JobInfo, bool]:
        """Return the job, and whether the answer includes a result, which only jobs with `keep_result` have."""
        until_s = self._clock.mono_s() + wait
        while True:
            asked_s = self._clock.mono_s()
            wait_s = min(max(until_s - asked_s, 0.0), WAIT_S_MAX)
            params = query(wait=f"{wait_s:.3f}" if wait_s else None, whole=whole or None)
            answer = self._http.call("GET", job_path(job_id), params=params, wait_s=wait_s)
            try:
                info = job_info(answer.body)
            except ValueError as error:
                raise JqdClientError(f"job {job_id}: {error}", status=answer.status) from error
            now_s = self._clock.mono_s()
            if info.ended or now_s >= until_s or is_abandoned():
                return info, not answer.body.keys().isdisjoint(("result", "result_bytes"))
            if now_s - asked_s < POLL_S_MIN:
                # The daemon should have waited. If it did not, do not ask in a tight loop.
                self._http.pause(min(POLL_S_MIN, until_s - now_s))

    def result(self, job_id: str, wait: Duration | None = None, consume: bool = False) -> Any:
        """Return the job's result. `consume`: the daemon then drops it at once, instead of after some time.

        None may also mean that the result was dropped after its time. Raises `NoResult` if the job was pushed without
        `keep_result` or its result was too large to keep; `TimedOut` if it has not ended (after `wait`); `JobFailed` if
        it failed or was cancelled; `NotFound`. `consume` first reads and then drops, so that a lost answer does not
        lose the result; two clients that do so at the same moment may both get it.
        """
        wait_s = _wait_s(wait)
        info, kept = self._get(job_id, wait_s)
        if not info.ended:
            waited = f" after {wait_s:g} s" if wait_s else ""
            raise TimedOut(f"{_named(info)} is still {info.state}{waited}", pending=[job_id])
        if not info.succeeded:
            raise JobFailed(f"{_named(info)} {_ending(info)}", info=info)
        if not kept:
            raise NoResult(
                f"{_named(info)} has succeeded, but was pushed without keep_result=True, "
                "so nobody kept what it returned"
            )
        if info.result is None and info.message:  # a success has a message only if its result was dropped
            raise NoResult(f"{_named(info)} has succeeded; {info.message}")
        result = info.result
        if info.result_bytes:
            result = self._http.call_for_map(f"the result of {job_id}", "GET", f"{job_path(job_id)}/result")["result"]
        if consume and result is not None:
            # If this request is lost, the daemon drops the result by itself after a while.
            with suppress(Unreachable, TimedOut, Unavailable):
                self._http.call("GET", f"{job_path(job_id)}/result", params=query(consume=True))
        return result

    def wait(self, job_ids: Iterable[str], timeout: float | None = None) -> list[JobInfo]:
        """Wait until all jobs have ended, and return them in the same order. `timeout`: seconds for all; None: no
        limit.

        It waits for at most 16 jobs at a time. Raises `TimedOut`, whose `pending` has the ids of jobs that have not
        ended, and `NotFound` as soon as a job is found to be unknown.
        """
        listed = list(job_ids)
        if not listed:
            return []
        until_s = None if timeout is None else self._clock.mono_s() + timeout

        def wait_one(job_id: str) -> JobInfo:
            while True:
                left_s = WAIT_S_MAX if until_s is None else max(until_s - self._clock.mono_s(), 0.0)
                info = self.get(job_id, left_s)
                if info.ended or until_s is not None or is_abandoned():
                    return info

        infos = _side_by_side(wait_one, listed, WAITERS_MAX)
        pending = [info.job_id for info in infos if not info.ended]
        if pending:
            message = f"{len(pending)} of {len(listed)} jobs have not ended after {timeout:g} s, {pending[0]} for one"
            raise TimedOut(message, pending=pending)
        return infos

    def events(self, job_id: str) -> JobEvents:
        """Return an iterator of the job's events as they happen: `state`, `progress`, `log` (lines that it prints), and
        at last `end`. If a daemon becomes unavailable, another is asked. Raises NotFound, Unreachable."""
        return JobEvents(self._http, job_id)

    def log(self, job_id: str) -> str:
        """Return the last lines that the last attempt printed; of a running job, those sent by its worker so far.
        Raises NotFound."""
        return str(self._http.call_for_map("a question for a log", "GET", f"{job_path(job_id)}/log").get("log", ""))

    def cancel(self, job_id: str) -> Cancel:
        """Cancel the job, if it has not ended. Raises NotFound."""
        try:
            answer = self._http.call("DELETE", job_path(job_id))
        except Conflict:
            return Cancel.TOO_LATE
        return Cancel.RECORDED if answer.status == 202 else Cancel.CANCELLED

    # ------------------------------------------------------------ the daemon

    def ask(
        self, path: str, /, *, method: str = "GET", body: Any = None, wait_s: float = 0.0, **params: Any
    ) -> dict[str, Any]:
        """Make any API call and return its answer: for calls without a method here, or for one page of a list.

        `params`: the query; None is left out. Raises as every call does.
        """
        packed = None if body is None else encode(body)
        how: dict[str, Any] = {"params": query(**params), "body": packed, "wait_s": wait_s}
        return self._http.call_for_map(f"{method} {path}", method, path, repeatable=method == "GET", **how)

    def counters(self) -> Iterator[JobEvent]:
        """Yield one daemon's counters each second, as `counters` events, until the daemon ends the stream. Raises
        Unreachable; Unavailable if it has too many listeners; TimedOut if it stays silent."""
        return read_events(self._http, "/v1/events?counters=1", {}, COUNTERS_QUIET_S)

    def ready(self) -> dict[str, Any]:
        """Return the daemon's readiness for pushing and for running, as a dict. `ready`: whether it takes jobs now."""
        answer = self._http.call("GET", "/readyz", accept=(503,))
        fields = answer.body if isinstance(answer.body, dict) else {"detail": answer.body}
        return {"ready": answer.status == 200} | fields


def _side_by_side(ask: Callable[[str], JobInfo], job_ids: Sequence[str], threads: int) -> list[JobInfo]:
    """Call `ask` for each id, in threads, and return the results in order. Raises the first error.

    The threads are daemon threads, so that after an error or Ctrl-C nobody waits for them. A pool of
    `concurrent.futures` would keep the process alive until the last request has ended.
    """
    todo, answers = queue.SimpleQueue[int](), queue.SimpleQueue[tuple[int, JobInfo | BaseException]]()
    stop = threading.Event()
    for index in range(len(job_ids)):
        todo.put(index)

    def work() -> None:
        while not stop.is_set() and not is_abandoned():
            try:
                index = todo.get_nowait()
            except queue.Empty:
                return
            try:
                answers.put((index, ask(job_ids[index])))
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
                answers.put((index, error))
                return

    for number in range(min(threads, len(job_ids))):
        run = copy_context().run
        threading.Thread(target=run, args=(work,), name=f"jqd-wait-{number}", daemon=True).start()
    found: dict[int, JobInfo] = {}
    try:
        while len(found) < len(job_ids):
            index, answer = answers.get()
            if isinstance(answer, BaseException):
                raise answer
            found[index] = answer
            if is_abandoned():
                raise TimedOut("nobody waits for it any more", pending=job_ids)
    finally:
        stop.set()
    return [found[index] for index in range(len(job_ids))]


def _wait_s(wait: Duration | None) -> float:
    return 0.0 if wait is None else duration_s(wait)


def _named(info: JobInfo) -> str:
    """Return the job's id and jobtype, for messages. Until the job is in the store its jobtype is unknown."""
    return f"job {info.job_id} ({info.name})" if info.name else f"job {info.job_id}"


def _ending(info: JobInfo) -> str:
    if info.state == "cancelled":
        return "was cancelled"
    message, why = info.message or "", info.error if info.error is not None else info.message
    if message and not (isinstance(why, str) and why.strip() in message):  # a value for programs, or the parent's id
        why = f"{message} ({why})"
    return f"{info.state}: {why}" if why else info.state
