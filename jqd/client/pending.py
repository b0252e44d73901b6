"""A job that was pushed into a buffer, and the result of its push."""

import os
from collections.abc import Callable, Mapping
from threading import Condition
from typing import Any

from jqd.client.errors import JqdClientError, TimedOut


class Pending:
    """A job that was pushed into a buffer, and the result of its push."""

    __slots__ = (
        "_done",
        "_hurry",
        "_process",
        "duplicate",
        "error",
        "is_over",
        "is_own",
        "is_reported",
        "job",
        "job_id",
        "size",
        "taken",
    )

    def __init__(
        self,
        job: Mapping[str, Any],
        job_id: str,
        size: int,
        *,
        is_own: bool,
        done: Condition,
        hurry: Callable[[], None],
    ) -> None:
        """`size`: bytes of `job` in a request. `is_own`: whether the pusher chose `job_id`. `done`: the buffer's
        condition, notified when pushes have ended. `hurry`: makes the buffer send at once."""
        self.job, self.job_id, self.size, self.is_own = job, job_id, size, is_own
        """`job`: the map that is pushed. Once a daemon has taken it, only its name is kept."""
        self.is_over = False
        """Whether the result of the push is known."""
        self.taken = False
        """Whether a daemon has acknowledged the job."""
        self.duplicate = False
        """Whether the same job had been pushed before."""
        self.error: JqdClientError | None = None
        """Why it is not known that a daemon took the job."""
        self.is_reported = False
        """Whether the error has been raised or logged."""
        self._done, self._hurry, self._process = done, hurry, os.getpid()

    def end(self, error: JqdClientError | None = None) -> None:
        """Note that the push has ended: it succeeded, or failed with `error`. After success only the job's name is
        kept, as the caller may keep this object."""
        self.is_over, self.error = True, error or self.error
        if self.taken:
            self.job = {"name": self.job["name"]}

    def confirm(self, wait_s: float | None) -> None:
        """Wait until a daemon has acknowledged the job. Raises the error of its push; TimedOut after `wait_s` seconds
        (None: no limit)."""
        if not self.is_over:
            if self._process != os.getpid():  # a forked child must not wait for the parent's lock
                why = f"job {self.job_id} waited in the buffer of the process that forked; only that one knows of it"
                raise JqdClientError(why)
            self._hurry()
            with self._done:
                self._done.wait_for(lambda: self.is_over, wait_s)
        if self.error is not None:
            self.is_reported = True
            raise self.error
        if not self.taken:
            raise TimedOut(
                f"job {self.job_id} ({self.job['name']}) waits in the buffer after {wait_s:g} s: no daemon is "
                "known to have it yet",
                pending=[self.job_id],
            )
