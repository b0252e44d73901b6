"""One partition of the store: the class with all its methods.

`tests/contract` checks that the real store and the one in memory do what each method promises. Every method may be
called again after a lost answer. Every method may raise:

* StoreAway: the store does not answer or cannot serve now. Try again later; the call may have been applied.
* StoreChanged: another store answers, or another life of this one, which may have lost data. Nothing is sent to it
  before `look`.
* StoreRefused: trying again does not help; an operator must act.
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
    """All that the API and the loops do with one partition. Subclasses add the server, and how to reach it."""

    def at(self, number: int) -> "Store":
        """Return this store: it is the only partition, whatever the number."""
        return self

    @abstractmethod
    async def look(self, *, fresh: bool, highest: int = 0, before: int = 0) -> StoreLook:
        """Ask who answers at the store's address, and accept that store for all later calls.

        From then on every call raises StoreChanged when another store, or another life of it, answers. Raises StoreAway
        when the server is no master.

        `fresh`: the caller's journal was created at this start; an unused store is then settled at once.

        `highest`: the highest fence that the caller knows, if it knows no life of the store. `before`:
        `StoreLook.since` of the life that it knew last. If the store's own numbers are lower, old data was put back
        into it, and another life begins.
        """

    @abstractmethod
    async def new_life(self, identity: str) -> None:
        """Begin a new life of the store, so that all daemons notice that it lost data.

        For a caller that saw the positions of its journal go back although the store still had this `identity`. Does
        nothing if another life has begun already."""

    @abstractmethod
    async def wait_durable(
        self,
        replicas: int = 0,
        timeout_s: float = 5.0,
        where: Collection[int] | None = None,
        *,
        or_accepted: bool = False,
    ) -> bool:
        """Wait until all that was applied before the call would survive a crash of the server; return whether it would.

        Returns False if that was not certain within `timeout_s`; `durability_rule` says when it is. `replicas`: this
        many replicas must have it, too. `where`: ask only these partitions. `or_accepted`: return True where the server
        keeps nothing on disk and the operator accepted that.
        """

    @property
    @abstractmethod
    def durability_rule(self) -> str:
        """Return the rule, in one sentence, by which applied records count as safe with this server."""
