"""Releases unique keys that were reserved for jobs which are never pushed, until no late reservation can take them.

A release may fail, as a store that hangs failed the reservation too. On another connection it may even overtake the
reservation, which the server runs when it wakes. So the release is repeated. Each push and each retry has tokens of its
own, so a late release takes no key from another push.
"""

from collections.abc import Collection, Iterable
from itertools import groupby

import trio

from jqd.domain.errors import StoreError
from jqd.domain.jobid import partition_of_name
from jqd.domain.log import get_logger
from jqd.store import EdgeStore, Store
from jqd.store.links import UniqueWanted

UNDER_WAY = "~"  # begins the token in the store's answer if another push or retry, still under way, has the key
REPEAT_S = 1.0
# A push that failed because the store hangs waits no longer for its releases: a client has waited 5 s then, of its 10.
GIVE_BACK_S = 1.0
NO_ANSWER = f"no answer in {GIVE_BACK_S:g} s"
LATE_S = 120.0  # repeat for this time: an operating system sends data of a closed connection for some 100 s
KEYS_MAX = 10_000  # kept, some 5 MB, and one percent of the server's time; the oldest lapse by themselves first


class KeyReturns:
    """The unique keys whose release is repeated, since a late reservation may still take them for jobs that never
    come."""

    def __init__(self) -> None:
        self._waiting: dict[UniqueWanted, tuple[int, float]] = {}
        """Key → its partition, and until when its release is repeated, by trio's clock."""

    async def give_back(
        self,
        store: EdgeStore,
        partitions: int,
        wanted: Collection[UniqueWanted],
        unsure: Collection[UniqueWanted] = (),
    ) -> None:
        """Release the keys in `wanted`, which no job will have. `run` repeats the release if it fails. Raises nothing,
        not even if the caller is cancelled.

        `unsure`: keys in `wanted` whose reservation the store has not answered; `run` repeats their release in any
        case."""
        homes = {each: partition_of_name(each.key, partitions) for each in wanted}
        self._note((each, homes[each]) for each in unsure)
        why = NO_ANSWER
        try:
            with trio.move_on_after(GIVE_BACK_S, shield=True):
                for number, some in groupby(sorted(homes, key=homes.__getitem__), homes.__getitem__):
                    await store.at(number).confirm_unique(list(some))
                return
        except StoreError as error:
            why = str(error)
        get_logger("links").warning("links.kept", count=len(homes), error=why)
        self._note(homes.items())

    def _note(self, wanted: Iterable[tuple[UniqueWanted, int]]) -> None:
        until_s = trio.current_time() + LATE_S
        self._waiting |= {each: (number, until_s) for each, number in wanted}
        for each in list(self._waiting)[:-KEYS_MAX]:
            del self._waiting[each]

    async def run(
        self, store: Store, number: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Release again, every REPEAT_S, the keys of one partition that a late reservation may still take; run until
        cancelled.

        `number`: the partition.
        """
        task_status.started()
        while True:
            await trio.sleep(REPEAT_S)
            due = [each for each, (home, _) in self._waiting.items() if home == number]
            if not due:
                continue
            try:
                await store.confirm_unique(due)
            except StoreError:
                self._note((each, number) for each in due)  # the time counts from when the store answers again
                continue
            for each in due:
                if each in self._waiting and trio.current_time() >= self._waiting[each][1]:
                    del self._waiting[each]
