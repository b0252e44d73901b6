"""Child processes that `jqd dev` starts beside its daemon. They end when the daemon does; the daemon goes on when one
of them ends."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from jqd.cli.exits import Exit

PR_SET_PDEATHSIG = 1  # prctl(2): a signal for this process when its parent dies
STOP_S = 35.0  # a worker drains for 30 s by default
AGAIN_S = (1.0, 2.0, 4.0, 8.0, 16.0)  # waits before a dead child is started again; then it stays dead


class Start(Protocol):
    """A function that starts `jqd` as a child process. `words`: its arguments. `again`: start it again when it dies,
    but only a few times."""

    def __call__(self, *words: str, again: bool = False) -> None: ...


@contextmanager
def children() -> Iterator[Start]:
    """Yield a function that starts child processes. The child processes end with the block, and also when this process
    is killed."""
    started: list[_Child] = []

    def start(*words: str, again: bool = False) -> None:
        child = _Child(words)
        started.append(child)
        if again:
            threading.Thread(target=child.keep, name=f"jqd-{words[0]}", daemon=True).start()

    try:
        yield start
    finally:
        for child in started:
            child.end()
        for child in started:
            child.wait()


class _Child:
    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        self._ending = threading.Event()
        self._lock = threading.Lock()  # so that `end` cannot miss a child that is being started again
        self._process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        parent = os.getpid()
        prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None  # looked up before the fork, called after

        def die_with_parent() -> None:
            if prctl is not None:
                prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)  # the parent died before prctl was called

        args = [sys.executable, "-m", "jqd", *self._words]
        # In its own session, so that Ctrl-C reaches only the daemon, and the child ends after it.
        return subprocess.Popen(args, preexec_fn=die_with_parent, start_new_session=True)

    def keep(self) -> None:
        """Start the child again each time it dies, at most len(AGAIN_S) times; not if its arguments are wrong."""
        for wait_s in AGAIN_S:
            if self._process.wait() == Exit.USAGE or self._ending.wait(wait_s):
                return
            with self._lock:
                if self._ending.is_set():
                    return
                self._process = self._begin()
        self._process.wait()  # this thread started it, and prctl would kill it when the thread ends

    def end(self) -> None:
        with self._lock:
            self._ending.set()
        self._process.terminate()

    def wait(self) -> None:
        try:
            self._process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
