"""All below a process is found, also where the kernel lists no children; what has ended is no trouble."""

import subprocess
from collections.abc import Iterator

import pytest

from jqd.code.descendants import _memory_files, _shared_bytes, kill_with_descendants, usage
from jqd.worker import programs

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
    assert (_memory_files(GONE), _shared_bytes(GONE)) == ({}, 0)
    assert usage([GONE])[GONE] == (0, 0)
