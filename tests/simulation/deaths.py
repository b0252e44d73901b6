"""A store that remembers who really was alone in flight at each death, beside what it counts of that itself.

A hand is noted when its death begins, before anything leaves it; whatever steps empty it after that, this was the hand.
It is forgotten when the hand is empty, when its daemon is back and takes up what is left, and when the store's data are
exchanged: then the next step notes what it sees. That can only be less than there was, so more is believed alone than
was, and what is found here is always a miscount.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from jqd.store.keys import Keys
from jqd.testing.store import Server
from tests.store.job_places import Places

DEATHS = {"reap": (0, 5), "give_back": (0, 4)}
"""Scripts that empty a dead hand: where among their arguments its sysid is, and the limit of deaths (0: none died)."""

NO_SEAT = b"0"  # in place of an epoch, for a daemon that took too many


class WitnessedServer(Server):
    """The server of the fake store, watched."""

    def __init__(self, crash_limit: int, wrong: Callable[[str], None]) -> None:
        """`wrong`: told of each innocent that is counted as guilty."""
        super().__init__()
        self._wrong = wrong
        self._crash_limit = crash_limit
        self._dying: dict[str, Any] = {}  # sysid → the data in which its hand was noted
        self._really_alone: Counter[str] = Counter()  # id → deaths; never less, whatever the store forgets

    def run(self, name: str, keys: Keys, arguments: tuple[Any, ...]) -> object:
        """See Server."""
        places, given = Places(self.keyspace, keys), arguments[1:]
        if name == "reserve_sysid":
            answer: Any = super().run(name, keys, arguments)
            if not given[3] and answer[0] != NO_SEAT:  # not through: what is left in the hand is its own again
                self._dying.pop(given[0], None)
            return answer
        if name not in DEATHS or not given[DEATHS[name][1]]:
            return super().run(name, keys, arguments)
        sysid = given[0]
        hand, before = places.in_flight(sysid), places.deaths()
        answer = super().run(name, keys, arguments)
        left, after = places.in_flight(sysid), places.deaths()
        if len(left) < len(hand):
            self._see(sysid, hand)
        for job_id in hand:
            if after.get(job_id, (0, 0)) != before.get(job_id, (0, 0)):
                self._judge(places, job_id, after.get(job_id, (0, 0))[1])  # of what ended nothing is counted
        if not left:
            self._dying.pop(sysid, None)
        return answer

    def _see(self, sysid: str, hand: dict[str, int]) -> None:
        if self._dying.get(sysid) is not self.keyspace.keys:
            self._dying[sysid] = self.keyspace.keys
            if len(hand) == 1:
                self._really_alone.update(hand.keys())

    def _judge(self, places: Places, job_id: str, counted: int) -> None:
        really = self._really_alone[job_id]
        if counted > really:
            self._wrong(f"innocent: {job_id} counts as alone in flight at {counted} deaths, and was so at {really}")
        place = places.place(job_id)
        if place is not None and place.name == "dead" and really < self._crash_limit:
            self._wrong(f"innocent: {job_id} is given up for deaths, and was alone in flight at {really} of them")
