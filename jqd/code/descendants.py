"""Finds and ends all descendants of a process that runs code, however they were started (Linux).

The first process of a context (context.py) adopts orphaned descendants (PR_SET_CHILD_SUBREAPER), and so do the worker
and its supervisor. So every descendant stays below one of these processes, even after setsid or a double fork.
"""

import ctypes
import os
import signal
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from jqd.worker.programs import below, children_of

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
LOOKS_MAX = 50  # searches for processes started meanwhile: each takes some milliseconds, and stops all that it finds
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """What a process and all its descendants use together."""

    processes: int
    threads: int
    """Number of threads, main threads included."""
    memory_bytes: int
    """Resident memory, and open files in memory (memfd_create). Shared memory counts once for each process."""


def guard_this_process() -> None:
    """Make this process adopt orphaned descendants. Also keep other processes of its user from reading its memory and
    environment, which hold the worker's token."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def usage(leaders: Iterable[int]) -> dict[int, Usage]:
    """Return for each process id in `leaders` what that process and its descendants use now."""
    found: dict[int, Usage] = {}
    for leader in leaders:
        pids, files = [leader, *below(leader)], dict[tuple[int, int], int]()
        sizes = {pid: _resident_bytes(pid) for pid in pids}
        living = [pid for pid in pids if sizes[pid]]  # zombies have size 0
        for pid in living:
            files |= _memory_files(pid)
        memory = sum(sizes.values()) + max(0, sum(files.values()) - (sum(map(_shared_bytes, pids)) if files else 0))
        found[leader] = Usage(len(living), sum(map(_threads, living)), memory)
    return found


def kill_with_descendants(*leaders: int) -> None:
    """Kill child processes and all their descendants. Stops all of these processes first, so that none can start
    another. The caller must reap the child processes; until then their process ids stay in use."""
    stopped: dict[int, None] = {}
    for _ in range(LOOKS_MAX):
        found = [pid for leader in leaders for pid in (leader, *below(leader))]
        fresh = [pid for pid in found if pid not in stopped]
        if not fresh:
            break
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
            stopped[pid] = None
    for pid in reversed(stopped):  # ancestors last, so that the others stay below them
        _signal(pid, signal.SIGKILL)


def end_strays(known: Collection[int] = ()) -> int:
    """Kill and reap the descendants that this process has adopted: all its children except `known` (process ids).
    Returns how many they were."""
    strays = [pid for pid in children_of(os.getpid()) if pid not in known]
    if strays:
        kill_with_descendants(*strays)
        for pid in strays:
            _reap(pid)
    return len(strays)


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # it was reaped already


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0  # it has ended


def _threads(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0  # it has ended


def _memory_files(pid: int) -> dict[tuple[int, int], int]:
    """Return (device, inode) → size in bytes of the memfd files that a process has open. Such files do not count as
    resident memory."""
    found: dict[tuple[int, int], int] = {}
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found  # it has ended, or hides them, as ssh-agent does (PR_SET_DUMPABLE)
    for name in names:
        path = f"/proc/{pid}/fd/{name}"
        try:
            if os.readlink(path).startswith("/memfd:"):
                file = os.stat(path)
                found[file.st_dev, file.st_ino] = file.st_blocks * 512
        except OSError:
            continue  # it has closed the file
    return found


def _shared_bytes(pid: int) -> int:
    """Return how many bytes of memfd files a process has mapped. These bytes are part of its resident memory
    already."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
        return int(status.partition(b"RssShmem:")[2].split()[0]) << 10
    except (OSError, IndexError):
        return 0  # it has ended, or the kernel does not say


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has ended
