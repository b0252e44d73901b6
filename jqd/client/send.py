"""Sends pushes: splits them into requests, repeats these while the daemon is unavailable, and notes the result for each
job."""

import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jqd.client.answer import Answer
from jqd.client.errors import (
    Conflict,
    Invalid,
    JqdClientError,
    PartlyPushed,
    TimedOut,
    Unavailable,
    Unreachable,
    add_earlier_error,
    error_to_raise,
)
from jqd.client.http import BACKOFF, TRIES_MAX, Http
from jqd.client.job_info import Ack, PushedJob
from jqd.client.pending import Pending
from jqd.domain.clock import Clock, SystemClock

PUSH_JOBS_MAX = 5_000  # per request of `push_many`: half of what a daemon takes
PUSH_BYTES_MAX = 4 * 1024 * 1024  # per request, before its last job: well below a daemon's limit
CONFIRMED = ("job_id", "unique", "group")  # fields that the store confirms once the job is in a journal
TAKING_S = 0.2  # longer than a push takes: pause before repeating one that another daemon may be taking
ACKS = ("memory", "fsync", "store")  # levels of safety, the safest last


def less(asked: Ack | None, answer: Mapping[str, Any]) -> str | None:
    """Return the level of safety that a push reached, if it is lower than the level `asked`; else None. The answer for
    a duplicate has no level."""
    reached = answer.get("ack")
    if asked is None or reached not in ACKS or ACKS.index(reached) >= ACKS.index(asked):
        return None
    return str(reached)


def how_safe(jobs: str, asked: Ack | None, reached: str) -> str:
    """Return the message which says that jobs are less safe than the push asked for. `jobs`: names the jobs in the
    message. `reached`: their level of safety."""
    return (
        f"{jobs} taken, but with ack={reached} instead of {asked}: the store was not there in time. Do not push again"
    )


def split_requests(encoded: Sequence[bytes]) -> list[tuple[int, int]]:
    """Split a list of jobs into requests, limited by number and by bytes. Returns (start, stop) of each."""
    ranges, start, size = [], 0, 0
    for index, job in enumerate(encoded):
        if index > start and (index - start == PUSH_JOBS_MAX or size + len(job) > PUSH_BYTES_MAX):
            ranges.append((start, index))
            start, size = index, 0
        size += len(job)
    return [*ranges, (start, len(encoded))] if encoded else []


def unnamed(job: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in job.items() if field != "job_id"}


def send_push(
    http: Http,
    body: bytes,
    params: dict[str, str],
    jobs: Sequence[Mapping[str, Any]],
    *,
    bare: Callable[[], bytes] | None,
) -> Answer:
    """Send a push. If no answer came, repeat it, provided that it counts once even if it arrives twice.

    `bare`: given if the client made all ids, to be safe with several daemons. It returns the body without ids. While
    the store is unavailable, no daemon takes a push with ids. Then the push is sent once more without ids, and not
    repeated, as with a single daemon. It cannot count twice, because every daemon asked before has answered that it
    took nothing.
    """
    named = all(job.get("job_id") is not None for job in jobs)
    replaces = any(job.get("replace") for job in jobs)
    try:
        return _post(http, body, params, jobs, repeatable=named and not replaces)
    except Unreachable as error:
        if not (error.sent and replaces):
            raise
        message = f"{error}; it is not sent again, for replace would then count twice: look how the job stands (get)"
        raise Unreachable(message, sent=True) from error
    except Unavailable as error:
        if not (error.ids_unknown and bare):
            raise
        return _post(http, bare(), params, [*map(unnamed, jobs)], repeatable=False)


def send_own(
    http: Http,
    body: bytes,
    params: dict[str, str],
    jobs: Sequence[Mapping[str, Any]],
    *,
    bare: Callable[[], bytes],
) -> Answer:
    """Send a push whose ids were all made by this client. Repeat it while another daemon may be taking it.

    Nobody else has these ids. So a Conflict after a lost answer means that the daemon which did not answer is taking
    this very push. Raises as `send_push`; TimedOut if it remains unknown whether the push was taken.
    """
    lost: JqdClientError | None = None
    for tried in range(1, TRIES_MAX + 1):
        try:
            return send_push(http, body, params, jobs, bare=bare if tried == 1 else None)
        except JqdClientError as error:
            if lost is None and (error.earlier is None or not isinstance(error, Conflict)):
                raise
            lost = lost or error.earlier
            if not isinstance(error, Conflict | Unavailable | Unreachable):
                raise error if error.earlier is not None else add_earlier_error(lost, error) from lost
            if tried == TRIES_MAX or not isinstance(error, Conflict):
                raise TimedOut(f"a daemon that did not answer may have taken the push: {error}") from error
            http.pause(TAKING_S * tried)
    raise AssertionError("the last try answers or raises")


def _post(
    http: Http, body: bytes, params: dict[str, str], jobs: Sequence[Mapping[str, Any]], *, repeatable: bool
) -> Answer:
    try:
        return http.call("POST", "/v1/jobs", body=body, params=params, repeatable=repeatable)
    except JqdClientError as error:
        for one in (error, error.earlier):
            if isinstance(one, Unavailable) and one.status != 429 and not one.ids_unknown and not one.closed:
                one.maybe_taken = any(job.get(field) is not None for job in jobs for field in CONFIRMED)
        raise


AGAIN = (Unreachable, TimedOut, Unavailable)  # errors after which a `Sender` tries again
PAUSE_S_MAX = 5.0  # between two tries, whatever a daemon asks for

PushAll = Callable[[Sequence[Mapping[str, Any]]], list[PushedJob]]


class Sender:
    """Sends a buffer's requests, and repeats them while the daemon is unavailable. Only one thread may use it at a
    time."""

    def __init__(self, push_all: PushAll, patience_s: float) -> None:
        """`patience_s`: how many seconds the daemon may be unavailable before pushes fail."""
        self.patience_s = patience_s
        self.until_s: float | None = None
        """By the monotonic clock: no try begins after that; None: no limit."""
        self._push_all = push_all
        self._away_s: float | None = None  # monotonic: since when the daemon is away
        self._clock: Clock = SystemClock()
        self._source = random.Random()

    def send(self, some: list[Pending]) -> JqdClientError | None:
        """Send the jobs, again if need be, until the result of each push is known, and note it in the job. Returns the
        error of the request, if any."""
        to_raise: JqdClientError | None = None  # of the tries so far, the error after which most may have been taken
        for tried in itertools.count(1):
            left = [one for one in some if not one.taken]  # taken by an earlier try
            if not left:
                return None
            try:
                for one, taken in zip(left, self._push_all([one.job for one in left]), strict=True):
                    one.taken, one.duplicate = True, taken.duplicate and one.is_own
                self._away_s = None
                return None
            except PartlyPushed as error:
                if error.__cause__ is None or not isinstance(error.__cause__, AGAIN):
                    self._away_s = None
                    _sort_out(left, error, to_raise)
                    return error
                _note_taken(left, error)
                trouble: JqdClientError = error
            except AGAIN as error:
                trouble = error
            except Invalid as error:
                self._away_s = None
                _sort_out(left, error, to_raise)
                return error
            except JqdClientError as error:
                self._away_s = None  # a refusal is an answer, too: the daemon is not away
                _fail(left, add_earlier_error(to_raise, error))
                return error
            except Exception as error:  # noqa: BLE001 - a bug must not end the thread that all pushes wait for
                odd = JqdClientError(f"a push ended by {type(error).__name__}: {error}")
                _fail(left, odd)
                return odd
            to_raise = error_to_raise(to_raise, trouble)
            asked_s = getattr(trouble, "retry_after", None)
            pause_s = min(BACKOFF.delay_s(tried, self._source) if asked_s is None else asked_s, PAUSE_S_MAX)
            if self._gives_up(pause_s):
                _fail(some, to_raise)
                return to_raise
            threading.Event().wait(pause_s)
        raise AssertionError("it tries until it returns")

    def _gives_up(self, pause_s: float) -> bool:
        """Return whether to give up, because after a pause of `pause_s` seconds it would be too late for another try.

        After a daemon was unavailable for longer than `patience_s`, each further request is tried once.
        """
        now_s = self._clock.mono_s()
        if self._away_s is None:
            self._away_s = now_s
        until_s = self._away_s + self.patience_s
        if self.until_s is not None:
            until_s = min(until_s, self.until_s)
        return now_s + pause_s > until_s


def _fail(some: Sequence[Pending], error: JqdClientError) -> None:
    for one in some:
        if not one.taken:
            one.error = error


def _note_taken(some: Sequence[Pending], error: PartlyPushed) -> None:
    for one, job_id in zip(some, error.job_ids, strict=True):
        one.taken = job_id is not None


def _sort_out(some: Sequence[Pending], error: PartlyPushed | Invalid, earlier: JqdClientError | None) -> None:
    """Note for each push whether it was taken, and if not, its error. `earlier`: the error of an earlier try."""
    if isinstance(error, PartlyPushed):
        _note_taken(some, error)
    why = {item.index: f"{item.pointer} {item.detail}".strip() for item in error.errors}
    for index, one in enumerate(some):
        if not one.taken:
            refusal = Invalid(f"job {one.job_id} was refused: {why.get(index, str(error))}", status=error.status)
            one.error = add_earlier_error(earlier, refusal)
