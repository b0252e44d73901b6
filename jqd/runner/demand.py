"""Decides what to claim: the jobs that free workers take, and small batches that wait for more jobs. Pure: the caller
gives the time.

Demand          what all free workers together would take, in as few ranges as possible:

    workers          any type, 0 to 9     any type, 5 to 20     mail, 0 to 30     bill, 3 to 4
    asked for        any type, 0 to 20                          mail, 0 to 30

Linger          jobtypes whose small batches wait a moment for more jobs, where their worker asked for that
"""

from collections.abc import Iterable

from jqd.domain.job import Wanted
from jqd.domain.pauses import all_of
from jqd.domain.tenant import tenant_of

STALE_S = 1.0  # a jobtype that was not seen waiting for so long lingers anew: other daemons took its jobs

Span = tuple[int, int]


class Demand:
    """Gathers which jobtypes and priorities free workers take.

    Adjacent ranges of priorities become one. A range for any type makes those of named types superfluous.
    """

    def __init__(self, paused: frozenset[str] = frozenset(), halted: frozenset[str] = frozenset()) -> None:
        """`paused`: jobtypes for which nothing is claimed. `halted`: tenants for which nothing is claimed, each as the
        name that stands for all jobtypes of the tenant."""
        self._paused, self._halted = paused, halted
        self._any: dict[tuple[str, Span], frozenset[str]] = {}  # by tenant and span
        self._named: dict[str, set[Span]] = {}

    def any_type(self, span: Span, besides: frozenset[str], tenant: str = "") -> None:
        """Add a worker that takes any jobtype of its tenant except `besides`, of priorities in `span`."""
        if all_of(tenant) in self._halted:
            return
        besides |= frozenset(name for name in self._paused if tenant_of(name) == tenant)
        self._any[tenant, span] = besides & self._any.get((tenant, span), besides)

    def named(self, jobtype: str, span: Span) -> None:
        if jobtype in self._paused or all_of(tenant_of(jobtype)) in self._halted:
            return
        self._named.setdefault(jobtype, set()).add(span)

    def wanted(self) -> list[Wanted]:
        every = {
            tenant: _united(span for (whose, span), besides in self._any.items() if whose == tenant and not besides)
            for tenant in sorted({tenant for tenant, _ in self._any})
        }
        wanted = [Wanted(None, *span, tenant=tenant) for tenant, spans in every.items() for span in spans]
        for (tenant, span), besides in self._any.items():
            if besides and not _in(span, every[tenant]):
                wanted.append(Wanted(None, *span, besides, tenant))
        for jobtype, named in sorted(self._named.items()):
            spans = every.get(tenant_of(jobtype), ())
            wanted += [Wanted(jobtype, *span) for span in _united(named) if not _in(span, spans)]
        return wanted


def _united(spans: Iterable[Span]) -> list[Span]:
    """Return the ranges in ascending order, with overlapping and adjacent ones merged."""
    united: list[Span] = []
    for low, high in sorted(spans):
        if united and low <= united[-1][1] + 1:
            united[-1] = united[-1][0], max(high, united[-1][1])
        else:
            united.append((low, high))
    return united


def _in(span: Span, spans: Iterable[Span]) -> bool:
    return any(low <= span[0] and span[1] <= high for low, high in spans)


class Linger:
    """Jobtypes of one partition that are not claimed yet, because a worker waits for a fuller batch."""

    def __init__(self) -> None:
        self.since: dict[str, tuple[float, float, float]] = {}  # by jobtype: first seen, last seen, waits until

    def waits(self, jobtype: str, waiting: int | None, wanted: int, linger_s: float, now_s: float) -> bool:
        """Return whether to hold back jobs of this type for up to `linger_s`, because fewer than `wanted` jobs wait.

        `waiting`: how many jobs of the type wait; None: unknown, so they are not held back."""
        if not linger_s or waiting is None or waiting >= wanted:
            return False
        first_s, seen_s, until_s = self.since.pop(jobtype, (now_s, now_s, now_s))
        if now_s - seen_s > STALE_S:
            first_s = now_s
        for old in [name for name, (_, at_s, _) in self.since.items() if now_s - at_s > STALE_S]:
            del self.since[old]
        over_s = first_s + linger_s
        self.since[jobtype] = first_s, now_s, min(over_s, until_s) if until_s > now_s else over_s
        return now_s < over_s

    def over(self, jobtype: str) -> None:
        self.since.pop(jobtype, None)

    def next_s(self, now_s: float) -> float:
        """Return the seconds until the first held-back jobtype may be claimed; infinity if none is held back."""
        return min((until_s - now_s for _, _, until_s in self.since.values() if until_s > now_s), default=float("inf"))
