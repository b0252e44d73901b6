"""Which of the ids given out in this life are surely not in the store yet."""

from bisect import bisect_left

BATCHES_MAX = 20_000  # some 5 MiB; older ones are forgotten first, and only the store can tell of them then


class RecentPushes:
    """The last journaled batches: their ids, and the journal's position behind each. Ids and positions only grow."""

    def __init__(self) -> None:
        self._firsts: list[str] = []
        self._lasts: list[str] = []
        self._ends: list[int] = []
        self._tenants: list[str] = []
        self.unsure_to = 0
        """Up to here may stand changes in the journal that no store has confirmed."""

    def note(self, first_id: str, last_id: str, end: int, tenant: str = "") -> None:
        """A batch of a tenant was written to the journal, up to position `end`."""
        self._tenants.append(tenant)
        self._firsts.append(first_id)
        self._lasts.append(last_id)
        self._ends.append(end)
        if len(self._ends) > 2 * BATCHES_MAX:
            for rows in (self._firsts, self._lasts, self._ends, self._tenants):
                del rows[:BATCHES_MAX]

    def awaits(self, job_id: str, read_point: int) -> bool:
        """Whether the job was journaled behind `read_point`, up to which the store has applied. False: nobody knows."""
        index = self._batch(job_id)
        return index is not None and self._ends[index] > read_point

    def is_of(self, job_id: str, tenant: str) -> bool:
        """Whether it was given to a job of that tenant. False: nobody knows."""
        index = self._batch(job_id)
        return index is not None and self._tenants[index] == tenant

    def _batch(self, job_id: str) -> int | None:
        index = bisect_left(self._lasts, job_id)
        return index if index < len(self._lasts) and self._firsts[index] <= job_id else None
