"""The first process of a context, seen from the worker: reads its output, notes how it ends, and kills its
descendants."""

import os
import signal
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

from jqd.code.descendants import kill_with_descendants
from jqd.code.folders import remove
from jqd.code.launch import Launched
from jqd.code.output import JobOutput
from jqd.worker.programs import LOOK_S, ending, wait_ended

READ_BYTES = 1 << 16
READS_MAX = 64  # at once: a program that prints without end must not hold up other jobs
DEAD_S = 10.0  # for a killed process to be dead: one that waits for a disk may take long
Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class Process:
    """The first process of a context (a group of processes that runs code), seen from the worker."""

    def __init__(self, launched: Launched, gone: Callable[[], None] = lambda: None) -> None:
        """`gone`: called when the process is dead, to end orphaned descendants."""
        self.pid = launched.child.pid
        self.why_killed = ""
        """Why this worker killed the process, for the message of the job; empty: it did not."""
        self.ended = trio.Event()
        self.output: JobOutput | None = None
        """Collects the output of the running job; None: no job runs, and output is dropped."""
        self.printed: Callable[[bytes], None] = lambda data: None
        """Called with all data from standard output."""
        self._child, self._home, self._gone = launched.child, launched.home, gone
        self._prints, self._complains = launched.prints, launched.complains
        self._open = {self._prints, self._complains}

    async def live(self) -> None:
        """Read the output of the process until it is dead; then delete its home folder and close its descriptors."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read_output, self._prints)
                nursery.start_soon(self._read_output, self._complains)
                await self._wait_dead()
                nursery.cancel_scope.cancel()
        finally:
            self.kill("its worker stops")
            with trio.CancelScope(shield=True):
                await self._wait_dead()
                self.take()
                for fd in (self._prints, self._complains):
                    os.close(fd)
                self._open.clear()
                self._gone()
                self.ended.set()
                await in_thread(remove, self._home)

    def kill(self, why: str) -> None:
        if self._child.returncode is None:
            self.why_killed = self.why_killed or why
            kill_with_descendants(self.pid)

    @property
    def how(self) -> str:
        """How the process ended, as text."""
        return ending(self._child.returncode)

    @property
    def code(self) -> int:
        """Exit code of the process; negative: number of the signal that killed it."""
        return -signal.SIGKILL if self._child.returncode is None else self._child.returncode

    async def wait_dead(self) -> None:
        with trio.move_on_after(DEAD_S):
            await self.ended.wait()

    def take(self) -> None:
        """Read without waiting what the process has printed."""
        for fd in list(self._open):
            for _ in range(READS_MAX):
                if not self._read(fd):
                    break

    async def _read_output(self, fd: int) -> None:
        while fd in self._open:
            await trio.lowlevel.wait_readable(fd)
            self._read(fd)

    def _read(self, fd: int) -> bool:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._open.discard(fd)
            return False
        if fd == self._prints:
            self.printed(data)
        if self.output is not None:
            (self.output.printed if fd == self._prints else self.output.complained)(data)
            if self.output.is_too_much:
                self.kill("OUTPUT: it printed more than one attempt may")
        return True

    async def _wait_dead(self) -> None:
        while self._child.returncode is None:
            try:
                await wait_ended(self.pid)
                # Not by Popen, which returns 0, a success, if somebody else has reaped the process.
                status = os.waitpid(self.pid, 0)[1]  # noqa: ASYNC222 - it is dead
                self._child.returncode = os.waitstatus_to_exitcode(status)
            except (ProcessLookupError, ChildProcessError):
                self._child.returncode = -signal.SIGKILL  # end_strays killed and reaped it
            except OSError:  # no descriptor is free, perhaps only for a moment
                await trio.sleep(LOOK_S)


async def in_thread(call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Run `call` in a thread, and return its result. If no thread can be started, because code has used up all that the
    machine allows, run `call` in the calling thread."""
    is_called = False

    def called() -> Result:
        nonlocal is_called
        is_called = True
        return call(*arguments)

    try:
        return await trio.to_thread.run_sync(called)
    except RuntimeError:
        if is_called:
            raise
        return call(*arguments)
