"""What retention asks of outcomes: which of them say what waits for the quota of a tenant, and is in no journal itself.

That may wait for days, and pins no journal: such an outcome is written once more behind the end (docs/adr/0047). What
waits moves between outbox and shelf meanwhile, so it is asked after in both at once.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from jqd.domain.chaining import read_entry
from jqd.domain.errors import JournalDamaged
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.job import NIL, Outcome
from jqd.domain.jobid import partition_of
from jqd.store import Store

CALL_BYTES = 4 << 20  # asked for in one call
CALL_ENTRIES = 500  # too: with as many shelves as one call looks at some 30 ms of the server


async def has_shelves(stores: Iterable[Store]) -> bool:
    """Whether anything waits for a quota."""
    return any([bool(await store.list_shelves(1)) for store in stores])


async def owing(stores: Sequence[Store], outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Those of these whose followers are not pushed yet, without their results: what is told again has those.

    Raises JournalDamaged for followers that cannot be decoded.
    """
    owed: list[Outcome] = []
    groups: dict[tuple[int, str], list[tuple[bytes, Outcome]]] = {}
    for outcome in outcomes:
        if outcome.follows:
            place = partition_of(outcome.job_id, len(stores)), _tenant(outcome)
            groups.setdefault(place, []).append((_entry(outcome), outcome))
    for (number, tenant), pairs in groups.items():
        for some in _pieces(pairs):
            waits = await stores[number].is_owed(tenant, [entry for entry, _ in some])
            owed += [_bare(one) for (_, one), is_owed in zip(some, waits, strict=True) if is_owed]
    return owed


def _entry(outcome: Outcome) -> bytes:
    return outcome.job_id.encode() + b" " + outcome.follows


def _tenant(outcome: Outcome) -> str:
    """On whose shelf they may lie. Raises JournalDamaged."""
    try:
        return read_entry(_entry(outcome)).tenant
    except DECODE_ERRORS as error:
        raise JournalDamaged(f"what follows job {outcome.job_id} cannot be decoded: {error}") from error


def _bare(outcome: Outcome) -> Outcome:
    return replace(outcome, result=NIL, log="")


def _pieces(pairs: Sequence[tuple[bytes, Outcome]]) -> Iterable[list[tuple[bytes, Outcome]]]:
    piece: list[tuple[bytes, Outcome]] = []
    size = 0
    for entry, outcome in pairs:
        if piece and (size + len(entry) > CALL_BYTES or len(piece) == CALL_ENTRIES):
            yield piece
            piece, size = [], 0
        piece.append((entry, outcome))
        size += len(entry)
    if piece:
        yield piece
