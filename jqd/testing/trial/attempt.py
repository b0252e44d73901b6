"""Makes one attempt of a job, as a worker does.

A plain function runs in the test's own thread, so that the test's patches, context variables and transactions hold for
it. An async function runs in the event loop of another thread, as the test may have a loop itself. It gets a copy of
the context variables.
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

RAISED_ON_PURPOSE = (Retry, Snooze, Failed, Cancelled)  # exceptions by which a function ends its attempt


class Watched(Attempts):
    """Runs attempts, and remembers an exception that the function did not raise on purpose (RAISED_ON_PURPOSE)."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.unexpected: BaseException | None = None

    def raised(self, item: Item, error: BaseException) -> bytes:
        if not isinstance(error, RAISED_ON_PURPOSE):
            self.unexpected = error
        return super().raised(item, error)


class Outlet:
    """Receives the outcome of one attempt from an asyncio loop, in place of a worker's `Outbox`."""

    def __init__(self) -> None:
        self._outcomes: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def deliver(self, item: Item, content: bytes, is_outcome: bool) -> None:
        """Receive output or the outcome, and keep only the outcome. The loop calls this in its own thread."""
        if is_outcome:
            self._outcomes.put(content)

    def soon(self, call: Callable[..., None], *args: object) -> None:
        """Do nothing: there is no trio loop that could run the call."""

    def take(self) -> bytes:
        """Wait for the outcome, and return it. It comes at the latest at the timeout of the job, when the loop ends the
        attempt."""
        return self._outcomes.get()


class Worker:
    """Makes attempts of jobs in the calling thread, one at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def run(self, job: Job[..., Any, Any], held: Held) -> tuple[Report | Refused, BaseException | None]:
        """Make an attempt of a claimed job. Returns its outcome, and the exception that the function raised if it was
        an unexpected one; else None."""
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
    """Run `call` in a new thread, with a copy of the context variables; wait, and return its result."""
    answered: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: answered.put(context.run(call)), name="jqd-testing-job", daemon=True)
    thread.start()
    thread.join()
    return answered.get_nowait()
