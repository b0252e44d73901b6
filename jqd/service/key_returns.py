"""Unique keys that were reserved for jobs that are never pushed: they are given back until nothing can take them again.

A give-back fails where the store hangs, as it mostly does where the reservation failed; and over another connection it
may overtake the reservation, which a server that wakes runs as well. So it is repeated. Each push and each retry has
tokens of its own: what is given back late takes nothing from another one.
"""

from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Final

import msgspec
import trio

from jqd.domain.errors import StoreError
from jqd.domain.jobid import partition_of_name
from jqd.domain.log import get_logger
from jqd.store import EdgeStore, Store
from jqd.store.links import UniqueWanted

UNDER_WAY = "~"  # before a token: of another push or retry
REPEAT_S = 1.0
LATE_S = 120.0  # a system sends for some 100 s what was written to a connection that is closed by now
KEYS_MAX = 10_000  # some 5 MB, and one part in a hundred of the server; the oldest are free by themselves soonest
ANSWERS: Final = 2  # a server that wakes may run the first before what it got over another connection


class _Waiting(msgspec.Struct):
    number: int
    """The key's partition."""
    since_s: float
    answers: int = 0


class KeyReturns:
    """Keys that may still be reserved for nobody."""

    def __init__(self) -> None:
        self._waiting: dict[UniqueWanted, _Waiting] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def give_back(
        self,
        store: EdgeStore,
        partitions: int,
        wanted: Collection[UniqueWanted],
        unsure: Collection[UniqueWanted] = (),
    ) -> None:
        """Give keys back that no job will have; raises nothing, not even where the caller is cancelled. `unsure`: those
        of them whose reservation was not answered."""
        homes = {each: partition_of_name(each.key, partitions) for each in wanted}
        self._note((each, homes[each]) for each in unsure)
        try:
            with trio.CancelScope(shield=True):
                for number, some in groupby(sorted(homes, key=homes.__getitem__), homes.__getitem__):
                    await store.at(number).confirm_unique(list(some))
        except StoreError as error:
            get_logger("links").warning("links.kept", count=len(homes), error=str(error))
            self._note(homes.items())

    def _note(self, wanted: Iterable[tuple[UniqueWanted, int]]) -> None:
        for each, number in wanted:
            self._waiting.setdefault(each, _Waiting(number, trio.current_time()))
        for each in list(self._waiting)[:-KEYS_MAX]:
            del self._waiting[each]

    async def run(
        self, store: Store, number: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Repeat what is to be given back in one partition."""
        task_status.started()
        while True:
            await trio.sleep(REPEAT_S)
            its = {each: row for each, row in self._waiting.items() if row.number == number}
            if not its:
                continue
            try:
                await store.confirm_unique(list(its))
            except StoreError:
                continue  # it is asked until it answers
            for each, row in its.items():
                row.answers += 1
                if row.answers >= ANSWERS and trio.current_time() - row.since_s >= LATE_S:
                    self._waiting.pop(each, None)
