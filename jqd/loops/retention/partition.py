"""Asks the store what retention may delete from the journal.

An outcome may be needed for days while its followers (jobs pushed when its job succeeds) wait for a tenant's quota.
Lest it keep its segment, it is written once more at the journal's end (docs/adr/0047). Followers move from the outbox
to a shelf when they wait for a quota, and back, so one call reads both."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from jqd.domain.errors import JournalDamaged
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.followers import read_entry
from jqd.domain.groups import in_groups
from jqd.domain.job import NIL, Outcome
from jqd.domain.jobid import partition_of
from jqd.domain.outcome_followers import has_jobs
from jqd.domain.record import Lane
from jqd.loops.ingest import Ingest
from jqd.loops.membership import Membership
from jqd.store import Store

CALL_BYTES = 4 << 20  # bytes of the entries in one call
CALL_ENTRIES = 500  # in one call: with as many shelves as one call looks at, some 30 ms of the server


class AppliedState(NamedTuple):
    """What a partition of the store has applied of our journal."""

    life: str
    """The life of the store. In another life it may have lost everything, and applied it again up to the same
    positions."""
    positions: Mapping[Lane, int]


class PartitionRetention(NamedTuple):
    store: Store
    membership: Membership
    lanes: Mapping[Lane, Ingest[Any]]
    unsafe: Callable[[], bool] = lambda: False
    """Returns whether the store's settings would lose jobs: then its answers do not count."""

    def applied_state(self) -> AppliedState | None:
        """Return what the store has applied; None while its positions are unknown, or cannot be relied on."""
        found = {lane: position for lane, ingest in self.lanes.items() if (position := ingest.position) is not None}
        life, sure = self.membership.life, self.membership.settled and not self.unsafe()
        return AppliedState(life, found) if sure and life is not None and len(found) == len(self.lanes) else None


async def has_shelves(stores: Iterable[Store]) -> bool:
    """Return whether followers (jobs pushed after a success) wait for a tenant's quota in any of these partitions."""
    return any([bool(await store.list_shelves(1)) for store in stores])


async def still_waiting(stores: Sequence[Store], outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the outcomes, without results and logs, whose followers (jobs pushed after a success) are not pushed yet.
    The store must have applied all these outcomes.

    Raises JournalDamaged for followers that cannot be decoded."""
    owed: list[Outcome] = []
    groups: dict[tuple[int, str], list[tuple[bytes, Outcome]]] = {}
    for outcome in outcomes:
        if outcome.follows and not has_jobs(outcome.follows):
            place = partition_of(outcome.job_id, len(stores)), _tenant(outcome)
            groups.setdefault(place, []).append((_entry(outcome), outcome))
    for (number, tenant), pairs in groups.items():
        for some in in_groups(pairs, lambda pair: len(pair[0]), CALL_ENTRIES, CALL_BYTES):
            waits = await stores[number].is_owed(tenant, [entry for entry, _ in some])
            owed += [_bare(outcome) for (_, outcome), is_owed in zip(some, waits, strict=True) if is_owed]
    return owed


def _entry(outcome: Outcome) -> bytes:
    return outcome.job_id.encode() + b" " + outcome.follows


def _tenant(outcome: Outcome) -> str:
    """Return the tenant for whose quota an outcome's followers may wait. Raises JournalDamaged."""
    try:
        return read_entry(_entry(outcome)).tenant
    except DECODE_ERRORS as error:
        raise JournalDamaged(f"what follows job {outcome.job_id} cannot be decoded: {error}") from error


def _bare(outcome: Outcome) -> Outcome:
    return replace(outcome, result=NIL, log="")
