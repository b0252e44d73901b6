"""The store's methods on jobs that workers hold by themselves (docs/build/STORE.md, Leases)."""

from collections.abc import Mapping, Sequence

from jqd.store import codec
from jqd.store.jobs import ScriptCaller, bound
from jqd.store.keys import Keys
from jqd.store.types import CALL_JOBS_MAX, Entrusted, Hold, Lease, Release, Silent
from jqd.store.unreadable import UnreadableJobs

_HOLDS: dict[object, Hold] = {int(hold): hold for hold in Hold}


class LeaseMethods:
    """What workers do with what they hold, and what becomes of it when they fall silent: a part of `Store`."""

    def __init__(self, keys: Keys, caller: ScriptCaller, burial: UnreadableJobs) -> None:
        self._keys = keys
        self._caller = caller
        self._burial = burial

    async def touch(
        self, claims: Sequence[tuple[str, int]], *, renew: bool = True, silence_s: int = 0, progress: bytes = b""
    ) -> list[Entrusted]:
        bound(claims)
        flat = (value for claim in claims for value in claim)
        answer = await self._caller.call("touch", self._caller.identity, int(renew), silence_s, progress, *flat)
        told, rows = codec.fields(self._keys, "leases", answer, 2)
        leases, held = codec.list_of(self._keys, "leases", told), codec.list_of(self._keys, "held", rows)
        workers = {
            fence: (codec.text(self._keys, "leases", worker), codec.whole(self._keys, "leases", allowed_s))
            for fence, worker, allowed_s in zip(leases[::3], leases[1::3], leases[2::3], strict=True)
        }
        columns = (held[at::7] for at in range(7))
        found = [
            self._entrusted(job_id, said, fence, workers[fence] if is_lent else ("", 0), cancelled, *row)
            for (job_id, _), said, fence, is_lent, cancelled, *row in zip(claims, *columns, strict=True)
        ]
        await self._burial.bury()
        return found

    async def release_entrusted(self, claims: Sequence[tuple[str, int]], how: Release = Release.UNSENT) -> list[str]:
        bound(claims)
        flat = (value for claim in claims for value in claim)
        answer = await self._caller.call("release_entrusted", self._caller.identity, how.value, *flat)
        return [codec.text(self._keys, "held", job_id) for job_id in codec.list_of(self._keys, "held", answer)]

    async def find_silent(self, marks: Mapping[int, int], limit: int) -> Silent:
        """Find leases of which nothing was heard for too long, and set them aside, about `limit` jobs at a time.

        `marks`: of each length of silence where the sequence stood (`Silent.now`) that many seconds ago, on the
        caller's own clock: what has not given a sign of life since has a lower number. Length 0: of leases set aside
        before, by somebody who wrote nothing of them.

        The caller writes how their attempts ended. StoreChanged in another life.
        """
        flat = (value for mark in marks.items() for value in mark)
        answer = await self._caller.call("find_silent", self._caller.identity, min(limit, CALL_JOBS_MAX), *flat)
        now, silences_s, given_back, leases = codec.list_of(self._keys, "leases", answer)
        silent = Silent(
            codec.whole(self._keys, "fence", now),
            tuple(codec.whole(self._keys, "leases", each) for each in codec.list_of(self._keys, "leases", silences_s)),
            codec.whole(self._keys, "held", given_back),
            [self._lease(row) for row in codec.list_of(self._keys, "leases", leases)],
        )
        await self._burial.bury()
        return silent

    def _entrusted(
        self, job_id: str, said: object, fence: object, lease: tuple[str, int], cancelled: object, *row: object
    ) -> Entrusted:
        hold = _HOLDS.get(said) or Hold(codec.whole(self._keys, "leases", said))
        claim = codec.whole(self._keys, "held", fence)
        held = None
        if hold is not Hold.OVER and row[0] is not None and claim > 0:
            held = self._burial.held(job_id, claim, *row, bare=True)
            hold = hold if held is not None else Hold.OVER
        return Entrusted(hold, held, *lease, cancelled == 1)

    def _lease(self, answer: object) -> Lease:
        fence, worker, silence_s, jobs = codec.fields(self._keys, "leases", answer, 4)
        claim = codec.whole(self._keys, "held", fence)
        flat = codec.list_of(self._keys, "held", jobs)
        rows = zip(*(flat[at::4] for at in range(4)), strict=True)
        read = (self._burial.held(codec.text(self._keys, "held", given), claim, *row) for given, *row in rows)
        held = [one for one in read if one is not None]
        return Lease(
            claim, codec.text(self._keys, "leases", worker), codec.whole(self._keys, "leases", silence_s), held
        )
