"""Chooses a process for each job, and decides what becomes of the jobs of a process that died.

    ordinary jobs, by kind ──▶ the process with the fewest jobs that has room: one plain function, or many async ones
    suspects               ──▶ a process without any job, where each runs alone

If all processes are busy, a suspect does not wait until one is empty, which among long jobs may never happen: an
*extra* process is started, for suspects only.

    process died by itself, with one job      that job has failed
    process died by itself, with several      each is handed back as a suspect: next time it runs alone
    process was killed for another job        each is handed back
    job past its timeout, alone               it has timed out, or was cancelled and did not stop
    job past its timeout, among others        any of them may block the loop: each is handed back as a suspect
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from jqd.domain.log import get_logger
from jqd.worker.attempt import Attempts
from jqd.worker.batch import Item
from jqd.worker.job import Declared
from jqd.worker.process import Kind, Process

SUSPECTS_MAX = 10_000  # ids remembered; the oldest is dropped first


class CrashSuspects:
    """Ids of jobs suspected of crashing or blocking a process. If such a job comes to this worker again, it runs alone
    in a process."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._ids

    def add(self, ids: Iterable[str]) -> None:
        """Add ids of suspected jobs. If there are more than SUSPECTS_MAX in all, the oldest are dropped."""
        self._ids.update(dict.fromkeys(ids))
        while len(self._ids) > SUSPECTS_MAX:
            del self._ids[next(iter(self._ids))]

    def clear(self, job_id: str) -> None:
        """Remove the id of a suspected job that has run alone without crashing its process."""
        self._ids.pop(job_id, None)


class CrashIsolation:
    """Makes the outcomes of jobs whose process died, and kills processes with jobs past their timeout."""

    def __init__(self, attempts: Attempts, suspects: CrashSuspects) -> None:
        self._attempts, self._suspects = attempts, suspects
        self._log = get_logger("worker")

    def settle(self, process: Process) -> None:
        """Make an outcome for each job that a dead process had. A job that was alone there has failed, if the process
        died by itself. In all other cases each job is handed back."""
        process.collect_output()
        items, why = self._held(process), "its process was stopped because of another job"
        process.held.clear()
        if not process.was_killed:
            self._suspect(items)
            why = f"its process died ({process.how}) with {len(items)} jobs; next time it is alone"
        for item in items:
            if item.ended:
                continue
            self._log.warning("worker.job_lost_its_process", job_id=item.job_id, name=item.job.name, how=process.how)
            item.stop = None
            if len(items) == 1 and not process.was_killed:
                item.batch.put(item, self._attempts.died(item, process.how))
            else:
                item.batch.put(item, self._attempts.refused(item.batch.codec, item.job_id, why, begun=True))

    def end_late(self, process: Process, late: Sequence[Item]) -> None:
        """Kill a process that has jobs past their timeout (`late`). If it had only one job, the job has timed out, or
        ends as cancelled if it was cancelled. If it had several, each is handed back as a suspect."""
        for item in late:
            self._log.warning("worker.killed", job_id=item.job_id, name=item.job.name, pid=process.pid)
        process.collect_output()
        items = self._held(process)
        self._suspect(items)
        why = f"one of {len(items)} jobs blocked the loop of its process; next time it is alone"
        for item in items:
            refused = self._attempts.refused(item.batch.codec, item.job_id, why, begun=True)
            alone = self._attempts.cancelled(item, "its process was ended") if item.cancelled else None
            item.batch.put(item, refused if len(items) > 1 else alone or self._attempts.timed_out(item))
        process.kill()

    @staticmethod
    def _held(process: Process) -> list[Item]:
        """Return all jobs that the process has. Jobs already reported as timed out are among them, because one of them
        may be the cause."""
        return [held.item for held in process.held.values()]

    def _suspect(self, items: Sequence[Item]) -> None:
        if len(items) > 1:
            self._suspects.add(item.job_id for item in items)


class PendingJobs:
    """Queues of jobs that wait for a process."""

    def __init__(self, suspects: CrashSuspects, tasks: int) -> None:
        """`tasks`: how many async functions run in one process at once."""
        self._suspects, self._tasks = suspects, tasks
        self._ordinary: dict[Kind, deque[Item]] = {"plain": deque(), "async": deque()}
        self._trials: deque[Item] = deque()  # suspects

    def add(self, item: Item) -> None:
        (self._trials if item.job_id in self._suspects else self._ordinary[kind_of(item.function)]).append(item)

    def take_all(self) -> list[Item]:
        queues = [*self._ordinary.values(), self._trials]
        items = [item for queue in queues for item in queue]
        for queue in queues:
            queue.clear()
        return items

    def hand_out(self, process_pool: Iterable[Process], give: Callable[[Process, Item, bool], None]) -> bool:
        """Give waiting items to free processes, in order, by calling `give(process, item, is_suspect)`. Returns whether
        suspected jobs, which need an empty process, still wait."""
        process_pool = list(process_pool)
        self._trials = deque(item for item in self._trials if not item.must_not_begin)
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
            while queue and queue[0].must_not_begin:  # handed back; those behind it came later and are not yet
                queue.popleft()
            while queue and (free := self._free(kind, process_pool)) is not None:
                give(free, queue.popleft(), False)
        return bool(self._trials)

    def room(self, kind: Kind, process_pool: Iterable[Process]) -> int:
        """Return how many more items of one kind may begin at once; suspects do not count. A negative number: so many
        items wait for a process."""
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
