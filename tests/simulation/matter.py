"""Jobs that are more than a plain push, drawn from the seed: what clients ask for, through which daemons, and when.

A *matter* is one job as its clients know it: under an id that its pusher chose (a name), or under the id it was told.
Each content of it has a number of its own, as a plain job has; it is the job's argument and its priority, so that each
start and each look says which content it is of.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

PUSH, AGAIN, OTHER, REPLACE, EDIT, RETRY, DELETE, LOOK = (
    "push",
    "again",
    "other",
    "replace",
    "edit",
    "retry",
    "delete",
    "look",
)
"""`again`: what was pushed first, once more; `other`: other content under that name, and no `replace`."""
GIVES_CONTENT = frozenset({PUSH, OTHER, REPLACE, EDIT})
BEGINS = frozenset({PUSH, AGAIN, OTHER, REPLACE, RETRY})
"""After these the job may run although it had ended or was cancelled."""
NAMED = 0.7  # share of matters under a name
ORDERS_MAX = 5  # beside the first push
ANSWERED = 0.6  # share of orders whose client waits for the answer to the one before
GAPS_S = (0.0, 0.02, 0.5, 4.0, 9.0)  # at most, between two orders: longer than a reserved name stays so


@dataclass(frozen=True, slots=True)
class Order:
    """What a client asks for."""

    what: str
    node: int
    after_s: float
    """Since the order before it was sent, or answered."""
    waits: bool
    """For the answer to the one before."""
    content: int = 0
    """The number of what it gives the job; of `again`: of the first."""
    delay_s: float = 0.0
    """Until that content may start."""


@dataclass(frozen=True, slots=True)
class Matter:
    """One job and all that is asked for it. The first order pushes it."""

    number: int
    """Of its first content."""
    name: str
    """Empty: it goes by the id that its pusher is told."""
    jobtype: str
    at_s: float
    orders: tuple[Order, ...]

    @property
    def contents(self) -> dict[int, Order]:
        """By number, the orders that give the job a content."""
        return {order.content: order for order in self.orders if order.what in GIVES_CONTENT}


def make_matters(
    source: random.Random, count: int, *, nodes: int, types: Sequence[str], first: int, until_s: float
) -> list[Matter]:
    """So many of them, their contents numbered from `first` on. Pure."""
    matters: list[Matter] = []
    for _ in range(count):
        matter = _matter(source, first, nodes, source.choice(types), source.uniform(0.0, until_s))
        matters.append(matter)
        first = 1 + max(order.content for order in matter.orders)
    return matters


def _matter(source: random.Random, first: int, nodes: int, jobtype: str, at_s: float) -> Matter:
    name = f"n{first}" if source.random() < NAMED else ""
    asked = [EDIT, EDIT, RETRY, DELETE, LOOK]
    if name:
        asked = [*asked, REPLACE, REPLACE, REPLACE, OTHER, OTHER, AGAIN, DELETE]
    count = source.randint(1, ORDERS_MAX)
    orders = [Order(PUSH, source.randrange(nodes), 0.0, False, first, _delay_s(source))]
    orders += [_order(source, source.choice(asked), source.randrange(nodes)) for _ in range(count)]
    number = first
    for at, order in enumerate(orders[1:], 1):
        if order.what in GIVES_CONTENT:
            number += 1
        given = (number, order.delay_s) if order.what in GIVES_CONTENT else (first, orders[0].delay_s)
        orders[at] = replace(order, content=given[0], delay_s=given[1])
    return Matter(first, name, jobtype, at_s, tuple(orders))


def _order(source: random.Random, what: str, node: int) -> Order:
    after_s = source.uniform(0.0, source.choice(GAPS_S))
    return Order(what, node, after_s, source.random() < ANSWERED, 0, _delay_s(source))


def _delay_s(source: random.Random) -> float:
    return source.uniform(1.0, 8.0) if source.random() < 0.5 else 0.0
