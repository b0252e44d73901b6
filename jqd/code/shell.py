"""Runs a batch in sh, by the rules of node-miniq: in a new process, which reads a line for each job and prints a line
for each.

The printed lines are in the order of the jobs. Each begins with a number, the status of the job: 2xx and 4xx end the
job, others make a retry. The text behind the number is its result or error. `#` begins a comment. `J: type|payload` or
`#J: …` asks for a new job: it follows the success whose line comes next, or if none comes, the last success. If there
are too few lines, the other jobs fail with NO_RESPONSE. A line without a number is INVALID_RESPONSE for its job and all
jobs after it.

If a handler takes one job at a time (no `batch`), and its first line has no status, all lines together are the text,
and the exit code decides: 0 is success, any other a failure.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio

from jqd.code import launch
from jqd.code.batch import LATE, NO_RESPONSE, Batch, LeasedJob, failed, succeeded
from jqd.code.config import CodeConfig
from jqd.code.context import BEFORE, BEFORE_S, CODE, SHOWN_CHARS, Broken, dying
from jqd.code.output import JobOutput, Log
from jqd.code.process import Process, in_thread
from jqd.domain.job_lines import Followers, is_job, line_of, status_of, why_unread
from jqd.worker.lease import Outcome

READY, BROKEN = b"r", b"b"  # first byte that the shim reports: its `before` succeeded; the syntax is wrong
SHIM = launch.SHIMS / "batch.sh"
_ONE_STATUS = re.compile(rb"([1-5][0-9][0-9])(?:\s+|$)")


class LineAnswer(NamedTuple):
    """What the code printed about one job."""

    status: int
    text: str
    follows: Sequence[dict[str, Any]] = ()

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


async def run(
    batch: Batch,
    config: CodeConfig,
    base: Path,
    live: Callable[[Process], None],
    gone: Callable[[], None] = lambda: None,
    *,
    known: bool = False,
) -> bool:
    """Run a batch in one process, and record the outcomes of its jobs. Returns whether `before` succeeded, so that the
    body began.

    If the process was killed because of one job, jobs that it had not reached stay in the batch. `live`: starts the
    task that reads its output. `known`: whether the syntax of the code was checked before. Raises Broken,
    launch.NotStarted.
    """
    jobs, definition = list(batch.left), batch.definition
    texts = [definition.before, definition.before_each, definition.body, definition.after_each]
    lines = b"".join(line_of(bytes(job.argument)) for job in jobs)
    with _files(lines, *((text or "").encode() for text in texts)) as (stdin, *files):
        ready, reporting = launch.open_pipes(1)
        try:
            names = [f"/dev/fd/{fd}" for fd in (reporting, *files)]
            about = {"JQD_JOB_TYPE": jobs[0].name}
            if definition.batch == 1:
                about |= {"JQD_JOB_ID": jobs[0].job_id, "JQD_ATTEMPT": str(jobs[0].attempt)}
            command, fds = ["sh", str(SHIM), *names, *([] if known else ["check"])], (reporting, *files)
            started = launch.start(command, config, base, lang="sh", fds=fds, stdin=stdin, variables=about)
        except launch.NotStarted:
            os.close(ready)
            raise
        finally:
            os.close(reporting)
    process, printed = Process(started, gone), bytearray()
    output = process.output = JobOutput(config.limits.output_mib << 20)
    batch.process, process.printed = process, printed.extend
    live(process)
    try:
        answer = await _wait(process, ready, sum(job.timeout for job in jobs))
    finally:
        batch.process = None
        os.close(ready)
    output.end()
    if answer != READY and process.why_killed in ("", LATE):
        why = (output.log.text[-SHOWN_CHARS:], dying(process.why_killed or process.how, output.log.text))
        raise Broken("\n".join(filter(None, why)), CODE if answer == BROKEN else BEFORE)
    answers = await in_thread(_answers, definition.batch, bytes(printed), len(jobs), process)
    _settle(batch, jobs, answers, process, output.log)
    return answer == READY


async def _wait(process: Process, ready: int, timeout_s: float) -> bytes:
    """Wait until the process is dead. Kill it BEFORE_S after its start, or if `before` has succeeded, `timeout_s` after
    that. Returns the first byte that the shim reported on the descriptor `ready`: READY if `before` succeeded."""
    reported = b""

    async def receive() -> None:
        nonlocal reported
        await trio.lowlevel.wait_readable(ready)
        reported = os.read(ready, 1)
        if reported == READY:
            scope.deadline = trio.current_time() + timeout_s

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(BEFORE_S) as scope:
            nursery.start_soon(receive)
            await process.ended.wait()
        nursery.cancel_scope.cancel()
    if not process.ended.is_set():
        process.kill(LATE)
        await process.wait_dead()
    return reported


def _answers(most: int, printed: bytes, jobs: int, process: Process) -> list[LineAnswer]:
    """Return the answers in what a process printed, one for each job. Runs in a thread, as there may be millions of
    lines. `most`: batch size of the handler."""
    is_own_end = not process.why_killed
    if most > 1:
        return read_batch(printed, jobs, is_whole=is_own_end)
    return [read_one(printed, process.code, process.how)] if is_own_end else []


def _settle(batch: Batch, jobs: list[LeasedJob], answers: list[LineAnswer], process: Process, log: Log) -> None:
    for job, answer in zip(jobs, answers, strict=False):
        batch.end(_outcome(job, answer, log))
    batch.skip_unwanted()
    if not process.why_killed:
        for job in list(batch.left):
            batch.end(failed(job, f"{NO_RESPONSE}: the code printed no line for this job; {process.how}", log))
    else:
        batch.charge_process(process, log, f"{sum(job.timeout for job in jobs):g} s")


def _outcome(job: LeasedJob, answer: LineAnswer, log: Log) -> Outcome:
    if answer.is_success:
        return succeeded(job, answer.text or None, answer.follows, log, answer.status)
    return failed(job, answer.text, log, status=max(100, min(answer.status, 599)))


@contextmanager
def _files(*contents: bytes) -> Iterator[list[int]]:
    """Make a file in memory for each content. Yields their descriptors."""
    fds: list[int] = []
    try:
        for content in contents:
            try:
                fds.append(os.memfd_create("jqd"))
            except OSError as error:
                raise launch.NotStarted(f"no file can be made: {error}") from error
            with open(fds[-1], "wb", closefd=False) as file:
                file.write(content)
            os.lseek(fds[-1], 0, os.SEEK_SET)
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def read_batch(printed: bytes, jobs: int, *, is_whole: bool) -> list[LineAnswer]:
    """Return the answers about a batch of `jobs` jobs, from what its process printed: one for each job, in order, or
    fewer. `is_whole`: the process ended by itself, so that a last line without a line end counts."""
    *lines, last = printed.split(b"\n")
    answers: list[LineAnswer] = []
    followers = Followers()
    for line in [*lines, last] if is_whole else lines:
        if is_job(line):
            followers.add(line)
        elif line.startswith(b"#") or not line.strip() or len(answers) == jobs:
            continue
        elif answer := status_of(line):
            answers.append(LineAnswer(*answer))
            if answers[-1].is_success:
                answers[-1], followers = answers[-1]._replace(follows=tuple(followers.jobs)), Followers()
        else:
            answers += [LineAnswer(500, why_unread(line, "the code printed"))] * (jobs - len(answers))
    last_success = next((at for at in reversed(range(len(answers))) if answers[at].is_success), None)
    if last_success is not None:
        follows = (*answers[last_success].follows, *followers.jobs)
        answers[last_success] = answers[last_success]._replace(follows=follows)
    return answers


def read_one(printed: bytes, code: int, how: str) -> LineAnswer:
    """Read the answer about the only job of a process from what the process printed. `code`: exit code of the process;
    `how`: how it ended, as text."""
    lines = printed.split(b"\n")
    followers = Followers()
    for line in filter(is_job, lines):
        followers.add(line)
    rows = [line for line in lines if line.strip() and not line.startswith(b"#") and not is_job(line)]
    if rows and (number := _ONE_STATUS.match(rows[0])):
        text = rows[0][number.end() :].decode("utf-8", "replace").strip()
        return LineAnswer(int(number[1]), text, followers.jobs)
    text = b"\n".join(rows).decode("utf-8", "replace").strip()
    return LineAnswer(200, text, followers.jobs) if code == 0 else LineAnswer(500, f"{text}\n{how}".lstrip())
