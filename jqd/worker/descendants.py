"""The programs that jobs of this process have started and that still run: killed when it leaves them behind.

Found by their parents in /proc (Linux). A program whose own parent has ended belongs to init by then, and is not found.
"""

import os
import signal
from pathlib import Path
from typing import NamedTuple

COMMAND_CHARS_MAX = 100  # of a command line in a log


class Program(NamedTuple):
    pid: int
    command: str


def kill_descendants() -> list[Program]:
    """Kill all of them, and say which: what a job has started is not to go on beside its next attempt."""
    found = _below(os.getpid(), _children())
    killed = []
    for pid in found:
        command = _command(pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has ended meanwhile
        except PermissionError:
            command += " (not killed: it runs as somebody else)"
        killed.append(Program(pid, command))
    return killed


def _children() -> dict[int, list[int]]:
    """Of every process on this machine that we may see."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = entry.read_bytes()
        except OSError:
            continue  # it has ended meanwhile
        parent = int(stat.rpartition(b")")[2].split()[1])  # its name stands in parentheses, and may hold some itself
        children.setdefault(parent, []).append(int(entry.parent.name))
    return children


def _below(pid: int, children: dict[int, list[int]]) -> list[int]:
    found = list(children.get(pid, ()))
    for each in found:  # grows as it goes
        found.extend(children.get(each, ()))
    return found


def _command(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError as error:
        return f"its command cannot be read: {error.strerror}"
    return line.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:COMMAND_CHARS_MAX]
