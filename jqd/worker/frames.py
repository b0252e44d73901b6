"""The messages between a worker and its processes, over one socket each: a length, then MessagePack.

    front ──► process   Begin · Run · Stop · Late · Where   end of the stream: leave
    front ◄── process   Ready or Broken · Spoke · Ended

Arguments and outcomes go through as the bytes they are: only the process that runs a job decodes its argument.
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
    target: str
    tasks: int
    """How many async functions run at once."""
    log_level: str
    only: list[str] = []
    """Jobs to serve; none: all."""


class Run(msgspec.Struct, tag=True, array_like=True, gc=False):
    key: int
    is_json: bool
    """How argument and outcome are encoded."""
    job: JobIn
    """The job without its argument."""
    argument: bytes


class Stop(msgspec.Struct, tag=True, array_like=True):
    key: int
    is_cancelled: bool
    """Whether somebody cancelled the job; else it has been handed back, or nobody waits for it."""


class Late(msgspec.Struct, tag=True, array_like=True):
    """An async job is past its time: report it as timed out. A loop that is blocked does not answer."""

    key: int


class Where(msgspec.Struct, tag=True, array_like=True):
    """The daemon that jobs push to."""

    url: str
    token: str | None


class Declaration(msgspec.Struct, array_like=True, frozen=True):
    name: str
    loop: Loop | None
    declared: dict[str, Any]


class Ready(msgspec.Struct, tag=True, array_like=True):
    jobs: list[Declaration]


class Broken(msgspec.Struct, tag=True, array_like=True):
    why: str


class Spoke(msgspec.Struct, tag=True, array_like=True, gc=False):
    key: int
    missed: int
    """How many printed bytes before these lines were dropped."""
    lines: str
    """The lines that it printed; empty: none."""
    is_farther: bool
    done: float | None
    message: str


class Ended(msgspec.Struct, tag=True, array_like=True, gc=False):
    key: int
    outcome: bytes
    lives_on: bool = False
    """Whether the job was given up at its timeout: it keeps its slot until it has ended and that is said, too."""


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
                return  # the other end is going: who reads from it notices


class Frames:
    def __init__(self, kind: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The messages that are complete with `data`.

        Raises msgspec.MsgspecError: the other end is another version, or it is no process of ours that writes.
        """
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= LENGTH_BYTES:
            length = int.from_bytes(buffer[at : at + LENGTH_BYTES], "big")
            if length > FRAME_BYTES_MAX:  # nobody waits, and keeps, until so much has come
                raise msgspec.DecodeError(f"a message of {length} bytes, more than {FRAME_BYTES_MAX}")
            end = at + LENGTH_BYTES + length
            if len(buffer) < end:
                break
            yield self._decode(bytes(buffer[at + LENGTH_BYTES : end]))
            at = end
        del buffer[:at]
