"""The store's methods on followers that wait to be pushed (docs/adr/0047)."""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.store import codec
from jqd.store.jobs import Caller, bound
from jqd.store.keys import Keys


class Waiting(NamedTuple):
    """What lies in an outbox."""

    now_ms: int
    """The store's time; later than that what waits may have come, before its clock was set back."""
    oldest_ms: int | None
    """When what waits longest came; None when nothing waits."""
    newest_ms: int | None
    """When what bears the latest date came."""
    entries: list[bytes]
    """Each is the parent's id, a space, and its followers as its outcome has them."""


class OutboxMethods:
    """A part of `Store`."""

    def __init__(self, keys: Keys, caller: Caller) -> None:
        self._keys = keys
        self._caller = caller

    async def get_outbox(self, limit: int, bytes_max: int, *, age_s: float = 0.0, skip: int = 0) -> Waiting:
        """Up to `limit` entries that came at least so long ago, oldest first, but the first `skip`.

        Stops behind `bytes_max`, but gives one at least.
        """
        answer = await self._caller.call("get_outbox", round(age_s * 1000), skip, limit, bytes_max)
        now_ms, oldest_ms, newest_ms, *entries = codec.list_of(self._keys, "outbox", answer)
        return Waiting(
            codec.whole(self._keys, "outbox", now_ms),
            None if oldest_ms == b"" else codec.whole(self._keys, "outbox", oldest_ms),
            None if newest_ms == b"" else codec.whole(self._keys, "outbox", newest_ms),
            [entry for entry in entries if isinstance(entry, bytes)],
        )

    async def drop_outbox(self, entries: Sequence[bytes]) -> None:
        """All jobs of these entries are in a journal."""
        bound(entries)
        if not entries:
            return
        await self._caller.call("drop_outbox", *entries)
