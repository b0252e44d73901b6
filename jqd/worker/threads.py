"""Threads for plain functions. Each takes an item, runs it, puts its outcome into the outbox, and takes the next item.

The trio thread is woken once for many outcomes, and no job needs a task. A function past its timeout cannot be stopped:
it is reported as timed out, and occupies its thread until it returns. Only a process can be killed (docs/adr/0011).
While all threads are occupied in this way, the worker takes no new batches.

    trio thread   submit ──► queue ──► threads ──► outbox ──► drain (run_sync_soon) ──► batch.put
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable

import trio

from jqd.domain.clock import Clock
from jqd.worker.batch import Item

NOTE_S = 0.25  # a job that waited longer is reported as begun: half of the margin that the daemon gives every job
STALE_ITEMS_MAX = 16  # a queue is swept when it holds so many more than twice what the last sweep left


class Outbox:
    """Passes outcomes and other messages, which any thread delivers, to their batches in the trio thread."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._waiting: deque[tuple[Item, bytes, bool]] = deque()  # the bool: whether it is the outcome
        self._signalled = False

    def deliver(self, item: Item, content: bytes, is_outcome: bool) -> None:
        """Queue an item's outcome, or another message about it, for its batch. Any thread may call this. Raises
        trio.RunFinishedError if the trio loop has ended."""
        # Here: append, then read the flag. In `drain`: clear the flag, then empty. So either the running drain sees
        # the outcome, or the outcome starts another drain.
        self._waiting.append((item, content, is_outcome))
        if not self._signalled:
            self._signalled = True
            self._token.run_sync_soon(self.drain)

    def soon(self, call: Callable[..., None], *args: object) -> None:
        self._token.run_sync_soon(call, *args)

    def drain(self) -> None:
        """Store all queued outcomes and messages in their batches. Runs by itself soon after each `deliver`."""
        self._signalled = False
        content = self._waiting
        while content:
            item, what, is_outcome = content.popleft()
            if is_outcome:
                item.batch.put(item, what)
            else:
                item.batch.note(item, what)


class ThreadPool:
    """Threads that run plain functions. Only the trio thread that made the pool may call its methods."""

    def __init__(
        self,
        run: Callable[[Item], bytes],
        *,
        threads: int,
        clock: Clock,
        outbox: Outbox,
        begun: Callable[[Item], bytes],
    ) -> None:
        """`run`: runs an item and returns its outcome. `begun`: returns the message to send when an item begins after
        it has waited for longer than NOTE_S."""
        self._run = run
        self._begun = begun
        self._clock = clock
        self._outbox = outbox
        self._queue: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._queued_max = STALE_ITEMS_MAX
        self._nows: list[tuple[Item, float] | None] = [None] * threads  # per thread: its item, since when (monotonic)
        self._closed = False
        for number in range(threads):
            # Daemon threads: a function that never returns must not keep the process alive.
            threading.Thread(target=self._loop, args=(number,), name=f"jqd-job-{number + 1}", daemon=True).start()

    @property
    def stuck(self) -> list[tuple[Item, float]]:
        """Return the items that still run after their timeout, each with the time when it began (monotonic)."""
        now_s = self._clock.mono_s()
        return [now for now in self._nows.copy() if now is not None and now_s - now[1] >= now[0].timeout_s]

    @property
    def is_stuck(self) -> bool:
        return len(self.stuck) == len(self._nows)

    def submit(self, items: Iterable[Item]) -> None:
        """Queue items, to run in this order. Items of a batch for which nobody waits any more are skipped."""
        for item in items:
            self._queue.put(item)
        if self._queue.qsize() > self._queued_max and not self._closed:
            self._sweep()

    @property
    def orphans(self) -> int:
        return sum(now is not None and now[0].batch.gone for now in self._nows.copy())

    def close(self) -> None:
        self._closed = True
        for _ in self._nows:
            self._queue.put(None)

    def _sweep(self) -> None:
        """Remove from the queue all items that must not begin any more: they may be big, and would stay long while
        threads are busy.

        If a thread takes an item at the same moment, the order may change a little.
        """
        for _ in range(self._queue.qsize()):
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break  # other threads took the rest
            if item is not None and not item.must_not_begin:
                self._queue.put(item)
        self._queued_max = 2 * self._queue.qsize() + STALE_ITEMS_MAX

    def _loop(self, number: int) -> None:
        take, run, mono_s, begun, deliver = (
            self._queue.get,
            self._run,
            self._clock.mono_s,
            self._begun,
            self._outbox.deliver,
        )
        try:
            while (item := take()) is not None:
                if item.batch.gone or not item.begin():
                    continue
                now_s = mono_s()
                self._nows[number] = (item, now_s)
                item.begun_s = now_s
                if now_s - item.batch.arrived_s > NOTE_S:
                    deliver(item, begun(item), False)
                outcome = run(item)
                self._nows[number] = None
                deliver(item, outcome, True)
                del item, outcome  # free them: a result may be big
        except trio.RunFinishedError:
            return  # the worker's loop has ended
