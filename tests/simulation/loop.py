"""One trio loop in which everything happens in an order that a seed decides, and whole daemons can be stopped.

Time jumps to the next deadline as soon as all tasks wait; threads are done in place; the order of tasks
that may run together is drawn from the seed. Tasks belong to a *process* by the context they were started in: a frozen
process takes no step, whatever it waited for has come, and goes on where it stood when it is thawed. Deadlines pass
meanwhile, as they do for a process under SIGSTOP, unless its timers are held.
"""

import contextvars
import gc
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import structlog
import trio
from trio.lowlevel import Task

from jqd.domain import array_split
from jqd.journal.thread import WriterThread

PROCESS: contextvars.ContextVar[str] = contextvars.ContextVar("process", default="")
"""Which process a task belongs to; empty: to the world itself."""

EPOCH_MS = 1_800_000_000_000  # the world's wall clock when it begins
STILL_S, STILL_MAX = 0.01, 500  # what trio itself may wait for, outside of the world's time
SILENT = 50  # nobody logs at this level: nothing of the daemons' log is wanted


class JumpingClock(trio.abc.Clock):
    """Jumps to the next deadline whenever no task may run; MockClock does the same and takes twice the turns for it."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._still = 0

    def start_clock(self) -> None:
        """See Clock."""

    def current_time(self) -> float:
        """See Clock."""
        return self._now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Trio asks this when nothing may run."""
        if deadline < math.inf:
            self._now_s, self._still = max(self._now_s, deadline), 0
            return 0.0
        self._still += 1
        assert self._still < STILL_MAX, "all tasks wait, and none of them by time: the world stands still for ever"
        return STILL_S  # its own wake-up calls, at the end of a run, come through a socket


class RunQueue(deque[Task]):
    """Trio's queue of tasks that may run, without those of frozen processes."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen: set[str] = set()

    def __iter__(self) -> Iterator[Task]:
        if not self.frozen:
            return super().__iter__()
        return (task for task in super().__iter__() if task.context.get(PROCESS, "") not in self.frozen)

    def __bool__(self) -> bool:
        return super().__len__() > 0 if not self.frozen else any(True for _ in self)

    def clear(self) -> None:
        """Drop what was taken to be run; what is frozen stays."""
        kept = (
            [task for task in super().__iter__() if task.context.get(PROCESS, "") in self.frozen] if self.frozen else []
        )
        super().clear()
        self.extend(kept)


def start_in(process: str, nursery: trio.Nursery, call: Callable[..., Awaitable[Any]], *args: Any) -> None:
    """Start a task of that process."""

    def start() -> None:
        PROCESS.set(process)
        nursery.start_soon(call, *args)

    contextvars.copy_context().run(start)


def hold_timers(process: str, seconds: float) -> None:
    """The timers of that process stand still for so long from now on, as those of a suspended machine do."""
    inside: Any = trio._core._run
    scopes = set()
    for task in inside.GLOBAL_RUN_CONTEXT.runner.tasks:
        if task.context.get(PROCESS, "") == process:
            status = task._cancel_status
            while status is not None:
                scopes.add(status._scope)
                status = status.parent
    for scope in scopes:
        if scope.deadline < math.inf:
            scope.deadline += seconds


def run(call: Callable[[RunQueue], Awaitable[Any]], seed: int, *, log: Callable[[Any, str, Any], Any] | None) -> Any:
    """Run `call` to its end. `log`: a structlog processor that gets the daemons' log."""
    queue = RunQueue()

    async def main() -> Any:
        runner: Any = trio._core._run.GLOBAL_RUN_CONTEXT.runner
        queue.extend(runner.runq)
        runner.runq = queue
        return await call(queue)

    with _no_collection(), _deterministic(seed), _threads_in_place(), _log_to(log):
        return trio.run(main, clock=JumpingClock())


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collecting garbage in between takes a third of the time and frees little: a run lasts a moment."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _deterministic(seed: int) -> Iterator[None]:
    inside: Any = trio._core._run
    state = inside._r.getstate()
    inside._r.seed(seed)
    # The switch that Hypothesis turns, too. And no task yields because of the processor's time: no seed says that.
    scheduling = patch.object(inside, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    with scheduling, patch.object(array_split, "thread_s", _no_time):
        try:
            yield
        finally:
            inside._r.setstate(state)


@contextmanager
def _threads_in_place() -> Iterator[None]:
    """The virtual clock must not jump while a thread works, so none does: `slow` is waited for by that clock."""

    async def run_sync(call: Callable[..., Any], *args: Any, **_: Any) -> Any:
        slow = SLOW.get()
        await trio.sleep(slow())
        result = call(*args)
        await trio.sleep(slow())
        return result

    async def run(_: WriterThread, call: Callable[[], object]) -> None:
        with trio.CancelScope(shield=True):
            await run_sync(call)

    with patch.object(trio.to_thread, "run_sync", run_sync), patch.object(WriterThread, "run", run):
        yield


def _no_time() -> float:
    return 0.0


SLOW: contextvars.ContextVar[Callable[[], float]] = contextvars.ContextVar("slow", default=_no_time)
"""Seconds that this process's next call in a thread takes: its disk."""


@contextmanager
def _log_to(log: Callable[[Any, str, Any], Any] | None) -> Iterator[None]:
    before = structlog.get_config()
    if log is None:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(SILENT))
    else:
        structlog.configure(processors=[log], wrapper_class=structlog.make_filtering_bound_logger(0))
    try:
        yield
    finally:
        structlog.configure(**before)
