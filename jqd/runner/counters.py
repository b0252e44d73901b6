"""What happened in a runner since it began."""

from dataclasses import dataclass, fields

from jqd.words.job import Fate


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

    def ended(self, fate: Fate) -> None:
        """An attempt ended so."""
        match fate:
            case Fate.SUCCEEDED:
                self.succeeded += 1
            case Fate.FAILED:
                self.failed += 1
            case Fate.RETRY:
                self.retried += 1
            case Fate.DEAD:
                self.dead += 1

    def snapshot(self) -> dict[str, int]:
        """By name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}
