"""What this daemon did since it began, by label: plain numbers, and as families of samples.

How many labels there are is bounded: after `types_max` of them what is new counts as OTHER. One keeps its row until the
daemon stops, for a counter must not begin anew.
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import Metric

from jqd.domain.histogram import Histogram
from jqd.domain.tally import EVERYBODY, OUTCOMES, RUN_S, WAIT_S, Counts, Row
from jqd.domain.tenant import bare, tenant_of
from jqd.metrics.config import MetricsConfig
from jqd.metrics.families import counters, histograms

OTHER = "other"


class Totals:
    def __init__(self, config: MetricsConfig) -> None:
        self._config = config
        self.rows: dict[tuple[str, str], Counts] = {("", OTHER): Counts()}
        """(tenant, jobtype) → counts; without labels for tenants the tenant is ""."""
        self._of: Counter[str] = Counter()
        """Tenant → its labels: with a name at most half of what the others leave."""

    def add(self, row: Row) -> None:
        """Add what was counted since the last time."""
        for qualified, counts in row.items():
            self._counts(qualified).add(counts)

    def _counts(self, qualified: str) -> Counts:
        label = label_of(qualified, self._config)
        if label not in self.rows:
            tenant, most = tenant_of(qualified), self._config.types_max
            left = most + 1 - len(self.rows)  # OTHER has none of them
            is_much = bool(tenant) and self._of[tenant] >= left
            if qualified == EVERYBODY or left <= 0 or is_much:
                label = "", OTHER
            else:
                self._of[tenant] += 1
        return self.rows.setdefault(label, Counts())


def label_of(qualified: str, config: MetricsConfig) -> tuple[str, str]:
    return tenant_of(qualified) if config.tenants else "", bare(qualified)


ATTEMPTS = OUTCOMES[:-1]  # how one ends; a cancel ends none, and one that was under way is told as ended


def families(totals: Totals, labels: tuple[str, ...]) -> Iterator[Metric]:
    """`labels`: `type`, or `tenant` and `type`."""
    rows = [(key[-len(labels) :], row) for key, row in sorted(totals.rows.items())]
    yield from counters(
        "jqd_jobs_pushed",
        "Jobs acknowledged to their pushers by this daemon, those of schedules and follow-ups included",
        labels,
        ((key, row.pushed) for key, row in rows),
    )
    yield from counters(
        "jqd_attempts_started",
        "Attempts that this daemon gave to workers; some come back untried",
        labels,
        ((key, row.started) for key, row in rows),
    )
    yield from counters(
        "jqd_attempts_ended",
        "Attempts whose end this daemon brought into the store. failed: the worker said that the job cannot succeed; "
        "dead: its retries are used up, or it expired without one; retried: tried again later; put_off and interrupted "
        "count as no attempt",
        (*labels, "outcome"),
        (((*key, name), count) for key, row in rows for name, count in zip(ATTEMPTS, row.ended, strict=False)),
    )
    yield from histograms(
        "jqd_job_wait_seconds",
        "From when a job could begin to when this daemon gave it to a worker; first attempts of jobs without parents",
        labels,
        ((key, Histogram(WAIT_S, row.wait, row.wait_ms / 1000)) for key, row in rows if row.started),
    )
    yield from histograms(
        "jqd_job_run_seconds",
        "From when an attempt was sent to its worker to its end",
        labels,
        ((key, Histogram(RUN_S, row.run, row.run_ms / 1000)) for key, row in rows if any(row.ended[: len(ATTEMPTS)])),
    )
