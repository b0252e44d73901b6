"""What optional features do when the service asks: `jqd/features.py` names those that there are."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from jqd.domain.charge import Charge
from jqd.service.wait_reason import WaitReason
from jqd.store import JobView, QueuePlace

if TYPE_CHECKING:
    from jqd.service.services import Services


class Reserve(Protocol):
    """Keeps so much of a tenant's quota for a push or a retry. Raises Overloaded."""

    async def __call__(self, services: "Services", jobs: int, size_bytes: int, *, retried: bool = False) -> Charge: ...


class Hooks(NamedTuple):
    """One for each question."""

    why_limited: Callable[["Services", JobView, QueuePlace], WaitReason]
    """What keeps a job whose queue a constraint holds up."""
    reserve: Reserve
    looked: Callable[["Services"], Awaitable[None]]
    """Before many that reserve beside each other: the numbers of the quota are counted once."""
