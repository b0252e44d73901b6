"""Metrics that are the same at all daemons: numbers of the store, and settings. Use their maximum over daemons, not
their sum.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import Metric

from jqd.domain.job import State
from jqd.domain.lease import Peer
from jqd.domain.tenant import tenant_of
from jqd.metrics.config import MetricsConfig
from jqd.metrics.families import gauge, gauges
from jqd.metrics.work import OTHER, label_of
from jqd.store import StoreStats, TypeView

Key = tuple[str, str]
STATES = tuple(state.value for state in State)


@dataclass(slots=True)
class TypeRow:
    """The numbers of jobs that one label reports: of a jobtype, perhaps of one tenant."""

    counts: list[int] = field(default_factory=lambda: [0] * len(STATES))
    oldest_s: float = 0.0
    stalled: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Common:
    """The store's numbers and the settings that one scrape reports."""

    store: StoreStats | None = None
    """The numbers of the store; None: it is away, and there are no samples of jobs."""
    types: Mapping[Key, TypeRow] = field(default_factory=dict)
    workers: Mapping[str, int] = field(default_factory=dict)
    """Health → number of workers."""
    slots: int = 0
    daemons: Sequence[Peer] = ()


def by_label(
    views: Iterable[TypeView], config: MetricsConfig, now_ms: int, why: Mapping[str, str]
) -> Mapping[Key, TypeRow]:
    """Sum up jobtypes by label. The first `types_max` have their own label: by name the first of each tenant, then the
    second of each, and so on. So all daemons choose the same labels, and no tenant displaces labels of another.

    `why`: qualified jobtype → why none of its ready jobs starts."""
    rows: dict[Key, TypeRow] = {}
    places, ranked = Counter[str](), list[tuple[int, Key, TypeView]]()
    for view in sorted(views, key=lambda view: view.jobtype):
        tenant = tenant_of(view.jobtype)
        ranked.append((places[tenant], label_of(view.jobtype, config), view))
        places[tenant] += 1
    for _, key, view in sorted(ranked, key=lambda one: one[:2]):
        if key not in rows and len(rows) >= config.types_max:
            key = ("", OTHER)
        row = rows.setdefault(key, TypeRow())
        for place, name in enumerate(STATES):
            row.counts[place] += getattr(view.counts, name)
        if view.oldest_ms:
            row.oldest_s = max(row.oldest_s, (now_ms - view.oldest_ms) / 1000)
        if reason := why.get(view.jobtype):
            row.stalled[reason] += view.counts.waiting + view.counts.retrying
    return rows


def families(common: Common, labels: tuple[str, ...]) -> Iterator[Metric]:
    """Yield the metric families. `labels`: `type`, or `tenant` and `type`."""
    store, rows = common.store, [(key[-len(labels) :], row) for key, row in sorted(common.types.items())]
    yield gauge("jqd_store_up", "1 while the store answers this daemon, else 0", store is not None)
    yield gauge(
        "jqd_store_partitions_unreachable",
        "Partitions of the store that did not answer: their jobs are missing in the numbers",
        len(store.unreachable) if store else 0,
    )
    if store is not None:
        yield gauge("jqd_store_memory_bytes", "Memory that the store's servers use", store.used_memory)
        yield gauges(
            "jqd_jobs",
            "Jobs in the store by state, the same at every daemon. failed: dead, kept until somebody deals with them",
            (*labels, "state"),
            (((*key, name), count) for key, row in rows for name, count in zip(STATES, row.counts, strict=True)),
        )
        yield gauges(
            "jqd_oldest_ready_age_seconds",
            "For how long the job that is next (of the best priority) could have begun; 0: none is ready",
            labels,
            ((key, max(0.0, row.oldest_s)) for key, row in rows),
        )
        yield gauges(
            "jqd_jobs_stalled",
            "Jobs ready or to be tried again whose jobtype nobody runs now, by why; the same at every daemon",
            (*labels, "reason"),
            (((*key, why), count) for key, row in rows for why, count in row.stalled.items()),
        )
    workers = sorted(common.workers.items())
    yield gauges("jqd_workers", "Workers by health", ("state",), (((name,), count) for name, count in workers))
    yield gauge("jqd_worker_slots", "Jobs that the workers take at once, all together", common.slots)
    words = {True: "living", False: "silent", None: "unknown"}
    living = Counter(words[one.living] for one in common.daemons)
    text = "Daemons of the store, as this one sees them"
    yield gauges("jqd_daemons", text, ("state",), (((name,), living[name]) for name in words.values()))
