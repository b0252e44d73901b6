"""One batch in flight: which of its jobs have ended, and the outcomes that are not sent yet.

Outcomes are put on the trio thread only. So if an outcome from a pool thread and a timeout come at the same moment, the
first ends the job and the second is dropped.
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
        "output",
        "span",
        "speaks",
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
        """Whether the job was cancelled; read by the thread that runs it."""
        self.is_stopped = False
        """Whether its function must stop, for whatever reason; read by the thread that runs it."""
        self.begun_s: float | None = None
        """When it began, by the monotonic clock; None if its executor does not report that."""
        self.speaks: Callable[[Item], AttemptOutput] | None = None
        """Makes `output` when it is needed: few jobs print or report anything."""
        self.output: AttemptOutput | None = None
        """Lines, progress and followers of the attempt; None until there are any."""
        self.span: Attempt | None = None
        """The trace span of the attempt, if attempts are traced."""
        self.is_logged = False
        """Whether the log has a line that the job began."""
        self.stop: Callable[[], None] | None = None
        """Stops the running function; None: it does not run, or cannot be stopped, like a plain one in a thread."""

    def speak(self) -> AttemptOutput:
        if self.output is None:
            self.output = AttemptOutput() if self.speaks is None else self.speaks(self)
        return self.output

    def begin(self) -> bool:
        """Claim the item, to run it, cancel it or hand it back, by removing it from its batch's `waiting`. Returns True
        to one caller only, from whatever thread: removing a key from a dict is atomic."""
        return self.batch.waiting.pop(self, 0) is None

    def halt(self) -> bool:
        """Stop the function. Returns whether that was possible."""
        self.is_stopped, stop = True, self.stop  # read once: another thread clears it when the function ends
        if stop is not None:
            stop()
        return stop is not None

    @property
    def is_over(self) -> bool:
        """Return whether a queued job need not begin any more: queues then drop it, as it may be big."""
        return self.batch.gone or self not in self.batch.waiting


class Batch:
    """The jobs of one request. `gone` is set when nobody waits for the answer: jobs that have not begun are skipped."""

    def __init__(self, codec: Codec, jobs: int, arrived_s: float = 0.0, batch_id: str = "", lease_id: str = "") -> None:
        """`arrived_s`: monotonic. `lease_id`: identifies this holder of the jobs to daemons; empty: not sent."""
        self.codec = codec
        self.batch_id = batch_id
        self.lease_id = lease_id
        self.left = jobs
        self.arrived_s = arrived_s
        self.waiting: dict[Item, None] = {}
        """The jobs that have not begun, in order."""
        self.gone = False
        self.items: list[Item] = []
        """All jobs of the batch that this worker has a function for."""
        self._ready: list[bytes] = []
        self._sent_some = False
        self._some = trio.Event()
        self._complete = trio.Event()
        if not jobs:
            self._finish()

    def put(self, item: Item, outcome: bytes) -> None:
        """Take the outcome of `item`, unless it has one already."""
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
        """Send a note on `item` that is not its outcome, unless it has its outcome already."""
        if not item.ended:
            self._ready.append(content)
            self._some.set()

    async def wait_complete(self) -> None:
        await self._complete.wait()

    async def wait_some(self, timeout_s: float, linger_s: float) -> None:
        """Return when outcomes are ready and either all are or `linger_s` has passed, or after `timeout_s`."""
        with trio.move_on_after(timeout_s):
            await self._some.wait()
        if self._ready and self.left:
            with trio.move_on_after(linger_s):
                await self._complete.wait()

    def take(self) -> tuple[bytes, bool]:
        """Return the bytes to send now, each outcome once, and whether they are the last."""
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
    """Jobs that were pulled. There is no open request to answer, so each outcome is given to `settle`."""

    def __init__(
        self,
        codec: Codec,
        jobs: int,
        settle: Callable[[str, bytes], None],
        arrived_s: float = 0.0,
        lease_id: str = "",
    ) -> None:
        """`settle`: takes the id of a job and its outcome."""
        super().__init__(codec, jobs, arrived_s, lease_id=lease_id)
        self._settle = settle

    def put_bare(self, job_id: str, outcome: bytes) -> None:
        self._settle(job_id, outcome)
        super().put_bare(job_id, b"")

    def note(self, item: Item, content: bytes) -> None:
        """Drop the note: heartbeats report that the jobs of a lease are at work."""
