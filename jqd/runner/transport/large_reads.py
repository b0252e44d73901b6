"""Turns of large results while they are read: few are in memory at once, and none more while enough wait for the disk.

Who has no turn does not read on, and its worker waits to send. A worker that sends too slowly loses its turn.
"""

from collections.abc import Callable

import trio

from jqd.domain.errors import AnswerGarbled
from jqd.domain.results import LARGE_BYTES, LARGE_READ_MAX
from jqd.runner.transport.http1 import Wire

READ_S = 60.0  # from the turn on to the end of the result: 16 MiB at 2 Mbit/s
LOOK_S = 0.05  # until it is looked again whether the disk took some


class LargeReads:
    def __init__(self, is_full: Callable[[], bool]) -> None:
        """`is_full`: whether enough results wait for the disk."""
        self.limiter = trio.CapacityLimiter(LARGE_READ_MAX)
        self.is_full = is_full


class Turn:
    """The room of one answer among large reads."""

    def __init__(self, reads: LargeReads) -> None:
        self._reads, self._due_s = reads, 0.0

    async def read(self, wire: Wire) -> bytes:
        """Return the next piece of the body; empty at its end. Raises LostError, AnswerGarbled."""
        if not self._due_s:
            return await wire.read()
        with trio.move_on_at(self._due_s):
            return await wire.read()
        raise AnswerGarbled(f"one outcome of more than {LARGE_BYTES} bytes did not come within {READ_S:g} s")

    async def look(self, held: int) -> None:
        """Wait for a turn when what has begun is large; leave it when that is complete. `held`: its bytes so far."""
        if held <= LARGE_BYTES:
            self.leave()
        elif not self._due_s:
            await self._reads.limiter.acquire_on_behalf_of(self)
            self._due_s = trio.current_time() + READ_S
            while self._reads.is_full():  # noqa: ASYNC110 - of a disk that stands still
                await trio.sleep(LOOK_S)

    def leave(self) -> None:
        if self._due_s:
            self._due_s = 0.0
            self._reads.limiter.release_on_behalf_of(self)
