"""Runs a worker's jobs in this process, in threads and as tasks: `InProcess`. The other executor is `ProcessPool`.

`Service` receives batches and answers them. An executor runs their items and stores the outcomes in the batches, in the
trio thread.
"""

from collections import deque
from collections.abc import Callable, Sequence

import trio

from jqd.domain.clock import Clock
from jqd.domain.log import get_logger
from jqd.worker.aio import AsyncioLoop
from jqd.worker.attempt import Attempts
from jqd.worker.batch import Batch, Item
from jqd.worker.threads import NOTE_S, Outbox, ThreadPool

SLICE_S = 0.001  # how long async jobs that never wait hold the loop before other tasks run
SHOWN_MAX = 10  # stuck jobs named in one line of a log
SATURATED = (
    "no more jobs are taken until one of them returns; restart this worker, and bound the calls in its functions"
)
BLOCKED = "it, or another job beside it, holds up the asyncio loop: an async function must not block"
LINGERS = "it was cancelled at its timeout and has not ended: it keeps its slot until it has tidied up"


class InProcess:
    """Runs plain functions in threads, and async ones as tasks of trio or of an asyncio loop."""

    def __init__(self, attempts: Attempts, *, concurrency: int, clock: Clock) -> None:
        """`concurrency`: how many plain functions may run at once. Beside them, as many trio functions and as many
        asyncio functions may run."""
        self._attempts, self._clock = attempts, clock
        self._concurrency = concurrency
        self._limiter = trio.CapacityLimiter(concurrency)
        self._outbox: Outbox | None = None
        self._pool: ThreadPool | None = None
        self._loop: AsyncioLoop | None = None
        self._was_helpless = False
        self._log = get_logger("worker")

    @property
    def orphans(self) -> int:
        """Return how many jobs still run although nobody waits for their outcome any more."""
        return sum(each.orphans for each in (self._pool, self._loop) if each)

    def start(self, items: Sequence[Item], nursery: trio.Nursery) -> None:
        """Start items in order. Their outcomes are stored in their batches later. `nursery`: that of the batch; async
        functions run in it."""
        plain = [item for item in items if item.function.loop is None]
        tasks = deque(item for item in items if item.function.loop == "trio")
        foreign = [item for item in items if item.function.loop == "asyncio"]
        if plain:
            self._threads().submit(plain)
        if foreign:
            loop = self._asyncio()
            loop.submit(foreign)
            nursery.start_soon(loop.end_with, foreign[0].batch)
        for _ in range(min(len(tasks), self._concurrency)):
            nursery.start_soon(self._run_tasks, tasks)

    def watch(self, batch: Batch) -> None:
        """Give each job past its timeout, of whatever batch, the outcome that it timed out. A plain function cannot be
        stopped: it occupies its thread until it returns."""
        for item, _ in self._pool.stuck if self._pool else ():
            self._time_out(item, "a plain function cannot be stopped: bound the calls in it, or use --processes")
        for item in self._loop.late if self._loop else ():
            self._time_out(item, BLOCKED if self._is_blocked else LINGERS)
        if self.is_helpless and not self._was_helpless:
            self._log.error("worker.saturated", stuck=self._stuck_threads, next=SATURATED)
        self._was_helpless = self.is_helpless

    def call_after_iteration(self, item: Item, call: Callable[[], None]) -> None:
        """Call `call`: at once, or for an asyncio item after the next iteration of the asyncio loop. While a task
        blocks that loop, `call` is not called."""
        if item.function.loop == "asyncio":
            self._asyncio().call_after_iteration(call)
        else:
            call()

    def _time_out(self, item: Item, why: str) -> None:
        if not item.ended:
            self._log.warning("worker.overrun", job_id=item.job_id, name=item.job.name, why=why)
            item.batch.put(item, self._attempts.timed_out(item))

    def forget(self, batch: Batch) -> None:
        """Do nothing for a batch that nobody waits for: `AsyncioLoop.end_with` stops its tasks."""

    def drain(self) -> None:
        """Move the outcomes that wait in the outbox of threads and the asyncio loop into their batches now."""
        if self._outbox is not None:
            self._outbox.drain()

    def is_suspect(self, item: Item) -> bool:
        """Return whether the item is suspected of a crash and must run alone in a process: here always False."""
        return False

    def stranded(self, item: Item) -> bool:
        """Return whether no thread or loop can run the item, because all threads are stuck or its loop is blocked."""
        loop = item.function.loop
        return (loop is None and self._has_no_thread) or (loop == "asyncio" and self._is_blocked)

    def trouble(self) -> str | None:
        """Return why jobs cannot run at present, as text for people; None: they can."""
        if not self.is_helpless:
            return None
        stuck = ", ".join(f"{item.job_id} ({item.job.name})" for item, _ in self.stuck()[:SHOWN_MAX])
        return (
            f"{self._stuck_threads} threads are stuck in jobs past their timeout: {stuck}; "
            "restart the worker, and make those jobs end by themselves or async, or use --processes"
        )

    def stuck(self) -> list[tuple[Item, float]]:
        """Return (job, seconds) for each job that still runs after its timeout. Seconds: how long ago it began."""
        now_s = self._clock.mono_s()
        held = [(item, now_s - since_s) for item, since_s in (self._pool.stuck if self._pool else ())]
        late = self._loop.late if self._loop else ()
        return held + [(item, now_s - (item.begun_s or now_s)) for item in late]

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    @property
    def is_helpless(self) -> bool:
        """Return whether all threads are stuck, or the asyncio loop is blocked."""
        return self._has_no_thread or self._is_blocked

    @property
    def _has_no_thread(self) -> bool:
        return self._pool is not None and self._pool.is_stuck

    @property
    def _is_blocked(self) -> bool:
        return self._loop is not None and self._loop.is_blocked

    @property
    def _stuck_threads(self) -> int:
        return (len(self._pool.stuck) if self._pool else 0) + self._is_blocked

    async def _run_tasks(self, items: deque[Item]) -> None:
        limiter, yielded_s = self._limiter, self._clock.mono_s()
        while items:
            item = items.popleft()
            try:
                limiter.acquire_nowait()  # a checkpoint for every job would cost more than a small job
            except trio.WouldBlock:
                await limiter.acquire()
            try:
                if not item.begin():
                    continue  # it was cancelled or handed back while it waited
                if self._clock.mono_s() - item.batch.arrived_s > NOTE_S:
                    item.batch.note(item, self._attempts.started(item))
                outcome = await self._attempts.run_async(item)
            finally:
                limiter.release()
            item.batch.put(item, outcome)
            if self._clock.mono_s() - yielded_s > SLICE_S:
                await trio.lowlevel.checkpoint()
                yielded_s = self._clock.mono_s()

    def _threads(self) -> ThreadPool:
        if self._pool is None:
            self._pool = ThreadPool(
                self._attempts.run,
                threads=self._concurrency,
                clock=self._clock,
                outbox=self._box(),
                begun=self._attempts.started,
            )
        return self._pool

    def _asyncio(self) -> AsyncioLoop:
        if self._loop is None:
            self._loop = AsyncioLoop(self._attempts, tasks=self._concurrency, clock=self._clock, outbox=self._box())
        return self._loop

    def _box(self) -> Outbox:
        if self._outbox is None:
            self._outbox = Outbox()
        return self._outbox


def jobs_text(stuck: Sequence[tuple[Item, float]]) -> str:
    """Return a text that lists jobs for a log line, at most SHOWN_MAX: `01KC… (resize) for 95 s, …`."""
    rows = [f"{item.job_id} ({item.job.name}) for {seconds:.0f} s" for item, seconds in stuck[:SHOWN_MAX]]
    more = f" and {len(stuck) - SHOWN_MAX} more" if len(stuck) > SHOWN_MAX else ""
    return ", ".join(rows) + more
