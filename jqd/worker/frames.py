"""The messages between a worker and its processes, over one socket each: a length, then MessagePack.

    front ──► process   Begin · Run · Stop · Late · Where   end of the stream: leave
    front ◄── process   Ready or Broken · Spoke · Ended

The front passes on arguments and outcomes as bytes: only the process that runs a job decodes its argument.
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
    """The first message: load the app."""

    target: str
    tasks: int
    """How many async functions run at once."""
    log_level: str
    only: list[str] = []
    """Jobs to serve; none: all."""


class Run(msgspec.Struct, tag=True, array_like=True, gc=False):
    """Run a job. Other messages name it by `key`."""

    key: int
    is_json: bool
    """How argument and outcome are encoded."""
    job: JobIn
    """The job without its argument."""
    argument: bytes


class Stop(msgspec.Struct, tag=True, array_like=True):
    """Stop a job."""

    key: int
    is_cancelled: bool
    """Whether the job was cancelled; else it was handed back, or nobody waits for it."""


class Late(msgspec.Struct, tag=True, array_like=True):
    """Report an async job as timed out. A process whose loop is blocked does not answer."""

    key: int


class Where(msgspec.Struct, tag=True, array_like=True):
    """The daemon that jobs push to."""

    url: str
    token: str | None


class Declaration(msgspec.Struct, array_like=True, frozen=True):
    """One job of the app, as `Declared`."""

    name: str
    loop: Loop | None
    declared: dict[str, Any]


class Ready(msgspec.Struct, tag=True, array_like=True):
    """The app is loaded."""

    jobs: list[Declaration]


class Broken(msgspec.Struct, tag=True, array_like=True):
    """The app cannot be loaded."""

    why: str


class Spoke(msgspec.Struct, tag=True, array_like=True, gc=False):
    """Output of a job, its progress, or both."""

    key: int
    missed: int
    """How many printed bytes before these lines were dropped."""
    lines: str
    """The lines that the job printed; empty: none."""
    is_farther: bool
    """Whether there is progress: `done` and `message`."""
    done: float | None
    message: str


class Ended(msgspec.Struct, tag=True, array_like=True, gc=False):
    """The outcome of a job."""

    key: int
    outcome: bytes
    lives_on: bool = False
    """Whether the job was given up at its timeout and still runs. It keeps its slot until a second `Ended` comes."""


ToProcess = Begin | Run | Stop | Late | Where
ToFront = Ready | Broken | Spoke | Ended

_encoder = msgspec.msgpack.Encoder()


def frame(message: ToProcess | ToFront) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class Outgoing:
    """Messages for the other end, gathered and sent together."""

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

        Raises msgspec.MsgspecError if the other end is another version, or is no process of this worker.
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
