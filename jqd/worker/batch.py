"""One batch in flight: which of its jobs have ended, and which outcomes are still to be sent.

Only the trio thread stores outcomes in a batch. So if an outcome from another thread and a timeout come at the same
moment, the first one ends the job and the second one is dropped.
"""

from collections.abc import Callable

import trio

from jqd.client.tracing import Attempt
from jqd.worker.attempt_output import AttemptOutput
from jqd.worker.job import Declared
from jqd.worker.wire import Codec, JobIn


class Item:
    """One job of a batch, and the state of its attempt."""

    __slots__ = (
        "batch",
        "begun_s",
        "cancelled",
        "ended",
        "function",
        "is_logged",
        "is_stopped",
        "job",
        "job_id",
        "make_output",
        "output",
        "span",
        "stop",
        "timeout_s",
    )

    def __init__(self, batch: "Batch", job: JobIn, function: Declared) -> None:
        self.batch = batch
        self.job = job
        self.function = function
        self.job_id = job.job_id or job.id
        self.timeout_s = job.timeout_s
        self.ended = False
        self.cancelled = False
        """Whether the job was cancelled. The thread that runs it reads this."""
        self.is_stopped = False
        """Whether its function must stop, for any reason. The thread that runs it reads this."""
        self.begun_s: float | None = None
        """When it began, by the monotonic clock; None if its executor does not report that."""
        self.make_output: Callable[[Item], AttemptOutput] | None = None
        """Makes `output` when it is first needed, because few jobs print or report anything."""
        self.output: AttemptOutput | None = None
        """Lines, progress and followers of the attempt; None until there are any."""
        self.span: Attempt | None = None
        """The trace span of the attempt, if attempts are traced."""
        self.is_logged = False
        """Whether the log has a line about the job's beginning."""
        self.stop: Callable[[], None] | None = None
        """Stops the running function. None: it does not run, or cannot be stopped, as a plain function in a thread."""

    def get_output(self) -> AttemptOutput:
        if self.output is None:
            self.output = AttemptOutput() if self.make_output is None else self.make_output(self)
        return self.output

    def begin(self) -> bool:
        """Claim the item, to run it, cancel it or hand it back. Returns True to the first caller and False to all later
        ones. Any thread may call this, because removing a key from a dict is atomic."""
        return self.batch.waiting.pop(self, 0) is None

    def halt(self) -> bool:
        """Stop the item's function. Returns False if it does not run, or cannot be stopped, as a plain function in a
        thread."""
        self.is_stopped, stop = True, self.stop  # read once: another thread clears it when the function ends
        if stop is not None:
            stop()
        return stop is not None

    @property
    def must_not_begin(self) -> bool:
        """Return whether the item must not begin any more: it was claimed (`begin`), or nobody waits for its batch.
        Queues drop such an item, because it may be big."""
        return self.batch.gone or self not in self.batch.waiting


class Batch:
    """The jobs of one request, and those of their outcomes that the worker has not sent yet. `gone` is set when nobody
    waits for the answer: jobs that have not begun are then skipped."""

    def __init__(self, codec: Codec, jobs: int, arrived_s: float = 0.0, batch_id: str = "", lease_id: str = "") -> None:
        """`jobs`: their number. `arrived_s`: when the batch arrived, by the monotonic clock. `lease_id`: the lease
        under which the worker holds the jobs, named in heartbeats; empty: none."""
        self.codec = codec
        self.batch_id = batch_id
        self.lease_id = lease_id
        self.left = jobs
        self.arrived_s = arrived_s
        self.waiting: dict[Item, None] = {}
        """The jobs that have not begun, in order."""
        self.gone = False
        self.items: list[Item] = []
        """The jobs of the batch for which this worker has a function."""
        self._ready: list[bytes] = []
        self._sent_some = False
        self._some = trio.Event()
        self._complete = trio.Event()
        if not jobs:
            self._finish()

    def put(self, item: Item, outcome: bytes) -> None:
        """Keep the outcome of an item until it is sent. If the item has an outcome already, the new one is dropped."""
        if not item.ended:
            item.ended = True
            self.put_bare(item.job_id, outcome)

    def put_bare(self, job_id: str, outcome: bytes) -> None:
        assert self.left > 0, "more outcomes than jobs"
        self._ready.append(outcome)
        self.left -= 1
        if self.left:
            self._some.set()
        else:
            self._finish()

    def note(self, item: Item, content: bytes) -> None:
        """Keep a message about an item until it is sent: that it has begun, for example. If the item has an outcome
        already, the message is dropped."""
        if not item.ended:
            self._ready.append(content)
            self._some.set()

    async def wait_complete(self) -> None:
        await self._complete.wait()

    async def wait_some(self, timeout_s: float, linger_s: float) -> None:
        """Wait up to `timeout_s` for something to send. Once there is something, wait up to `linger_s` for the outcomes
        of all other jobs."""
        with trio.move_on_after(timeout_s):
            await self._some.wait()
        if self._ready and self.left:
            with trio.move_on_after(linger_s):
                await self._complete.wait()

    def take(self) -> tuple[bytes, bool]:
        """Return the bytes of all outcomes and messages that were not returned before, and whether these are the last
        bytes of the answer."""
        codec, ready, last = self.codec, self._ready, not self.left
        self._ready = []
        if not last:
            self._some = trio.Event()
        body = codec.between.join(ready)
        if not self._sent_some:
            if ready or last:
                body = codec.first + body
        elif ready:
            body = codec.between + body
        self._sent_some = self._sent_some or bool(ready)
        return body + codec.last if last else body, last

    def _finish(self) -> None:
        self._some.set()
        self._complete.set()


class LeasedBatch(Batch):
    """Jobs that the worker pulled. No request waits for an answer, so each outcome is passed to `settle` instead."""

    def __init__(
        self,
        codec: Codec,
        jobs: int,
        settle: Callable[[str, bytes], None],
        arrived_s: float = 0.0,
        lease_id: str = "",
    ) -> None:
        """`settle`: called with the id of a job and its outcome."""
        super().__init__(codec, jobs, arrived_s, lease_id=lease_id)
        self._settle = settle

    def put_bare(self, job_id: str, outcome: bytes) -> None:
        self._settle(job_id, outcome)
        super().put_bare(job_id, b"")

    def note(self, item: Item, content: bytes) -> None:
        """Drop the message, because heartbeats tell the daemon that the leased jobs are running."""
