"""Collects pushes for which nobody waits, and sends up to a thousand at once from a background thread.

    push ──▶ waiting ──▶ request of up to 1,000 ──▶ daemon ──▶ each `Pending` has its result
             bounded: push waits when it is full

Jobs in the buffer are not acknowledged yet: they are lost if the process is killed. Each job has an id before it is
sent, so a request whose answer was lost can be sent again and counts once.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack
from uuid import uuid4

from jqd.client.at_exit import LEAVING
from jqd.client.errors import BufferFull, NotPushed, TimedOut, TooLarge
from jqd.client.http import encode
from jqd.client.job_info import listed_job
from jqd.client.pending import Pending
from jqd.client.send import PushAll, Sender
from jqd.domain.clock import SystemClock
from jqd.domain.suggest import suggestion
from jqd.domain.units import BYTES, Duration, amount, duration_s

JOBS_MAX = 10_000  # some 10 MB of small jobs: a second of a daemon's work
BYTES_MAX = 16 << 20  # of jobs as they are sent; as objects they are a few times as large
LINGER = "10ms"  # enough to gather many pushes under load, and too short to notice otherwise
WAIT = "10s"  # how long a push waits for room: as long as for an answer
PATIENCE = "1m"  # enough for a restart of a daemon or its machine
EXIT_S = 30.0  # to send what is left when the process ends; as long as a worker's drain
REQUEST_JOBS = 1_000  # by then a request costs little per job
REQUEST_BYTES = 1 << 20


class Limits(TypedDict, total=False):
    """Limits of a buffer of pushes: at most how many jobs and bytes wait in it, and for how long jobs, pushes and
    requests wait."""

    jobs: int
    """The most jobs that wait in the buffer or are being sent."""
    size: int | str
    """The most bytes of these jobs: a number, or text like "16MiB"."""
    linger: Duration
    """How long a job waits for others before it is sent. A full request is sent sooner."""
    wait: Duration
    """How long a push waits for room in the buffer."""
    patience: Duration
    """How long a request is repeated while its daemon is unavailable."""


class Buffer:
    """Collects pushes and sends them in the background. End it with `with`, `async with` or `close`; otherwise its jobs
    are sent when the process ends. Threads may share it."""

    def __init__(
        self, push_all: PushAll, *, closed: Callable[[], None] | None = None, **limits: Unpack[Limits]
    ) -> None:
        """`push_all`: sends one request. `closed`: called when the buffer is closed. Raises TypeError or ValueError for
        invalid limits."""
        if unknown := limits.keys() - Limits.__annotations__.keys():
            raise TypeError(
                f"a buffer has no limit {min(unknown)!r}{suggestion(min(unknown), list(Limits.__annotations__))}"
            )
        size = limits.get("size", BYTES_MAX)
        self.jobs_max = limits.get("jobs", JOBS_MAX)
        self.bytes_max = round(amount(size, BYTES)) if isinstance(size, str) else size
        self._linger_s = duration_s(limits.get("linger", LINGER))
        self._wait_s = duration_s(limits.get("wait", WAIT))
        self._patience_s = duration_s(limits.get("patience", PATIENCE))
        if min(self.jobs_max, self.bytes_max) < 1 or not min(self._linger_s, self._wait_s, self._patience_s) >= 0:
            raise ValueError(f"a buffer has room for a job, and its waits are 0 or more; got {limits}")
        self._push_all = push_all
        self._closed_error, self._clock = closed, SystemClock()
        self._log = logging.getLogger("jqd.buffer")
        self._is_closed = False
        self._begin()
        LEAVING.add(self)

    def _begin(self) -> None:
        """Set the buffer to empty, with new locks: when it is made, and in a forked child."""
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._sender = Sender(self._push_all, self._patience_s)
        self._waiting: deque[Pending] = deque()
        self._out: list[Pending] = []  # jobs of the request under way
        self._failed: list[Pending] = []  # jobs whose errors may not have been raised yet
        self._bytes = 0  # of the jobs in `_waiting` and `_out`
        self._since_s: float | None = None  # monotonic: since when the oldest job waits
        self._hurry = False  # send now, without linger
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------ for whoever pushes

    def push(self, name: str, argument: Any = None, **options: Any) -> Pending:
        """Put one job into the buffer and return it, with its `job_id`. Options are those of `Client.push`, except
        `replace` and `ack`. Raises BufferFull, TooLarge, and ValueError for a job that can never be pushed."""
        return self.push_one(listed_job(0, {"name": name, "argument": argument, **options}))

    async def apush(self, name: str, argument: Any = None, **options: Any) -> Pending:
        """Put one job into the buffer from async code, and return it, with its `job_id`. If there is no room, a thread
        waits for it. Raises BufferFull, TooLarge, and ValueError for a job that can never be pushed."""
        call = partial(self.push, name, argument, **options)
        if self.has_room():
            return call()
        import anyio.to_thread  # not above: a script that pushes one job would spend a quarter of its time on it

        return await anyio.to_thread.run_sync(call)

    def push_one(self, job: Mapping[str, Any]) -> Pending:
        """Put one job into the buffer and return it. `job`: the map that `POST /v1/jobs` takes. Raises BufferFull,
        TooLarge, and ValueError for a job that can never be pushed."""
        pending = self.offer(job)
        if pending is None:
            raise RuntimeError("this buffer is closed; make another")
        return pending

    def offer(self, job: Mapping[str, Any]) -> Pending | None:
        """Put one job into the buffer as `push_one` does; return None if the buffer is closed."""
        if job.get("replace"):
            raise ValueError("a push with replace counts each time it is sent, so it is not buffered: use Client.push")
        own_id = job.get("job_id")
        job = job if own_id is not None else {**job, "job_id": uuid4().hex}
        size = len(encode(job))
        pending = Pending(job, job["job_id"], size, is_own=own_id is not None, done=self._changed, hurry=self._send_now)
        if pending.size > self.bytes_max:
            raise TooLarge(f"a job of {pending.size} bytes; this buffer has room for {self.bytes_max}")
        with self._changed:
            if not self._has_room(pending.size):
                self._hurry = True  # make room at once, without linger
                self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._is_closed or self._has_room(pending.size), self._wait_s):
                raise BufferFull(
                    f"{self._count} jobs wait for a daemon, and there was no room for another in {self._wait_s:g} s: "
                    "it is away, or slower than what is pushed; nothing was taken of this push"
                )
            if self._is_closed:
                return None
            self._add(pending)
        return pending

    def has_room(self) -> bool:
        """Return whether a push would probably find room at once."""
        with self._changed:
            return self._has_room(0)

    def flush(self, wait: Duration | None = None) -> None:
        """Wait until daemons have taken all jobs pushed so far. Raises NotPushed for jobs whose push failed, without
        those whose errors were raised before. Raises TimedOut after `wait`; the jobs stay in the buffer."""
        left = self.settle(None if wait is None else duration_s(wait))
        self._raise_unfetched()
        if left:
            raise TimedOut(f"{left} jobs wait in the buffer after {wait}: no daemon is known to have them yet")

    def close(self) -> None:
        """Accept no more jobs, and wait until daemons have taken all jobs pushed so far. Raises NotPushed for jobs
        whose push failed, without those whose errors were raised before."""
        self._shut()
        self.settle(None)
        LEAVING.discard(self)
        self._raise_unfetched()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_after(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import anyio.to_thread

        await anyio.to_thread.run_sync(self._close_after, error)

    def _close_after(self, error: BaseException | None) -> None:
        if error is None:
            self.close()
            return
        # Jobs are still sent, as without a buffer; those that fail are added as a note to the block's own error.
        try:
            self.close()
        except NotPushed as lost:
            error.add_note(str(lost))

    # ------------------------------------------------------------ for the end of the process

    def settle(self, wait_s: float | None) -> int:
        """Send the jobs that are in the buffer now. Returns how many of them have no result yet after `wait_s` seconds;
        None: no limit."""
        with self._changed:
            mine = [*self._out, *self._waiting]
        self._send_now()
        with self._changed:
            self._changed.wait_for(lambda: all(one.is_over for one in mine), wait_s)
            return sum(not one.is_over for one in mine)

    def leave(self) -> list[Pending]:
        """Close the buffer because the process ends: send its jobs, within EXIT_S.

        Returns the jobs that were not pushed, except those whose errors were raised before.
        """
        self._sender.until_s = self._clock.mono_s() + EXIT_S
        self._shut()
        self.settle(EXIT_S)
        LEAVING.discard(self)
        with self._changed:
            return [*self._failed_unreported(), *(one for one in (*self._out, *self._waiting) if not one.is_over)]

    def forget(self) -> None:
        """Empty the buffer in a forked child, because the parent sends its jobs."""
        self._begin()

    # ------------------------------------------------------------ inside

    @property
    def _count(self) -> int:
        return len(self._waiting) + len(self._out)

    def _has_room(self, size: int) -> bool:
        return self._count < self.jobs_max and self._bytes + size <= self.bytes_max

    def _add(self, pending: Pending) -> None:
        if self._thread is None:
            LEAVING.expect()
            thread = threading.Thread(target=self._work, name="jqd-buffer", daemon=True)
            thread.start()  # a daemon thread keeps no process alive; at its end `leave` sends the rest
            self._thread = thread  # only now, as is all that follows: where none can be started, nothing was pushed
        if not self._waiting:
            self._since_s = self._clock.mono_s()
        self._waiting.append(pending)
        self._bytes += pending.size
        # The thread times the linger itself; it is woken for the first job, and when a request is full.
        if len(self._waiting) == 1 or self._is_full():
            self._changed.notify_all()

    def _is_full(self) -> bool:
        return len(self._waiting) >= REQUEST_JOBS or self._bytes >= REQUEST_BYTES

    def _due_s(self) -> float | None:
        """Return in how many seconds the next request is due; 0 or less: now; None: no job waits."""
        if not self._waiting or self._since_s is None:
            return None
        return 0.0 if self._hurry or self._is_full() else self._since_s + self._linger_s - self._clock.mono_s()

    def _send_now(self) -> None:
        with self._changed:
            self._hurry = bool(self._waiting)
            self._changed.notify_all()
            thread = self._thread
        if thread is None or not thread.is_alive():
            while self._send_some():  # send here: a process that ends can start no thread
                continue

    def _work(self) -> None:
        while True:
            with self._changed:
                while (due_s := self._due_s()) is None or due_s > 0:
                    if self._is_closed and due_s is None:
                        return
                    self._changed.wait(due_s)
            self._send_some()

    def _send_some(self) -> bool:
        """Send one request, and repeat it while its daemon is unavailable. Returns whether there was a job to send."""
        with self._sending:
            with self._changed:
                self._out = self._next()
                self._since_s = self._clock.mono_s() if self._waiting else None
                self._hurry = self._hurry and bool(self._waiting)
            if not self._out:
                return False
            try:
                error = self._sender.send(self._out)
            except BaseException:
                with self._changed:  # Ctrl-C, say: all these jobs are sent again, under the same ids
                    self._waiting.extendleft(reversed(self._out))
                    self._out = []
                raise
            with self._changed:
                over, self._out = self._out, []
                self._bytes -= sum(one.size for one in over)
                failed = [one for one in over if one.error is not None]
                for one in over:
                    one.end()
                self._failed = [*self._failed_unreported(), *failed]
                self._changed.notify_all()
        if failed:
            self._log.error("%d jobs could not be pushed: %s", len(failed), error or failed[0].error)
        return True

    def _next(self) -> list[Pending]:
        """Remove the jobs of the next request from the queue and return them. No two of them have the same id, as a
        daemon would refuse such a request."""
        batch: dict[str, Pending] = {}
        size = 0
        while self._waiting and len(batch) < REQUEST_JOBS and self._waiting[0].job_id not in batch:
            if batch and size + self._waiting[0].size > REQUEST_BYTES:
                break
            pending = self._waiting.popleft()
            batch[pending.job_id] = pending
            size += pending.size
        return list(batch.values())

    def _failed_unreported(self) -> list[Pending]:
        return [one for one in self._failed if not one.is_reported]

    def _raise_unfetched(self) -> None:
        """Raise NotPushed for failed jobs, except those for which it was raised before."""
        with self._changed:
            failed, self._failed = self._failed_unreported(), []
        for one in failed:
            one.is_reported = True
        if failed:
            raise NotPushed(
                f"{len(failed)} jobs are not known to be taken; the first, {failed[0].job_id}: {failed[0].error}",
                errors={one.job_id: one.error for one in failed if one.error is not None},
            )

    def _shut(self) -> None:
        """Accept no more jobs. The jobs in the buffer are still sent, at the latest when the process ends."""
        with self._changed:
            was_open, self._is_closed = not self._is_closed, True
            self._changed.notify_all()
        if was_open and self._closed_error is not None:
            self._closed_error()
