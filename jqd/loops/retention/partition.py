"""What retention must know of a partition of the store before it deletes what that may need."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jqd.domain.record import Lane
from jqd.loops.ingest import Ingest
from jqd.loops.membership import Membership
from jqd.store import Store


class RetentionStand(NamedTuple):
    """What a partition of the store has applied of our journal."""

    life: str
    """In which of its lives: in the next one it has forgotten perhaps, and may be told again up to the same place."""
    positions: Mapping[Lane, int]


class PartitionRetention(NamedTuple):
    """What is known of a partition of the store, which keeps jobs of this journal."""

    store: Store
    membership: Membership
    lanes: Mapping[Lane, Ingest[Any]]
    unsafe: Callable[[], bool] = lambda: False
    """Whether its settings would lose jobs: what it says is not relied upon then."""

    def stand(self) -> RetentionStand | None:
        """What it has applied; None while that may change, or cannot be relied upon."""
        found = {lane: position for lane, ingest in self.lanes.items() if (position := ingest.position) is not None}
        life, sure = self.membership.life, self.membership.settled and not self.unsafe()
        return RetentionStand(life, found) if sure and life is not None and len(found) == len(self.lanes) else None
