"""Where the store is, in how many partitions, and how long it keeps ended jobs and their results."""

from dataclasses import dataclass, field, replace

from jqd.domain.errors import ConfigError
from jqd.domain.jobid import HOMES
from jqd.domain.setting_text import INTERNAL, SECRET
from jqd.domain.units import Count, Seconds
from jqd.store.keys import Keys


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where the store is, and how long it keeps ended jobs and their results."""

    url: str = field(default="", metadata={SECRET: True})
    """The server; without it the daemon keeps its own. Set it for several daemons. `--store`
    Allowed: a `redis://`, `rediss://`, `unix://`, `redis+cluster://` or `redis+sentinel://` URL"""
    prefix: str = "jqd"
    """Begins every key; set it where two queues share one server. It keeps no users apart: whom you do not trust gets a
    server of his own.
    Allowed: 1 to 64 letters, digits, `_`, `.` and `-`"""
    urls: tuple[str, ...] = field(default=(), metadata={SECRET: True})
    """Several servers as one store. Never change their order: it decides where jobs lie. `--store`, several times.
    Allowed: a list of such URLs, instead of `store.url`"""
    partitions: int = 0
    """Parts of the store, never changed either; 0: one for each server. Set 8 if you may need more servers one day.
    Allowed: 0, or the number of URLs to 32"""
    timeout_s: Seconds = 5.0
    """For one answer; raise it for a server far away."""
    connections_max: Count = 8
    """Calls to a server at once, beside those that carry pushes."""
    ended_keep_s: Seconds = 86_400.0
    """How long a job that succeeded or was cancelled is shown, and its `job_id` taken. Failed jobs stay."""
    ended_keep_jobs: int = 100_000
    """How many such jobs are kept, in each partition: the oldest are forgotten first, **before their day is over**.
    About 50 MiB at 200 B a job: raise it if more end in a day and a push may be repeated late.
    Allowed: 0 or more"""
    dead_jobs_warn: Count = 10_000
    """From how many failed jobs on, in each partition, health warns. Raise it if that many are normal, and delete old
    ones now and then (`jqd delete --all --older 30d --yes`)."""
    result_ttl_s: Seconds = 3_600.0
    """How long a result waits to be fetched."""
    tombstone_keep_s: Seconds = 172_800.0
    """Notes about jobs that may still come out of a journal; keep it at twice `journal.retention_s`."""
    history_max: Count = 10
    """Failed attempts that are kept of one job."""
    crash_limit: Count = 3
    """A job is dead after so many deaths of daemons that held nothing but this job."""
    alone_s: Seconds = 60.0
    """How long a job that was in flight at two deaths of daemons runs alone."""
    name_reserve_s: Seconds = 30.0
    """How long a `job_id` is reserved until its job is in a journal; raise it for a very slow disk."""
    i_accept_loss: bool = False
    """Use a server although its settings would lose jobs. `--i-accept-loss`"""
    partition: int = field(default=0, metadata={INTERNAL: True})
    """The number of the partition that a store object is for; set by `parts`."""
    neighbours: tuple[int, ...] = field(default=(0,), metadata={INTERNAL: True})
    """All partitions at the same URL, including this one."""

    def __post_init__(self) -> None:
        self._check_partitions()
        Keys(self.prefix)

    def _check_partitions(self) -> None:
        if self.url and self.urls:
            raise ConfigError(
                "store.url and store.urls are both given; name one server in store.url, or all of them in store.urls"
            )
        if not all(self.urls) or len(set(self.urls)) < len(self.urls):
            raise ConfigError(
                "store.urls names a server twice, or an empty URL; name each once: "
                "for several partitions on one server set store.partitions"
            )
        if not self.count <= HOMES or (self.partitions and self.partitions < len(self.urls)):
            raise ConfigError(
                f"store.partitions is {len(self.urls) or 1} (one for each URL) to {HOMES} (what job ids can tell); "
                f"got {self.partitions or len(self.urls)}. It cannot be changed later, and several on one server "
                "cost little: choose as many as there may ever be servers"
            )
        assert 0 <= self.partition < self.count, "parts() numbers them"

    @property
    def count(self) -> int:
        return self.partitions or len(self.urls) or 1

    @property
    def place(self) -> str:
        """Return "number of this partition/number of all partitions", the form in which the store notes it."""
        return f"{self.partition}/{self.count}"

    @property
    def is_own(self) -> bool:
        """Whether no server is named, so that the daemon runs its own."""
        return not self.url and not self.urls

    def parts(self) -> list["StoreConfig"]:
        """Return one config for each partition's store, in order. Each names one URL."""
        urls = self.urls or (self.url,)
        if self.count == 1:
            return [replace(self, url=urls[0], urls=())]
        return [
            replace(
                self,
                url=urls[number % len(urls)],
                urls=(),
                partitions=self.count,
                partition=number,
                neighbours=tuple(range(number % len(urls), self.count, len(urls))),
            )
            for number in range(self.count)
        ]
