"""A worker as a process of its own: signals drain it, and nothing that hangs holds up its end."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from jqd.client import Client
from tests.harness.daemon import ScriptedDaemon

PATIENCE_S = 90.0  # for a process to start or end on a machine with many times as much to do as it has cores

PROGRAM = """
import subprocess, sys, time, trio
from functools import partial
from jqd.domain import log
from jqd import App
from jqd.worker.serve import serve

log.configure()
app = App()

@app.job(keep_result=True)
def hold(path, /):
    "Stands still until the file is there."
    print("begun", flush=True)
    while True:
        try:
            open(path).close()
            return "done"
        except FileNotFoundError:
            time.sleep(0.01)

@app.job()
def program(argument, /):
    with subprocess.Popen(["sleep", "600"]) as child:
        print("begun", child.pid, flush=True)
        if child.wait():
            raise subprocess.CalledProcessError(child.returncode, "sleep")

@app.job()
def much(size, /):
    "More than a connection holds while nobody reads."
    return bytes(size)

@app.job()
async def stay(argument, /):
    print("begun", flush=True)
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

trio.run(partial(serve, app, daemons=[sys.argv[1]]))
print("left in order", flush=True)
"""


async def end_process(process: trio.Process) -> None:
    """A test is over: no need to be polite."""
    process.kill()


@pytest.fixture
async def process(daemon: ScriptedDaemon, tmp_path: Path) -> AsyncIterator[trio.Process]:
    command = [sys.executable, "-c", PROGRAM, daemon.url]
    root = Path(__file__).parents[2]
    with (tmp_path / "log").open("wb") as log:
        options = {"stdout": subprocess.PIPE, "stderr": log, "check": False, "cwd": root, "start_new_session": True}
        async with trio.open_nursery() as nursery:
            run = partial(trio.run_process, command, deliver_cancel=end_process, **options)
            process: trio.Process = await nursery.start(run)
            with trio.fail_after(PATIENCE_S):
                await daemon.registered.wait()
            yield process
            nursery.cancel_scope.cancel()


async def read_line(process: trio.Process) -> bytes:
    """The next line of its stdout; the test lets it write one at a time."""
    assert process.stdout is not None
    line = b""
    with trio.fail_after(PATIENCE_S):
        while not line.endswith(b"\n"):
            piece = await process.stdout.receive_some()
            assert piece, f"stdout ended after {line!r}"
            line += bytes(piece)
    return line


async def hold(daemon: ScriptedDaemon, process: trio.Process, path: Path) -> None:
    """Give the process a job that stands still, and wait until it does."""
    with Client(daemon.url) as client:
        push = partial(client.push, "hold", str(path), job_id="a", keep_result=True, max_retry=0)
        await trio.to_thread.run_sync(push)
    assert await read_line(process) == b"begun\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_exits_0(
    daemon: ScriptedDaemon, process: trio.Process, tmp_path: Path, number: signal.Signals
) -> None:
    await hold(daemon, process, tmp_path / "go")
    process.send_signal(number)
    with trio.fail_after(PATIENCE_S):
        await daemon.unregistered.wait()
    assert process.poll() is None, "it waits for what it has in flight"
    (tmp_path / "go").touch()
    assert await read_line(process) == b"left in order\n"
    assert await process.wait() == 0
    assert daemon.jobs["a"].result == "done"


async def test_a_second_signal_means_now(daemon: ScriptedDaemon, process: trio.Process, tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        await hold(daemon, process, tmp_path / "never")
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(PATIENCE_S):
            await daemon.unregistered.wait()
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(PATIENCE_S):
            assert await process.wait() == 0
        nursery.cancel_scope.cancel()
    assert not daemon.jobs["a"].ended.is_set()


async def test_a_peer_that_does_not_read_cannot_hold_up_the_end(
    daemon: ScriptedDaemon, process: trio.Process, tmp_path: Path
) -> None:
    (card,) = daemon.workers.values()
    host, _, port = card["url"].removeprefix("http://").strip("/").rpartition(":")
    jobs = [{"job_id": str(n), "name": "much", "argument": 900_000} for n in range(50)]
    body = msgspec.msgpack.encode({"jobs": jobs})
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        head = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/msgpack\r\n"
        await stream.send_all(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        assert (await stream.receive_some(1)) == b"H", "the answer has begun; nothing more is read of it"
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(PATIENCE_S):
            await daemon.unregistered.wait()
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(PATIENCE_S):
            assert await process.wait() == 0
    told = (tmp_path / "log").read_text()
    assert "worker.stopped" in told
    assert "worker.left" not in told, "it left in order"


async def test_a_job_that_will_not_be_cancelled_cannot_hold_up_the_end(
    daemon: ScriptedDaemon, process: trio.Process, tmp_path: Path
) -> None:
    with Client(daemon.url) as client:
        await trio.to_thread.run_sync(partial(client.push, "stay", job_id="a", max_retry=0))
    assert await read_line(process) == b"begun\n"
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(PATIENCE_S):
            await daemon.unregistered.wait()
    with trio.fail_after(PATIENCE_S):
        assert await process.wait() == 0
    assert "worker.left" in (tmp_path / "log").read_text()


async def start_program(daemon: ScriptedDaemon, process: trio.Process) -> int:
    """Give the process a job that starts a program and waits for it. The program's process id."""
    with Client(daemon.url) as client:
        await trio.to_thread.run_sync(partial(client.push, "program", job_id="a", max_retry=0))
    begun, pid = (await read_line(process)).split()
    assert begun == b"begun"
    return int(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_that_its_programs_get_too_costs_no_attempt(
    daemon: ScriptedDaemon, process: trio.Process, tmp_path: Path, number: signal.Signals
) -> None:
    """As Ctrl-C in a terminal, `docker stop` with an init, or systemd with its default KillMode do."""
    async with trio.open_nursery() as nursery:
        await start_program(daemon, process)
        os.killpg(process.pid, number)
        with trio.fail_after(PATIENCE_S):
            assert await process.wait() == 0
        nursery.cancel_scope.cancel()
    assert not daemon.jobs["a"].ended.is_set(), "it goes back untried"
    assert "worker.job_interrupted" in (tmp_path / "log").read_text()


async def test_what_a_job_has_started_ends_when_the_job_is_handed_back(
    daemon: ScriptedDaemon, process: trio.Process, tmp_path: Path
) -> None:
    async with trio.open_nursery() as nursery:
        pid = await start_program(daemon, process)
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            with trio.fail_after(PATIENCE_S):
                await daemon.unregistered.wait()
        with trio.fail_after(PATIENCE_S):
            assert await process.wait() == 0
        nursery.cancel_scope.cancel()
    assert not daemon.jobs["a"].ended.is_set()
    (line,) = [line for line in (tmp_path / "log").read_text().splitlines() if "worker.killed_program" in line]
    assert msgspec.json.decode(line)["pid"] == pid
    assert msgspec.json.decode(line)["command"] == "sleep 600"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
