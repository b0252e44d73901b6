"""The state all daemons share, kept in Redis or Valkey. docs/build/STORE.md draws its keys and the states of jobs."""

from jqd.store.claims import Claimed
from jqd.store.codec import lines_of
from jqd.store.config import StoreConfig
from jqd.store.connect import RedisStore, open_store
from jqd.store.counts import Totals, TypeView
from jqd.store.doctor import examine
from jqd.store.embedded import HIDDEN, open_embedded, server_binary, socket_of
from jqd.store.evictions import Evictions
from jqd.store.history import HistoryPage, HistoryRow
from jqd.store.names import NameGiven, NameJournaled, NameStanding, NameState, NameWanted, Replace
from jqd.store.outbox import Shelf, Waiting
from jqd.store.partition_check import MISPLACED
from jqd.store.partitioned import EdgeStore, PartitionedStore
from jqd.store.queries import BRIEFS_MAX, WHOLE_MAX
from jqd.store.rdb import copy_rdb, place_rdb
from jqd.store.store import Store
from jqd.store.types import (
    CALL_JOBS_MAX,
    NO_LOG,
    Ages,
    Cleaned,
    DurableReply,
    EditGiven,
    Entrusted,
    Hold,
    JobView,
    KeptJob,
    Lease,
    Log,
    Member,
    OnItsWay,
    Owner,
    Page,
    Promoted,
    Purged,
    QueuePlace,
    Release,
    Renewed,
    StoreLook,
    StoreStats,
    Suspects,
    WaitingType,
)

__all__ = [
    "BRIEFS_MAX",
    "CALL_JOBS_MAX",
    "HIDDEN",
    "MISPLACED",
    "NO_LOG",
    "WHOLE_MAX",
    "Ages",
    "Claimed",
    "Cleaned",
    "DurableReply",
    "EdgeStore",
    "EditGiven",
    "Entrusted",
    "Evictions",
    "HistoryPage",
    "HistoryRow",
    "Hold",
    "JobView",
    "KeptJob",
    "Lease",
    "Log",
    "Member",
    "NameGiven",
    "NameJournaled",
    "NameStanding",
    "NameState",
    "NameWanted",
    "OnItsWay",
    "Owner",
    "Page",
    "PartitionedStore",
    "Promoted",
    "Purged",
    "QueuePlace",
    "RedisStore",
    "Release",
    "Renewed",
    "Replace",
    "Shelf",
    "Store",
    "StoreConfig",
    "StoreLook",
    "StoreStats",
    "Suspects",
    "Totals",
    "TypeView",
    "Waiting",
    "WaitingType",
    "copy_rdb",
    "examine",
    "lines_of",
    "open_embedded",
    "open_store",
    "place_rdb",
    "server_binary",
    "socket_of",
]
