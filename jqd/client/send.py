"""One request with jobs of a buffer: sent again while its daemon is away, until each job has an end."""

import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jqd.client.errors import Invalid, JqdClientError, PartlyPushed, TimedOut, Unavailable, Unreachable
from jqd.client.http import BACKOFF
from jqd.client.job_info import PushedJob
from jqd.client.pending import Pending
from jqd.domain.clock import Clock, SystemClock

AGAIN = (Unreachable, TimedOut, Unavailable)  # what passes
PAUSE_S_MAX = 5.0  # between two tries, whatever a daemon asks for

PushAll = Callable[[Sequence[Mapping[str, Any]]], list[PushedJob]]


class Sender:
    """Sends one request after another, for one thread at a time."""

    def __init__(self, push_all: PushAll, patience_s: float) -> None:
        """`patience_s`: of a daemon that is away, from when it went."""
        self.patience_s = patience_s
        self.until_s: float | None = None
        """Monotonic: nothing is tried again after that."""
        self._push_all = push_all
        self._away_s: float | None = None  # since when the daemon is away
        self._clock: Clock = SystemClock()
        self._source = random.Random()

    def send(self, some: list[Pending]) -> JqdClientError | None:
        """Until each is over. Answers the error of all of them, if there is one."""
        for tried in itertools.count(1):
            left = [one for one in some if not one.taken]  # by an earlier try
            if not left:
                return None
            try:
                for one, taken in zip(left, self._push_all([one.told for one in left]), strict=True):
                    one.taken, one.duplicate = True, taken.duplicate and one.is_own
                self._away_s = None
                return None
            except PartlyPushed as error:
                if error.__cause__ is None or not isinstance(error.__cause__, AGAIN):
                    self._away_s = None
                    _sort_out(left, error)
                    return error
                _note_taken(left, error)
                trouble: JqdClientError = error
            except AGAIN as error:
                trouble = error
            except Invalid as error:
                self._away_s = None
                _sort_out(left, error)
                return error
            except JqdClientError as error:
                self._away_s = None  # a refusal, too, is an answer: the next outage has its own time
                _fail(left, error)
                return error
            except Exception as error:  # noqa: BLE001 - a mistake must not end the thread that all pushes wait for
                odd = JqdClientError(f"a push ended by {type(error).__name__}: {error}")
                _fail(left, odd)
                return odd
            asked_s = getattr(trouble, "retry_after", None)
            pause_s = min(BACKOFF.delay_s(tried, self._source) if asked_s is None else asked_s, PAUSE_S_MAX)
            if self._gives_up(pause_s):
                _fail(some, trouble)
                return trouble
            threading.Event().wait(pause_s)
        raise AssertionError("it tries until it returns")

    def _gives_up(self, pause_s: float) -> bool:
        """Whether another try would come too late. A daemon that was away for too long has had its time: each further
        request is tried once."""
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
    """What a daemon took stays taken, whatever becomes of the others."""
    for one, job_id in zip(some, error.job_ids, strict=True):
        one.taken = job_id is not None


def _sort_out(some: Sequence[Pending], error: PartlyPushed | Invalid) -> None:
    """Which of them were taken, and what is wrong with each of the others."""
    if isinstance(error, PartlyPushed):
        _note_taken(some, error)
    why = {item.index: f"{item.pointer} {item.detail}".strip() for item in error.errors}
    for index, one in enumerate(some):
        if not one.taken:
            one.error = Invalid(f"job {one.job_id} was refused: {why.get(index, str(error))}", status=error.status)
