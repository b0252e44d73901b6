"""All below a process is found, also where the kernel lists no children; what has ended is no trouble."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from jqd.code.config import Limits
from jqd.code.descendants import _memory_files, _shared_bytes, _threads, kill_with_descendants, usage
from jqd.worker import programs
from tests.code.conftest import handler, value

GONE = 1 << 22  # above all process ids


@pytest.fixture
def leader() -> Iterator["subprocess.Popen[str]"]:
    """A shell, two programs, and one below a shell in a session of its own."""
    script = "sleep 60 & sleep 60 & setsid sh -c 'sleep 60 & echo ready; wait' & wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
        kill_with_descendants(child.pid)


@pytest.mark.parametrize("are_listed", [True, False], ids=["listed", "looked for"])
def test_all_below_it_are_found_and_killed(
    leader: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch, are_listed: bool
) -> None:
    monkeypatch.setattr(programs, "_are_listed", lambda: are_listed)
    assert usage([leader.pid])[leader.pid].processes >= 5
    kill_with_descendants(leader.pid)
    assert leader.wait(timeout=60) == -9
    assert leader.stdout is not None
    assert leader.stdout.read() == "", "nobody is left who could print"


def test_what_has_ended_meanwhile_has_nothing() -> None:
    assert (_memory_files(GONE), _shared_bytes(GONE), _threads(GONE)) == ({}, 0, 0)
    assert usage([GONE])[GONE] == (0, 0, 0)


async def test_what_a_context_uses_is_counted_with_all_it_started(bench: Any) -> None:
    body = "import subprocess, os, time\nsubprocess.Popen('sleep 60 & sleep 60', shell=True, start_new_session=True)\n"
    async with bench() as at:
        pid = value(await at.one(handler("python", body + "time.sleep(0.3); return os.getpid()")))
        used = usage([pid])[pid]
        assert used.processes >= 3
        assert used.threads >= used.processes
        assert used.memory_bytes > 5_000_000


async def message_of(bench: Any, body: str, **limits: int) -> str:
    """Return why a handler is killed that is looked at all the time."""
    async with bench(Limits(**limits)) as at, trio.open_nursery() as nursery:

        async def look() -> None:
            while True:
                at.pool.look()
                await trio.sleep(0.05)

        nursery.start_soon(look)
        outcome = await at.one(handler("python", body))
        nursery.cancel_scope.cancel()
    assert isinstance(outcome.message, str)
    return outcome.message


async def test_files_in_memory_count_as_memory(bench: Any) -> None:
    """Nobody's resident memory grows with them, and each is smaller than a file may be."""
    body = """
import os, time
for _ in range(8):
    file = os.memfd_create("hidden")
    for _ in range(40):
        os.write(file, bytes(1 << 20))
time.sleep(60)
"""
    assert "MEMORY" in await message_of(bench, body, memory_mib=250, file_mib=50)


async def test_threads_count_as_processes_do(bench: Any) -> None:
    """Five hundred of one handler left the worker none."""
    body = """
import threading, time
threading.stack_size(65_536)
for _ in range(100):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
time.sleep(60)
"""
    assert "threads, and may have 84" in await message_of(bench, body, processes=5)
