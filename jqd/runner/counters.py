"""What happened in a runner since it began."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields

from jqd.domain.job import Fate


@dataclass(slots=True)
class Counters:
    """Of one runner."""

    posts: int = 0
    sent: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    returned: int = 0
    interrupted: int = 0
    timeouts: int = 0
    splits: int = 0
    lost: int = 0
    garbled: int = 0
    unreachable: int = 0
    crowded: int = 0
    back_offs: int = 0
    unknown_ids: int = 0
    repeated_ids: int = 0
    unclear: int = 0
    chains_ignored: int = 0
    cancels_told: int = 0
    entrusted: int = 0

    def ended(self, fates: Iterable[Fate]) -> None:
        counts = Counter(fates)
        self.succeeded += counts[Fate.SUCCEEDED]
        self.failed += counts[Fate.FAILED]
        self.retried += counts[Fate.RETRY]
        self.dead += counts[Fate.DEAD]

    def snapshot(self) -> dict[str, int]:
        return {each.name: getattr(self, each.name) for each in fields(self)}
