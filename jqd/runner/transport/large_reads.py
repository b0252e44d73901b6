"""Limits how many large results are read into memory at once. While too many results wait for the disk, no large read
begins.

A permit is needed to read one large result. Without one the daemon does not read on, so that the worker has to wait. If
the worker then sends too slowly, it loses the permit, and the job whose result it is fails."""

from collections import Counter
from collections.abc import Callable

import trio

from jqd.domain.errors import AnswerGarbled
from jqd.domain.results import LARGE_BYTES, LARGE_READ_MAX
from jqd.runner.transport.http1 import Wire

READ_S = 60.0  # from the begin of the permit to the end of the result: 16 MiB at 2 Mbit/s
LOOK_S = 0.05  # between two checks whether the disk took some


class LargeReads:
    """Grants permits to read large results. A tenant gets an equal share of them, or half of those that others leave
    free, so that slow workers of one tenant do not block another."""

    def __init__(self, is_full: Callable[[], bool], tenants: Callable[[], int]) -> None:
        """`is_full`: returns whether enough results wait for the disk. `tenants`: returns how many tenants have
        workers."""
        self.is_full = is_full
        self._tenants = tenants
        self.granted: dict[ReadPermit, None] = {}
        self._waiting: dict[ReadPermit, trio.Event] = {}  # oldest first

    async def acquire(self, permit: "ReadPermit") -> None:
        event = self._waiting[permit] = trio.Event()
        self._admit()
        await event.wait()

    def release(self, permit: "ReadPermit") -> None:
        """Give back a permit, or stop waiting for it."""
        del (self.granted if permit in self.granted else self._waiting)[permit]
        self._admit()

    def _admit(self) -> None:
        if not self._waiting:
            return
        share, taken_by = LARGE_READ_MAX // max(1, self._tenants()), Counter(permit.tenant for permit in self.granted)
        for permit in [*self._waiting]:
            free, own = LARGE_READ_MAX - len(self.granted), taken_by[permit.tenant]
            if free and own < max(1, share, (free + own) // 2):
                taken_by[permit.tenant] += 1
                self.granted[permit] = None
                self._waiting.pop(permit).set()


class ReadPermit:
    """Lets one answer read a large result: waits for the permit, limits the time, and gives the permit back."""

    def __init__(self, reads: LargeReads, tenant: str) -> None:
        self.tenant = tenant
        self._reads, self._wants, self._due_s = reads, False, 0.0

    async def read(self, wire: Wire) -> bytes:
        """Return the next part of the body; empty: its end. Raises LostError, or AnswerGarbled if the worker sends too
        slowly."""
        if not self._wants:
            return await wire.read()
        with trio.move_on_at(self._due_s):
            return await wire.read()
        raise AnswerGarbled(f"one outcome of more than {LARGE_BYTES} bytes did not come within {READ_S:g} s")

    async def check_size(self, held: int) -> None:
        """Wait for the permit to read on if the unfinished result is large; else give it back. `held`: how many bytes
        of the result have come."""
        if held <= LARGE_BYTES:
            self.release()
        elif not self._wants:
            self._wants = True
            await self._reads.acquire(self)
            while self._reads.is_full():  # noqa: ASYNC110 - a slow disk sets no event
                await trio.sleep(LOOK_S)
            self._due_s = trio.current_time() + READ_S

    def release(self) -> None:
        if self._wants:
            self._wants = False
            self._reads.release(self)
