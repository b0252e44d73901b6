"""One process of a worker with `--processes`: loads the app, runs the jobs that the main process sends, and reports
their outcomes.

When the front (the worker's main process) is gone, the socket closes. Then this process ends at once, as nobody reads
its outcomes. It ignores signals that are sent to the whole worker: the front acts on them.

    python -m jqd.worker.child FD PID-OF-THE-FRONT FD-FOR-WHAT-PROGRAMS-PRINT
"""

import ctypes
import os
import signal
import socket
import sys
from typing import Any, TextIO

import trio
from msgspec import Raw, structs

from jqd.domain import log
from jqd.domain.clock import SystemClock
from jqd.domain.errors import ConfigError
from jqd.domain.lossy_stream import LossyStream
from jqd.worker import frames
from jqd.worker.app import App
from jqd.worker.attempt import Attempts
from jqd.worker.batch import Batch, Item
from jqd.worker.executors import InProcess
from jqd.worker.job_log import collect_logs
from jqd.worker.load import chosen, import_app, trace_attempts
from jqd.worker.watchdog import Watchdog
from jqd.worker.wire import JSON, MSGPACK, Codec

READ_BYTES = 1 << 16
PR_SET_PDEATHSIG = 1  # prctl(2): a signal for this process when its parent dies


class SingleJobBatch(Batch):
    """A batch of one job, which the worker's main process sent. Its outcome is sent back to that process by calling
    `ended`."""

    def __init__(self, codec: Codec, key: int, ended: Any) -> None:
        super().__init__(codec, 1)
        self.key, self._ended = key, ended
        self._lives_on = False  # it was given up, and its function still runs

    def put(self, item: Item, outcome: bytes) -> None:
        if self._lives_on:
            self._lives_on = False
            self._ended(self.key, b"")
            self._finish()
        super().put(item, outcome)

    def put_bare(self, job_id: str, outcome: bytes) -> None:
        self._ended(self.key, outcome)
        super().put_bare(job_id, b"")

    def give_up(self, item: Item, outcome: bytes) -> None:
        """Send the outcome of an item to the main process although its function still runs. A second message follows
        when the function has ended."""
        item.ended = self._lives_on = True
        self._ended(self.key, outcome, lives_on=True)


class Child:
    """Receives messages from the worker's main process, runs the jobs in them, and sends the outcomes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._items: dict[int, Item] = {}
        self._outgoing = frames.Outgoing()
        self._send = self._outgoing.send
        self._clock = SystemClock()
        self._attempts = Attempts(self._clock, self._note_output)
        self._token = trio.lowlevel.current_trio_token()
        self._speakers: dict[Item, None] = {}
        self._is_passing_on = False
        self._where = frames.Where("", None)
        self._inside: dict[bool, InProcess] = {}  # for plain functions and for async ones

    async def run(self) -> None:
        """Run until the main process is gone or has closed the socket. If jobs still run then, end this process at
        once."""
        incoming = frames.Frames(frames.ToProcess)
        begin: frames.Begin | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._outgoing.run, self._stream)
            nursery.start_soon(self._attempts.lines.run)
            nursery.start_soon(Watchdog(self._tasks, self._clock).beat)
            while data := await self._read():
                for message in incoming.feed(data):
                    if isinstance(message, frames.Begin):
                        begin = message
                        app = self._load(begin)
                        nursery.start_soon(self._serve, app)
                    elif isinstance(message, frames.Run):
                        assert begin is not None
                        self._run(message, app, begin.tasks, nursery)
                    elif isinstance(message, frames.Stop):
                        self._stop(message)
                    elif isinstance(message, frames.Late):
                        self._give_up(message)
                    else:
                        self._where = message
            if self._items:
                os._exit(1)  # a job in flight may refuse to stop, and nobody waits for it
            nursery.cancel_scope.cancel()

    async def _read(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(READ_BYTES))
        except trio.BrokenResourceError:
            return b""

    def _load(self, begin: frames.Begin) -> App:
        log.configure(level=begin.log_level)
        collect_logs(begin.log_level)
        try:
            app = import_app(begin.target)
            jobs = chosen(app.jobs, begin.only)
            trace_attempts()
        except ConfigError as error:
            self._send(frames.Broken(str(error)))
            return App()
        self._send(frames.Ready([frames.Declaration(job.name, job.loop, dict(job.declared)) for job in jobs.values()]))
        return app

    async def _serve(self, app: App) -> None:
        with app.serving(lambda: (self._where.url, self._where.token)):
            await trio.sleep_forever()

    def _run(self, request: frames.Run, app: App, tasks: int, nursery: trio.Nursery) -> None:
        batch = SingleJobBatch(JSON if request.is_json else MSGPACK, request.key, self._ended)
        job, function = structs.replace(request.job, argument=Raw(request.argument)), app.jobs[request.job.name]
        item = Item(batch, job, function)
        batch.arrived_s = self._clock.mono_s()
        batch.waiting[item] = None
        self._items[request.key] = item
        limit = tasks if function.is_async else 1
        inside = self._inside.get(function.is_async)
        if inside is None:
            inside = InProcess(self._attempts, concurrency=limit, clock=self._clock)
            self._inside[function.is_async] = inside
        inside.start([item], nursery)

    def _note_output(self, item: Item) -> None:
        """Send a job's new output and progress to the main process soon, so that they are not lost if this process is
        killed. Any thread may call this."""
        self._speakers[item] = None
        if not self._is_passing_on:  # checked after the item was added, as in Outbox
            self._is_passing_on = True
            self._token.run_sync_soon(self._pass_on)

    def _pass_on(self) -> None:
        self._is_passing_on = False
        for item in list(self._speakers):
            self._speakers.pop(item, None)
            output, batch = item.output, item.batch
            if output is None or item.ended or not isinstance(batch, SingleJobBatch):
                continue
            fresh = output.output.fresh() if output.output is not None else (0, "")
            far, output.far = output.far, None
            self._send(frames.Spoke(batch.key, *fresh, far is not None, *(far or (None, ""))))

    def _tasks(self) -> str:
        tasks = [item for item in list(self._items.values()) if item.function.loop is not None]
        return ", ".join(f"{item.job_id} ({item.job.name})" for item in tasks)

    def _ended(self, key: int, outcome: bytes, *, lives_on: bool = False) -> None:
        if not lives_on:
            del self._items[key]
        self._send(frames.Ended(key, outcome, lives_on))

    def _give_up(self, request: frames.Late) -> None:
        item = self._items.get(request.key)
        if item is None:
            return  # it has ended meanwhile
        if item.begin():  # the loop was blocked since the job came
            why = "its time was over before it began"
            item.batch.put(item, self._attempts.refused(item.batch.codec, item.job_id, why))
        else:
            self._inside[True].call_after_iteration(item, lambda: self._time_out(item))

    def _time_out(self, item: Item) -> None:
        if not item.ended and isinstance(item.batch, SingleJobBatch):
            item.batch.give_up(item, self._attempts.timed_out(item))

    def _stop(self, request: frames.Stop) -> None:
        item = self._items.get(request.key)
        if item is None:
            return  # it has ended meanwhile
        item.cancelled = request.is_cancelled
        item.halt()


def redirect_output(prints: int) -> None:
    """Send what jobs' programs and C code print (to descriptors 1 and 2) to the main process, through the pipe
    `prints`.

    `sys.stdout` and `sys.stderr` still write where they did before.
    """
    for number, name in enumerate(("stdout", "stderr"), 1):
        stream: TextIO = getattr(sys, name)
        own = os.fdopen(os.dup(number), "w", buffering=1, encoding=stream.encoding, errors=stream.errors)
        setattr(sys, name, LossyStream(own))
        os.dup2(prints, number)
    os.close(prints)


def main(fd: int, parent: int, prints: int) -> None:
    """Run this job process until the socket `fd` closes. `parent`: process id of the main process. `prints`: see
    `redirect_output`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # the front died before PR_SET_PDEATHSIG was set
    os.set_inheritable(fd, False)
    redirect_output(prints)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A handler, not SIG_IGN, which programs that a job starts would inherit: they could not be stopped.
        signal.signal(number, lambda *_: None)
    plain = socket.socket(fileno=fd)

    async def run() -> None:
        await Child(trio.SocketStream(trio.socket.from_stdlib_socket(plain))).run()

    trio.run(run)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
