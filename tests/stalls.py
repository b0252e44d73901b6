"""Guards the loop: no step of any task has the processor for long, whatever is asked, sent or broken off.

Measured is the time that the thread of the loop had of the processor: what other programs take does not count.
In the test's own process use the fixture `unstalled`. A daemon or worker that is to be watched is started by
`python -m tests.stalls` in place of `python -m jqd`: nothing of this is in what users install.
"""

import gc
import os
import runpy
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import trio

T = TypeVar("T")
STALL_S = 0.150  # a step that is longer fails the test: a fraction of the second after which leases are renewed
RECORDED_S = 0.005  # steps that are kept note of: rare, and worth a look where a test fails
FILE = "JQD_TEST_STALLS"  # names the file to which a process writes them
PROGRAM = (sys.executable, "-m", "tests.stalls")


class Step(NamedTuple):
    """A long one."""

    seconds: float
    """Of the processor."""
    at_s: float
    """When it ended, by the machine's monotonic clock."""
    where: str

    def __str__(self) -> str:
        return f"{self.seconds * 1000:.0f} ms in {self.where}"


class Stalls(trio.abc.Instrument):
    """Takes note of long steps."""

    def __init__(self, file: Path | None = None) -> None:
        self.steps: list[Step] = []
        self._file = file
        self._began_s = time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began_s = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        seconds = time.thread_time() - self._began_s
        if seconds < RECORDED_S:
            return
        step = Step(seconds, time.monotonic(), _where(task))
        if self._file is None:
            self.steps.append(step)
        else:
            with self._file.open("a") as file:
                file.write(f"{step.seconds}\t{step.at_s}\t{step.where}\n")


def _where(task: trio.lowlevel.Task) -> str:
    """The task, and the line of ours at which it waits now."""
    coro: Any = task.coro
    place = ""
    while coro is not None:
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "ag_frame", None) or getattr(coro, "gi_frame", None)
        if frame is not None and "/jqd/" in frame.f_code.co_filename:
            place = f" before {frame.f_code.co_filename.rpartition('/jqd/')[2]}:{frame.f_lineno}"
        coro = getattr(coro, "cr_await", None) or getattr(coro, "ag_await", None) or getattr(coro, "gi_yieldfrom", None)
    return f"{task.name}{place}"


@contextmanager
def guarded(limit_s: float = STALL_S) -> Iterator[None]:
    """Within, no step of this loop is longer. What the tests before left in memory is no garbage to be looked for."""
    stalls = Stalls()
    gc.freeze()
    trio.lowlevel.add_instrument(stalls)
    try:
        yield
    finally:
        trio.lowlevel.remove_instrument(stalls)
        gc.unfreeze()
    check(stalls.steps, limit_s)


def run(call: Callable[..., Awaitable[T]], *args: object, limit_s: float = STALL_S) -> T:
    """As `trio.run`; no step of this loop is longer."""
    stalls = Stalls()
    gc.freeze()
    try:
        told = trio.run(call, *args, instruments=[stalls])
    finally:
        gc.unfreeze()
    check(stalls.steps, limit_s)
    return told


def read_steps(file: Path, since_s: float) -> list[Step]:
    """What a process wrote, from then on: what it does when it starts does not count."""
    if not file.exists():
        return []
    rows = (line.split("\t", 2) for line in file.read_text().splitlines())
    steps = (Step(float(seconds), float(at_s), where) for seconds, at_s, where in rows)
    return [step for step in steps if step.at_s >= since_s]


@contextmanager
def unstalled(file: Path, limit_s: float = STALL_S) -> Iterator[None]:
    """Within, no step of a process that writes to this file is longer."""
    began_s = time.monotonic()
    yield
    check(read_steps(file, began_s), limit_s)


def check(steps: list[Step], limit_s: float = STALL_S) -> None:
    """Raises AssertionError."""
    longest = sorted(steps, reverse=True)
    assert not longest or longest[0].seconds <= limit_s, f"the loop stood still: {'; '.join(map(str, longest[:5]))}"


if __name__ == "__main__":
    stalls = Stalls(Path(os.environ[FILE]))
    trio.run = partial(trio.run, instruments=[stalls])  # type: ignore[assignment]
    runpy.run_module("jqd", run_name="__main__", alter_sys=True)
