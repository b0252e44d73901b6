"""What all free workers together would take, in as few wishes as say it. Pure.

    workers          any type, 0 to 9     any type, 5 to 20     mail, 0 to 30     bill, 3 to 4
    asked for        any type, 0 to 20                          mail, 0 to 30

Ranges that touch become one. What is asked for of any type is not asked for again by name.
"""

from collections.abc import Iterable

from jqd.domain.job import Wanted
from jqd.domain.pauses import all_of
from jqd.domain.tenant import tenant_of

Span = tuple[int, int]


class Demand:
    """Gathers them from one worker after the other."""

    def __init__(self, paused: frozenset[str] = frozenset(), halted: frozenset[str] = frozenset()) -> None:
        """`paused`: jobtypes that are not wished for, whoever takes them; `halted`: tenants, as `all_of` says."""
        self._paused, self._halted = paused, halted
        self._any: dict[tuple[str, Span], frozenset[str]] = {}  # by tenant and span
        self._named: dict[str, set[Span]] = {}

    def any_type(self, span: Span, besides: frozenset[str], tenant: str = "") -> None:
        """A worker takes any jobtype of its tenant but these, of priorities in `span`."""
        if all_of(tenant) in self._halted:
            return
        besides |= frozenset(name for name in self._paused if tenant_of(name) == tenant)
        self._any[tenant, span] = besides & self._any.get((tenant, span), besides)

    def named(self, jobtype: str, span: Span) -> None:
        """A worker takes this one."""
        if jobtype in self._paused or all_of(tenant_of(jobtype)) in self._halted:
            return
        self._named.setdefault(jobtype, set()).add(span)

    def wanted(self) -> list[Wanted]:
        """All of it. Those of any type first, then by name."""
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
    """Ascending, and apart from each other."""
    united: list[Span] = []
    for low, high in sorted(spans):
        if united and low <= united[-1][1] + 1:
            united[-1] = united[-1][0], max(high, united[-1][1])
        else:
            united.append((low, high))
    return united


def _in(span: Span, spans: Iterable[Span]) -> bool:
    return any(low <= span[0] and span[1] <= high for low, high in spans)
