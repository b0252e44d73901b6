"""Metrics about this daemon itself."""

import platform
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client import Metric

from jqd.domain.histogram import Histogram
from jqd.journal.journal import JournalStats
from jqd.metrics.families import counter, counters, gauge, gauges, histograms

# Counter of `runner` in /v1/stats → label of `jqd_worker_trouble`.
TROUBLE = {
    "timeouts": "timeout",
    "lost": "lost",
    "garbled": "garbled",
    "unreachable": "unreachable",
    "crowded": "crowded",
    "back_offs": "backed_off",
    "splits": "split",
}


class Own(NamedTuple):
    """A daemon's data about itself, for one scrape."""

    stats: Mapping[str, Any]
    """The daemon's counters, as in `GET /v1/stats`."""
    fsync_s: Histogram
    ready: tuple[bool, bool] | None
    """Whether the daemon takes pushes, and whether it runs jobs; None: this process does neither."""
    warnings: int
    started_at_s: float
    """When the daemon started, in Unix time."""
    lag_s: float
    behind_bytes: int
    disk_free_bytes: int | None
    daemons_taken_over: int
    jobs_taken_over: int
    certificate_ends_at_s: float | None


def families(own: Own) -> Iterator[Metric]:
    stats = own.stats
    build = (stats["version"], platform.python_version(), stats["daemon"])
    yield gauges("jqd_build_info", "Always 1; who this is", ("version", "python", "daemon"), [(build, 1)])
    yield gauge("jqd_start_time_seconds", "When this daemon started, in Unix time", own.started_at_s)
    if own.ready is not None:
        yield gauge("jqd_push_ready", "1 while pushes are taken, else 0", own.ready[0])
        yield gauge("jqd_run_ready", "1 while jobs are run, else 0", own.ready[1])
    yield gauge("jqd_warnings", "Sentences that GET /readyz has: what is wrong and stops nothing", own.warnings)
    yield from _journal(own)
    yield from _runner(stats["runner"])
    yield from _pressure(stats["pressure"])
    yield from _schedules(stats["schedules"])
    for name, help_text in (("tenants", "Tenants whose quotas jobs wait for"), ("jobs", "Jobs whose followers wait")):
        yield gauge(
            f"jqd_shelves_{name}",
            f"{help_text}: what follows jobs, put off until there is room",
            stats["shelves"][name],
        )
    yield counter(
        "jqd_daemons_taken_over",
        "Other daemons whose jobs this one gave back, for they were gone",
        own.daemons_taken_over,
    )
    yield counter("jqd_jobs_taken_over", "Jobs of daemons that were gone, given back by this one", own.jobs_taken_over)
    yield gauges(
        "jqd_certificate_expiry_timestamp_seconds",
        "When the certificate of this daemon ends, in Unix time; none without TLS",
        (),
        [((), each) for each in (own.certificate_ends_at_s,) if each is not None],
    )
    notices = stats.get("notices", {})
    yield counters(
        "jqd_notices",
        "Notices to the administrator by what became of them",
        ("channel", "result"),
        (((to, name), count) for to, results in notices.items() for name, count in results.items()),
    )
    yield counter("jqd_log_dropped_lines", "Log lines that nobody could take in time", stats["log"]["dropped_lines"])


def _journal(own: Own) -> Iterator[Metric]:
    journal: JournalStats = own.stats["journal"]
    yield gauge("jqd_journal_bytes", "Bytes of the journal on disk", journal.bytes)
    yield gauge("jqd_journal_segments", "Files of the journal", journal.segments)
    yield gauge("jqd_journal_pending_bytes", "Bytes that wait for the disk", journal.pending_bytes)
    yield gauge("jqd_journal_behind_bytes", "Bytes of the journal that the store does not have", own.behind_bytes)
    yield gauge(
        "jqd_journal_lag_seconds", "For how long the oldest record waits that the store does not have", own.lag_s
    )
    yield counter("jqd_journal_refusals", "Times that the disk refused what was to be written", journal.refusals)
    yield gauge("jqd_journal_damaged_places", "Places that cannot be read", len(journal.damaged))
    yield histograms("jqd_journal_fsync_seconds", "Commits of the journal: write and sync", (), [((), own.fsync_s)])
    free = [((), float(each)) for each in (own.disk_free_bytes,) if each is not None]
    yield gauges("jqd_journal_disk_free_bytes", "Room on the journal's disk, once it was looked at", (), free)


def _runner(runner: Mapping[str, Any]) -> Iterator[Metric]:
    yield gauge(
        "jqd_jobs_in_flight",
        "Jobs that this daemon holds: queued, running, or ended on the way to the store",
        runner["in_flight"],
    )
    yield gauge("jqd_jobs_at_work", "Of those, queued or running", runner["at_work"])
    yield counter("jqd_deliveries", "Requests with jobs to workers", runner["posts"])
    yield counter("jqd_jobs_returned", "Jobs that came back from workers untried", runner["returned"])
    yield counters(
        "jqd_worker_trouble",
        "What went wrong with workers. timeout: of jobs; lost, garbled, unreachable, crowded: requests; backed_off: "
        "pauses of a worker; split: batches cut to find the job that kills it",
        ("what",),
        (((name,), runner[key]) for key, name in TROUBLE.items()),
    )


def _pressure(pressure: Mapping[str, Any]) -> Iterator[Metric]:
    marks = {name: mark for name, mark in pressure.items() if isinstance(mark, Mapping)}
    for key, help_text in (("value", "What is measured of load"), ("limit", "From where on pushes are refused")):
        rows = (((name,), mark[key]) for name, mark in marks.items())
        yield gauges(f"jqd_pressure_{key}", help_text, ("what",), rows)
    yield counter("jqd_pushes_refused", "Pushes refused with 429 for too much load", pressure["refused"])


def _schedules(schedules: Mapping[str, int]) -> Iterator[Metric]:
    if not schedules:
        return
    rows = (((name,), schedules[key]) for key, name in (("count", "all"), ("paused", "paused"), ("late", "late")))
    yield gauges("jqd_schedules", "Schedules, the same at every daemon; late: a date passed unfired", ("state",), rows)
    dates = (((name,), schedules[name]) for name in ("fired", "skipped"))
    yield counters("jqd_schedule_dates", "Dates of schedules by what this daemon did", ("result",), dates)
