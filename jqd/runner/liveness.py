"""Signs of life of workers: when each was heard of, by this daemon or another, and what is to be told the others.

Each daemon judges silence by its own clock, and only while it could hear of others.
"""

from collections.abc import Collection

from jqd.domain.clock import Clock

SIGN_S = 30.0  # between two signs of life told to others of a worker without ttl: a tenth of UNREACHABLE_S
SIGNS_PER_TTL = 4  # and of one with a ttl, which repeats itself three times in it
SPREAD_S = 2.0  # so long a sign may take from another daemon to us
BLIND_S = 2.0  # looks at the store come twice a second; while there are none, nobody's silence counts


class Liveness:
    """By worker's id, of whom a registration is known."""

    def __init__(self, clock: Clock) -> None:
        self.seen_at_s: dict[str, float] = {}
        """The last sign, later by the time in which none could come; behind the ttl of who was silent for that long."""
        self.unreachable_since_s: dict[str, float] = {}
        self._clock = clock
        self._heard_at_s: dict[str, float] = {}  # the last sign, as it was
        self._told_at_s: dict[str, float] = {}  # when the others were last told
        self._looked_at_s: float | None = None  # when signs of other daemons came last; None: there are none
        self._outgoing: list[set[str]] = []

    def outgoing(self) -> set[str]:
        """A set that gets the ids of workers as they are heard of here; its owner tells others, and empties it."""
        self._outgoing.append(told := set[str]())
        return told

    def now_s(self) -> float:
        """Now; while no news of others come, not much later than the last ones came."""
        now_s = self._clock.mono_s()
        return now_s if self._looked_at_s is None else min(now_s, self._looked_at_s + BLIND_S)

    def record_heartbeat(self, worker_id: str, ttl_s: float | None) -> None:
        self.unreachable_since_s.pop(worker_id, None)
        self._heard_at_s[worker_id] = self._clock.mono_s()
        now_s = self.seen_at_s[worker_id] = self.now_s()
        every_s = SIGN_S if ttl_s is None else min(SIGN_S, ttl_s / SIGNS_PER_TTL)
        if now_s - self._told_at_s.get(worker_id, -SIGN_S) >= every_s:
            self._told_at_s[worker_id] = now_s
            for told in self._outgoing:
                told.add(worker_id)

    def begin_sync(self) -> float:
        """All that came elsewhere up to now is about to be noted. Returns now."""
        now_s = self._clock.mono_s()
        if self._looked_at_s is not None and (blind_s := now_s - self._looked_at_s - BLIND_S) > 0:
            self.seen_at_s = {worker_id: at_s + blind_s for worker_id, at_s in self.seen_at_s.items()}
        self._looked_at_s = now_s
        return now_s

    def mark_durable(self, worker_id: str, age_ms: int) -> None:
        """A sign of so long ago, wherever it came."""
        at_s = self._clock.mono_s() - max(0, age_ms) / 1000
        self._heard_at_s[worker_id] = max(at_s, self._heard_at_s.get(worker_id, at_s))

    def silence_s(self, worker_id: str) -> float | None:
        """Since the last sign; None: there never was one."""
        at_s = self._heard_at_s.get(worker_id)
        return None if at_s is None else self._clock.mono_s() - at_s

    def left(self, worker_id: str) -> None:
        """It is not registered any more; it may speak again."""
        self._told_at_s.pop(worker_id, None)
        self.unreachable_since_s.pop(worker_id, None)

    def keep(self, worker_ids: Collection[str]) -> None:
        for notes in (self.seen_at_s, self._heard_at_s):
            for worker_id in notes.keys() - worker_ids:
                del notes[worker_id]
