"""The messages between a worker's main process (the front) and each of its job processes, over a socket: a length, then
MessagePack.

    front ──► process   Begin · Run · Stop · Late · Where   end of the stream: leave
    front ◄── process   Ready or Broken · Spoke · Ended

The front passes arguments and outcomes on as bytes. Only the process that runs a job decodes them.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import trio

from jqd.worker.job import Loop
from jqd.worker.wire import JobIn

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 65 * 1024 * 1024  # a job that fills a whole batch (64 MiB), and its frame; outcomes are far smaller


class Begin(msgspec.Struct, tag=True, array_like=True):
    """The first message: tells the process to load the app."""

    target: str
    tasks: int
    """How many async functions the process runs at once."""
    log_level: str
    only: list[str] = []
    """Names of the jobs to serve; empty: all."""


class Run(msgspec.Struct, tag=True, array_like=True, gc=False):
    """Tells the process to run a job. Later messages about this job have the same `key`."""

    key: int
    is_json: bool
    """Whether argument and outcome are JSON; else they are MessagePack."""
    job: JobIn
    """The job without its argument."""
    argument: bytes


class Stop(msgspec.Struct, tag=True, array_like=True):
    """Tells the process to stop a job."""

    key: int
    is_cancelled: bool
    """Whether the job was cancelled. Else it was handed back, or nobody waits for its outcome."""


class Late(msgspec.Struct, tag=True, array_like=True):
    """Asks the process to report an async job as timed out. A process whose loop is blocked does not answer."""

    key: int


class Where(msgspec.Struct, tag=True, array_like=True):
    """Tells the process to which daemon jobs push."""

    url: str
    token: str | None


class Declaration(msgspec.Struct, array_like=True, frozen=True):
    """What the main process needs to know of a job of the app: its jobtype, the event loop of its function, and the
    options given to `@app.job`."""

    name: str
    loop: Loop | None
    declared: dict[str, Any]


class Ready(msgspec.Struct, tag=True, array_like=True):
    """Answer to `Begin`: the app is loaded."""

    jobs: list[Declaration]


class Broken(msgspec.Struct, tag=True, array_like=True):
    """Answer to `Begin`: the app cannot be loaded."""

    why: str


class Spoke(msgspec.Struct, tag=True, array_like=True, gc=False):
    """A running job's new output, new progress, or both."""

    key: int
    missed: int
    """How many printed bytes before `lines` were dropped."""
    lines: str
    """Lines that the job printed; empty: none."""
    is_farther: bool
    """Whether `done` and `message` are new progress."""
    done: float | None
    message: str


class Ended(msgspec.Struct, tag=True, array_like=True, gc=False):
    """The outcome of a job that has ended, or that the process gave up at its timeout."""

    key: int
    outcome: bytes
    lives_on: bool = False
    """Whether the job was only given up at its timeout and still runs. It occupies its slot until a second `Ended`."""


ToProcess = Begin | Run | Stop | Late | Where
ToFront = Ready | Broken | Spoke | Ended

_encoder = msgspec.msgpack.Encoder()


def frame(message: ToProcess | ToFront) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class Outgoing:
    """Sends messages to the process at the other end of the socket; those that wait together are sent together."""

    def __init__(self) -> None:
        self._out: list[bytes] = []
        self._more = trio.Event()
        self._is_all = False

    def send(self, message: ToProcess | ToFront) -> None:
        self._out.append(frame(message))
        self._more.set()

    def end(self) -> None:
        self._is_all = True
        self._more.set()

    async def run(self, stream: trio.SocketStream) -> None:
        while True:
            await self._more.wait()
            self._more = trio.Event()
            out, self._out = self._out, []
            try:
                await stream.send_all(b"".join(out))
                if self._is_all:
                    return await stream.send_eof()
            except trio.BrokenResourceError:
                return  # the other end closes: the task that reads from it notices


class Frames:
    """Splits a stream of bytes into messages."""

    def __init__(self, kind: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the messages that `data` completes.

        Raises msgspec.MsgspecError if the data is not valid: its sender may be of another version of jqd.
        """
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= LENGTH_BYTES:
            length = int.from_bytes(buffer[at : at + LENGTH_BYTES], "big")
            if length > FRAME_BYTES_MAX:  # never wait for and buffer so much
                raise msgspec.DecodeError(f"a message of {length} bytes, more than {FRAME_BYTES_MAX}")
            end = at + LENGTH_BYTES + length
            if len(buffer) < end:
                break
            yield self._decode(bytes(buffer[at + LENGTH_BYTES : end]))
            at = end
        del buffer[:at]
