"""Settings of the metrics."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

TYPES_MAX = 10_000  # labels: some 400 samples each, which Prometheus has to store for weeks
Types = Annotated[int, Meta(ge=1, le=TYPES_MAX, description=f"1 to {TYPES_MAX:,}")]


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Which labels `GET /metrics` has. All daemons of a store need the same values."""

    types_max: Types = 200
    """Jobtypes with a label of their own; further ones count as `other`. Each has some 45 samples at each daemon."""
    tenants: bool = False
    """Whether samples of jobs have a label `tenant`, too. A jobtype then counts once for each tenant."""
