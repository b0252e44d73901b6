"""The process of a code worker, as `supervisor.py` starts it: python -m jqd.code CONFIG BASE LIFELINE

It ends when the supervisor ends: LIFELINE is the reading end of a pipe whose writing end only the supervisor has open.
"""

import os
import signal
import sys
import threading
from pathlib import Path

import msgspec
import trio

from jqd.code.config import CodeConfig
from jqd.code.descendants import end_strays, guard_this_process
from jqd.code.folders import remove
from jqd.code.supervisor import SWEEP_EVERY_S, SWEEPS_MAX, WRONG
from jqd.code.worker import serve
from jqd.domain import log
from jqd.domain.errors import ConfigError
from jqd.domain.lossy_stream import make_lossy


async def _run(config: CodeConfig, base: Path, lifeline: int) -> None:
    stopping, now = trio.Event(), trio.Event()

    async def receive() -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as arriving:
            async for _ in arriving:
                if stopping.is_set():
                    now.set()
                stopping.set()

    wrong: ConfigError | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        nursery.start_soon(_end_with, lifeline, base)
        try:
            await serve(config, base, stopping=stopping, now=now, adopts=True)
        except ConfigError as error:
            wrong = error  # raised outside the nursery, which would wrap it in a group
        nursery.cancel_scope.cancel()
    if wrong is not None:
        raise wrong


async def _end_with(lifeline: int, base: Path) -> None:
    """Wait until the supervisor is dead. Then kill this process and all that it started: its jobs run again
    elsewhere."""
    await trio.lowlevel.wait_readable(lifeline)
    _end_all(base)
    os._exit(1)


def _end_all(base: Path) -> None:
    """Kill all child processes and delete `base`. This blocks the event loop on purpose: no task can then report the
    killed jobs."""
    pause = threading.Event()
    for _ in range(SWEEPS_MAX):
        if not end_strays():
            break
        pause.wait(SWEEP_EVERY_S)
    remove(base)


def main(settings: str, base: str, lifeline: str) -> int:
    guard_this_process()
    config = msgspec.json.decode(settings, type=CodeConfig)
    make_lossy("stdout", "stderr")
    log.configure(level=config.log_level)
    os.set_inheritable(int(lifeline), False)
    try:
        trio.run(_run, config, Path(base), int(lifeline))
    except ConfigError as error:
        log.get_logger("code").error("code.wrong", why=str(error))
        return WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
