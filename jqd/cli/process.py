"""One process of `jqd serve --processes`. jqd/supervisor.py starts it as `python -m jqd.cli.process NUMBER`."""

import os
import pickle
import signal
import socket
import sys

import msgspec
import trio

from jqd.api.siblings import Siblings
from jqd.cli.app import ended
from jqd.cli.common import set_log
from jqd.cli.exits import Exit
from jqd.cli.server import print_stopping, return_memory, settle_memory
from jqd.domain.log import get_logger, logging_with
from jqd.domain.lossy_stream import make_lossy
from jqd.processes import Start
from jqd.serve import ProcessParts, serve

READ_BYTES = 64 << 10

log = get_logger("process")


async def run(start: Start) -> int:
    """Run a daemon until it is stopped, or its supervisor is gone. Returns the exit code."""
    config, own = start.fit.fit(start.config), socket.socket(fileno=start.own_fd)
    own.setblocking(False)
    siblings = Siblings(config.process, start.root)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_follow_supervisor, siblings)
        await serve(
            config,
            ready=lambda url: settle_memory(),
            interrupted=lambda in_flight: print_stopping(in_flight, config),
            load=start.load,
            process=ProcessParts(siblings, own, start.root),
        )
        nursery.cancel_scope.cancel()
    return Exit.DONE


async def _follow_supervisor(siblings: Siblings) -> None:
    """Record which sibling processes are away, as the supervisor reports. When the supervisor is gone, stop this
    process in order."""
    async with trio.lowlevel.FdStream(os.dup(0)) as lines:
        await follow(siblings, lines)
    os.kill(os.getpid(), signal.SIGTERM)


async def follow(siblings: Siblings, lines: trio.abc.ReceiveStream) -> None:
    """Read reports from the supervisor until the stream ends, and record in `siblings` which processes are away. A
    damaged line is ignored: another follows."""
    buffer = b""
    while data := await lines.receive_some(READ_BYTES):
        *whole, buffer = (buffer + data).split(b"\n")
        for line in filter(None, whole):
            try:
                siblings.away = msgspec.json.decode(line, type=dict[int, str])
            except msgspec.DecodeError as error:
                log.warning("process.not_told", error=str(error))


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := os.read(0, size - len(data))):
            sys.exit(Exit.FAILED)  # the supervisor is gone
        data += more
    return data


def main() -> int:
    start = pickle.loads(_read(int.from_bytes(_read(4), "big")))  # noqa: S301 - from the process that started this one
    make_lossy("stdout", "stderr")
    set_log(start.config.log.level, start.config.log.form)
    return_memory()
    with logging_with(process=start.fit.process.number):
        return ended(lambda: trio.run(run, start))


if __name__ == "__main__":
    sys.exit(main())
