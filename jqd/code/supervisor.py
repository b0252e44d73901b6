"""The first process of a code worker: starts the worker itself, and ends the processes that a dead worker leaves
behind.

    jqd worker --code  ──starts──▶  python -m jqd.code  ──starts──▶  contexts, and what these start
        ▲ ends what a dead worker leaves behind       │
        └─ the worker ends all when this one is dead ─┘

If either is killed, the other adopts and kills the processes that are left. A worker that dies is started again.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import trio

from jqd.code.config import CodeConfig
from jqd.code.descendants import end_strays, guard_this_process
from jqd.code.folders import remove
from jqd.code.process import in_thread
from jqd.code.sandbox import expect_owner, expect_sandbox, owner_of
from jqd.domain.backoff import Backoff
from jqd.domain.errors import ConfigError
from jqd.domain.log import get_logger
from jqd.worker.programs import wait_dead

WRONG = 2  # exit code of a worker whose settings cannot work: it is not started again
CALM_S = 60.0  # when a worker has lived so long, the back-off begins anew
BACKOFF = Backoff(first_s=0.5, factor=2.0, cap_s=30.0)  # a worker that dies at once must not use up a core
SWEEPS_MAX, SWEEP_EVERY_S = 500, 0.02  # for killed processes to be dead: one that waits for a disk may take seconds


async def supervise(config: CodeConfig) -> int:
    """Run a code worker until SIGTERM or SIGINT; a second signal gives its jobs back at once. Returns the exit code. At
    the end kills all children of this process. Raises ConfigError."""
    expect_owner(config.user)
    base = Path(tempfile.mkdtemp(prefix="jqd-code-"))
    try:
        if owner_of(config.user) is not None:
            base.chmod(0o711)  # noqa: ASYNC240 - a quick call; the user of the code must reach its homes
        expect_sandbox(config)
        guard_this_process()
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as arriving:
            worker = _Worker(config, base)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(worker.forward, arriving)
                code = await worker.keep()
                nursery.cancel_scope.cancel()
        return code if code in (0, WRONG) else 1
    finally:
        remove(base)


class _Worker:
    def __init__(self, config: CodeConfig, base: Path) -> None:
        self._config, self._base = config, base
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = trio.Event()
        self._log = get_logger("code")

    async def forward(self, arriving: AsyncIterator[int]) -> None:
        """Pass each signal that arrives on to the worker process."""
        async for number in arriving:
            self._stopping.set()
            if self._child is not None and self._child.poll() is None:
                self._child.send_signal(number)

    async def keep(self) -> int:
        """Start the worker process, and start it again when it dies by itself. Returns the last exit code."""
        in_a_row, source = 0, random.Random()
        while True:
            began_s = trio.current_time()
            code = await self._run()
            if self._stopping.is_set() or code in (0, WRONG):
                return code
            in_a_row = in_a_row + 1 if trio.current_time() - began_s < CALM_S else 0
            wait_s = BACKOFF.delay_s(in_a_row, source) if in_a_row else 0.0
            self._log.error("code.worker_died", code=code, again_in_s=round(wait_s, 1))
            with trio.move_on_after(wait_s):
                await self._stopping.wait()
                return code

    async def _run(self) -> int:
        """Run one worker process until it and all its descendants are dead. Returns its exit code."""
        child, lifeline = self._start()
        try:
            await wait_dead(child)
        finally:
            os.close(lifeline)  # this ends the worker if it still runs
            with trio.CancelScope(shield=True):
                await wait_dead(child)
                await _sweep()
                await in_thread(remove, self._base)  # with all homes; `launch` makes it again
        assert child.returncode is not None
        return child.returncode

    def _start(self) -> "tuple[subprocess.Popen[bytes], int]":
        """Start the worker process. Returns it, and the writing end of its lifeline (a pipe): closing that ends the
        worker."""
        theirs, ours = os.pipe()
        text = msgspec.json.encode(self._config).decode()
        command = [sys.executable, "-m", "jqd.code", text, str(self._base), str(theirs)]
        try:
            # In its own session, so that Ctrl-C reaches only this process, which passes it on.
            child = subprocess.Popen(command, pass_fds=(theirs,), start_new_session=True, stdin=subprocess.DEVNULL)
        except OSError as error:
            os.close(ours)
            raise ConfigError(f"the worker's own process cannot be started: {error}") from error
        finally:
            os.close(theirs)
        self._child = child
        return child, ours


async def _sweep() -> None:
    """Kill the processes that this one has adopted, and look again, until none is left; SWEEPS_MAX times at most."""
    for _ in range(SWEEPS_MAX):
        if not end_strays():
            return
        await trio.sleep(SWEEP_EVERY_S)
