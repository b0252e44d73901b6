"""Rows of counts by jobtype, for some minutes. They are summed up, bounded, and encoded for the store.

    row    version, then per jobtype: qualified name, pushed, started, ended by OUTCOMES, wait, run, wait ms, run ms

If there are many jobtypes, only the busiest keep their names; of each tenant but "" at most a share of 1/PART. A
tenant's other jobtypes are summed up under its name and OTHER, and those of further tenants under EVERYBODY.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from jqd.domain.shares import PART
from jqd.domain.tally import EVERYBODY, OTHER, OUTCOMES, RUN_S, WAIT_S, Counts, Row
from jqd.domain.tenant import annotate, tenant_of

VERSION = 1
TYPES_MAX = 200  # named jobtypes of a row: some 80 B each, or 45 KiB an hour for a daemon with ten
TENANTS_MAX = 100  # tenants of a row that have an OTHER


class _Packed(msgspec.Struct, array_like=True, frozen=True):
    jobtype: str
    pushed: int
    started: int
    ended: Sequence[int]
    wait: Sequence[int]
    run: Sequence[int]
    wait_ms: int
    run_ms: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, list[_Packed]])


def added(rows: Iterable[Row]) -> dict[str, Counts]:
    """Return the sums of the counts in these rows (jobtype → its counts in some minutes), by jobtype."""
    sums: dict[str, Counts] = {}
    for row in rows:
        for jobtype, counts in row.items():
            sums.setdefault(jobtype, Counts()).add(counts)
    return sums


def bounded(row: Row) -> Row:
    """Return a row of counts by jobtype with at most TYPES_MAX named jobtypes; the counts of the other jobtypes are
    summed up. Idempotent."""
    if len(row) <= TYPES_MAX // PART:
        return row
    kept: dict[str, Counts] = {}
    named: Counter[str] = Counter()
    others: dict[str, Counts] = {}
    for jobtype, counts in sorted(row.items(), key=lambda item: (-item[1].moves, item[0])):
        tenant = tenant_of(jobtype)
        most = TYPES_MAX // PART if tenant else TYPES_MAX
        if not jobtype.endswith(OTHER) and named[tenant] < most and len(kept) < TYPES_MAX:
            kept[jobtype] = counts
            named[tenant] += 1
            continue
        other = annotate(tenant, OTHER)
        if other not in others and len(others) >= TENANTS_MAX:
            other = EVERYBODY
        others.setdefault(other, Counts()).add(counts)
    return kept | others


def encode(row: Row) -> bytes:
    packed = [
        _Packed(name, one.pushed, one.started, one.ended, one.wait, one.run, one.wait_ms, one.run_ms)
        for name, one in row.items()
    ]
    return _encoder.encode((VERSION, packed))


def decode(data: bytes) -> Row | None:
    """Decode a row of counts by jobtype; None if it cannot be read, for example a row of a later release."""
    try:
        version, packed = _decoder.decode(data)
    except msgspec.MsgspecError:
        return None
    row: dict[str, Counts] = {}
    for one in packed if version == VERSION else ():
        counts = row[one.jobtype] = Counts()
        counts.pushed, counts.started, counts.wait_ms, counts.run_ms = one.pushed, one.started, one.wait_ms, one.run_ms
        counts.ended, counts.wait, counts.run = [*one.ended], [*one.wait], [*one.run]
        if [*map(len, (counts.ended, counts.wait, counts.run))] != [len(OUTCOMES), len(WAIT_S) + 1, len(RUN_S) + 1]:
            return None
    return row if version == VERSION else None
