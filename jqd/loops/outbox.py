"""Pushes the jobs that follow others: an outcome that counted left them in the outbox of its partition (docs/adr/0047).

    outcome ──apply_outcomes──▶ outbox ──push──▶ journal, under an id made of the parent ──▶ out of the outbox

Every step may be repeated, and any daemon may do it: the same push under the same id counts once. So the daemon that
applied the outcome pushes at once, and the others look now and then for what it left.
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from jqd.loops.pace import Pace
from jqd.store import Store
from jqd.words.clock import Clock
from jqd.words.errors import JournalRefused, StoreAway, StoreRefused
from jqd.words.followers import UNREADABLE
from jqd.words.jobid import ID_LENGTH
from jqd.words.log import get_logger

ENTRIES = 100  # in one push: some ms of the store, one sync
ENTRIES_BYTES = 4 << 20  # in one answer, as scripts have it that move rows about
LOOK_S = 2.0  # between looks for what a daemon left that died or stands still
LEFT_S = 1.0  # what has waited for so long was left
REST_S = 2.0  # until what could not be pushed is tried again: its partition is away, or its id is promised to another
FORGET_S = 60.0  # past that rest
NO_REST = 0.0, ""

Push = Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, str]]]
"""Pushes the jobs of entries; says which have to wait, and why. Raises JournalRefused, StoreAway, StoreRefused."""


class Outbox:
    """One for each partition of the store."""

    def __init__(self, *, store: Store, push: Push, clock: Clock, source: random.Random) -> None:
        self.pace = Pace("outbox", source=source)
        self._store = store
        self._push = push
        self._clock = clock
        self._bell = trio.Event()
        self._rests: dict[bytes, tuple[float, str]] = {}
        """What could not be pushed → until when it is left alone, by the monotonic clock, and why."""
        self._log = get_logger("outbox")

    @property
    def complaint(self) -> str | None:
        """What nobody here can ever push, and why; None while there is nothing of that."""
        odd = [(entry, why) for entry, (_, why) in self._rests.items() if why.startswith(UNREADABLE)]
        if not odd:
            return None
        return f"jobs that follow {_parent(odd[0][0])} and {len(odd) - 1} others wait: {odd[0][1]}"

    def ring(self) -> None:
        """Something was put there."""
        self._bell.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Empty it until cancelled."""
        task_status.started()
        while True:
            with trio.move_on_after(LOOK_S):
                await self._bell.wait()
            rang, self._bell = self._bell.is_set(), trio.Event()
            try:
                await self._empty(0.0 if rang else LEFT_S)
            except (StoreAway, StoreRefused, JournalRefused) as error:
                self._bell.set()  # it may be ours
                await self.pace.wait_after(error)
            else:
                self.pace.went_well()

    async def _empty(self, age_s: float) -> None:
        """Push all that has waited for so long, oldest first."""
        now_s, passed = self._clock.mono_s(), 0
        # Somebody else has pushed what was not met again for a while.
        self._rests = {entry: rest for entry, rest in self._rests.items() if rest[0] > now_s - FORGET_S}
        while entries := (await self._store.get_outbox(ENTRIES, ENTRIES_BYTES, age_s=age_s, skip=passed)).entries:
            due = [entry for entry in entries if self._rests.get(entry, NO_REST)[0] <= now_s]
            waits = await self._push(due) if due else {}
            done = [entry for entry in due if entry not in waits]
            if done:
                await self._store.drop_outbox(done)
            for entry, why in waits.items():
                if self._rests.get(entry, NO_REST)[1] != why:
                    self._log.warning("outbox.waits", parent=_parent(entry), why=why)
                self._rests[entry] = self._clock.mono_s() + REST_S, why
            passed += len(entries) - len(done)


def _parent(entry: bytes) -> str:
    return entry.partition(b" ")[0][:ID_LENGTH].decode("ascii", "replace")
