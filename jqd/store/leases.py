"""The store's methods on leases: jobs that workers hold by themselves (docs/build/STORE.md, Leases)."""

from collections.abc import Mapping, Sequence
from itertools import chain

from jqd.store import codec
from jqd.store.methods import ScriptMethods, bound
from jqd.store.types import CALL_JOBS_MAX, NO_LOG, Entrusted, Hold, Lease, Log, Release, SilentLeases

_WORKERS = "*"  # stands for all workers where a daemon's sysid stands
_HOLDS: dict[object, Hold] = {int(hold): hold for hold in Hold}


class LeaseMethods(ScriptMethods):
    async def touch(
        self,
        claims: Sequence[tuple[str, int]],
        *,
        renew: bool = True,
        rows: bool = True,
        silence_s: int = 0,
        progress: bytes = b"",
        log: Log = NO_LOG,
    ) -> list[Entrusted]:
        """Return the state of each claim (id, fence) that workers name, in the same order; renew the leases that stand.

        A lease has all jobs that a worker holds under one fence: a claim on one of them renews the lease. The fence 0
        stands for whichever lease holds the job. Raises StoreChanged; StoreUnsettled when a claim does not stand but a
        journal may know better. At most CALL_JOBS_MAX claims.

        `renew`: False: renew no lease, and return no jobs. `rows`: False: return no jobs, at half the cost.
        `silence_s`: the worker timeout of these leases from now on; 0: as before. `progress`: one MessagePack value,
        shown with these jobs. `log`: what their attempt printed; it is kept while somebody watches these jobs.
        """
        bound(claims)
        ask = self._caller.identity, int(renew) and 2 - rows, silence_s, progress, log.start, log.data
        answer = await self._caller.call("touch", *ask, *chain.from_iterable(claims))
        leased, flat = codec.fields(self._keys, "leases", answer, 2)
        leases, held = self._rows("leases", leased, 3), self._list("held", flat)
        workers = {
            fence: (self._text("leases", worker), self._whole("leases", allowed_s))
            for fence, worker, allowed_s in leases
        }
        columns = (held[at::8] for at in range(8))
        found = [
            self._entrusted(
                job_id, state, fence, workers[fence] if is_entrusted else ("", 0), cancelled, *row, log_end=log_end
            )
            for (job_id, _), state, fence, is_entrusted, cancelled, *row, log_end in zip(claims, *columns, strict=True)
        ]
        await self.burial.bury()
        return found

    async def watch_logs(self, known: Sequence[tuple[str, int, int]], watch_ms: int) -> list[Log | None]:
        """Return for each job what its attempt printed since the caller last asked; None: nothing. Raises StoreChanged.

        `known`: for each job its id, the fence of the attempt, and how many bytes of this attempt's log the caller has.
        If another attempt runs by now, its whole log is returned. For `watch_ms` from now on the jobs' workers learn
        that somebody watches.
        """
        bound(known)
        flat = (value for each in known for value in each)
        answer = await self._caller.call("watch_logs", self._caller.identity, watch_ms, *flat)
        rows = zip(known, self._list("logs", answer), strict=True)
        return [None if row is None else codec.decode_log(self._keys, job_id, row) for (job_id, *_), row in rows]

    async def release_entrusted(self, claims: Sequence[tuple[str, int]], how: Release = Release.UNSENT) -> list[str]:
        """Give jobs back that workers held by themselves; no attempt is counted. Returns the ids of the jobs given
        back.

        `claims`: (id, fence) of each job; a job that no worker holds under this fence is left alone. `how`: UNSENT, or
        UNGET if the worker may have begun the jobs. A job with a pending cancel ends as cancelled. Raises StoreChanged.
        """
        bound(claims)
        flat = (value for claim in claims for value in claim)
        answer = await self._caller.call("release_jobs", _WORKERS, self._caller.identity, how.value, *flat)
        return self._texts("held", answer)

    async def find_silent(self, marks: Mapping[int, int], limit: int) -> SilentLeases:
        """Find leases whose workers timed out, with about `limit` jobs in all, and set them aside. Raises StoreChanged.

        The caller then writes into its journal how the attempts of these jobs ended.

        `marks`: worker timeout in seconds → the value that `SilentLeases.now` had so many seconds ago, by the caller's
        clock. A lease with this timeout is found if its last sign of life has a lower number. The timeout 0 stands for
        leases that another daemon set aside without writing outcomes for their jobs."""
        flat = (value for mark in marks.items() for value in mark)
        answer = await self._caller.call("find_silent", self._caller.identity, min(limit, CALL_JOBS_MAX), *flat)
        now, silences_s, given_back, leases = self._list("leases", answer)
        silent = SilentLeases(
            self._whole("fence", now),
            tuple(self._wholes("leases", silences_s)),
            self._whole("held", given_back),
            [self._lease(row) for row in self._list("leases", leases)],
        )
        await self.burial.bury()
        return silent

    def _entrusted(
        self,
        job_id: str,
        state: object,
        fence: object,
        lease: tuple[str, int],
        cancelled: object,
        *row: object,
        log_end: object,
    ) -> Entrusted:
        hold = _HOLDS.get(state) or Hold(self._whole("leases", state))
        claim = self._whole("held", fence)
        held = None
        if hold is not Hold.OVER and row[0] is not None and claim > 0:
            held = self.burial.held(job_id, claim, *row, bare=True)
            hold = hold if held is not None else Hold.OVER
        return Entrusted(hold, held, *lease, cancelled == 1, None if log_end is None else self._whole("logs", log_end))

    def _lease(self, answer: object) -> Lease:
        fence, worker, silence_s, jobs = codec.fields(self._keys, "leases", answer, 4)
        claim = self._whole("held", fence)
        rows = self._rows("held", jobs, 4)
        read = (self.burial.held(self._text("held", given), claim, *row) for given, *row in rows)
        held = [one for one in read if one is not None]
        return Lease(claim, self._text("leases", worker), self._whole("leases", silence_s), held)
