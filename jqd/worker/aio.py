"""Runs an asyncio loop in a thread of its own, for async functions that were written for asyncio.

    trio thread   submit ──► call_soon_threadsafe ──► loop: a task for each item ──► outbox ──► batch.put

Tasks begin in order, at most `tasks` at once. The thread is a daemon thread: a function that blocks the loop must not
keep the process alive. If a job calls `loop.stop()`, or a task that it started calls `sys.exit()`, the loop is started
again, or all other jobs would end.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from typing import Any

import trio

from jqd.domain.clock import Clock
from jqd.domain.log import get_logger
from jqd.worker.attempt import Attempts
from jqd.worker.batch import Batch, Item
from jqd.worker.context import at_work
from jqd.worker.threads import NOTE_S, Outbox
from jqd.worker.watchdog import Watchdog

CLEAN_UP_S = 1.0  # how long tasks that were stopped with their batch are waited for
GRACE_S = 0.25  # how long after its timeout a task is waited for


class AsyncioLoop:
    """An asyncio loop in a thread. Only the trio thread that made it calls the public methods."""

    def __init__(self, attempts: Attempts, *, tasks: int, clock: Clock, outbox: Outbox) -> None:
        self._attempts, self._tasks, self._clock, self._outbox = attempts, tasks, clock, outbox
        self._loop = asyncio.new_event_loop()
        self._queue: deque[Item] = deque()
        self._running: dict[asyncio.Task[None], Item] = {}
        self._watchers = 0
        self._some_ended = trio.Event()
        self._is_closing = False
        self._log = get_logger("worker")
        self._watchdog = Watchdog(self._at_work, clock)
        threading.Thread(target=self._live, name="jqd-asyncio", daemon=True).start()

    @property
    def now(self) -> list[Item]:
        return list(self._running.copy().values())

    def submit(self, items: Iterable[Item]) -> None:
        self._loop.call_soon_threadsafe(self._add, list(items))

    async def end_with(self, batch: Batch) -> None:
        """Wait until a batch is complete or this call is cancelled. Then cancel the batch's tasks that still run, and
        wait up to CLEAN_UP_S until they have ended."""
        try:
            await batch.wait_complete()
        finally:
            with trio.move_on_after(CLEAN_UP_S) as scope:
                scope.shield = True
                await self._stop_all(batch)

    @property
    def late(self) -> list[Item]:
        """Return the items whose task still runs GRACE_S after its timeout. Such a task cleans up, or ignores its
        cancellation, or a task blocks the loop."""
        now_s = self._clock.mono_s()
        began = [(item, item.begun_s) for item in self.now]
        return [item for item, at_s in began if at_s is not None and now_s >= at_s + item.timeout_s + GRACE_S]

    @property
    def is_blocked(self) -> bool:
        return self._watchdog.is_silent and bool(self.late)

    @property
    def orphans(self) -> int:
        return sum(item.ended or item.batch.gone for item in self.now)

    def call_after_iteration(self, call: Callable[[], None]) -> None:
        """Call `call` in the trio thread after the next iteration of the asyncio loop. If a task blocks the asyncio
        loop, `call` is called only when that has ended."""
        self._loop.call_soon_threadsafe(self._wake_trio, call)

    def close(self) -> None:
        self._is_closing = True
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _live(self) -> None:
        self._watchdog.listen()
        self._loop.call_soon(self._beat)
        with closing(self._watchdog), asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            while not self._is_closing:
                why = "a job called loop.stop()"
                try:
                    runner.get_loop().run_forever()
                except (SystemExit, KeyboardInterrupt) as error:
                    # asyncio raises these two out of the loop. The task that raised one has ended with it.
                    why = f"a task that a job has started raised {type(error).__name__}"
                if not self._is_closing:
                    self._log.error("worker.loop_stopped", why=why, next="the asyncio loop runs on")
            # Closing the runner cancels the tasks that are left.

    def _beat(self) -> None:
        self._watchdog.beaten()
        self._loop.call_later(self._watchdog.beat_s, self._beat)

    def _at_work(self) -> str:
        return ", ".join(f"{item.job_id} ({item.job.name})" for item in self.now)

    def _add(self, items: list[Item]) -> None:
        self._queue.extend(items)
        self._fill()
        while self._queue and self._queue[0].must_not_begin:  # handed back; those behind it came later and are not yet
            self._queue.popleft()

    def _fill(self) -> None:
        while self._queue and len(self._running) < self._tasks:
            item = self._queue.popleft()
            if item.batch.gone or not item.begin():
                continue
            task = self._loop.create_task(self._work(item))
            item.stop = partial(self._stop, task)
            self._running[task] = item
            task.add_done_callback(self._done)

    async def _stop_all(self, batch: Batch) -> None:
        """Cancel the batch's tasks without an outcome, and wait until they have ended. Tasks that were stopped before
        are only waited for: a second cancellation would interrupt their clean-up."""
        left = [item for item in self.now if item.batch is batch and (item.is_stopped or not item.ended)]
        for item in left:
            if not item.is_stopped:
                item.halt()
        self._watchers += 1
        try:
            while any(item in left for item in self.now):
                await self._some_ended.wait()
        finally:
            self._watchers -= 1

    def _wake_trio(self, call: Callable[[], None]) -> None:
        with suppress(trio.RunFinishedError):
            self._outbox.soon(call)

    def _wake(self) -> None:
        self._some_ended.set()
        self._some_ended = trio.Event()

    def _stop(self, task: asyncio.Task[None]) -> None:
        try:
            self._loop.call_soon_threadsafe(task.cancel)
        except RuntimeError:
            return  # the loop has ended, and its tasks with it

    async def _work(self, item: Item) -> None:
        now_s = item.begun_s = self._clock.mono_s()
        if now_s - item.batch.arrived_s > NOTE_S:
            self._post(item, self._attempts.started(item), False)
        self._post(item, await self._attempt(item), True)

    async def _attempt(self, item: Item) -> bytes:
        job: Any = item.function
        limit = asyncio.timeout(item.timeout_s)
        try:
            at_work.set(self._attempts.context(item))
            async with limit:
                args, kwargs = self._attempts.values(item)
                body = self._attempts.encoded(item, await job.function(*args, **kwargs))
            return self._attempts.returned(item, body)
        except BaseException as error:  # noqa: BLE001 - one job must not end the loop of all others
            if isinstance(error, asyncio.CancelledError) and item.is_stopped:
                return self._attempts.stopped(item)
            if isinstance(error, TimeoutError) and limit.expired():
                return self._attempts.timed_out(item)
            return self._attempts.raised(item, error)
        finally:
            if item.span is not None:
                item.span.end()

    def _done(self, task: asyncio.Task[None]) -> None:
        item = self._running.pop(task)
        item.stop = None
        if task.cancelled():  # it was stopped before its first step
            self._post(item, self._attempts.stopped(item), True)
        if self._watchers:
            self._wake_trio(self._wake)
        self._fill()

    def _post(self, item: Item, content: bytes, is_outcome: bool) -> None:
        with suppress(trio.RunFinishedError):  # the worker's loop has ended
            self._outbox.deliver(item, content, is_outcome)


def is_cancelled() -> bool:
    """Return whether the current asyncio task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
