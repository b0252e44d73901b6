"""Flows: jobs under own ids that others wait for, groups, and chains by `then`; drawn for `plan.py`.

named    some parents, most of them under own ids, and a child that names them by these, or by jqd's
retried  one parent fails, and is tried anew while another is at work
group    members come over some seconds, some after it was closed; it is closed once or twice
chain    jobs in the `then` of others, with their results
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.simulation.work import Push, Work, draw_work

KINDS = ("named", "named", "retried", "retried", "group", "chain")
FAMILIES = (2, 4)  # at least and at most, in runs with such
RESULTS = (0, 10, 10, 1_000)  # bytes
LARGE, LARGE_BYTES = 0.05, 300_000  # share of parents whose result is so large: it lies in pieces of 256 KiB
DELETED = 0.2  # share of parents that somebody wants deleted


@dataclass(frozen=True, slots=True)
class Group:
    """One that is closed."""

    name: str
    then: int
    """Number of the job that waits for all of its members."""
    closes: tuple[tuple[float, int], ...]
    """When, and through which daemon."""


class Families:
    """Adds works and pushes of families."""

    def __init__(
        self,
        source: random.Random,
        works: list[Work],
        pushes: list[Push],
        nodes: int,
        types: Sequence[str],
        *,
        large: bool,
    ) -> None:
        """`large`: some results lie in pieces."""
        self.groups: list[Group] = []
        self._source, self._works, self._pushes = source, works, pushes
        self._nodes, self._types, self._large = nodes, types, large

    def draw(self, until_s: float, dense: int) -> None:
        """Some of them, so many times as usual."""
        for _ in range(self._source.randint(*FAMILIES) * dense):
            at_s = self._source.uniform(0.0, until_s)
            {"named": self._named, "retried": self._retried, "group": self._group, "chain": self._chain}[
                self._source.choice(KINDS)
            ](at_s)

    def _work(self, **fields: object) -> int:
        drawn = draw_work(self._source, self._nodes, self._types, bad_workers=False)
        self._works.append(replace(drawn, delay_s=0.0, cancels=(), **fields))  # type: ignore[arg-type]
        return len(self._works) - 1

    def _push(self, at_s: float, node: int, **fields: object) -> int:
        number = self._work(**fields)
        self._pushes.append(Push(at_s, node, (number,)))
        return number

    def _node(self) -> int:
        return self._source.randrange(self._nodes)

    def _bytes(self) -> int:
        is_large, few = self._source.random() < LARGE, self._source.choice(RESULTS)
        return LARGE_BYTES if is_large and self._large else few

    def _child(self, at_s: float, node: int, parents: Sequence[int]) -> None:
        source = self._source
        self._push(
            at_s,
            node,
            after=tuple(parents),
            on_parent_failure=source.choice(("run", "cancel", "fail", "fail")),
            takes=source.random() < 0.6,
            by_name=source.random() < 0.4,
            own_id=source.random() < 0.3,
        )

    def _named(self, at_s: float) -> None:
        source, node = self._source, self._node()
        parents = []
        for _ in range(source.choice((1, 2, 3))):
            gone = ((source.uniform(1.0, 8.0), self._node()),) if source.random() < DELETED else ()
            own = source.random() < 0.7
            pushed_s = at_s + source.uniform(0.0, 0.3)
            parents.append(self._push(pushed_s, node, own_id=own, result_bytes=self._bytes(), deletes=gone))
        self._push(at_s + 0.3, node)  # overtakes them in another lane
        self._child(at_s + source.uniform(0.3, 1.5), node if source.random() < 0.7 else self._node(), parents)

    def _retried(self, at_s: float) -> None:
        source = self._source
        ends = ("failed", source.uniform(0.0, 0.5)), (source.choice(("ok", "ok", "failed")), source.uniform(0.0, 2.0))
        retries = tuple((source.uniform(0.5, 4.0), self._node()) for _ in range(source.choice((1, 2))))
        own = source.random() < 0.4
        parent = self._push(
            at_s, self._node(), attempts=ends, retries=retries, own_id=own, result_bytes=self._bytes(), timeout_s=30.0
        )
        slow = (("ok", source.uniform(2.0, 6.0)),)
        other = self._push(at_s, self._node(), attempts=slow, timeout_s=30.0, result_bytes=self._bytes())
        self._child(at_s + source.uniform(0.05, 2.0), self._node(), (parent, other))

    def _group(self, at_s: float) -> None:
        source, name = self._source, f"g{len(self.groups)}"
        for _ in range(source.randint(2, 5)):
            own = source.random() < 0.5
            self._push(
                at_s + source.uniform(0.0, 3.0), self._node(), own_id=own, group=name, result_bytes=self._bytes()
            )
        closes = tuple((at_s + source.uniform(1.5, 4.0), self._node()) for _ in range(source.choice((1, 1, 2))))
        policy = source.choice(("run", "run", "fail"))
        then = self._work(takes=source.random() < 0.6, on_parent_failure=policy)
        self.groups.append(Group(name, then, closes))

    def _chain(self, at_s: float) -> None:
        source = self._source
        leaders = [self._push(at_s, self._node(), result_bytes=source.choice(RESULTS))]
        for number in leaders:
            its = tuple(
                self._work(takes=source.random() < 0.6, result_bytes=source.choice(RESULTS))
                for _ in range(source.choice((1, 1, 2)))
            )
            self._works[number] = replace(self._works[number], follows=its, says_then=True)
            leaders += [follower for follower in its if len(leaders) < 4 and source.random() < 0.5]
