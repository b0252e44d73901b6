"""Where the store is, in how many partitions, and how long it keeps what is over."""

from dataclasses import dataclass, field, replace

from jqd.domain.errors import ConfigError
from jqd.domain.jobid import HOMES
from jqd.domain.setting_text import INTERNAL, SECRET
from jqd.domain.units import Count, Seconds
from jqd.store.keys import Keys


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where the store is and how long it keeps what is over."""

    url: str = field(default="", metadata={SECRET: True})
    """The one server; "" for the one that a daemon keeps itself."""
    prefix: str = "jqd"
    urls: tuple[str, ...] = field(default=(), metadata={SECRET: True})
    """Several servers in place of `url`. Their order is for ever: it says what lies where."""
    partitions: int = 0  # for ever, too; 0: one for each server
    timeout_s: Seconds = 5.0  # of one answer; a script takes milliseconds, so this is a server in trouble
    connections_max: Count = 8  # calls at once beside those of lanes, over one connection; the server does one a time
    ended_keep_s: Seconds = 86_400.0  # a day to look at what ended
    ended_keep_jobs: int = 100_000  # about 50 MiB at 200 B a job
    dead_jobs_warn: Count = 10_000  # nobody looks at so many one by one, and they are never trimmed (adr/0008)
    result_ttl_s: Seconds = 3_600.0  # an hour to fetch a kept result
    tombstone_keep_s: Seconds = 172_800.0  # twice the journal's retention: a note must outlive the frame it waits for
    history_max: Count = 10  # failed attempts kept of one job
    crash_limit: Count = 3  # deaths of daemons that held nothing but this job, until it goes to the dead set
    alone_s: Seconds = 60.0  # a job that was in hand at two deaths runs alone so long: whatever kills does it at once
    name_reserve_s: Seconds = 30.0  # a pusher's own id, until its job is in a journal and the journal in the store
    i_accept_loss: bool = False  # use a server although its settings would lose jobs (doctor.py)
    partition: int = field(default=0, metadata={INTERNAL: True})
    """Which one a store object is; `parts` says it."""
    neighbours: tuple[int, ...] = field(default=(0,), metadata={INTERNAL: True})
    """All partitions that lie at its URL, itself among them."""

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
        """How many partitions there are."""
        return self.partitions or len(self.urls) or 1

    @property
    def place(self) -> str:
        """Which partition this is, and of how many, as a partition notes it."""
        return f"{self.partition}/{self.count}"

    @property
    def is_own(self) -> bool:
        """Whether no server is named: a daemon keeps one itself."""
        return not self.url and not self.urls

    def parts(self) -> list["StoreConfig"]:
        """What each partition's store is opened with, in their order. One that is the whole store is as this is."""
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
