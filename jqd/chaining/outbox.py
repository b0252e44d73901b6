"""Pushes the jobs that follow others. Outcomes put them into the outbox of a partition, where each entry has the jobs
that follow one parent (docs/adr/0047).

    outcome ──apply_outcomes──▶ outbox ──push──▶ journal, under an id derived from the parent's ──▶ out of the outbox

Every step may be repeated, by any daemon: the same push under the same id counts once. So the daemon that applied the
outcome pushes at once, and the others look now and then for entries that it left.

Entries beyond their tenant's quota are moved to the tenant's *shelf*, a list of its own: once a second some daemon
tries the oldest of them (docs/adr/0047). Entries on a shelf that wait for something else than the quota are skipped.
When only such entries are left, they go back to the outbox: a tenant with a shelf cannot push.
"""

import math
import random
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol

import trio

from jqd.domain.beat import next_beat_s
from jqd.domain.clock import Clock
from jqd.domain.errors import JournalRefused, StoreAway, StoreRefused
from jqd.domain.jobid import ID_LENGTH
from jqd.domain.log import get_logger
from jqd.loops.backoff import LoopBackoff
from jqd.store import Shelf, Store

ENTRIES = 500  # entries in one push: as many as one call of the store reserves names for; they share a sync
TURN_S = 0.5  # for new entries, then for older ones, then come shelves: none waits for the end of a steady flow
ENTRIES_BYTES = 4 << 20  # of entries in one answer of the store, as for its functions that move rows
LOOK_S = 2.0  # between two searches for entries left by a daemon that died or hangs
LEFT_S = 1.0  # an entry that has waited for this time was left by another daemon
WALK = 5_000  # waiting entries passed in one such search: 0.1 s of a server; the next one continues there
REST_S = 2.0  # until an entry is tried again whose partition is away, or whose id another push has reserved
COMPLAIN_S = 60.0  # health reports an entry that has waited for this time: a partition may be away for seconds

SHELF_S = 1.0  # between two tries of a tenant's shelf by any daemon
SHELF_LOOK_S = 0.5  # between two searches while there are shelves, so that each is tried about when it is due
SHELVES = 100  # shelves tried in one search; one whose quota has no room costs one call
SHELVES_MAX = 1_000  # shelves in the list that is read; those of further tenants are still tried when due
FROM_SHELF_AT_ONCE = 1_000  # entries of one shelf pushed in one search: new outbox entries wait meanwhile
SHELVES_HOLD_S = 5.0  # an older list of shelves delays no pushes: perhaps the store is away, which pushes do not need


UNREADABLE = "they cannot be read"
"""First words of the reason why an entry waits that cannot be decoded."""


class OverQuota(NamedTuple):
    """Entries of one tenant that have to wait, and why its quota has no room for them."""

    why: str
    entries: list[bytes]


class OutboxResult(NamedTuple):
    """The result of a push: which entries of the outbox have to wait. All others are done."""

    waits: dict[bytes, str]
    """Entry → why it has to wait."""
    over: dict[str, OverQuota]
    """Tenant → its entries that have to wait, as its quota has no room."""
    children: Sequence[tuple[str, str]] = ()
    """(id of the parent, id of the child) of all followers that were pushed, now or before."""


class Push(Protocol):
    """Pushes the jobs of outbox entries and returns which entries have to wait. `from_shelf`: the entries come from a
    shelf, the list of a tenant's entries that wait for its quota. Raises JournalRefused, StoreAway, StoreRefused."""

    def __call__(self, entries: Sequence[bytes], *, from_shelf: bool = False) -> Awaitable[OutboxResult]: ...


class EntryRetry(NamedTuple):
    """Why an entry could not be pushed, and when it is tried again; times by the monotonic clock."""

    until_s: float
    """When the entry is tried again."""
    why: str
    since_s: float
    """When pushing the entry first failed."""
    met_s: float
    """When the entry was last seen in the outbox, whether it was tried or not."""


NO_RETRY = EntryRetry(0.0, "", math.inf, 0.0)


class Outbox:
    """The loop that pushes the follower jobs in one partition's outbox."""

    def __init__(self, *, store: Store, push: Push, clock: Clock, source: random.Random) -> None:
        self.backoff = LoopBackoff("outbox", source=source)
        self._store = store
        self._push = push
        self._clock = clock
        self._bell = trio.Event()
        self._retries: dict[bytes, EntryRetry] = {}
        """Entry that could not be pushed → why, and when it is tried again."""
        self.shelves: dict[str, Shelf] = {}
        """Tenant → its shelf (the entries that wait for its quota), as last read from the store."""
        self._shelves_at_s = -math.inf
        self._new_ms = 0
        """Date (ms, by the store's clock) before which all entries have been tried."""
        self._passed = 0
        """Number of entries newer than `_new_ms` that were tried and stay in the outbox."""
        self._walk_at_s = self._walk_began_s = clock.mono_s()
        self._walked = 0
        """Number of waiting entries at the front of the outbox that `_push_left` has gone past in its present pass."""
        self._shelf_walks: dict[str, int] = {}
        """Tenant → number of waiting entries at the front of its shelf to go past next time, if its end was not
        reached."""
        self._log = get_logger("outbox")

    @property
    def complaint(self) -> str | None:
        """For the health report: which jobs cannot be pushed, and why; None: there are none."""
        before_s = self._clock.mono_s() - COMPLAIN_S
        odd = [
            (entry, retry.why)
            for entry, retry in self._retries.items()
            if retry.why.startswith(UNREADABLE) or retry.since_s <= before_s
        ]
        if not odd:
            return None
        return f"jobs that follow {_parent(odd[0][0])} and {len(odd) - 1} others wait: {odd[0][1]}"

    def waits_for_quota(self, tenant: str) -> bool:
        """Return whether follower jobs of this tenant wait for its quota, as the store said a moment ago. Then new
        pushes of the tenant have to wait, too."""
        return tenant in self.shelves and self._clock.mono_s() - self._shelves_at_s < SHELVES_HOLD_S

    def wake(self) -> None:
        self._bell.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            with trio.move_on_after(next_beat_s(SHELF_LOOK_S if self.shelves else LOOK_S)):
                await self._bell.wait()
            rang, self._bell = self._bell.is_set(), trio.Event()
            try:
                if self.shelves:
                    await self._look_at_shelves()  # first, so that new entries go to the end of their shelf
                if await self._empty(rang):
                    if not self.shelves:
                        await self._look_at_shelves()
                    await self._try_shelves()
            except (StoreAway, StoreRefused, JournalRefused) as error:
                self._bell.set()  # new entries may be left
                await self.backoff.wait_after_failure(error)
            else:
                self.backoff.succeeded()

    async def _empty(self, rang: bool) -> bool:
        """Push the new entries if the loop was woken (`rang`). Every LOOK_S seconds also push older entries that were
        left. Returns whether some entries wait for a quota."""
        shelves = await self._push_new() if rang else bool(self.shelves)
        if not rang or self._clock.mono_s() >= self._walk_at_s:
            self._walk_at_s = self._clock.mono_s() + LOOK_S
            shelves = await self._push_left()
        return shelves

    async def _push_new(self) -> bool:
        """Push the entries that came since the last call, for TURN_S; if more are left, wake the loop again. Older
        entries are skipped, as many of them may have to wait. Returns whether any tenant has a shelf (entries that wait
        for its quota).

        Entries that wait are at the front, and are skipped by their number. If that has changed meanwhile, new entries
        are skipped, too; `_push_left` finds them.
        """
        until_s = self._clock.mono_s() + TURN_S
        while True:
            found = await self._store.get_outbox(ENTRIES, ENTRIES_BYTES, since_ms=self._new_ms, skip=self._passed)
            if not found.entries:
                self._new_ms, self._passed = found.now_ms, 0
                return found.shelves > 0
            self._passed += await self._push_found(found.entries)
            if self._clock.mono_s() >= until_s:
                self._bell.set()
                return found.shelves > 0

    async def _push_left(self) -> bool:
        """Push entries older than LEFT_S, oldest first, for TURN_S; if more are left, wake the loop again. Stop after
        passing WALK entries that have to wait; the next call continues behind them. Returns whether any tenant has a
        shelf (entries that wait for its quota)."""
        if not self._walked:
            # Forget entries not seen in a whole pass through the outbox: another daemon pushed them.
            began_s, self._walk_began_s = self._walk_began_s, self._clock.mono_s()
            self._retries = {entry: retry for entry, retry in self._retries.items() if retry.met_s >= began_s}
        end, until_s = self._walked + WALK, self._clock.mono_s() + TURN_S
        while True:
            found = await self._store.get_outbox(ENTRIES, ENTRIES_BYTES, age_s=LEFT_S, skip=self._walked)
            self._walked = self._walked + await self._push_found(found.entries) if found.entries else 0
            if not found.entries or self._walked >= end:
                return found.shelves > 0
            if self._clock.mono_s() >= until_s:
                self._walk_at_s = self._clock.mono_s()
                self._bell.set()
                return found.shelves > 0

    async def _push_found(self, entries: Sequence[bytes]) -> int:
        """Push entries of the outbox, and move those beyond their tenant's quota to its shelf. Returns how many of the
        entries stay in the outbox."""
        left, over = await self._push_some(entries, None)
        for tenant, spent in over.items():
            await self._store.put_off(tenant, spent, SHELF_S)
        return len(left)

    async def _look_at_shelves(self) -> None:
        self.shelves = await self._store.list_shelves(SHELVES_MAX)
        self._shelves_at_s = self._clock.mono_s()

    async def _try_shelves(self) -> None:
        """Push entries of shelves that are due to be tried, as far as the quotas have room now."""
        for _ in range(min(SHELVES, len(self.shelves))):
            # One entry first, to see whether there is room.
            tenant, entries = await self._store.get_shelf(1, ENTRIES_BYTES, SHELF_S)
            if not entries:
                break  # no shelf is due
            await self._try_shelf(tenant, entries)

    async def _try_shelf(self, tenant: str, entries: Sequence[bytes]) -> None:
        """Push the entries of a tenant's shelf, in order, until the tenant's quota has no room. `entries`: the first
        entries of the shelf."""
        walked, tried, passed = 0, 0, self._shelf_walks.pop(tenant, 0)
        while entries and tried < FROM_SHELF_AT_ONCE:
            left, over = await self._push_some(entries, tenant)
            # The next pass continues at the first entry that waits for the quota.
            spent = {entry for waiting in over.values() for entry in waiting}
            first = next((place for place, entry in enumerate(entries) if entry in spent), len(entries))
            before = len(set(left).intersection(entries[:first]))
            walked, passed = max(walked + before, passed if left else 0), 0  # back at the front if the first could go
            if over:
                break
            tried += len(entries)
            entries = await self._on_shelf(tenant, walked)
        if entries:  # more are left, perhaps for the quota: entries put back now would return to the shelf
            self._shelf_walks[tenant] = walked
            return
        while walked and (wait := (await self._on_shelf(tenant, 0))[:walked]):
            await self._store.put_back(tenant, wait)
            walked -= len(wait)

    async def _on_shelf(self, tenant: str, skip: int) -> list[bytes]:
        return (await self._store.get_shelf(ENTRIES, ENTRIES_BYTES, SHELF_S, tenant=tenant, skip=skip))[1]

    async def _push_some(
        self, entries: Sequence[bytes], shelf: str | None
    ) -> tuple[list[bytes], dict[str, list[bytes]]]:
        """Push entries, and remove those that were pushed from the outbox, or from the shelf of the tenant `shelf`.

        Returns the entries that stay where they are (outbox or shelf), and tenant → its entries that wait for its
        quota.
        """
        now_s = self._clock.mono_s()
        rest = {entry for entry in entries if self._retries.get(entry, NO_RETRY).until_s > now_s}
        self._retries |= {entry: self._retries[entry]._replace(met_s=now_s) for entry in rest}
        due = [entry for entry in entries if entry not in rest]
        pushed = await self._push(due, from_shelf=shelf is not None) if due else OutboxResult({}, {})
        waits, over, children = pushed
        for tenant, refused in over.items():
            if tenant not in self.shelves:
                self._log.info("outbox.put_off", tenant=tenant, why=refused.why)
        spent = {tenant: refused.entries for tenant, refused in over.items()}
        left = {*waits, *(entry for waiting in spent.values() for entry in waiting)}
        done = [entry for entry in due if entry not in left]
        await self._store.drop_outbox(done, shelf, children)
        for entry in due:
            if entry not in waits:
                self._retries.pop(entry, None)
        for entry, why in waits.items():
            before = self._retries.get(entry, NO_RETRY)
            if before.why != why:
                self._log.warning("outbox.waits", parent=_parent(entry), why=why)
            self._retries[entry] = EntryRetry(self._clock.mono_s() + REST_S, why, min(before.since_s, now_s), now_s)
        if self.shelves and self._clock.mono_s() - self._shelves_at_s > SHELF_LOOK_S:
            await self._look_at_shelves()  # a round may take long, and pushes must not overtake jobs shelved meanwhile
        return [*rest, *waits], spent


def _parent(entry: bytes) -> str:
    return entry.partition(b" ")[0][:ID_LENGTH].decode("ascii", "replace")
