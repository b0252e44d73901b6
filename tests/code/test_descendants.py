"""All below a process is found, also where the kernel lists no children; what has ended is no trouble."""

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from jqd.code import descendants
from jqd.code.config import Limits
from jqd.code.descendants import _hides, _memory_files, _shared_bytes, _threads, kill_with_descendants, usage
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
    assert (_memory_files(GONE), _shared_bytes(GONE), _threads(GONE), _hides(GONE)) == ({}, 0, 0, False)
    assert usage([GONE])[GONE] == (0, 0, 0, False)


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


async def test_one_that_hides_such_files_is_over_its_limit(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as at:
        await at.one(handler("python", "return 1"))
        (process,) = at.pool._living
        monkeypatch.setattr(descendants, "_memory_files", lambda pid: None)
        at.pool.look()
        assert process.why_killed.startswith("MEMORY: a process of it hides the files")


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as somebody else")
@pytest.mark.parametrize("is_dumpable", [1, 0])
def test_whether_a_process_made_itself_undumpable_is_seen(is_dumpable: int) -> None:
    script = f"import ctypes; ctypes.CDLL(None).prctl(4, {is_dumpable}, 0, 0, 0); print(1, flush=True); input()"
    command = ["/usr/bin/python3", "-I", "-c", script]
    with subprocess.Popen(command, user=65_534, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        assert _hides(child.pid) is not bool(is_dumpable)
        child.kill()
