"""Small batches wait a moment for more jobs, where their worker asked for that. Pure: time is given.

Counted from the look that first showed jobs of a type, too few for a batch, until some of them are claimed.
"""

STALE_S = 1.0  # a jobtype that no look has shown for so long begins anew: others took what waited


class Linger:
    """What waits for more, of one partition."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, float, float]] = {}  # by jobtype: first seen, last seen, waits until

    def waits(self, jobtype: str, waiting: int | None, wanted: int, linger_s: float, now_s: float) -> bool:
        """Whether the jobs of this type that were seen now wait on: fewer than are `wanted` at once.

        `waiting`: None where nobody looked, so that they are not held back.
        """
        if not linger_s or waiting is None or waiting >= wanted:
            return False
        first_s, seen_s, until_s = self._since.pop(jobtype, (now_s, now_s, now_s))
        if now_s - seen_s > STALE_S:
            first_s = now_s
        for old in [name for name, (_, at_s, _) in self._since.items() if now_s - at_s > STALE_S]:
            del self._since[old]
        over_s = first_s + linger_s
        self._since[jobtype] = first_s, now_s, min(over_s, until_s) if until_s > now_s else over_s
        return now_s < over_s

    def over(self, jobtype: str) -> None:
        self._since.pop(jobtype, None)

    def next_s(self, now_s: float) -> float:
        """Seconds until the first of them waits no longer; infinity when there is none."""
        return min((until_s - now_s for _, _, until_s in self._since.values() if until_s > now_s), default=float("inf"))
