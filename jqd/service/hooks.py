"""The functions of optional features that the service calls; `jqd/features.py` sets them."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from jqd.domain.charge import Charge
from jqd.service.wait_reason import WaitReason
from jqd.store import JobView, QueuePlace

if TYPE_CHECKING:
    from jqd.service.services import Services


class Reserve(Protocol):
    """Reserves a tenant's quota for a push or a retry. Raises Overloaded."""

    async def __call__(self, services: "Services", jobs: int, size_bytes: int, *, retried: bool = False) -> Charge: ...


class Hooks(NamedTuple):
    """One function for each optional feature that answers the service."""

    why_limited: Callable[["Services", JobView, QueuePlace], WaitReason]
    """What keeps a job whose queue a constraint holds up."""
    reserve: Reserve
    count_usage: Callable[["Services"], Awaitable[None]]
    """Before many that reserve beside each other: the numbers of the quota are counted once."""
