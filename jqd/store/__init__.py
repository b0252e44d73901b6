"""The truth all daemons share, kept in Redis or Valkey. docs/STORE.md draws its keys and the arrows between states."""

from jqd.store.config import INTERNAL, StoreConfig
from jqd.store.connect import RedisStore, open_store
from jqd.store.doctor import examine
from jqd.store.embedded import open_embedded, server_binary
from jqd.store.interface import EdgeStore, Store
from jqd.store.place import MISPLACED
from jqd.store.shapes import (
    CALL_JOBS_MAX,
    EditGiven,
    JobView,
    Kept,
    Look,
    Member,
    NameGiven,
    NameJournaled,
    NameWanted,
    OnItsWay,
    Owner,
    Page,
    Promoted,
    Release,
    Renewed,
    Standing,
    StoreStats,
    Suspects,
    Told,
    TypeView,
    Verdict,
    WaitingType,
)
from jqd.store.spread import Spread

__all__ = [
    "CALL_JOBS_MAX",
    "INTERNAL",
    "MISPLACED",
    "EdgeStore",
    "EditGiven",
    "JobView",
    "Kept",
    "Look",
    "Member",
    "NameGiven",
    "NameJournaled",
    "NameWanted",
    "OnItsWay",
    "Owner",
    "Page",
    "Promoted",
    "RedisStore",
    "Release",
    "Renewed",
    "Spread",
    "Standing",
    "Store",
    "StoreConfig",
    "StoreStats",
    "Suspects",
    "Told",
    "TypeView",
    "Verdict",
    "WaitingType",
    "examine",
    "open_embedded",
    "open_store",
    "server_binary",
]
