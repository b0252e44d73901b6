"""The processes of a worker with `--processes N`: each may crash, hang or be killed without the others.

    Service ──start──► waiting ──give──► process ──► outcome ──► batch
                          ▲                 │ dies: its only job has failed; several are handed back as suspects
                          └── trials ◄──────┘ past a timeout: killed, and replaced

Plain functions run one at a time in each of N processes, async ones many at once in each of N others, so that killing a
process for a plain function ends no other job. The front, which is this process, does not import users' code. `reload`
starts new processes, which load the present code; the old ones end with their last job. A *suspect* is a job that ran
in a process together with others when it died by itself, or when its loop was blocked. Next time it runs alone, in an
empty process or an extra one, and fails if it happens again.
"""

import math
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType

import trio

from jqd.domain.backoff import Backoff
from jqd.domain.clock import SystemClock
from jqd.domain.errors import ConfigError
from jqd.domain.log import get_logger
from jqd.worker.attempt import Attempts
from jqd.worker.batch import Batch, Item
from jqd.worker.crash_isolation import CrashIsolation, CrashSuspects, PendingJobs, kind_of
from jqd.worker.frames import Begin, Declaration
from jqd.worker.process import Held, Kind, NotStarted, Process, start_process
from jqd.worker.threads import NOTE_S

CANCEL_S = 5.0  # time for a cancelled plain function to notice; then its process is killed
START_S = 60.0  # time for a process to import the app: enough for a large app on a loaded machine
CORES = len(os.sched_getaffinity(0))  # so many processes import the app at once: more would be no faster
CALM_S = 60.0  # when a process lives for so long, deaths are counted from zero again
# Between deaths in a row: a crash at start must not use up a core.
BACKOFF = Backoff(first_s=0.5, factor=2.0, cap_s=30.0)
EXTRA_IDLE_S = 60.0  # how long the extra process waits for another suspect: they come back within seconds

Where = Callable[[], tuple[str, str | None]]


class ProcessPool:
    """The job processes of a worker, and the jobs that wait for one. To be used in the trio thread only.

    It has the methods of `InProcess`, which runs jobs in threads and tasks of one process. `open_process_pool` makes
    and ends it.
    """

    def __init__(self, begin: Begin, processes: int, where: Where, nursery: trio.Nursery) -> None:
        """`processes`: number of processes for each kind of function (plain, async) in the app. `where`: returns URL
        and token of the daemon that jobs push to."""
        self._begin, self._processes, self._where, self._nursery = begin, processes, where, nursery
        self._attempts, self._source = Attempts(SystemClock()), random.Random()
        self._clock = SystemClock()
        self._jobs: dict[str, Declaration] = {}
        self._process_pool: list[Process] = []
        self._leaving: set[Process] = set()
        self._suspects = CrashSuspects()
        self._isolation = CrashIsolation(self._attempts, self._suspects)
        self._waiting = PendingJobs(self._suspects, begin.tasks)
        self._has_extra = False
        self._generation = 0
        self._died: dict[Kind, str] = {}
        self._next_s, self._sooner = math.inf, trio.Event()
        self._log = get_logger("worker")
        self.on_output: Callable[[Item], None] = lambda item: None
        """Called for each job that reports progress or output."""

    @property
    def jobs(self) -> Mapping[str, Declaration]:
        return MappingProxyType(self._jobs)

    def free(self, jobtype: str | None = None) -> int:
        """Return how many more jobs of a type may begin now. A negative number: so many wait for a process. Without a
        jobtype: the same for the kind of function (plain, async) that has most room.

        A process that was killed counts again once it is replaced.
        """
        job = self._jobs.get(jobtype or "")
        kinds = {kind_of(each) for each in ([job] if job else self._jobs.values())}
        return max((self._waiting.room(kind, self._process_pool) for kind in kinds), default=0)

    # ------------------------------------------------------------ the interface that it shares with `InProcess`

    @property
    def orphans(self) -> int:
        held = [held for process in self._all for held in process.held.values()]
        return sum(each.item.batch.gone or each.item.ended for each in held)

    def start(self, items: Sequence[Item], nursery: trio.Nursery) -> None:
        for item in items:
            self._waiting.add(item)
        self._dispatch()

    def forget(self, batch: Batch) -> None:
        """Stop the async jobs of a batch that nobody waits for. Its plain functions continue: stopping one would kill
        its process, and the function may end before its job is sent again."""
        for process in self._all:
            if process.kind == "async":
                for held in [held for held in process.held.values() if held.item.batch is batch]:
                    process.stop(held)

    @property
    def is_helpless(self) -> bool:
        return bool(self._died) and self._died.keys() >= {kind_of(job) for job in self._jobs.values()}

    def stranded(self, item: Item) -> bool:
        return kind_of(item.function) in self._died

    def watch(self, batch: Batch) -> None:
        """Do nothing, because `keep_time` ends jobs that are past their timeout."""

    def drain(self) -> None:
        """Do nothing, because outcomes are stored as soon as they arrive."""

    def stuck(self) -> list[tuple[Item, float]]:
        return []

    def close(self) -> None:
        """Do nothing, because `open_process_pool` ends the processes."""

    def is_suspect(self, item: Item) -> bool:
        return item.job_id in self._suspects

    def trouble(self) -> str | None:
        if not self._died:
            return None
        text = "; ".join(f"{kind} functions: {how}" for kind, how in self._died.items())
        return f"the processes of this worker end as soon as they are started ({text}); its log says more"

    # ------------------------------------------------------------ generations

    async def reload(self) -> bool:
        """Load the code again: start new processes, then let the old ones end. Returns False if the code cannot be
        loaded."""
        try:
            fresh = await self._start_all()
        except NotStarted as error:
            self._log.error("worker.not_reloaded", why=str(error), next="the code of before goes on")
            return False
        self._take_over(fresh)
        self._log.info("worker.reloaded", processes=len(fresh), jobs=list(self._jobs), leaving=len(self._leaving))
        return True

    async def _start_all(self) -> list[Process]:
        """Start the processes for the present code, and return them when all are ready. Raises NotStarted; then all are
        killed."""
        fresh: list[Process] = []
        try:
            with trio.fail_after(START_S):
                fresh.append(self._start())
                jobs = (await fresh[0].wait_ready()).jobs
                kinds = sorted({kind_of(job) for job in jobs})
            while (first := len(fresh)) < len(kinds) * self._processes:
                more = min(CORES, len(kinds) * self._processes - first)
                fresh.extend(self._start() for _ in range(more))  # a generator: so `fresh` has those before a failure
                with trio.fail_after(START_S):
                    for process in fresh[first:]:
                        await process.wait_ready(jobs)
            for number, process in enumerate(fresh):
                process.kind = kinds[number % len(kinds)]
        except trio.TooSlowError:
            _kill(fresh)
            raise NotStarted(f"the app was not loaded after {START_S:g} s") from None
        except BaseException:
            _kill(fresh)
            raise
        return fresh

    def _start(self) -> Process:
        return start_process(self._begin, self._receive_outcome, lambda item: self.on_output(item), self._nursery)

    def _take_over(self, fresh: list[Process]) -> None:
        ready = fresh[0].ready
        assert ready is not None
        old, self._process_pool = self._process_pool, fresh
        self._generation += 1
        self._jobs.clear()
        self._jobs.update({job.name: job for job in getattr(ready, "jobs", ())})
        self._died.clear()
        for process in old:
            self._retire(process)
        for process in fresh:
            self._nursery.start_soon(self._keep, process, self._generation)
        self._sort_anew()
        self._dispatch()

    def _sort_anew(self) -> None:
        """Queue waiting items again after new code was loaded: there a job may be of the other kind. Items whose job is
        missing there are handed back."""
        for item in self._waiting.take_all():
            job = self._jobs.get(item.job.name)
            if job is None:
                if item.begin():
                    why = f"the code that was loaded meanwhile has no job {item.job.name!r}"
                    item.batch.put(item, self._attempts.refused(item.batch.codec, item.job_id, why))
                continue
            item.function = job
            self._waiting.add(item)

    def _retire(self, process: Process) -> None:
        process.is_retiring = True
        self._leaving.add(process)
        if not process.held:
            self._nursery.start_soon(process.leave)

    async def _keep(self, process: Process, generation: int) -> None:
        """Wait until a process dies, settle its jobs and start another; repeat this with the new process. After several
        deaths in a row, wait before each start. Ends when the process retires or newer code is loaded. `generation`:
        number of the code that the process has loaded."""
        in_a_row = 0
        while True:
            began_s = trio.current_time()
            await process.ended.wait()
            self._isolation.settle(process)
            self._leaving.discard(process)
            if process.is_retiring or generation != self._generation:
                return
            self._process_pool.remove(process)
            if process.was_killed:
                in_a_row = 0
            else:
                in_a_row = in_a_row + 1 if trio.current_time() - began_s < CALM_S else 1
                wait_s = BACKOFF.delay_s(in_a_row - 1, self._source) if in_a_row > 1 else 0.0
                self._log.error("worker.process_died", pid=process.pid, how=process.how, again_in_s=round(wait_s, 1))
                await self._wait_down(process.kind, process.how, wait_s)
            if (other := await self._fill(process.kind, generation, in_a_row)) is None:
                return
            process = other

    async def _fill(self, kind: Kind, generation: int, failures: int, *, is_extra: bool = False) -> Process | None:
        """Start a process for functions of one kind (plain, async), and return it when it is ready. After a failure
        wait and try again. Returns None if code newer than `generation` is loaded, or the pool ends. `failures`: how
        many starts failed before. `is_extra`: the process is only for suspects."""
        while generation == self._generation:
            started: list[Process] = []
            try:
                with trio.fail_after(START_S):
                    started.append(self._start())
                    await started[0].wait_ready(self._jobs.values())
            except (NotStarted, trio.TooSlowError) as error:
                why = str(error) or f"the app was not loaded after {START_S:g} s"
                _kill(started)
                failures += 1
                wait_s = BACKOFF.delay_s(failures, self._source)
                self._log.error("worker.process_not_started", why=why, again_in_s=round(wait_s, 1))
                await self._wait_down(None if is_extra else kind, why, wait_s)
                continue
            (process,) = started
            process.kind, process.is_extra = kind, is_extra
            if generation != self._generation:
                process.is_retiring = True
                await process.leave()
                return None
            self._process_pool.append(process)
            if not is_extra:
                self._died.pop(kind, None)
            self._log.info("worker.process_started", pid=process.pid, **({"only_for": "suspects"} if is_extra else {}))
            self._dispatch()
            return process
        return None

    async def _wait_down(self, kind: Kind | None, how: str, wait_s: float) -> None:
        """Wait `wait_s` before the next start of a process. If no process of the kind is left, record why (`how`), for
        `trouble`. `kind`: that of the missing process; None: it was an extra one."""
        if wait_s and kind and not any(process.kind == kind and not process.is_extra for process in self._process_pool):
            self._died[kind] = how
        await trio.sleep(wait_s)

    # ------------------------------------------------------------ jobs

    @property
    def _all(self) -> list[Process]:
        return [*self._process_pool, *self._leaving]

    def _dispatch(self) -> None:
        if self._waiting.hand_out(self._process_pool, self._give) and not self._has_extra:
            self._has_extra = True
            self._nursery.start_soon(self._keep_extra, self._generation)

    async def _keep_extra(self, generation: int) -> None:
        """Run an extra process, only for suspected jobs, until no such job has come for EXTRA_IDLE_S."""
        try:
            if (process := await self._fill("plain", generation, 0, is_extra=True)) is None:
                return
            while not process.ended.is_set() and not process.is_retiring:
                given = process.given
                with trio.move_on_after(EXTRA_IDLE_S):
                    await process.ended.wait()
                if given == process.given and not process.held:
                    break
            self._isolation.settle(process)
            self._leaving.discard(process)
            if process in self._process_pool:
                self._process_pool.remove(process)
            if not process.ended.is_set():
                await process.leave()
        finally:
            self._has_extra = False
        self._dispatch()

    def _give(self, process: Process, item: Item, is_trial: bool) -> None:
        """Let a process run an item, unless the item has begun or ended elsewhere, or nobody waits for its outcome."""
        if item.batch.gone or not item.begin():
            return
        if self._clock.mono_s() - item.batch.arrived_s > NOTE_S:
            item.batch.note(item, self._attempts.started(item))
        held = process.give(item, self._where(), is_trial=is_trial)
        item.stop = partial(self._stop, process, held)
        if held.due_s < self._next_s:
            self._sooner.set()

    def _stop(self, process: Process, held: Held) -> None:
        process.stop(held)
        if held.item.cancelled and process.kind == "plain":  # it has CANCEL_S to notice
            held.due_s = min(held.due_s, trio.current_time() + CANCEL_S)
            self._sooner.set()

    def _receive_outcome(self, process: Process, held: Held, outcome: bytes) -> None:
        held.item.stop = None
        held.item.batch.put(held.item, outcome)
        if held.is_trial:
            self._suspects.clear(held.item.job_id)
        if process.is_retiring and not process.held:
            self._nursery.start_soon(process.leave)
        self._dispatch()

    async def keep_time(self) -> None:
        """For ever: end jobs that are past their timeout."""
        while True:
            now_s, living = trio.current_time(), [process for process in self._all if not process.was_killed]
            for process in living:
                if late := process.overdue(now_s):
                    self._isolation.end_late(process, late)
            due = [held.due_s for process in living if not process.was_killed for held in process.held.values()]
            self._next_s, self._sooner = min(due, default=math.inf), trio.Event()
            with trio.move_on_at(self._next_s):
                await self._sooner.wait()

    async def begin(self) -> NotStarted | None:
        try:
            self._take_over(await self._start_all())
        except NotStarted as error:
            return error
        return None

    async def leave(self) -> None:
        """End all processes: kill those that run a plain function, and let the other processes end by themselves within
        LEAVE_S. The caller must have handed back all jobs before."""
        self._generation += 1
        async with trio.open_nursery() as nursery:
            for process in self._all:
                if process.kind == "plain" and process.held:
                    process.kill()
                else:
                    nursery.start_soon(process.leave)


@asynccontextmanager
async def open_process_pool(begin: Begin, processes: int, where: Where) -> AsyncIterator[ProcessPool]:
    """Start a process pool, and yield it when it is ready. Raises ConfigError if the app cannot be loaded."""
    why: NotStarted | None = None
    async with trio.open_nursery() as nursery:
        process_pool = ProcessPool(begin, processes, where, nursery)
        why = await process_pool.begin()
        if why is None:
            nursery.start_soon(process_pool.keep_time)
            try:
                yield process_pool
            finally:
                with trio.CancelScope(shield=True):
                    await process_pool.leave()
        nursery.cancel_scope.cancel()
    if why is not None:  # raised outside the nursery, which would wrap it in a group
        raise ConfigError(str(why)) from why


def _kill(processes: Sequence[Process]) -> None:
    for process in processes:
        process.kill()
