"""The store's methods on followers: jobs that an outcome brings and that wait to be pushed (docs/adr/0047)."""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.store.methods import STEP_JOBS, ScriptMethods, bound, in_rows, in_steps


class Waiting(NamedTuple):
    """Entries of an outbox whose followers the caller pushes. Each entry has the followers of one outcome."""

    now_ms: int
    """The present time by the store's clock; entries may have later dates if the clock was set back."""
    oldest_ms: int | None
    """Date (ms) of the oldest entry; None when there is none."""
    newest_ms: int | None
    """Date (ms) of the newest entry."""
    shelves: int
    """How many tenants have entries that wait for their quota."""
    entries: list[bytes]
    """Each has the parent's id, a space, and its followers as in the outcome."""


class Shelf(NamedTuple):
    """A tenant's shelf: how many entries wait for its quota, and since when."""

    entries: int
    since_ms: int
    """Date of the oldest entry, by the store's clock."""


class OutboxMethods(ScriptMethods):
    async def get_outbox(
        self, limit: int, bytes_max: int, *, age_s: float = 0.0, since_ms: int = 0, skip: int = 0
    ) -> Waiting:
        """Return up to `limit` entries of the outbox, oldest first, after the first `skip`.

        `age_s`: only entries of at least this age. `since_ms`: only entries of this date or later. Stops once the
        entries have `bytes_max`, but returns at least one."""
        answer = await self._caller.call("get_outbox", round(age_s * 1000), since_ms, skip, limit, bytes_max)
        now_ms, oldest_ms, newest_ms, shelves, *entries = self._list("outbox", answer)
        return Waiting(
            self._whole("outbox", now_ms),
            None if oldest_ms == b"" else self._whole("outbox", oldest_ms),
            None if newest_ms == b"" else self._whole("outbox", newest_ms),
            self._whole("shelves", shelves),
            [entry for entry in entries if isinstance(entry, bytes)],
        )

    async def drop_outbox(
        self, entries: Sequence[bytes], tenant: str | None = None, children: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Remove entries whose followers are all in a journal, from the shelf of `tenant`; None: from the outbox.

        `children`: (parent, child) pairs of ids. They are noted at the parents before the entries are removed."""
        bound(entries)
        steps = in_steps(children, STEP_JOBS) or [()]
        for at, some in enumerate(steps, 1):
            gone = entries if at == len(steps) else ()
            if some or gone:
                flat = (one for pair in some for one in pair)
                await self._caller.call("drop_outbox", _shelf(tenant), len(some), *flat, *gone)

    async def put_off(self, tenant: str, entries: Sequence[bytes], rest_s: float) -> None:
        """Move entries onto the tenant's shelf, where they wait for its quota until the shelf is due, in `rest_s`
        seconds."""
        bound(entries)
        if entries:
            await self._caller.call("put_off", tenant, round(rest_s * 1000), *entries)

    async def put_back(self, tenant: str, entries: Sequence[bytes]) -> None:
        """Move entries from the tenant's shelf back into the outbox: they no longer wait for its quota."""
        bound(entries)
        if entries:
            await self._caller.call("put_back", tenant, *entries)

    async def get_shelf(
        self, limit: int, bytes_max: int, rest_s: float, *, tenant: str | None = None, skip: int = 0
    ) -> tuple[str, list[bytes]]:
        """Return a tenant whose shelf (entries that wait for its quota) is due, and up to `limit` of these entries,
        oldest first.

        No entries: no shelf is due. The shelf is due again in `rest_s`. Stops once the entries have `bytes_max`, but
        returns at least one. `tenant`: read the shelf of this tenant, due or not, after the first `skip` entries."""
        answer = await self._caller.call("get_shelf", _shelf(tenant), round(rest_s * 1000), skip, limit, bytes_max)
        found = self._list("shelf", answer)
        if not found:
            return tenant or "", []
        return self._text("shelves", found[0]), [one for one in found[1:] if isinstance(one, bytes)]

    async def is_owed(self, tenant: str, entries: Sequence[bytes]) -> list[bool]:
        """Return for each entry whether its jobs must still be pushed: it is in the outbox or on the tenant's shelf."""
        bound(entries)
        answer = await self._caller.call("is_owed", tenant, *entries)
        return [one == 1 for one in self._wholes("shelf", answer)]

    async def list_shelves(self, limit: int) -> dict[str, Shelf]:
        """Return up to `limit` shelves by tenant: entries that wait for the tenant's quota."""
        flat = self._list("shelves", await self._caller.call("list_shelves", limit))
        rows = in_rows(flat, 3)
        return {
            self._text("shelves", tenant): Shelf(self._whole("shelf", entries), self._whole("shelf", since_ms))
            for tenant, entries, since_ms in rows
        }


def _shelf(tenant: str | None) -> str:
    return "" if tenant is None else f"={tenant}"
