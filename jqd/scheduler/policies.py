"""Policies that order jobs of equal priority. Pure; a policy remembers only jobs that this daemon began.

    strict    the oldest job goes first                                                   as in LightJQ
    fair      first the tenant that used the least of its share; of its jobtypes the
              one of which the fewest jobs began; of these jobs the oldest                the default
    random    any jobtype goes first                                                      as in miniq

`fair` counts in *virtual time*: each job that begins adds 1 / weight to the time of its tenant. The tenant with the
least time goes first, so the times of all waiting tenants differ by a batch at most. A tenant that is new, or had no
jobs for a while, starts at the least time of the waiting tenants: it gets no credit for the time before
(docs/adr/0048).
"""

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta

from jqd.domain.tenant import NAME, tenant_of

REMEMBERED = 1_000  # tenants, and jobtypes of each, that are kept: the last that began a job; others count as new
AGEING_S_MAX = 30 * 86_400  # steps further apart have no effect
WEIGHT_MAX = 1_000  # more would let other tenants wait too long: with weight 1 a batch of 500 jobs adds 500
_WEIGHT = re.compile(rf"({NAME})?=([1-9][0-9]{{0,2}}|{WEIGHT_MAX})")

Weights = Annotated[
    tuple[Annotated[str, Meta(pattern=rf"^{_WEIGHT.pattern}$(?!\n)")], ...],
    Meta(description='a list like `["acme=3", "=2"]`, each 1 to 1000'),
]


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Settings of the order among jobs of equal priority, and of ageing."""

    policy: Literal["fair", "strict", "random"] = "fair"
    """How equal priorities are ordered (SCHEDULING.md#what-goes-first). The same at all daemons."""
    weights: Weights = ()
    """Shares of tenants with `fair`; 1 for those that are not named, nothing before the `=` for jobs of no tenant."""
    ageing_s: Annotated[float, Meta(ge=0, le=AGEING_S_MAX, description="0, or 1 second to 30 days")] = 0.0
    """A job gains a step of priority with each such period that it waits; 0: none (SCHEDULING.md#jobs-that-age). The
    same at all daemons."""

    def __post_init__(self) -> None:
        if len(self.by_tenant) < len(self.weights):
            raise ValueError(f"weights = {' '.join(self.weights)!r} names a tenant twice: say one weight for each")
        if 0 < self.ageing_s < 1:
            raise ValueError(f"ageing_s = {self.ageing_s} must be at least 1, or 0 for jobs that do not age")

    @property
    def period_ms(self) -> int:
        """The period of ageing in ms; 0: jobs do not age."""
        return round(self.ageing_s * 1000)

    @property
    def by_tenant(self) -> Mapping[str, int]:
        return {one.partition("=")[0]: int(one.partition("=")[2]) for one in self.weights}


class Waiting(Protocol):
    """A jobtype with jobs ready to run, as the store reports it."""

    @property
    def jobtype(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def head_id(self) -> str: ...
    @property
    def waiting(self) -> int: ...
    @property
    def rank(self) -> int:
        """The sort key, smallest first: the priority minus the steps that the best job gained by waiting."""


class Policy(ABC):
    """Chooses among waiting jobtypes of equal rank."""

    @abstractmethod
    def rank(self, row: Waiting) -> tuple[Any, ...]:
        """Return a sort key that orders rows (waiting jobtypes) of equal rank, smallest first.

        The key changes only when jobs begin, so that the first row stays first until then."""

    def chosen(self, row: Waiting) -> None:  # noqa: B027 - most policies need not know
        """Note that this row (a waiting jobtype) was chosen, as the best of all rows that may run now."""

    def started(self, jobtype: str, count: int) -> None:  # noqa: B027
        """Note that `count` jobs of this type began."""


class Strict(Policy):
    """The jobtype with the oldest job goes first, whatever its tenant; names break ties."""

    def rank(self, row: Waiting) -> tuple[Any, ...]:
        return row.head_id, row.jobtype


class Random(Policy):
    """Each jobtype has the same chance to go first. The order is drawn anew after jobs began."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._draws: dict[str, float] = {}

    def rank(self, row: Waiting) -> tuple[Any, ...]:
        draw = self._draws.get(row.jobtype)
        if draw is None:
            draw = self._draws[row.jobtype] = self._source.random()
            if len(self._draws) > REMEMBERED:
                del self._draws[next(iter(self._draws))]
        return draw, row.head_id

    def started(self, jobtype: str, count: int) -> None:
        self._draws.clear()


class Fair(Policy):
    """Tenants share by weight, and a tenant's jobtypes share equally."""

    def __init__(self, weights: Mapping[str, int] | None = None) -> None:
        """`weights`: tenant → weight; 1 for tenants that are not named."""
        self._weights = weights or {}
        self._tenants = _Times()
        self._types: dict[str, _Times] = {}

    def rank(self, row: Waiting) -> tuple[Any, ...]:
        jobtype = row.jobtype
        tenant = tenant_of(jobtype)
        types = self._types.get(tenant)
        return self._tenants.of(tenant), types.of(jobtype) if types else 0.0, row.head_id, jobtype

    def chosen(self, row: Waiting) -> None:
        tenant = tenant_of(row.jobtype)
        self._tenants.reached(tenant)
        if tenant in self._types:
            self._types[tenant].reached(row.jobtype)

    def started(self, jobtype: str, count: int) -> None:
        tenant = tenant_of(jobtype)
        forgotten = self._tenants.pass_by(tenant, count / self._weights.get(tenant, 1))
        if forgotten is not None:
            self._types.pop(forgotten, None)
        self._types.setdefault(tenant, _Times()).pass_by(jobtype, count)


class _Times:
    """Virtual times: of tenants, or of one tenant's jobtypes. Idle names get no credit, as `reached` sets the least
    time."""

    def __init__(self) -> None:
        self._of: dict[str, float] = {}
        self._first = 0.0

    def of(self, name: str) -> float:
        time = self._of.get(name, 0.0)
        return time if time > self._first else self._first

    def reached(self, name: str) -> None:
        """Note that this tenant or jobtype has the least time of all that wait: from now on none has less."""
        self._first = self.of(name)

    def pass_by(self, name: str, time: float) -> str | None:
        """Add `time` to the virtual time of a tenant or jobtype. At most REMEMBERED names are kept; returns the name
        that was forgotten, or None."""
        now = self.of(name) + time
        self._of.pop(name, None)
        self._of[name] = now  # moved to the end: the first one is forgotten first
        if len(self._of) <= REMEMBERED:
            return None
        forgotten = next(iter(self._of))
        del self._of[forgotten]
        return forgotten


def make_policy(config: SchedulerConfig, source: random.Random) -> Policy:
    match config.policy:
        case "strict":
            return Strict()
        case "random":
            return Random(source)
        case "fair":
            return Fair(config.by_tenant)
