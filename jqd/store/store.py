"""One partition of the shared store: what moves jobs, what looks, what workers hold and who sits, in one class.

Each method says what it promises; those that the edge asks are in `interface.py`. `tests/contract` holds the real store
and the one in memory to it.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection

from jqd.store.claims import ClaimMethods
from jqd.store.config import StoreConfig
from jqd.store.jobs import JobMethods, ScriptCaller
from jqd.store.keys import Keys
from jqd.store.leases import LeaseMethods
from jqd.store.members import MemberMethods
from jqd.store.outbox import OutboxMethods
from jqd.store.permits import PermitMethods
from jqd.store.queries import QueryMethods
from jqd.store.settings import SettingMethods
from jqd.store.types import StoreLook
from jqd.store.unreadable import UnreadableJobs


class Store(
    JobMethods,
    ClaimMethods,
    QueryMethods,
    OutboxMethods,
    PermitMethods,
    SettingMethods,
    LeaseMethods,
    MemberMethods,
    ABC,
):
    """An `EdgeStore`, and all that loops ask. Which server it is, and how it is reached, is left to who inherits."""

    def __init__(self, config: StoreConfig, keys: Keys, caller: ScriptCaller, heart: ScriptCaller) -> None:
        """`heart`: what heartbeats go over."""
        JobMethods.__init__(self, config, keys, caller)
        self.burial = UnreadableJobs(keys, caller)
        ClaimMethods.__init__(self, config, keys, caller, self.burial)
        QueryMethods.__init__(self, config, keys, caller, self.burial, self.journals)
        OutboxMethods.__init__(self, keys, caller)
        PermitMethods.__init__(self, keys, caller)
        SettingMethods.__init__(self, keys, caller)
        LeaseMethods.__init__(self, keys, caller, self.burial)
        MemberMethods.__init__(self, config, keys, caller, heart)

    @abstractmethod
    async def look(self, *, fresh: bool) -> StoreLook:
        """See who answers, and accept it: from now on nothing is sent to any other, every call raises StoreChanged.

        `fresh`: the caller's journal begins with this start. A store that nobody ever used is settled at once then.
        Before the first look anything is accepted. A server that is no master raises StoreAway.
        """

    @abstractmethod
    async def new_life(self, identity: str) -> None:
        """Positions went back although the identity is the same: change it, so that everybody notices."""

    @abstractmethod
    async def wait_durable(
        self, replicas: int = 0, timeout_s: float = 5.0, where: Collection[int] | None = None
    ) -> bool:
        """See EdgeStore."""

    @property
    @abstractmethod
    def durability_rule(self) -> str:
        """See EdgeStore."""
