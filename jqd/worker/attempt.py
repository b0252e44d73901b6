"""Runs one attempt of a job: decodes the argument, calls the function, encodes the outcome. Errors of the function
become outcomes."""

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from subprocess import CalledProcessError
from typing import Any

import trio
from msgspec import msgpack, structs

from jqd.client.tracing import SDK, processing
from jqd.domain.clock import Clock
from jqd.domain.dates import iso
from jqd.domain.followers import FOLLOWERS_BYTES_MAX
from jqd.domain.log import get_logger
from jqd.worker import wire
from jqd.worker.attempt_output import SUCCESS_LOG_BYTES_MAX, AttemptOutput, encodable
from jqd.worker.batch import Item
from jqd.worker.context import Cancelled, Context, Failed, Retry, Snooze, at_work, from_now
from jqd.worker.job import Loop
from jqd.worker.job_log import JobLog, job_fields
from jqd.worker.parameters import Parameters
from jqd.worker.refusal import RETRY_AFTER_S

OF_OTHER_LOOP: Mapping[Loop, str] = {"trio": "no running event loop", "asyncio": "must be called from async context"}
"""Event loop → text of the error when a function for the other loop runs in it."""
STOPPED_WITH = (-signal.SIGTERM, -signal.SIGINT)  # return codes of programs that a signal to the whole group has ended
STOPPING_S = 0.25  # how much later than such a program this process may get the same signal


class Unsendable(Exception):
    def __init__(self, why: str, error: str, status: int | None) -> None:
        super().__init__(why)
        self.why, self.error, self.status = why, error, status


class Attempts:
    """Runs jobs' functions. Most methods return the outcome of a job, encoded as its batch needs it."""

    def __init__(self, clock: Clock, on_output: Callable[[Item], None] | None = None) -> None:
        """`on_output`: called with a job's item, in the job's thread, when the job has new output or progress."""
        self._clock, self._on_output = clock, on_output
        self.stopping = threading.Event()
        """Set when the worker got a signal to stop. Programs that jobs started may have got the same signal."""
        self.lines = JobLog(clock)
        self._log, self._message_of = get_logger("worker"), get_logger("job")

    def run(self, item: Item) -> bytes:
        job: Any = item.function
        try:
            at_work.set(self.context(item))
            args, kwargs = self.values(item)
            return self.returned(item, self.encoded(item, job.function(*args, **kwargs)))
        except BaseException as error:  # noqa: BLE001 - a job that calls sys.exit() must not end the thread it runs in
            return self.raised(item, error)
        finally:
            at_work.set(None)
            if item.span is not None:
                item.span.end()

    async def run_async(self, item: Item) -> bytes:
        job: Any = item.function
        try:
            at_work.set(self.context(item))
            with trio.move_on_after(item.timeout_s) as scope:
                item.stop = scope.cancel
                args, kwargs = self.values(item)
                body = self.encoded(item, await job.function(*args, **kwargs))
            if not scope.cancelled_caught:
                return self.returned(item, body)
            return self.stopped(item) if item.is_stopped else self.timed_out(item)
        except trio.Cancelled:
            self.stopped(item)  # for the log
            raise
        except BaseExceptionGroup as errors:
            cancelled, _ = errors.split(trio.Cancelled)
            if cancelled is not None:
                raise cancelled from None  # the daemon hung up: nobody waits for the other errors
            return self.raised(item, errors)
        except BaseException as error:  # noqa: BLE001 - one job must not end the worker of all others
            return self.raised(item, error)
        finally:
            item.stop = None
            at_work.set(None)
            if item.span is not None:
                item.span.end()

    def timed_out(self, item: Item) -> bytes:
        self._log.warning("worker.job_timed_out", **_which(item), after_s=item.timeout_s)
        if item.span is not None:
            item.span.fail("timeout")
        message = f"the job did not end within its timeout of {item.timeout_s:g} s"
        return self._failure(item, message, error="timeout", reason="timeout")

    def died(self, item: Item, how: str) -> bytes:
        """Return the outcome of a job that ran alone in a process when the process died: a failure. `how`: text that
        says how the process ended."""
        message = f"the job took its process down: {how}"
        return self._failure(item, message, error="process died")

    def cancelled(self, item: Item, why: str = "") -> bytes:
        """Return the outcome of a cancelled job, whether it had begun or not. `why`: text for the outcome's message."""
        message = f"cancelled: {why}" if why else "cancelled"
        return self._failure(item, message, error="cancelled", should_retry=False, status=wire.CANCELLED_STATUS)

    def stopped(self, item: Item) -> bytes:
        """Return the outcome of a job whose function was stopped. If the job was not cancelled, it was handed back
        before, or nobody waits for it, and this outcome is not sent."""
        if item.cancelled:
            return self.cancelled(item)
        return self._interrupted(item, "its worker stops, or nobody waits for it any more")

    def unknown(self, codec: wire.Codec, job_id: str, message: str) -> bytes:
        """Return the outcome of a job for which this worker has no function: a failed attempt. The job is not merely
        handed back, because perhaps no worker has the function."""
        error = "unknown job name"
        return codec.encode(wire.Failure(job_id, self._now(), "other", True, error, message[-wire.MESSAGE_CHARS_MAX :]))

    def refused(
        self, codec: wire.Codec, job_id: str, why: str, *, retry_after: float | None = None, begun: bool = False
    ) -> bytes:
        """Return the outcome of a job that is handed back without counting an attempt.

        `retry_after`: for how many seconds the worker wants no jobs. `begun`: whether the job had begun. `why`: text
        for people.
        """
        message = f"handed back: {why}" if begun else f"not begun: {why}"
        return codec.encode(wire.Refused(job_id, message, retry_after, begun))

    def started(self, item: Item) -> bytes:
        return item.batch.codec.encode(wire.Started(item.job_id))

    def values(self, item: Item) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the named values with which to call the job's function. Raises Failed if the
        argument does not fit: a retry would not help."""
        job: Any = item.function
        parameters: Parameters = job.parameters
        try:
            return parameters.unpack(item.job.argument, item.batch.codec.content_type)
        except ValueError as error:
            raise Failed(str(error)) from error

    def context(self, item: Item) -> Context:
        self.lines.began(item)
        job, ends_at_ms = item.job, self._clock.wall_ms() + round(item.timeout_s * 1000)
        item.make_output = self._output_of
        if SDK in sys.modules:  # else nobody traces; asking would take long for a short job
            item.span = processing(job.name, item.job_id, job.attempt, job.trace)
        return Context(item.job_id, job.name, job.attempt, job.max_retry, ends_at_ms, job.trace, of=item)

    def _output_of(self, item: Item) -> AttemptOutput:
        on_change = None if self._on_output is None else partial(self._on_output, item)
        return AttemptOutput(on_change, lambda line: self._message_of.info(line, **job_fields(item)))

    def encoded(self, item: Item, result: Any) -> bytes:
        """Return the outcome of a job whose function returned `result`: a success. If the result is too large, its size
        takes its place. Raises Unsendable if the result cannot be encoded or the followers are too large; then no
        follower is pushed."""
        codec, output = item.batch.codec, item.output
        jobs = self.follows(output, codec) if output is not None and output.follows else ()
        if not item.job.keep_result:
            result = None  # nobody wants it, so it may have any size and type
        log_from, log = output.log(SUCCESS_LOG_BYTES_MAX) if output is not None else (0, "")
        outcome = wire.Success(item.job_id, self._now(), result, jobs, log=log, log_from=log_from)
        try:
            body = codec.encode(outcome)
            if len(body) > wire.OUTCOME_BYTES_MAX and log:  # rather drop the log than the result
                body = codec.encode(structs.replace(outcome, log="", log_from=0))
        except Exception as error:  # users' objects may raise anything when they are encoded
            why = f"its result cannot be encoded: {_message_of(error)}; return plain values"
            raise Unsendable(why, _name(error), None) from error
        followers_bytes = len(codec.encode(jobs)) if jobs else 0
        if followers_bytes > FOLLOWERS_BYTES_MAX:
            why = f"the jobs that are to follow have {followers_bytes} bytes, more than {FOLLOWERS_BYTES_MAX}; "
            why += "let one of them push the others"
            raise Unsendable(why, "too much follows", wire.TOO_MUCH_STATUS)
        if (size := len(body) - followers_bytes) <= wire.OUTCOME_BYTES_MAX:
            return body
        # Without the result, but with its size: the daemon decides what happens.
        return codec.encode(wire.Success(item.job_id, self._now(), None, jobs, size))

    def follows(self, output: AttemptOutput, codec: wire.Codec) -> Sequence[Any]:
        """Return the follower jobs of an attempt in a form that `codec` can encode. For JSON they are decoded first,
        because JSON cannot hold packed values."""
        return output.follows if codec is wire.MSGPACK else [msgpack.decode(each) for each in output.follows]

    def returned(self, item: Item, body: bytes) -> bytes:
        self.lines.succeeded(item)
        return body

    def raised(self, item: Item, error: BaseException) -> bytes:
        try:
            only = _only(error)
            if item.span is not None and not isinstance(only, Snooze):
                item.span.fail(type(error).__name__, error)
            return self._expected(item, only, error)
        except BaseException as odd:  # noqa: BLE001 - a user's exception may raise anything when it is read
            message = f"the job raised {type(error).__name__}, which cannot be read: {_name(odd)}"
            return self._failure(item, message, error=_name(error))

    def _expected(self, item: Item, error: BaseException, raised: BaseException) -> bytes:
        """Return the outcome of a job that raised `error`. `raised`: the same, or the group that brought it."""
        if isinstance(error, Unsendable):  # a retry would return the same: it fails for good
            self._log.warning("worker.job_failed", **_which(item), why=error.why)
            message = f"the job ran, but {error.why}"
            return self._failure(item, message, error=error.error, should_retry=False, status=error.status)
        if isinstance(error, Cancelled):
            return self.cancelled(item, _message_of(error))
        if item.cancelled:
            # A cancelled job that raised its own exception: keep that as the reason, and do not retry.
            return self.cancelled(item, _name(error))
        log = self._log.bind(**_which(item))
        if isinstance(error, Retry):
            after_s = None if error.after is None else from_now(error.after, "Retry.after")
            log.info("worker.job_wants_retry", why=_message_of(error), after_s=after_s)
            return self._failure(item, _message_of(error), error="retry", retry_after=after_s)
        if isinstance(error, Snooze):
            after_s = from_now(error.after, "Snooze.after")
            log.info("worker.job_snoozed", why=_message_of(error), after_s=after_s)
            message = encodable(_message_of(error)[-wire.MESSAGE_CHARS_MAX :])
            return item.batch.codec.encode(wire.Snoozed(item.job_id, self._now(), message, after_s))
        if isinstance(error, Failed):
            kind = _message_of(error) if error.error is None else error.error
            log.warning("worker.job_failed", why=_message_of(error))
            return self._failure(item, _message_of(error), error=kind, should_retry=False)
        if isinstance(error, CalledProcessError) and self._was_stopped(item, error):
            return self._interrupted(item, f"the signal that stops this worker ended its program ({_name(error)})")
        loop = item.function.loop
        if loop is not None and isinstance(error, RuntimeError) and OF_OTHER_LOOP[loop] in _message_of(error):
            other = "asyncio" if loop == "trio" else "trio"
            error.add_note(f'it ran under {loop}, and needs {other}: declare it with @app.job(loop="{other}")')
        own = raised.__traceback__
        # Leave out the first frame, which is jqd's.
        frames = traceback.format_exception(type(raised), raised, own.tb_next if own else None)
        log.warning(
            "worker.job_raised", error=_name(error), exception=encodable("".join(frames)[-wire.MESSAGE_CHARS_MAX :])
        )
        return self._failure(item, "".join(frames), error=_name(error))

    def _interrupted(self, item: Item, why: str) -> bytes:
        self._log.warning("worker.job_interrupted", **_which(item), why=why)
        return self.refused(item.batch.codec, item.job_id, why, retry_after=RETRY_AFTER_S, begun=True)

    def _was_stopped(self, item: Item, error: CalledProcessError) -> bool:
        """Return whether `error` reports a program of the job that was ended by the signal that also stops this worker,
        such as Ctrl-C. May wait up to STOPPING_S until this worker gets the signal."""
        patience_s = STOPPING_S if item.function.loop is None else 0.0  # do not block an event loop
        return error.returncode in STOPPED_WITH and self.stopping.wait(patience_s)

    def _failure(
        self,
        item: Item,
        message: str,
        *,
        error: Any,
        reason: wire.Reason = "other",
        should_retry: bool = True,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> bytes:
        codec, message = item.batch.codec, encodable(message[-wire.MESSAGE_CHARS_MAX :])
        if isinstance(error, str):
            error = encodable(error[: wire.ERROR_CHARS_MAX])
        try:
            size = len(codec.encode(error))
            why = f"has {size} bytes, more than {wire.ERROR_BYTES_MAX}" if size > wire.ERROR_BYTES_MAX else ""
        except Exception as refused:  # noqa: BLE001 - the error's value may be anything
            why = f"cannot be encoded: {_name(refused)}"
        if why:
            message += f" (its error value {why})"
            error = f"a value of type {type(error).__name__}"
        output = item.output
        log_from, log = output.log() if output is not None else (0, "")
        outcome = wire.Failure(item.job_id, self._now(), reason, should_retry, error, message, retry_after, status)
        outcome.log, outcome.log_from = log, log_from
        return codec.encode(outcome)

    def _now(self) -> str:
        return iso(self._clock.wall_ms())


def _which(item: Item) -> dict[str, object]:
    return {**job_fields(item), "of": max(item.job.max_retry + 1, item.job.attempt)}


def _only(error: BaseException) -> BaseException:
    """Return the only exception of a group, as the nursery of one failing task raises it; of any other, itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _name(error: BaseException) -> str:
    """Return an exception as text, `ValueError: its message`, which can be encoded."""
    text = _message_of(error)
    return encodable(f"{type(error).__name__}: {text}" if text else type(error).__name__)[: wire.ERROR_CHARS_MAX]


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
        return "(its text cannot be read)"
