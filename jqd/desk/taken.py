"""Which of the ids given out in this life are surely not in the store yet."""

from bisect import bisect_left

BATCHES_MAX = 20_000  # some 5 MiB; older ones are forgotten first, and only the store can tell of them then


class Taken:
    """The last journaled batches: their ids, and the journal's position behind each. Ids and positions only grow."""

    def __init__(self) -> None:
        self._firsts: list[str] = []
        self._lasts: list[str] = []
        self._ends: list[int] = []

    def note(self, first_id: str, last_id: str, end: int) -> None:
        """A batch was written to the journal, up to position `end`."""
        self._firsts.append(first_id)
        self._lasts.append(last_id)
        self._ends.append(end)
        if len(self._ends) > 2 * BATCHES_MAX:
            del self._firsts[:BATCHES_MAX], self._lasts[:BATCHES_MAX], self._ends[:BATCHES_MAX]

    def awaits(self, job_id: str, read_point: int) -> bool:
        """Whether the job was journaled behind `read_point`, up to which the store has applied. False: nobody knows."""
        index = bisect_left(self._lasts, job_id)
        return index < len(self._lasts) and self._firsts[index] <= job_id and self._ends[index] > read_point
