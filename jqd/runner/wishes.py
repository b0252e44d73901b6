"""What all free workers together would take, in as few wishes as say it. Pure.

    workers          any type, 0 to 9     any type, 5 to 20     mail, 0 to 30     bill, 3 to 4
    asked for        any type, 0 to 20                          mail, 0 to 30

Ranges that touch become one. What is asked for of any type is not asked for again by name.
"""

from collections.abc import Iterable

from jqd.words.job import Wanted

Span = tuple[int, int]


class Wishes:
    """Gathers them from one worker after the other."""

    def __init__(self, paused: frozenset[str] = frozenset()) -> None:
        """`paused`: jobtypes that are not wished for, whoever takes them."""
        self._paused = paused
        self._any: dict[Span, frozenset[str]] = {}
        self._named: dict[str, set[Span]] = {}

    def any_type(self, span: Span, besides: frozenset[str]) -> None:
        """A worker takes any jobtype but these, of priorities in `span`."""
        besides |= self._paused
        self._any[span] = besides & self._any.get(span, besides)

    def named(self, jobtype: str, span: Span) -> None:
        """A worker takes this one."""
        if jobtype in self._paused:
            return
        self._named.setdefault(jobtype, set()).add(span)

    def wanted(self) -> list[Wanted]:
        """All of it. Those of any type first, then by name."""
        every = _united(span for span, besides in self._any.items() if not besides)
        wanted = [Wanted(None, *span) for span in every]
        some = ((span, besides) for span, besides in self._any.items() if besides and not _in(span, every))
        wanted += [Wanted(None, *span, besides) for span, besides in some]
        for jobtype, spans in sorted(self._named.items()):
            wanted += [Wanted(jobtype, *span) for span in _united(spans) if not _in(span, every)]
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
