"""Remembers partitions that did not answer for long, so that calls do not wait for each again."""

from collections.abc import Mapping

SHARE = 6  # asked again after so many times what the last try took: a server that hangs takes one part in seven


class PartitionBreaker:
    """Partitions that are not asked for a while: the longer, the longer their failure took."""

    def __init__(self) -> None:
        self._until: Mapping[frozenset[int], tuple[float, str]] = {}

    def why(self, homes: frozenset[int], now_s: float) -> str | None:
        """Return why these partitions are not asked now; None: they are."""
        return next(
            (why for silent, (until_s, why) in self._until.items() if now_s < until_s and silent <= homes), None
        )

    def note(self, homes: frozenset[int], why: str, *, took_s: float, now_s: float) -> None:
        """Note that one of these partitions did not answer, and how long that took."""
        known = {silent: told for silent, told in self._until.items() if now_s < told[0]}
        self._until = {**known, homes: (now_s + SHARE * took_s, why)}
