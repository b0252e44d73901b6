"""Passes on to a new journal id what the store has applied of this directory under the old one (docs/adr/0006)."""

from collections.abc import Mapping
from typing import Any

from jqd.domain.record import CARRIED, Lane
from jqd.journal import Journal
from jqd.loops.ingest import Ingest
from jqd.store import Store


async def hand_down(journal: Journal, store: Store, lanes: Mapping[Lane, Ingest[Any]], journal_id: str) -> None:
    """Mark as applied under `journal_id` what is applied of `journal`. May be repeated. Raises StoreError."""
    stored = await store.applied(journal.journal_id)
    await store.applied(journal_id)
    for lane, ingest in lanes.items():
        position = ingest.last_position
        if position is None:
            position = min(stored[lane], journal.opened_at)
        if position:
            # What the store lacks under the old id it lacks under the new one. `gone` says so of all: else a copied job
            # would be lost.
            await store.skip(journal_id, lane, 0, position, gone=lane in CARRIED)
