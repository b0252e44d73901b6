"""Notices when source files change, by polling, which works on every file system and without a library."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from jqd.domain.log import get_logger

LOOK_S = 1.0  # between polls: quick enough after saving in an editor
FILES_MAX = 5_000  # files polled: some 20 ms
SHOWN_MAX = 5  # files named in a log line
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})

Stamps = dict[str, tuple[int, int]]


class Watch:
    """Watches the Python files in a folder and below, except in hidden folders and virtual environments."""

    def __init__(self, root: Path, look_s: float = LOOK_S) -> None:
        self.has_signalled = False
        self._root, self._look_s = root, look_s
        self._known = stamps(root)

    def wait(self) -> list[str]:
        """Block until files were added, removed or changed, and then until a poll finds no further change. Returns the
        names of these files."""
        changed: set[str] = set()
        while True:
            threading.Event().wait(self._look_s)
            known, self._known = self._known, stamps(self._root)
            fresh = {name for name in known.keys() | self._known.keys() if known.get(name) != self._known.get(name)}
            if changed and not fresh:
                return sorted(changed)
            changed |= fresh

    def start(self) -> None:
        """Start a daemon thread that sends this process SIGHUP after each change."""
        threading.Thread(target=self._signal, name="jqd-reload", daemon=True).start()

    def _signal(self) -> None:
        while True:
            names = self.wait()
            get_logger("worker").info("worker.code_changed", files=names[:SHOWN_MAX], count=len(names))
            self.has_signalled = True
            os.kill(os.getpid(), signal.SIGHUP)


def stamps(root: Path) -> Stamps:
    """Return file name → (time of the last change, size), for the first FILES_MAX files."""
    found: Stamps = {}
    for entry in _files(str(root)):
        if len(found) == FILES_MAX:
            break
        try:
            known = entry.stat()
        except OSError:
            continue  # it was just deleted
        found[os.path.relpath(entry.path, root)] = (known.st_mtime_ns, known.st_size)
    return found


def _files(folder: str) -> Iterator["os.DirEntry[str]"]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return  # it was just deleted, or may not be read
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    yield from (entry for entry in entries if entry.name.endswith(".py") and entry.is_file())
    for entry in entries:
        if not entry.name.startswith(".") and entry.name not in SKIPPED and entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
