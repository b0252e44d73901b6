"""What this daemon counted of jobs, as families of samples."""

from collections.abc import Iterator

from prometheus_client import Metric

from jqd.metrics.families import counters, histograms
from jqd.metrics.tally import OUTCOMES, Tally


def families(tally: Tally, labels: tuple[str, ...]) -> Iterator[Metric]:
    """`labels`: `type`, or `tenant` and `type`."""
    rows = [(key[-len(labels) :], row) for key, row in sorted(tally.rows.items())]
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
        "dead: its retries are used up; retried: tried again later; put_off and interrupted count as no attempt",
        (*labels, "outcome"),
        (((*key, name), count) for key, row in rows for name, count in zip(OUTCOMES, row.ended, strict=True)),
    )
    yield from histograms(
        "jqd_job_wait_seconds",
        "From when a job could begin to when this daemon gave it to a worker; first attempts of jobs without parents",
        labels,
        ((key, row.wait) for key, row in rows if row.started),
    )
    yield from histograms(
        "jqd_job_run_seconds",
        "From when an attempt was sent to its worker to its end",
        labels,
        ((key, row.run) for key, row in rows if any(row.ended)),
    )
