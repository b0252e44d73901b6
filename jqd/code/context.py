"""A context: a process for code in Python or node, which stays alive and runs one batch after the other (`shims/`).

start ──before──▶ warm ──beforeEach──▶ a batch: one job after the other ──afterEach──▶ warm …
                    │ timeout, cancel, too much memory or output, the process ends by itself
                    ▼
                  dead: the pool runs the other jobs of the batch in another context
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import trio
from msgspec import Raw

from jqd.code import launch
from jqd.code.batch import CANCELLED, LATE, STOPPING, Batch, LeasedJob, failed, result_of, succeeded
from jqd.code.config import CodeConfig
from jqd.code.definition import ContextKey, Definition
from jqd.code.output import JobOutput
from jqd.code.process import Process, in_thread
from jqd.domain.error_summary import error_line
from jqd.domain.json_large import PIECE_BYTES
from jqd.domain.log import get_logger
from jqd.worker.lease import INVALID_RESPONSE, Outcome

BEFORE_S = 60.0  # for `before`: it may load a large library
EACH_S = 30.0  # for `beforeEach`, and for `afterEach`: a job's default timeout
ANSWER_BYTES_MAX = 17 << 20  # of one answer: the largest result that a daemon keeps, 16 MiB, and its frame
READ_BYTES = 1 << 16
ERROR_CHARS_MAX = 1_024  # of an exception's text
UNREADABLE = (ValueError, msgspec.MsgspecError, RecursionError, OverflowError)  # raised for JSON that MessagePack lacks
SHOWN_CHARS = 2_000  # shown of the end of a failed `before`'s output

BEFORE = "its before failed"  # handlers that may share a process have the same `before`
CODE = "its code does not compile"
NO_PROCESS = "no process of it starts here"
BEGIN = "its process ends before a job begins"

COMMANDS: dict[str, Callable[[CodeConfig, int, int], list[str]]] = {
    "python": launch.python_command,
    "node": launch.node_command,
}
_encode = msgspec.json.Encoder().encode


class Broken(Exception):
    """No job of a handler can run: its code or its `before` fails, or no process can be started for it. The message
    says why."""

    def __init__(self, why: str, of: str = BEFORE) -> None:
        """`of`: what is broken: BEFORE, CODE, NO_PROCESS or BEGIN."""
        super().__init__(why)
        self.of = of


def dying(how: str, printed: str) -> str:
    """Return text that says how a process ended, with the error line of what it printed if there is one."""
    line = error_line(printed[-SHOWN_CHARS:])
    return f"{how}; it printed: {line}" if line else how


class _Dead(Exception):
    """Raised when the process of the context has ended, or is killed because it did not answer in time."""


class Answer(msgspec.Struct):
    """Answer of a shim, the program that runs the code in a context, to one request."""

    status: int
    result: Raw = Raw(b"null")
    message: str = ""
    error: str = ""
    retry_after: float | None = None
    broken: bool = False
    """Whether the code does not compile, so that no job has run."""


_decode = msgspec.json.Decoder(Answer).decode


class Context:
    """A process in which a shim runs code. Sends requests to the shim, and reads its answers."""

    def __init__(self, key: ContextKey, process: Process, config: CodeConfig, to: int, answers: int) -> None:
        self.key, self.process = key, process
        self.batches = 0
        self.used_at_s = self.began_at_s = trio.current_time()
        self.is_large = False
        """Whether the process uses so much memory that it must end after its present batch."""
        self._config = config
        self._output = JobOutput(0)
        self._to, self._answers = trio.lowlevel.FdStream(to), trio.lowlevel.FdStream(answers)
        self._buffer = bytearray()
        self._asked = 0  # number of the last request; its answer begins with it
        self._asking = trio.CancelScope()
        self._log = get_logger("code")

    @property
    def is_usable(self) -> bool:
        return not (self.process.ended.is_set() or self.process.why_killed)

    async def live(self) -> None:
        try:
            await self.process.live()
        finally:
            self._asking.cancel()
            with trio.CancelScope(shield=True):
                await self._to.aclose()
                await self._answers.aclose()

    async def prepare(self, definition: Definition) -> None:
        """Run the `before` of a handler. If it fails, kill the process and raise Broken."""
        try:
            answer = await self._ask({"before": definition.before or ""}, BEFORE_S)
            why = answer.message if answer.status != 200 else ""
        except _Dead:
            killed = self.process.why_killed
            why = f"it took more than {BEFORE_S:g} s" if killed == LATE else killed or self.process.how
            why = dying(why, self._output.log.text)
        if why:
            self.process.kill("before failed")
            await self.process.wait_dead()
            raise Broken("\n".join(filter(None, (self._output.log.text[-SHOWN_CHARS:], why))))

    async def run(self, batch: Batch) -> None:
        """Run a batch until all its jobs have ended, or the process has. In the second case the jobs that were not run
        stay in the batch. Raises Broken if no job could begin."""
        self.batches += 1
        batch.process = self.process
        try:
            await self._run(batch)
        except _Dead:
            await self.process.wait_dead()
            batch.skip_unwanted()
            batch.charge_process(self.process, self._output.log)
        finally:
            batch.process = None
            self.used_at_s = trio.current_time()

    async def _run(self, batch: Batch) -> None:
        definition = batch.definition
        begun = await self._begin(definition)
        if begun is None:
            return
        while True:
            batch.skip_unwanted()
            if not batch.left:
                break
            job = batch.left[0]
            if begun.status != 200:
                batch.end(failed(job, begun.message, self._output.log))
                continue
            answer = await self._ask({"job": _facts(job)}, job.timeout)
            batch.end(await _outcome(job, answer, self._output))
        after = await self._ask({"ended": definition.called}, EACH_S)
        if after.status != 200:
            self._log.warning("code.after_each_failed", handler=definition.called, error=after.error)

    async def _begin(self, definition: Definition) -> Answer | None:
        """Compile the code of a handler, and run its `beforeEach`. Returns the shim's answer; None if the process has
        died but had run batches before, so that another process may run this one. Raises Broken if the code does not
        compile, or a new process dies, as any other would."""
        begin = {"begin": definition.before_each or "", "body": definition.body, "end": definition.after_each or ""}
        try:
            begun = await self._ask(begin | {"called": definition.called}, EACH_S)
        except _Dead:
            await self.process.wait_dead()
            why = self.process.why_killed
            if self.batches > 1 or why in (CANCELLED, STOPPING):
                return None
            raise Broken(f"it took more than {EACH_S:g} s" if why == LATE else why or self.process.how, BEGIN) from None
        if begun.broken:
            raise Broken(begun.message, CODE)
        return begun

    async def _ask(self, request: Mapping[str, object], timeout_s: float) -> Answer:
        """Send a request to the shim, and return the shim's answer. Kills the process if the answer is not there after
        `timeout_s`. Raises _Dead if the process was killed or has ended."""
        self._output = self.process.output = JobOutput(self._config.limits.output_mib << 20)
        answer: Answer | None = None
        if self.is_usable:
            with trio.move_on_after(timeout_s) as self._asking:
                self._asked += 1
                await self._send(_encode({**request, "at": self._asked}) + b"\n")
                answer = await self._receive()
            if answer is None:
                self.process.kill(LATE)
        if answer is None:
            await self.process.wait_dead()
        self.process.take()
        self._output.end()
        self.process.output = JobOutput(self._config.limits.output_mib << 20)  # bounds output between requests, too
        if answer is None or not self.is_usable:
            raise _Dead
        return answer

    async def _send(self, data: bytes) -> None:
        try:
            await self._to.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await trio.sleep_forever()  # the process is ending: `live` then cancels this

    async def _receive(self) -> Answer:
        while b"\n" not in self._buffer:
            try:
                data = await self._answers.receive_some(READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            self._buffer += data
            if len(self._buffer) > ANSWER_BYTES_MAX:
                self.process.kill(f"{INVALID_RESPONSE}: its result has more than {ANSWER_BYTES_MAX} bytes")
            if not data:
                await trio.sleep_forever()  # the process is ending: `live` then cancels this
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer[:] = rest
        number, _, text = line.partition(b" ")
        try:
            if number != b"%d" % self._asked:
                raise ValueError("it answers another request, or none")
            return _decode(text)
        except UNREADABLE:
            self.process.kill(f"{INVALID_RESPONSE}: the code wrote to a descriptor that is not its own")
            return Answer(500)


def _facts(job: LeasedJob) -> dict[str, object]:
    facts: dict[str, object] = {name: getattr(job, name) for name in LeasedJob.__struct_fields__}
    return facts | {"argument": Raw(job.argument_json)}


async def _outcome(job: LeasedJob, answer: Answer, output: JobOutput) -> Outcome:
    if answer.status != 200:
        outcome = failed(job, answer.message, output.log, status=answer.status)
        outcome.error = answer.error[-ERROR_CHARS_MAX:] or None
        if answer.retry_after is not None:
            outcome.retry_after = max(0.0, answer.retry_after)  # a time in the past means now
        return outcome
    text = bytes(answer.result)
    try:
        result = result_of(text) if len(text) <= PIECE_BYTES else await in_thread(result_of, text)
    except UNREADABLE as error:
        return failed(job, f"{INVALID_RESPONSE}: its result cannot be kept: {error}", output.log)
    return succeeded(job, result, output.follows, output.log)


async def start(
    definition: Definition,
    config: CodeConfig,
    base: Path,
    live: Callable[[Process, "Context"], None],
    gone: Callable[[], None],
) -> Context:
    """Start a process for the handler `definition`, run the handler's `before` in it, and return it as a context.

    `base`: directory for the process's home folder. `live`: starts the task that reads the process's output. `gone`:
    called when the process is dead, to end orphaned descendants. Raises NotStarted (launch.py) if the machine can start
    no process, Broken if `before` fails."""
    jobs, to, answers, answered = launch.open_pipes(2)
    ends = (to, answers)
    try:
        command = COMMANDS[definition.lang](config, jobs, answered)
        launched = launch.start(command, config, base, lang=definition.lang, fds=(jobs, answered))
    except launch.NotStarted:
        for fd in ends:
            os.close(fd)
        raise
    finally:
        os.close(jobs)
        os.close(answered)
    context = Context(definition.key, Process(launched, gone), config, *ends)
    live(context.process, context)
    await context.prepare(definition)
    return context
