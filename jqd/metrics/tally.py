"""What this daemon did since it began, by label: plain numbers. Pure.

How many labels there are is bounded: after `types_max` of them what is new counts as OTHER. One keeps its row until the
daemon stops, for a counter must not begin anew.
"""

from jqd.domain.tally import EVERYBODY, Counts, Row
from jqd.domain.tenant import bare, tenant_of
from jqd.metrics.config import MetricsConfig

OTHER = "other"


class Totals:
    def __init__(self, config: MetricsConfig) -> None:
        self._config = config
        self.rows: dict[tuple[str, str], Counts] = {("", OTHER): Counts()}
        """(tenant, jobtype) → counts; without labels for tenants the tenant is ""."""

    def add(self, row: Row) -> None:
        """Add what was counted since the last time."""
        for qualified, counts in row.items():
            self._counts(qualified).add(counts)

    def _counts(self, qualified: str) -> Counts:
        label = label_of(qualified, self._config)
        if label not in self.rows and (qualified == EVERYBODY or len(self.rows) > self._config.types_max):
            label = "", OTHER
        return self.rows.setdefault(label, Counts())


def label_of(qualified: str, config: MetricsConfig) -> tuple[str, str]:
    return tenant_of(qualified) if config.tenants else "", bare(qualified)
