"""The store's methods on followers that wait to be pushed (docs/adr/0047)."""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.store import codec
from jqd.store.jobs import ScriptCaller, bound
from jqd.store.keys import Keys


class Waiting(NamedTuple):
    """What lies in an outbox."""

    now_ms: int
    """The store's time; later than that what waits may have come, before its clock was set back."""
    oldest_ms: int | None
    """When what waits longest came; None when nothing waits."""
    newest_ms: int | None
    """When what bears the latest date came."""
    shelves: int
    """Of so many tenants others wait for quotas."""
    entries: list[bytes]
    """Each is the parent's id, a space, and its followers as its outcome has them."""


class Shelf(NamedTuple):
    """What waits for the quota of a tenant."""

    entries: int
    """Jobs that others are to follow."""
    since_ms: int
    """When what waits longest came, by the store's time."""


class OutboxMethods:
    """A part of `Store`."""

    def __init__(self, keys: Keys, caller: ScriptCaller) -> None:
        self._keys = keys
        self._caller = caller

    async def get_outbox(
        self, limit: int, bytes_max: int, *, age_s: float = 0.0, since_ms: int = 0, skip: int = 0
    ) -> Waiting:
        """Up to `limit` entries that came at least so long ago, since that date, oldest first, but the first `skip`.

        Stops behind `bytes_max`, but gives one at least.
        """
        answer = await self._caller.call("get_outbox", round(age_s * 1000), since_ms, skip, limit, bytes_max)
        now_ms, oldest_ms, newest_ms, shelves, *entries = codec.list_of(self._keys, "outbox", answer)
        return Waiting(
            codec.whole(self._keys, "outbox", now_ms),
            None if oldest_ms == b"" else codec.whole(self._keys, "outbox", oldest_ms),
            None if newest_ms == b"" else codec.whole(self._keys, "outbox", newest_ms),
            codec.whole(self._keys, "shelves", shelves),
            [entry for entry in entries if isinstance(entry, bytes)],
        )

    async def drop_outbox(self, entries: Sequence[bytes], tenant: str | None = None) -> None:
        """All jobs of these entries are in a journal. `tenant`: they lie on its shelf."""
        bound(entries)
        if not entries:
            return
        await self._caller.call("drop_outbox", _shelf(tenant), *entries)

    async def put_off(self, tenant: str, entries: Sequence[bytes], rest_s: float) -> None:
        """Out of the outbox onto the tenant's shelf, which is due in `rest_s` for whoever asks first."""
        bound(entries)
        if entries:
            await self._caller.call("put_off", tenant, round(rest_s * 1000), *entries)

    async def put_back(self, tenant: str, entries: Sequence[bytes]) -> None:
        """Off the tenant's shelf into the outbox: they wait for something else."""
        bound(entries)
        if entries:
            await self._caller.call("put_back", tenant, *entries)

    async def get_shelf(
        self, limit: int, bytes_max: int, rest_s: float, *, tenant: str | None = None, skip: int = 0
    ) -> tuple[str, list[bytes]]:
        """The tenant whose shelf is due, and up to `limit` entries of it, oldest first; from now on it rests.

        Stops behind `bytes_max`, but gives one at least; none: nothing is due. `tenant`: of its shelf, due or not, but
        the first `skip`.
        """
        answer = await self._caller.call("get_shelf", _shelf(tenant), round(rest_s * 1000), skip, limit, bytes_max)
        found = codec.list_of(self._keys, "shelf", answer)
        if not found:
            return tenant or "", []
        return codec.text(self._keys, "shelves", found[0]), [one for one in found[1:] if isinstance(one, bytes)]

    async def is_owed(self, tenant: str, entries: Sequence[bytes]) -> list[bool]:
        """Of each whether it waits to be pushed: in the outbox, or on that tenant's shelf."""
        bound(entries)
        answer = await self._caller.call("is_owed", tenant, *entries)
        return [codec.whole(self._keys, "shelf", one) == 1 for one in codec.list_of(self._keys, "shelf", answer)]

    async def list_shelves(self, limit: int) -> dict[str, Shelf]:
        """Up to so many tenants of which something waits for their quotas."""
        flat = codec.list_of(self._keys, "shelves", await self._caller.call("list_shelves", limit))
        rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return {
            codec.text(self._keys, "shelves", tenant): Shelf(
                codec.whole(self._keys, "shelf", entries), codec.whole(self._keys, "shelf", since_ms)
            )
            for tenant, entries, since_ms in rows
        }


def _shelf(tenant: str | None) -> str:
    return "" if tenant is None else f"={tenant}"
