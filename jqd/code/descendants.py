"""Finds all descendants of a context, and ends them, however they were started (Linux).

A context's first process adopts what its descendants leave behind (PR_SET_CHILD_SUBREAPER), as the worker does, and
whoever supervises that. So all of it hangs below one of them, also what called setsid or forked twice.
"""

import ctypes
import os
import signal
from collections.abc import Callable, Collection, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jqd.worker.programs import below, children

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
LOOKS_MAX = 50  # for what was started between two looks: each takes some milliseconds, and stops all that it finds
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """What a process uses, with all below it."""

    processes: int
    memory_bytes: int
    """Resident. What processes share is counted in each of them."""


def guard_this_process() -> None:
    """Adopt orphaned descendants, and keep other processes of our user from reading our memory and environment,
    where the worker's token is."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def usage(leaders: Iterable[int]) -> dict[int, Usage]:
    """Return what each of them uses now."""
    found: dict[int, Usage] = {}
    look = _looked()
    for leader in leaders:
        sizes = [_resident_bytes(pid) for pid in look(leader)]
        found[leader] = Usage(sum(size > 0 for size in sizes), sum(sizes))  # dead ones that nobody has reaped have none
    return found


def kill_with_descendants(*leaders: int) -> None:
    """Kill children of ours and all below them: all are stopped first, so that none starts another. They are not reaped
    here, so their process ids stay taken."""
    stopped: dict[int, None] = {}
    for _ in range(LOOKS_MAX):
        look = _looked()
        found = [pid for leader in leaders for pid in look(leader)]
        fresh = [pid for pid in found if pid not in stopped]
        if not fresh:
            break
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
            stopped[pid] = None
    for pid in reversed(stopped):  # the first ones last: what is left hangs below them until then
        _signal(pid, signal.SIGKILL)


def end_strays(known: Collection[int] = ()) -> int:
    """Kill and reap what we adopted: every child of ours but those that are `known`.

    Returns how many are left, dying.
    """
    strays = [pid for pid in _own_children() if pid not in known]
    if strays:
        kill_with_descendants(*strays)
        for pid in strays:
            _reap(pid)
    return len(strays)


def _own_children() -> list[int]:
    return _children_of(os.getpid()) if _are_listed() else children().get(os.getpid(), [])


def _looked() -> Callable[[int], list[int]]:
    """Return a function that returns a process and all below it, at about the same time."""
    if _are_listed():
        return _tree
    of = children()
    return lambda leader: [leader, *below(leader, of)]


@cache
def _are_listed() -> bool:
    """Return whether the kernel lists children, so that no other process of the machine needs to be looked at: with
    many thousands of these that would hold up the worker."""
    return Path("/proc/thread-self/children").exists()


def _tree(leader: int) -> list[int]:
    found = [leader]
    for each in found:  # grows as it goes
        found += _children_of(each)
    return found


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    except OSError:
        return found  # it, or a thread of it, has ended meanwhile
    return found


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # it is another thread's, or was reaped


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0  # it has ended meanwhile


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has ended meanwhile
