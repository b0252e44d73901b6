"""The truth all daemons share, kept in Redis or Valkey. docs/STORE.md draws its keys and the arrows between states."""

from jqd.store.connect import RedisStore, StoreConfig, open_store
from jqd.store.embedded import open_embedded
from jqd.store.interface import (
    Identity,
    JobView,
    Member,
    OnItsWay,
    Owner,
    Promoted,
    Store,
    StoreStats,
    WaitingType,
)

__all__ = [
    "Identity",
    "JobView",
    "Member",
    "OnItsWay",
    "Owner",
    "Promoted",
    "RedisStore",
    "Store",
    "StoreConfig",
    "StoreStats",
    "WaitingType",
    "open_embedded",
    "open_store",
]
