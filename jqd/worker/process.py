"""One process of a process pool, as the front (the worker's main process) handles it: starts it, sends it jobs, reads
outcomes, stops and kills it.

The process has a process group of its own. So programs that its jobs started are killed with it, and Ctrl-C in a
terminal reaches only the front, which decides what to stop.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
import trio

from jqd.domain.job import NIL
from jqd.worker import frames
from jqd.worker.batch import Item
from jqd.worker.programs import Programs, ending, text_of, wait_dead, with_output
from jqd.worker.wire import JSON

READ_BYTES = 1 << 16
NO_ARGUMENT = msgspec.Raw(NIL)  # replaces the argument in a job, as `Run` has it beside the job
LEAVE_S = 2.0  # for a process to end by itself, after its jobs have ended or were asked to stop
GRACE_S = 0.25  # after its timeout an async function has so long to end; then its loop is asked to give it up
ANSWER_S = 2.0  # for a loop to answer, on a busy machine too; one that does not is blocked
LINGER_S = 10.0  # for jobs that were given up to end; then their process is killed if nothing else runs there
NAMES_SHOWN_MAX = 10  # jobs named in one line of a log

Kind = Literal["plain", "async"]
Received = Callable[["Process", "Held", bytes], None]
"""Called with each outcome that a process sends. An empty outcome means: a job that was given up before has ended
now."""


class NotStarted(Exception):
    """A process could not be started, or could not load its app. The message says why."""


class Held:
    """A job that a process of the pool runs."""

    __slots__ = ("due_s", "is_asked", "is_trial", "item", "key", "printed")

    def __init__(self, key: int, item: Item, due_s: float, *, is_trial: bool) -> None:
        """`due_s`: when the job must have ended, by trio's clock. `is_trial`: the job is suspected of a crash, and runs
        alone in the process."""
        self.key, self.item, self.due_s, self.is_trial = key, item, due_s, is_trial
        self.is_asked = False
        """Whether the process was asked to give the job up."""
        self.printed = bytearray()
        """The last bytes that programs of the job printed."""


class Process:
    """One process of the pool. `start_process` makes it, and `live` runs until it has ended."""

    def __init__(
        self,
        child: "subprocess.Popen[bytes]",
        stream: trio.SocketStream,
        prints: int,
        received: Received,
        on_output: Callable[[Item], None],
    ) -> None:
        """`prints`: descriptor of the pipe into which programs print that its jobs start. `received`: called with each
        outcome. `on_output`: called when a job has new output or progress."""
        self.kind: Kind = "plain"
        """Whether it runs one plain function at a time, or many async ones."""
        self.held: dict[int, Held] = {}
        self.is_retiring = False
        """Whether it gets no more jobs, and ends when its jobs have ended."""
        self.is_extra = False
        """Whether it is only for suspected jobs, which run alone here, with functions of either kind."""
        self.given = 0
        """Number of jobs that it has got since its start."""
        self.was_killed = False
        """Whether the main process killed it, because a job was past its timeout or was handed back."""
        self.ready: frames.Ready | frames.Broken | None = None
        self.ended = trio.Event()
        self.programs = Programs(prints, self._alone)
        self._started = trio.Event()
        self._received_all = trio.Event()
        self._emptied = trio.Event()
        self._child, self._stream, self._received, self._on_output = child, stream, received, on_output
        self._outgoing = frames.Outgoing()
        self.send = self._outgoing.send
        self._where: tuple[str, str | None] = ("", None)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_open(self) -> bool:
        ended = self.ended.is_set() or self.was_killed
        return isinstance(self.ready, frames.Ready) and not (ended or self.is_retiring)

    @property
    def is_on_trial(self) -> bool:
        return any(held.is_trial for held in self.held.values())

    @property
    def how(self) -> str:
        return ending(self._child.returncode)

    async def wait_ready(self, jobs: Iterable[frames.Declaration] = ()) -> frames.Ready:
        """Wait until the process has loaded the app, and return the app's jobs. Raises NotStarted, also if one of
        `jobs` (what the other processes loaded) is missing or of another kind."""
        await self._started.wait()
        if isinstance(self.ready, frames.Ready):
            loops = {job.name: job.loop for job in self.ready.jobs}
            other = [job.name for job in jobs if job.name not in loops or loops[job.name] != job.loop]
            if other:
                raise NotStarted(
                    "the code has changed since the other processes loaded it: jobs are missing, or of another kind: "
                    f"{str(other[:NAMES_SHOWN_MAX])[1:-1]}; send SIGHUP to load it in all of them"
                )
            return self.ready
        raise NotStarted(
            self.ready.why if self.ready else f"the process ended before it had loaded the app: {self.how}"
        )

    def give(self, item: Item, where: tuple[str, str | None], *, is_trial: bool) -> Held:
        """Send the process a job to run. `where`: URL and token of the daemon to which the job pushes."""
        if where != self._where:
            self._where = where
            self.send(frames.Where(*where))
        self.given += 1
        grace_s = 0.0 if self.kind == "plain" else GRACE_S
        held = Held(self.given, item, trio.current_time() + item.timeout_s + grace_s, is_trial=is_trial)
        self.held[held.key] = held
        job = msgspec.structs.replace(item.job, argument=NO_ARGUMENT)
        self.send(frames.Run(held.key, item.batch.codec is JSON, job, bytes(item.job.argument)))
        return held

    def overdue(self, now_s: float) -> list[Item]:
        """Return the items past their timeout that only killing the process can end. Ask the process to give up all
        other items past their timeout.

        Killing is needed for plain functions; for async ones if the process did not answer that request within
        ANSWER_S; and for items given up LINGER_S ago, if the process runs nothing else.
        """
        overdue: list[Item] = []
        for held in [held for held in self.held.values() if held.due_s <= now_s]:
            if self.kind == "plain" or (held.is_asked and not held.item.ended):
                overdue.append(held.item)
            elif not held.is_asked:
                held.is_asked, held.due_s = True, now_s + ANSWER_S
                self.send(frames.Late(held.key))
            elif all(each.item.ended for each in self.held.values()):
                overdue.append(held.item)
            else:
                held.due_s = now_s + LINGER_S
        return overdue

    def stop(self, held: Held) -> None:
        """Stop a job. For a plain function this kills the process. But if the job was cancelled, the function is only
        told so, and may end by itself."""
        if self.kind == "plain" and not held.item.cancelled:
            self.kill()
        else:
            self.send(frames.Stop(held.key, held.item.cancelled))

    def collect_output(self) -> None:
        """Add what programs have printed to the output of the jobs that started them. To be called before the outcomes
        of these jobs are made."""
        self.programs.take()
        for held in self.held.values():
            if held.printed:
                held.item.get_output().write(text_of(held.printed))
                held.printed.clear()

    def kill(self) -> None:
        if not self.ended.is_set():
            self.was_killed = True
            self._kill_group()

    async def live(self) -> None:
        """Exchange messages with the process until it has ended."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._outgoing.run, self._stream)
                nursery.start_soon(self._read)
                await wait_dead(self._child)
                with trio.move_on_after(LEAVE_S):  # a program that one of its jobs left behind may hold the socket open
                    await self._received_all.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._kill_group()  # programs that its jobs left, and the process itself if this task is cancelled
            with trio.CancelScope(shield=True):
                await wait_dead(self._child)
                await self._stream.aclose()
            self.ended.set()
            self._started.set()

    async def leave(self) -> None:
        """Wait until the jobs have ended, and let the process end by itself, so that it cleans up and exit handlers
        run. If it has not ended after LEAVE_S, kill it."""
        self.is_retiring = True
        with trio.move_on_after(LEAVE_S):
            if self.held:
                await self._emptied.wait()
            self._outgoing.end()
            await self.ended.wait()
        if not self.ended.is_set():
            self._kill_group()

    async def _read(self) -> None:
        incoming = frames.Frames(frames.ToFront)
        try:
            while data := await self._stream.receive_some(READ_BYTES):
                for message in incoming.feed(data):
                    self._take(message)
        except trio.BrokenResourceError:
            return  # it is ending: `live` notices
        except msgspec.MsgspecError:
            self._kill_group()  # not our messages: a job writes to the socket
        finally:
            self._received_all.set()

    def _take(self, message: frames.ToFront) -> None:
        if isinstance(message, frames.Ended):
            self.programs.take()
            held = self.held.get(message.key) if message.lives_on else self.held.pop(message.key, None)
            if not self.held:
                self._emptied.set()
                self._emptied = trio.Event()
            if held is not None:
                printed, codec = held.printed, held.item.batch.codec
                outcome = message.outcome
                if printed and outcome:
                    outcome = with_output(outcome, printed, codec)
                if message.lives_on:
                    held.due_s = trio.current_time() + LINGER_S
                self._received(self, held, outcome)
        elif isinstance(message, frames.Spoke):
            held = self.held.get(message.key)
            if held is not None:
                self._receive(held.item, message)
        else:
            self.ready = message
            self._started.set()

    def _alone(self) -> Held | None:
        return next(iter(self.held.values())) if len(self.held) == 1 else None

    def _receive(self, item: Item, message: frames.Spoke) -> None:
        output = item.get_output()
        if message.lines:
            output.write(message.lines, message.missed)
        if message.is_farther:
            output.set_progress(message.done, message.message)
        self._on_output(item)

    def _kill_group(self) -> None:
        # The group's number is not used again while a member lives.
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return  # the group has no members any more


def start_process(
    begin: frames.Begin, received: Received, on_output: Callable[[Item], None], nursery: trio.Nursery
) -> Process:
    """Start a process, and tasks in `nursery` that exchange messages with it. `begin`: the first message to it.
    `received`: called with each outcome. `on_output`: called when a job has new output or progress. Raises
    NotStarted."""
    try:
        ours, theirs = socket.socketpair()
        try:
            prints, printed = os.pipe()
        except OSError:
            ours.close()
            theirs.close()
            raise
    except OSError as error:
        raise NotStarted(f"no process can be started: {error}") from error
    with theirs, open(printed, "wb"):
        fds = theirs.fileno(), printed
        command = [sys.executable, "-m", "jqd.worker.child", str(fds[0]), str(os.getpid()), str(printed)]
        try:
            # In this thread, though it takes some ms: PR_SET_PDEATHSIG kills the child when the thread that started it
            # ends.
            child = subprocess.Popen(command, pass_fds=fds, start_new_session=True, stdin=subprocess.DEVNULL)
        except OSError as error:
            ours.close()
            os.close(prints)
            raise NotStarted(f"no process can be started: {error}") from error
    process = Process(child, trio.SocketStream(trio.socket.from_stdlib_socket(ours)), prints, received, on_output)
    process.send(begin)
    nursery.start_soon(process.live)
    nursery.start_soon(process.programs.receive)
    return process
