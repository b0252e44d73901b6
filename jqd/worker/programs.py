"""What programs print that a job has started: descriptors 1 and 2 of its process lead to the front, which reads them.

The front, and not the process itself: that one may be stuck, or about to die, and what it says then tells most. All of
it goes on to where the worker's own log goes. What comes while one job is at work in a process is kept for that job;
of several nobody can tell whose it is.
"""

import os
from collections.abc import Callable
from typing import Protocol

import msgspec
import trio
from msgspec import Raw

from jqd.domain.lossy_stream import LossyWriter
from jqd.worker.attempt_output import OUTPUT_BYTES_MAX
from jqd.worker.wire import MSGPACK, Codec

READ_BYTES = 1 << 16
READS_MAX = 16  # in one go: a program that never stops must not hold up the others' jobs
ONWARD = LossyWriter(2)  # the worker's own log


class Printing(Protocol):
    printed: bytearray
    """The end of what its programs printed."""


class Programs:
    """One end of a pipe. All methods are for the trio thread."""

    def __init__(self, fd: int, at_work: Callable[[], Printing | None]) -> None:
        os.set_blocking(fd, False)
        self._fd, self._at_work = fd, at_work
        self._is_open = True

    async def hear(self) -> None:
        """Until nobody is left who may print: that may be a program that has outlived its process."""
        try:
            while self.take():
                await trio.lowlevel.wait_readable(self._fd)
        finally:
            self._is_open = False
            os.close(self._fd)

    def take(self) -> bool:
        """Take what has come so far. False when nobody is left who may print."""
        for _ in range(READS_MAX if self._is_open else 0):
            try:
                data = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._note(data)
        return self._is_open

    def _note(self, data: bytes) -> None:
        job = self._at_work()
        if job is not None:
            job.printed += data
            del job.printed[:-OUTPUT_BYTES_MAX]
        ONWARD.add(data)


def text_of(printed: bytearray) -> str:
    return printed.decode("utf-8", "replace").rstrip("\n")


def told_with(outcome: bytes, printed: bytearray, codec: Codec) -> bytes:
    """The outcome with that at the end of its log, if it is a failure."""
    decode = msgspec.msgpack.decode if codec is MSGPACK else msgspec.json.decode
    told: dict[str, Raw] = decode(outcome, type=dict[str, Raw])
    if decode(told["type"]) != "failure":
        return outcome
    said = [decode(told["log"], type=str)] if "log" in told else []
    log = "\n".join([*said, text_of(printed)]).encode()[-OUTPUT_BYTES_MAX:].decode("utf-8", "ignore")
    return codec.encode(told | {"log": Raw(codec.encode(log))})
