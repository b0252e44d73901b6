"""The items that wait for a process, and which process each goes to.

    ordinary jobs, by kind ──▶ the process with the fewest jobs that has room: one plain function, or many async ones
    suspects               ──▶ a process without any job, and nothing goes there beside them

A suspect that finds all processes at work does not wait until one is empty, which among long jobs it may never be: an
*extra* process is wanted then, for suspects only.
"""

from collections import deque
from collections.abc import Callable, Iterable

from jqd.worker.batch import Item
from jqd.worker.crash_isolation import CrashSuspects
from jqd.worker.job import Declared
from jqd.worker.process import Kind, Process


class PendingJobs:
    def __init__(self, suspects: CrashSuspects, tasks: int) -> None:
        """`tasks`: async functions in one process at once."""
        self._suspects, self._tasks = suspects, tasks
        self._ordinary: dict[Kind, deque[Item]] = {"plain": deque(), "async": deque()}
        self._trials: deque[Item] = deque()

    def add(self, item: Item) -> None:
        (self._trials if item.job_id in self._suspects else self._ordinary[kind_of(item.function)]).append(item)

    def take_all(self) -> list[Item]:
        queues = [*self._ordinary.values(), self._trials]
        items = [item for queue in queues for item in queue]
        for queue in queues:
            queue.clear()
        return items

    def hand_out(self, process_pool: Iterable[Process], give: Callable[[Process, Item, bool], None]) -> bool:
        """Give what waits to processes that are free, in order; the last argument: whether it is a suspect's trial.
        Returns whether suspects are left that found none."""
        process_pool = list(process_pool)
        self._trials = deque(item for item in self._trials if not item.is_over)
        for item in [self._trials.popleft() for _ in range(len(self._trials))]:
            kind = kind_of(item.function)
            empty = [p for p in process_pool if p.is_open and not p.held and (p.is_extra or p.kind == kind)]
            if empty:
                process = max(empty, key=lambda process: process.is_extra)
                process.kind = kind
                give(process, item, True)
            else:
                self._trials.append(item)
        for kind, queue in self._ordinary.items():
            while queue and queue[0].is_over:  # handed back by now: those behind came later, and leave later
                queue.popleft()
            while queue and (free := self._free(kind, process_pool)) is not None:
                give(free, queue.popleft(), False)
        return bool(self._trials)

    def room(self, kind: Kind, process_pool: Iterable[Process]) -> int:
        """Return how many ordinary items may begin at once; below 0: so many wait."""
        open_ = self._open(kind, process_pool)
        return len(open_) * self._at_once(kind) - sum(len(p.held) for p in open_) - len(self._ordinary[kind])

    def _free(self, kind: Kind, process_pool: Iterable[Process]) -> Process | None:
        free = [p for p in self._open(kind, process_pool) if len(p.held) < self._at_once(kind)]
        return min(free, key=lambda process: len(process.held), default=None)

    def _open(self, kind: Kind, process_pool: Iterable[Process]) -> list[Process]:
        return [p for p in process_pool if p.kind == kind and p.is_open and not p.is_extra and not p.is_on_trial]

    def _at_once(self, kind: Kind) -> int:
        return 1 if kind == "plain" else self._tasks


def kind_of(job: Declared) -> Kind:
    return "plain" if job.loop is None else "async"
