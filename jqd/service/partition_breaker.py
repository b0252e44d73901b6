"""Partitions that did not answer for long: nobody waits for each of them again and again."""

from collections.abc import Mapping

SHARE = 6  # asked again after so many times what the last try took: a server that hangs takes one part in seven


class PartitionBreaker:
    """What fails at once takes no time, so it is asked again soon."""

    def __init__(self) -> None:
        self._until: Mapping[frozenset[int], tuple[float, str]] = {}

    def why(self, homes: frozenset[int], now_s: float) -> str | None:
        """Why these partitions are not asked now; None: they are."""
        return next(
            (why for silent, (until_s, why) in self._until.items() if now_s < until_s and silent <= homes), None
        )

    def note(self, homes: frozenset[int], why: str, *, took_s: float, now_s: float) -> None:
        """One of these did not answer, which took so long."""
        known = {silent: told for silent, told in self._until.items() if now_s < told[0]}
        self._until = {**known, homes: (now_s + SHARE * took_s, why)}
