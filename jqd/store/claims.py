"""The store's methods on jobs that wait, or are in a daemon's hand (docs/build/STORE.md)."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from jqd.domain.job import Held, Wanted
from jqd.domain.tenant import any_of
from jqd.store import codec
from jqd.store.config import StoreConfig
from jqd.store.jobs import STEP_JOBS, ScriptCaller, in_steps, milliseconds
from jqd.store.keys import Keys
from jqd.store.permits import Lack, Permit, lacks_of
from jqd.store.types import CALL_JOBS_MAX, Ages, Owner, Release, Suspects, WaitingType
from jqd.store.unreadable import UnreadableJobs

NO_CHANGES: Mapping[str, int] = {}
TYPES_PER_CALL = 500


class Claimed(list[Held]):
    """The jobs that a claim brought, and what else it told."""

    more = False
    """There may be more at once: of many queues that had to wait some were not looked at."""
    outdated = False
    """Nothing was given: the store knows other constraints than the caller."""
    unheard = False
    """Nothing was given: some workers get no jobs for now, as other daemons said, and the caller has not heard it."""
    lacking: Sequence[Lack] = ()
    """Nothing was given: first other partitions are to be asked for these."""


class ClaimMethods:
    """What takes jobs, and gives them back: a part of `Store`."""

    def __init__(self, config: StoreConfig, keys: Keys, caller: ScriptCaller, burial: UnreadableJobs) -> None:
        self._config = config
        self._keys = keys
        self._caller = caller
        self._burial = burial

    async def get_waiting_jobtypes(
        self, wanted: Sequence[Wanted], limit: int, *, period_ms: int = 0
    ) -> list[WaitingType]:
        """Jobtypes with jobs ready that are wanted, each once with the best of those; best first, at most `limit`.

        What is not wanted hides nothing that is, and costs nothing, however much of it waits. `period_ms`: jobs age, by
        a step of priority in so long.
        """
        found: list[WaitingType] = []
        name = "get_aged_jobtypes" if period_ms else "get_waiting_jobtypes"
        ages = (period_ms,) if period_ms else ()
        for part in in_steps(wanted, TYPES_PER_CALL) if limit > 0 else ():
            wishes: list[object] = []
            for one in part:
                jobtype = one.jobtype or any_of(one.tenant)
                wishes += (jobtype, one.priority_min, one.priority_max, len(one.besides), *one.besides)
            flat = codec.list_of(self._keys, "types", await self._caller.call(name, limit, *ages, *wishes))
            fields = 6 if period_ms else 5
            rows = zip(*(flat[at::fields] for at in range(fields)), strict=True)
            found.extend(self._waiting_type(*row) for row in rows)
        found.sort(key=lambda row: (row.priority if row.rank is None else row.rank, row.head_id))
        # Wishes of several calls may have met in one jobtype: its best is what counts.
        first = {row.jobtype: row for row in reversed(found)}
        return [row for row in found if first[row.jobtype] is row][:limit]

    def _waiting_type(
        self, jobtype: object, priority: object, head_id: object, waiting: object, suspect: object, *rank: object
    ) -> WaitingType:
        return WaitingType(
            codec.text(self._keys, "types", jobtype),
            codec.whole(self._keys, "ready", priority),
            codec.text(self._keys, "ready", head_id),
            codec.whole(self._keys, "ready", waiting),
            suspect == 1,
            *(codec.whole(self._keys, "heads", one) for one in rank),
        )

    async def get_waiting_jobs(
        self,
        owner: Owner,
        jobtype: str,
        limit: int,
        *,
        priority_min: int,
        priority_max: int,
        bytes_max: int,
        suspects: Suspects = Suspects.ALONE,
        version: str = "",
        rules_at: int | None = None,
        permits: Sequence[Permit] = (),
        asks: bool = False,
        ages: Ages | None = None,
    ) -> Claimed:
        """Lease up to `limit` jobs within the priorities: smallest first, then oldest. Raises StaleOwner.

        Nothing is given while a living member is not through the recovery barrier of this life of the store.
        All get the same fence, higher than any before. Stops before `bytes_max` of stored bytes, but gives one at
        least. When the answer is lost the jobs are held nevertheless: `get_held` finds them.

        `suspects`: how a job is given that was in hand at two deaths; it is always given by itself.

        `version`: by which constraints the caller matches jobs; nothing is given to who matches by others than the
        store knows. Jobs that were matched by earlier ones (`Job.queue`) are given unlimited: the caller sends those
        back that are limited now (`requeue`).

        `rules_at`: up to where the caller has settings (`follow_settings`); nothing goes to who does not know that a
        worker gets no jobs for now. None: it gives jobs to no worker that others know.

        `permits`: what other partitions said of what was lacking. `asks`: say what is lacking, instead of passing over
        what others may let go on.
        """
        limit = min(limit, CALL_JOBS_MAX)
        if limit < 1:
            return Claimed()
        answer = await self._caller.call(
            "get_waiting_jobs",
            *owner,
            jobtype,
            limit,
            priority_min,
            priority_max,
            bytes_max,
            self._caller.identity,
            milliseconds(self._config.alone_s),
            suspects.value,
            version,
            "" if rules_at is None else rules_at,
            int(asks),
            ages.words if ages else "",
            *(word for one in permits for word in one.words()),
        )
        first, word, *flat = codec.list_of(self._keys, "ready", answer)
        if word == b"permits":
            lacking = Claimed()
            lacking.lacking = lacks_of(self._keys, self._config.partition, flat)
            return lacking
        fence = codec.whole(self._keys, "fence", first)
        rows = [
            (codec.text(self._keys, "ready", job_id), fence, row, tries, generation)
            for job_id, row, tries, generation in zip(*(flat[at::4] for at in range(4)), strict=True)
        ]
        claimed = Claimed(one for row in rows if (one := self._burial.held(*row, jobtype=jobtype)) is not None)
        await self._burial.bury()
        claimed.more, claimed.outdated, claimed.unheard = (word == each for each in (b"again", b"version", b"unheard"))
        return claimed

    async def tell_ageing(self, sysid: str, period_ms: int) -> dict[str, int]:
        """Say how fast jobs age here; 0: not at all. Returns it of the living daemons where it is another, by sysid."""
        flat = codec.list_of(self._keys, "aged", await self._caller.call("tell_ageing", sysid, period_ms))
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return {codec.text(self._keys, "aged", one): codec.whole(self._keys, "aged", its) for one, its in pairs}

    async def requeue(self, owner: Owner, held: Sequence[tuple[Held, str]]) -> None:
        """Put jobs in our hand into other queues (`Job.queue`), where their constraints have them wait. StaleOwner.

        Those not held by this owner under that fence are left alone.
        """
        for part in in_steps(held, STEP_JOBS):
            flat: list[object] = []
            for one, queue in part:
                headers = (codec.encode_header(job) for job in (one.job, replace(one.job, queue=queue)))
                flat += (one.job.id, one.fence, *headers)
            await self._caller.call("requeue", *owner, *flat)

    async def get_held(self, owner: Owner) -> dict[str, int]:
        """Id → fence of all jobs the store believes this owner holds. Raises StaleOwner."""
        held: dict[str, int] = {}
        first = 0  # what leaves the hand while we read moves others up: one may be missed, and is found the next time
        while True:
            flat = codec.list_of(self._keys, "held", await self._caller.call("get_held", *owner, first, CALL_JOBS_MAX))
            if not flat:
                return held
            for job_id, fence in zip(flat[::2], flat[1::2], strict=True):
                held[codec.text(self._keys, "held", job_id)] = codec.whole(self._keys, "held", fence)
            first += CALL_JOBS_MAX

    async def reassert(
        self, owner: Owner, holds: Mapping[str, int], generations: Mapping[str, int] = NO_CHANGES
    ) -> list[str]:
        """After the store forgot: say what we hold (id → fence). Returns the ids that are out of our hand. StaleOwner.

        `generations`: of the contents of those whose content was exchanged once; no success of an older one ends them.

        Ours again: what is ready, dated, or ours already. Out: what has ended, or lies in another hand. A job that has
        not come yet is noted as held, and comes into our hand.
        """
        lost: list[str] = []
        for part in in_steps(list(holds.items()), STEP_JOBS):
            flat = (value for job_id, fence in part for value in (job_id, fence, generations.get(job_id, 0)))
            answer = await self._caller.call("reassert", *owner, self._caller.identity, *flat)
            lost += (codec.text(self._keys, "held", job_id) for job_id in codec.list_of(self._keys, "held", answer))
        return lost

    async def release_jobs(
        self, owner: Owner, held: Mapping[str, int], how: Release = Release.UNGET, delay_ms: int = 0
    ) -> None:
        """Dispose of jobs (id → fence) without an outcome; no attempt is counted. Raises StaleOwner.

        One whose cancel was asked ends as cancelled. Those not held by this owner under that fence are ignored.
        """
        for part in in_steps(list(held.items()), STEP_JOBS):
            flat = (value for pair in part for value in pair)
            await self._caller.call("release_jobs", *owner, how.value, delay_ms, *flat)
