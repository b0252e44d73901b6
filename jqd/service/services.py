"""The components that the service works with, and the principal it acts for."""

import copy
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from jqd.domain.audit import read_notes
from jqd.domain.charge import Charge
from jqd.domain.clock import Clock
from jqd.domain.errors import Invalid, Overloaded
from jqd.domain.flow import unique_key
from jqd.domain.job_spec import JobSpec
from jqd.domain.jobid import partition_of, partition_of_name
from jqd.domain.joblog import Row
from jqd.domain.lease import Peer
from jqd.domain.pauses import BAN, DRAIN, HALT, PAUSE, Pauses
from jqd.domain.record import Lane
from jqd.domain.settings import SettingTable
from jqd.domain.tenant import SEPARATOR, annotate
from jqd.domain.tokens import Role, Tokens
from jqd.journal import Journal
from jqd.runner import Pulls, Runners, WorkerHealth, WorkerRegistry
from jqd.runner.departures import Gone, Kind
from jqd.service.concurrent_pushes import ConcurrentPushes
from jqd.service.config import ServiceConfig
from jqd.service.key_returns import KeyReturns
from jqd.service.principal import EVERYBODY, Principal
from jqd.service.recent_outcomes import RecentOutcomes
from jqd.service.registered_options import RegisteredOptions
from jqd.service.wait_reason import WaitReason
from jqd.service.waiters import Listener, Waiters, Watched
from jqd.store import EdgeStore, JobView, QueuePlace, Store


class Reserve(Protocol):
    """A function that reserves a tenant's quota for a push, a retry or another change. Raises Overloaded."""

    async def __call__(
        self, services: "Services", jobs: int, size_bytes: int, *, retried: bool = False, changed: bool = False
    ) -> Charge: ...


class Hooks(NamedTuple):
    """Functions of optional features that the service calls; `jqd/features.py` sets them."""

    why_limited: Callable[["Services", JobView, QueuePlace], WaitReason]
    """For a job that a constraint holds back: returns why it waits."""
    reserve: Reserve
    count_usage: Callable[["Services"], Awaitable[None]]
    """Counts a tenant's usage once, before many concurrent calls of `reserve`."""


SHARE = 6  # a pause is so many times what the failed call took: a server that hangs takes one seventh of the time


class PartitionBreaker:
    """A circuit breaker for partitions of the store: after a failed call, a partition gets no calls for a while. This
    pause is proportional to the time that the failed call took."""

    def __init__(self) -> None:
        self._until: Mapping[frozenset[int], tuple[float, str]] = {}

    def why(self, homes: frozenset[int], now_s: float) -> str | None:
        """Return why some of these partitions get no calls now; None: all of them get calls."""
        return next(
            (why for silent, (until_s, why) in self._until.items() if now_s < until_s and silent <= homes), None
        )

    def note(self, homes: frozenset[int], why: str, *, took_s: float, now_s: float) -> None:
        """Begin the pause of these partitions after a failed call to them. `why`: the reason, which
        `PartitionBreaker.why` returns. `took_s`: how long the call took."""
        known = {silent: pause for silent, pause in self._until.items() if now_s < pause[0]}
        self._until = {**known, homes: (now_s + SHARE * took_s, why)}


F = TypeVar("F")


class Control(Protocol):
    """What the service needs to know of the whole daemon (implemented by `jqd.control`)."""

    def push_ready(self) -> str | None: ...
    def pressed(self) -> Overloaded | None: ...
    def run_ready(self) -> str | None: ...
    def warnings(self) -> Sequence[str]: ...
    def stats(self) -> Mapping[str, object]: ...
    def settled(self, where: Collection[int]) -> bool: ...
    async def wait_caught_up(self, lane: Lane, position: int, timeout_s: float, where: Collection[int]) -> bool: ...
    async def wait_ingested(self, timeout_s: float) -> bool: ...
    def daemons(self) -> Sequence[Peer]: ...
    def gone(self, kind: Kind) -> Sequence[Gone]: ...
    def sharers(self) -> list[str]: ...
    def urls(self, peer: str | None, *, absent: bool = False) -> list[str]: ...
    def posted(self, worker_id: str) -> int: ...
    def seen(self, worker_id: str) -> Mapping[str, WorkerHealth]: ...
    async def in_flight(self, sysid: str) -> int | None: ...
    def listening(self, listener: Callable[[Sequence[Row]], None]) -> AbstractContextManager[None]: ...
    def waiting_parents(self, tenant: str) -> int: ...
    def waits_for_quota(self, tenant: str) -> bool: ...
    def quota_wait_warning(self, tenant: str) -> str | None: ...
    def entered(self, job_ids: Sequence[str], jobs: Sequence[JobSpec], tenant: str = "") -> None: ...


@dataclass(slots=True, eq=False)
class Services:
    """The components that the service works with, the state that it keeps, and the principal that it acts for."""

    config: ServiceConfig
    journal: Journal
    store: EdgeStore
    runner: Runners
    workers: WorkerRegistry
    control: Control
    clock: Clock
    hooks: Hooks
    partitions: int = 1
    ages: bool = False
    """Whether jobs gain priority while they wait."""
    allow_code: bool = False
    """The setting `runner.allow_code`: whether handlers may be code."""
    sandbox: str = "none"
    """The setting `runner.sandbox`: how code workers isolate handlers' code."""
    recent_outcomes: RecentOutcomes = field(default_factory=RecentOutcomes)
    concurrent_pushes: ConcurrentPushes = field(default_factory=ConcurrentPushes)
    key_returns: KeyReturns = field(default_factory=KeyReturns)
    partition_breaker: PartitionBreaker = field(default_factory=PartitionBreaker)
    pulls: Pulls = field(default_factory=Pulls)
    listeners: list[Listener] = field(default_factory=list)
    waiters: Waiters = field(default_factory=Waiters)
    """Clients that wait until a job has ended (find.py)."""
    watched: dict[str, Watched] = field(default_factory=dict)
    """Job id → a job whose events clients follow at this daemon (job_events.py)."""
    principal: Principal = EVERYBODY
    options: RegisteredOptions = field(init=False)
    """Default options of jobtypes."""
    pauses: Pauses = field(init=False)
    """Paused jobtypes."""
    tokens: Tokens = field(init=False)
    halts: Pauses = field(init=False)
    """Paused tenants."""
    drains: Pauses = field(init=False)
    """Drained daemons, which start no jobs."""
    features: dict[Any, Any] = field(default_factory=dict)
    """State of optional features: see `feature`."""

    def __post_init__(self) -> None:
        read_notes(self.workers.settings)
        self.options = RegisteredOptions(self.workers.settings)
        self.pauses = Pauses(self.workers.settings, PAUSE)
        self.tokens = Tokens(self.workers.settings, self.clock)
        self.workers.token_ended = self.tokens.ended
        self.halts = Pauses(self.workers.settings, BAN, HALT)
        self.drains = Pauses(self.workers.settings, DRAIN)

    def feature(self, kind: Callable[[SettingTable, Clock], F]) -> F:
        """Return an optional feature's state, an instance of `kind`. The first call creates it, and must come before
        the settings are loaded."""
        if kind not in self.features:
            self.features[kind] = kind(self.workers.settings, self.clock)
        kept: F = self.features[kind]
        return kept

    def as_principal(self, principal: Principal) -> "Services":
        """Return these services, but acting for another principal."""
        if principal == self.principal:
            return self
        other = copy.copy(self)
        other.principal = principal
        return other

    def can_see_token(self, token_id: str) -> bool:
        """Return whether the principal may see and revoke a token. A master may for all tokens of its tenant, others
        only for their own token and those derived from it."""
        token, who = self.tokens.get(token_id), self.principal
        if token is None:
            return False
        return who.can_see(token.tenant) if who.may(Role.MASTER) else who.token in self.tokens.line(token_id)

    def qualified_name(self, name: str) -> str:
        """Return a name prefixed with the principal's tenant. Raises Invalid for a name that contains the separator, as
        it would be read as another tenant's."""
        if SEPARATOR in name:
            raise Invalid(f"a name, an id or a filter has printable characters only, not as {name[:64]!r} does")
        tenant = self.principal.tenant
        return annotate(tenant, name) if tenant else name

    def unique_key(self, job: JobSpec) -> str:
        """Return the unique key of a job that the principal pushes, with tenant and jobtype before it; "" if it has
        none."""
        return "" if job.unique is None else unique_key(self.qualified_name(job.name), job.unique)

    def partitions_of(self, job_ids: Sequence[str]) -> list[int]:
        return [partition_of(job_id, self.partitions) for job_id in job_ids]

    def home(self, name: str) -> Store:
        """Return the store's partition that has a name (pusher's own id), a group or a unique key."""
        return self.store.at(partition_of_name(name, self.partitions))

    def where(self, *job_ids: str) -> frozenset[int]:
        """Return the set of partitions that these jobs are in."""
        if self.partitions == 1:
            return frozenset((0,))
        return frozenset(partition_of(job_id, self.partitions) for job_id in job_ids)
