"""Keeps the contexts of a worker (processes that run code). Chooses one for each batch, preferably a warm one, and ends
those that are old, idle or too large."""

from pathlib import Path

import trio

from jqd.code import context, shell
from jqd.code.batch import STOPPING, Batch
from jqd.code.config import MIB, CodeConfig
from jqd.code.context import Context
from jqd.code.definition import ContextKey
from jqd.code.descendants import end_strays, usage
from jqd.code.process import Process

LOOK_S = 0.5  # between checks of what contexts use: at 1 GiB/s memory grows by 512 MiB meanwhile
LARGE = 0.5  # share of the allowed memory: a context that uses more between batches ends
WARM_PER_BATCH = 2  # idle contexts kept, for each batch that may run at once

WELL_FORMED_MAX = 1_000  # as many handlers as a tenant has


class Pool:
    """All contexts of a worker: processes that run code, in use or idle."""

    def __init__(self, config: CodeConfig, base: Path, nursery: trio.Nursery, *, adopts: bool) -> None:
        """`base`: directory for home folders. `adopts`: whether this process adopts orphaned descendants of contexts,
        and so has to end them."""
        self._config, self._base, self._nursery, self._adopts = config, base, nursery, adopts
        self._idle: dict[Context, None] = {}  # the last used at the end
        self._living: dict[Process, Context | None] = {}
        self._well_formed: set[str] = set()  # versions in sh whose syntax is good: a check costs some milliseconds
        self._stopping = trio.Event()

    @property
    def warm(self) -> frozenset[ContextKey]:
        return frozenset(each.key for each in self._idle if each.is_usable)

    async def run(self, batch: Batch) -> None:
        """Run a batch in a context. If the context dies, run the jobs that are left in another one. Raises Broken or
        NotStarted: then no job left in the batch was begun. If the pool stops, returns with jobs left in the batch."""
        while not self._stopping.is_set():
            batch.skip_unwanted()
            if not batch.left:
                return
            if batch.definition.lang == "sh":
                called = batch.definition.called
                is_known = called in self._well_formed
                has_begun = await shell.run(batch, self._config, self._base, self._begin, self._bury, known=is_known)
                if has_begun and not is_known:
                    if len(self._well_formed) >= WELL_FORMED_MAX:
                        self._well_formed.clear()
                    self._well_formed.add(called)
                continue
            try:
                await self._run_warm(batch)
            except context.Broken:
                if self._stopping.is_set():
                    return  # `stop` has killed it
                raise

    def stop(self) -> None:
        """Kill all contexts, and start no more."""
        self._stopping.set()
        for process in list(self._living):
            process.kill(STOPPING)

    async def watch(self) -> None:
        """For ever, at intervals: end contexts that use more memory, processes or threads than allowed, or are old or
        idle."""
        while True:
            await trio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        limits = self._config.limits
        used = usage(process.pid for process in self._living) if self._living else {}
        for process, warm in list(self._living.items()):
            if process.ended.is_set() or process.pid not in used:
                continue
            processes, threads, memory = used[process.pid]
            if memory > limits.memory_mib * MIB:
                process.kill(f"MEMORY: its processes had {memory // MIB} MiB, and may have {limits.memory_mib}")
            elif processes > limits.processes:
                process.kill(f"PROCESSES: there were {processes} of them, and may be {limits.processes}")
            elif threads > limits.threads:
                process.kill(f"PROCESSES: they had {threads} threads, and may have {limits.threads}")
            elif warm is not None:
                warm.is_large = memory > limits.memory_mib * MIB * LARGE
        now_s = trio.current_time()
        for each in list(self._idle):
            if now_s - each.used_at_s > self._config.idle_s or self._is_worn(each):
                self._retire(each)
        self._bury()

    async def _run_warm(self, batch: Batch) -> None:
        key = batch.definition.key
        warm = next((each for each in reversed(self._idle) if each.key == key and each.is_usable), None)
        if warm is None:
            warm = await context.start(batch.definition, self._config, self._base, self._begin, self._bury)
        else:
            del self._idle[warm]
        await warm.run(batch)
        if self._is_worn(warm):
            warm.process.kill(STOPPING)
        elif warm.is_usable:
            self._idle[warm] = None
            if len(self._idle) > self._config.concurrency * WARM_PER_BATCH:
                self._retire(next(iter(self._idle)))

    def _is_worn(self, warm: Context) -> bool:
        is_old = trio.current_time() - warm.began_at_s > self._config.age_s_max
        return is_old or warm.is_large or warm.batches >= self._config.batches_max

    def _retire(self, warm: Context) -> None:
        self._idle.pop(warm, None)
        warm.process.kill(STOPPING)

    def _begin(self, process: Process, warm: Context | None = None) -> None:
        """Start the task that reads the output of a new process. `warm`: the context to which the process belongs;
        None: it runs a single batch in sh."""
        self._living[process] = warm
        self._nursery.start_soon(self._keep, process, warm)

    async def _keep(self, process: Process, warm: Context | None) -> None:
        try:
            await (warm or process).live()
        finally:
            del self._living[process]
            if warm is not None:
                self._idle.pop(warm, None)

    def _bury(self) -> None:
        if self._adopts:
            end_strays({process.pid for process in self._living})
