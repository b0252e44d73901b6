"""One partition of the store: all its methods in one class.

Each method says what it promises; `tests/contract` checks the real store and the one in memory against it. Every
method may be repeated after a lost answer, and may raise StoreAway (it does not answer, or cannot serve now: try again
later; a call may have been applied although its answer was lost), StoreChanged (another store, or another life of it,
answers: nothing is sent before `look`) and StoreRefused (trying again does not help: an operator looks).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection

from jqd.store.claims import ClaimMethods
from jqd.store.history import HistoryMethods
from jqd.store.jobs import JobMethods
from jqd.store.leases import LeaseMethods
from jqd.store.links import LinkMethods
from jqd.store.listing import ListingMethods
from jqd.store.members import MemberMethods
from jqd.store.notices import NoticeMethods
from jqd.store.outbox import OutboxMethods
from jqd.store.results import ResultMethods
from jqd.store.settings import SettingMethods
from jqd.store.types import StoreLook


class Store(
    JobMethods,
    ClaimMethods,
    ListingMethods,
    NoticeMethods,
    HistoryMethods,
    ResultMethods,
    OutboxMethods,
    SettingMethods,
    LeaseMethods,
    LinkMethods,
    MemberMethods,
    ABC,
):
    """All that the API and the loops ask of one partition. Subclasses say which server it is, and how it is reached."""

    def at(self, number: int) -> "Store":
        """Return the partition of that number: there is one."""
        return self

    @abstractmethod
    async def look(self, *, fresh: bool, highest: int = 0, before: int = 0) -> StoreLook:
        """See who answers, and accept it: from now on nothing is sent to any other, every call raises StoreChanged.

        `fresh`: the caller's journal begins with this start; an unused store is then settled at once. Before the first
        look anything is accepted. A server that is no master raises StoreAway.

        `highest`: the highest fence that a caller which knows no life has to tell of; `before`: `since` of the life
        that it knew last. They show a store to which old keys were put back, which begins another life."""

    @abstractmethod
    async def new_life(self, identity: str) -> None:
        """Give the store a new life after positions went back under the same identity, so that all daemons notice."""

    @abstractmethod
    async def wait_durable(
        self,
        replicas: int = 0,
        timeout_s: float = 5.0,
        where: Collection[int] | None = None,
        *,
        or_accepted: bool = False,
    ) -> bool:
        """Whether all that was applied before the call survives a crash of the server, and is on `replicas` others.

        Returns False when that could not be determined in time; `durability_rule` explains how it is. `where`: only
        these partitions. `or_accepted`: also True where the server keeps nothing, which the operator accepted.
        """

    @property
    @abstractmethod
    def durability_rule(self) -> str:
        """Return one sentence: when applied records count as safe with this server."""
