"""Starts what tests run as `python -m jqd` in a tenth of the time: a fork of a Python that has imported all of it.

The suite starts hundreds of daemons, workers and pages, which would spend most of their starts on imports. What is
started here is a child of the test's own process, with streams, folder, environment and session of its own.

test ── words, folder, environment; stdin, stdout, stderr ─▶ a Python for each process of tests ── fork ─▶ what is run
"""

import atexit
import ctypes
import gc
import json
import os
import platform
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from importlib import import_module
from typing import Any

CLONE_PARENT = 0x8000  # clone(2): a sister of whoever calls it, so that the test can wait for it
CLONE = {("Linux", "x86_64"): 56, ("Linux", "aarch64"): 220}.get((platform.system(), platform.machine()))
FIXED = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")  # variables that are looked at before anything is imported
MESSAGE_BYTES = 1 << 18  # words and an environment have some kilobytes
# By the command of jqd: what it imports, beside what all do.
NEEDED = {
    "serve": ("jqd.cli.server",),
    "worker": ("jqd.cli.worker", "jqd.worker.demo"),
    "ui": ("jqd.cli.ui",),
}
_one_at_a_time = threading.Lock()


class Popen(subprocess.Popen[str]):
    """As that of `subprocess`, for a list of words; what `python -m` runs is quick."""

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *others: Any) -> None:
        _, pass_fds, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *_ = others
        environ = dict(os.environ if env is None else env)
        given = {name for name, value in environ.items() ^ os.environ.items() if name.startswith(FIXED)}
        if CLONE is None or preexec_fn or pass_fds or given or args[:2] != [sys.executable, "-m"]:
            super()._execute_child(args, executable, preexec_fn, *others)  # type: ignore[misc]
            return
        files = resource.getrlimit(resource.RLIMIT_NOFILE)
        message = json.dumps([args[2:], os.path.abspath(cwd or "."), environ, others[-2], files]).encode()
        streams = [own if given == -1 else given for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        with _one_at_a_time:
            socket.send_fds(_ready(), [message], streams)
            self.pid = int(_ready().recv(MESSAGE_BYTES))
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


@cache
def _ready() -> socket.socket:
    """Where to ask for forks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [sys.executable, "-m", "tests.starts", str(theirs.fileno())]
    python = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()], process_group=0
    )
    theirs.close()

    def end() -> None:
        ours.close()
        python.wait(timeout=60.0)

    atexit.register(end)
    return ours


def _fork() -> int:
    """As `os.fork`."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = int(python.syscall(CLONE, ctypes.c_long(CLONE_PARENT | signal.SIGCHLD), *[ctypes.c_long(0)] * 4))
    (python.PyOS_AfterFork_Child if pid == 0 else python.PyOS_AfterFork_Parent)()
    return pid


def _serve(asked: socket.socket) -> str | None:
    """Fork whenever asked to. Returns None once nobody asks any more; in what was forked, the module to be run."""
    while True:
        message, streams, _, _ = socket.recv_fds(asked, MESSAGE_BYTES, 3)
        if not message:
            return None
        (module, *words), folder, environ, is_leader, files = json.loads(message)
        for each in ("jqd.cli.app", *NEEDED.get(next(iter(words), ""), ())):
            import_module(each)
        gc.freeze()
        pid = _fork()
        if pid == 0:
            break
        for stream in streams:
            os.close(stream)
        asked.send(str(pid).encode())
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if is_leader:
        os.setsid()
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())  # type: ignore[union-attr]
    sys.path[0], sys.argv[1:] = folder, words
    return str(module)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        module = _serve(asked)
    if module is not None:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
