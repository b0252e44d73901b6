"""One attempt of a job, as a worker makes it. A plain function runs in the thread that lets it run.

So what a test has there holds for it: patches, context variables, a transaction. An async function runs in a loop of
another thread, for a test may have a loop of its own, with a copy of the context variables.
"""

import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, cast

import trio
from msgspec import Raw

from jqd.domain.clock import Clock
from jqd.domain.dates import iso
from jqd.domain.job import Held
from jqd.runner import Report
from jqd.runner.protocols.outcome import decode_answer
from jqd.runner.protocols.protocol import JobReport, Refused
from jqd.worker.aio import AsyncioLoop
from jqd.worker.attempt import Attempts
from jqd.worker.batch import Batch, Item
from jqd.worker.context import Cancelled, Failed, Retry, Snooze
from jqd.worker.job import Job
from jqd.worker.wire import MSGPACK, JobIn

RAISED_ON_PURPOSE = (Retry, Snooze, Failed, Cancelled)  # what a function raises to say how its attempt ended


class Watched(Attempts):
    """Remembers what a function raised, where that was a mistake."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.unexpected: BaseException | None = None

    def raised(self, item: Item, error: BaseException) -> bytes:
        """See Attempts."""
        if not isinstance(error, RAISED_ON_PURPOSE):
            self.unexpected = error
        return super().raised(item, error)


class Outlet:
    """The outbox of an asyncio loop for its item, in place of the one that leads to the loop of a worker."""

    def __init__(self) -> None:
        self._outcomes: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def deliver(self, item: Item, content: bytes, is_outcome: bool) -> None:
        """From its thread."""
        if is_outcome:
            self._outcomes.put(content)

    def soon(self, call: Callable[..., None], *args: object) -> None:
        """Nobody waits in a loop here."""

    def take(self) -> bytes:
        """The outcome, when it comes: the loop ends an attempt at its timeout."""
        return self._outcomes.get()


class Worker:
    """Makes attempts, one after another in each thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def run(self, job: Job[..., Any, Any], held: Held) -> tuple[Report | Refused, BaseException | None]:
        """How the attempt ended, and what the function raised by mistake."""
        attempts = Watched(self._clock)
        item = _item(job, held)
        if job.loop is None:
            content = attempts.run(item)
        elif job.loop == "trio":
            content = _in_thread(lambda: trio.run(attempts.run_async, item))
        else:
            content = self._in_asyncio(attempts, item)
        answer = decode_answer(content, "msgpack")
        if isinstance(answer, Refused):
            return answer, attempts.unexpected
        assert isinstance(answer, JobReport), f"an attempt ends by an outcome, not by {answer}"
        return answer.report, attempts.unexpected

    def _in_asyncio(self, attempts: Attempts, item: Item) -> bytes:
        outlet = Outlet()
        context = contextvars.copy_context()
        loop = context.run(AsyncioLoop, attempts, tasks=1, clock=self._clock, outbox=cast("Any", outlet))
        try:
            context.run(loop.submit, [item])
            return outlet.take()
        finally:
            loop.close()


def _item(job: Job[..., Any, Any], held: Held) -> Item:
    it = held.job
    job_in = JobIn(
        name=it.jobtype,
        job_id=it.id,
        id=it.id,
        argument=Raw(it.argument),
        attempt=held.attempt,
        max_retry=it.max_retry,
        timeout=it.timeout,
        keep_result=bool(it.keep_result) or it.flow is not None,  # as runner/protocols/native.py has it
        created_at=iso(it.created_at_ms),
    )
    item = Item(Batch(MSGPACK, 1), job_in, job)
    item.batch.waiting[item] = None
    return item


def _in_thread(call: Callable[[], bytes]) -> bytes:
    """Return what `call` answers in a thread without a loop, with the context variables of this one."""
    answered: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: answered.put(context.run(call)), name="jqd-testing-job", daemon=True)
    thread.start()
    thread.join()
    return answered.get_nowait()
