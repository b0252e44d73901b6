"""A store that remembers who really was alone in hand at each death, beside what it counts of that itself.

A hand is noted when its death begins, before anything leaves it; whatever steps empty it after that, this was the hand.
It is forgotten when the hand is empty, when its daemon is back and takes up what is left, and when the store's data are
exchanged: then the next step notes what it sees. That can only be less than there was, so more is believed alone than
was, and what is found here is always a miscount.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from jqd.store import Owner, StoreConfig
from jqd.testing.members import Data, Entry
from jqd.testing.store import FakeStore
from jqd.words.clock import Clock


class WitnessedStore(FakeStore):
    """The fake store, watched; with all its clients, which share what was seen."""

    def __init__(self, clock: Clock, config: StoreConfig, wrong: Callable[[str], None]) -> None:
        """`wrong`: told of each innocent that is counted as guilty."""
        super().__init__(clock, config)
        self._wrong = wrong
        self._dying: dict[str, Data] = {}  # sysid → the data in which its hand was noted
        self._really_alone: Counter[str] = Counter()  # id → deaths; never less, whatever the store forgets

    async def reserve_sysid(self, sysid: str, *args: Any, **named: Any) -> Owner:
        """See Store."""
        owner = await super().reserve_sysid(sysid, *args, **named)
        if not named["through"]:
            self._dying.pop(sysid, None)
        return owner

    def _give_back(self, sysid: str, limit: int | None, *, died: bool = False) -> int:
        if died and self._dying.get(sysid) is not self._data:
            self._dying[sysid] = self._data
            hand = self._hand(sysid)
            if len(hand) == 1:
                self._really_alone.update(hand)
        moved = super()._give_back(sysid, limit, died=died)
        if not self._hand(sysid):
            self._dying.pop(sysid, None)
        return moved

    def _hand(self, sysid: str) -> set[str]:
        held = {job_id for job_id, each in self._data.entries.items() if each.place == "held" and each.sysid == sysid}
        return held | {job_id for job_id, (holder, _) in self._data.early.items() if holder == sysid}

    def _killed(self, entry: Entry, *, alone: bool) -> bool:
        given_up = super()._killed(entry, alone=alone)
        job_id = entry.job.id
        _, counted = self._data.deaths[job_id]
        really = self._really_alone[job_id]
        if counted > really:
            self._wrong(f"innocent: {job_id} counts as alone in hand at {counted} deaths, and was so at {really}")
        if given_up and really < self._config.crash_limit:
            self._wrong(f"innocent: {job_id} is given up for deaths, and was alone in hand at {really} of them")
        return given_up
