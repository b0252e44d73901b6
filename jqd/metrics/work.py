"""Counts this daemon's jobs since its start, by label, and makes metric families of these counts.

The number of labels is bounded: after `types_max` labels, new ones count as OTHER. A label keeps its row until the
daemon stops, because a counter must not begin again at 0.
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
    """Counts since the daemon's start, by label."""

    def __init__(self, config: MetricsConfig) -> None:
        self._config = config
        self.rows: dict[tuple[str, str], Counts] = {("", OTHER): Counts()}
        """(tenant, jobtype) → counts; the tenant is "" if samples have no label for it."""
        self._of: Counter[str] = Counter()
        """Tenant → number of its labels. A tenant (but "") gets a new one only if more labels are free than it has."""

    def add(self, row: Row) -> None:
        """Add the counts in a row, which were made since the last call, to the totals of its label."""
        for qualified, counts in row.items():
            self._counts(qualified).add(counts)

    def _counts(self, qualified: str) -> Counts:
        label = label_of(qualified, self._config)
        if label not in self.rows:
            tenant, most = tenant_of(qualified), self._config.types_max
            left = most + 1 - len(self.rows)  # + 1: the row of OTHER does not count
            is_much = bool(tenant) and self._of[tenant] >= left
            if qualified == EVERYBODY or left <= 0 or is_much:
                label = "", OTHER
            else:
                self._of[tenant] += 1
        return self.rows.setdefault(label, Counts())


def label_of(qualified: str, config: MetricsConfig) -> tuple[str, str]:
    return tenant_of(qualified) if config.tenants else "", bare(qualified)


ATTEMPTS = OUTCOMES[:-1]  # without `cancelled`, which ends no attempt; a running attempt ends with another outcome


def families(totals: Totals, labels: tuple[str, ...]) -> Iterator[Metric]:
    """Yield the metric families. `labels`: `type`, or `tenant` and `type`."""
    rows = [(key[-len(labels) :], row) for key, row in sorted(totals.rows.items())]
    yield counters(
        "jqd_jobs_pushed",
        "Jobs acknowledged to their pushers by this daemon, those of schedules and follow-ups included",
        labels,
        ((key, row.pushed) for key, row in rows),
    )
    yield counters(
        "jqd_attempts_started",
        "Attempts that this daemon gave to workers; some come back untried",
        labels,
        ((key, row.started) for key, row in rows),
    )
    yield counters(
        "jqd_attempts_ended",
        "Attempts whose end this daemon brought into the store. failed: the worker said that the job cannot succeed; "
        "dead: its retries are used up, or it expired without one; retried: tried again later; put_off and interrupted "
        "count as no attempt",
        (*labels, "outcome"),
        (((*key, name), count) for key, row in rows for name, count in zip(ATTEMPTS, row.ended, strict=False)),
    )
    yield histograms(
        "jqd_job_wait_seconds",
        "From when a job could begin to when this daemon gave it to a worker; first attempts of jobs without parents",
        labels,
        ((key, Histogram(WAIT_S, row.wait, row.wait_ms / 1000)) for key, row in rows if row.started),
    )
    yield histograms(
        "jqd_job_run_seconds",
        "From when an attempt was sent to its worker to its end",
        labels,
        ((key, Histogram(RUN_S, row.run, row.run_ms / 1000)) for key, row in rows if any(row.ended[: len(ATTEMPTS)])),
    )
