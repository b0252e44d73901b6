"""What was counted of one jobtype in some minutes, and a row of many: as a daemon keeps it, and the store. Pure.

    row    version, then per jobtype: qualified name, pushed, started, ended by OUTCOMES, wait, run, wait ms, run ms

Of many jobtypes the busiest stand by their names, of each tenant but "" no more than a tenth; the others of a tenant
are summed up under its name and OTHER, and those of further tenants under EVERYBODY.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import add

import msgspec

from jqd.domain.shares import PART
from jqd.domain.tenant import annotate, tenant_of

VERSION = 1
OTHER = "\x1e"  # cannot be printed, so no jobtype is called so
EVERYBODY = annotate("*", OTHER)  # no tenant is called so
TYPES_MAX = 200  # of a row, by their names: some 80 B each, or 45 KiB an hour of a daemon with ten
TENANTS_MAX = 100  # of a row that have an OTHER
OUTCOMES = ("succeeded", "failed", "dead", "retried", "put_off", "interrupted", "cancelled")
WAIT_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0)
"""Upper bounds of buckets; one more holds what is above the last. Coarse: to wait less than the first is well."""
RUN_S = (0.01, 0.05, *WAIT_S)
_WAIT_MS, _RUN_MS = (tuple(round(bound * 1000) for bound in bounds) for bounds in (WAIT_S, RUN_S))
_NO_WAITS, _NO_RUNS = [0] * (len(WAIT_S) + 1), [0] * (len(RUN_S) + 1)


class Counts:
    """The numbers of one jobtype."""

    __slots__ = ("ended", "pushed", "run", "run_ms", "started", "wait", "wait_ms")

    def __init__(self) -> None:
        self.pushed = 0
        self.started = 0
        """Attempts."""
        self.ended = [0] * len(OUTCOMES)
        """Attempts, and cancelled jobs."""
        self.wait, self.run = [*_NO_WAITS], [*_NO_RUNS]
        """By buckets."""
        self.wait_ms = 0
        self.run_ms = 0

    def waited(self, ms: int) -> None:
        self.wait[bisect_left(_WAIT_MS, ms)] += 1
        self.wait_ms += ms

    def ran(self, ms: int) -> None:
        self.run[bisect_left(_RUN_MS, ms)] += 1
        self.run_ms += ms

    def add(self, other: "Counts") -> None:
        self.pushed += other.pushed
        self.started += other.started
        self.ended = [*map(add, self.ended, other.ended)]
        self.wait, self.run = [*map(add, self.wait, other.wait)], [*map(add, self.run, other.run)]
        self.wait_ms += other.wait_ms
        self.run_ms += other.run_ms

    @property
    def moves(self) -> int:
        """Return how much happened."""
        return self.pushed + self.started + sum(self.ended)


Row = Mapping[str, Counts]
"""Qualified jobtype → its numbers."""


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
    """Sum up rows by jobtype, in new counts."""
    sums: dict[str, Counts] = {}
    for row in rows:
        for jobtype, counts in row.items():
            sums.setdefault(jobtype, Counts()).add(counts)
    return sums


def bounded(row: Row) -> Row:
    """Return the row with at most TYPES_MAX jobtypes by their names, and the others summed up. Bounding it again
    changes nothing."""
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
    """Return a row; None for one that cannot be read, as of a later release."""
    try:
        version, packed = _decoder.decode(data)
    except msgspec.MsgspecError:
        return None
    row: dict[str, Counts] = {}
    for one in packed if version == VERSION else ():
        counts = row[one.jobtype] = Counts()
        counts.pushed, counts.started, counts.wait_ms, counts.run_ms = one.pushed, one.started, one.wait_ms, one.run_ms
        counts.ended, counts.wait, counts.run = [*one.ended], [*one.wait], [*one.run]
        if [*map(len, (counts.ended, counts.wait, counts.run))] != [len(OUTCOMES), len(_NO_WAITS), len(_NO_RUNS)]:
            return None
    return row if version == VERSION else None
