"""Starts the first process of a context: sets its limits, descriptors, environment, home folder and sandbox.

Between fork and exec it calls only functions that were looked up before the fork.
"""

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from jqd.client.environ import passed_on
from jqd.code.config import MIB, CodeConfig, Limits
from jqd.code.descendants import PR_SET_CHILD_SUBREAPER
from jqd.code.sandbox import HOME, Owner, as_owner, owner_of, sandboxed
from jqd.domain.log import get_logger

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
OOM_SCORE = b"500"  # when memory is short the kernel kills code first, long before daemon and store
SHIMS = Path(__file__).parent / "shims"
PROCESSES_MAX = 4_096  # of the whole user, except root: it stops a fork bomb before the pool notices it


class Launched(NamedTuple):
    """A process that was started, and the reading ends of its output."""

    child: "subprocess.Popen[bytes]"
    home: Path
    prints: int
    """Descriptor, not blocking, from which its standard output is read."""
    complains: int
    """Descriptor, not blocking, from which its standard error is read."""


class NotStarted(Exception):
    """No process could be started, because of the machine and not because of a job. The message says why."""


def python_command(config: CodeConfig, jobs: int, answers: int) -> list[str]:
    return [config.python or sys.executable, "-I", str(SHIMS / "context.py"), str(jobs), str(answers)]


def node_command(config: CodeConfig, jobs: int, answers: int) -> list[str]:
    memory = f"--max-old-space-size={config.limits.memory_mib}"
    return ["node", memory, str(SHIMS / "context.js"), str(jobs), str(answers)]


def open_pipes(count: int) -> list[int]:
    """Make `count` pipes. Returns their descriptors: reading end, writing end, reading end … Raises NotStarted if the
    machine has no more descriptors."""
    ends: list[int] = []
    try:
        for _ in range(count):
            ends += os.pipe()
    except OSError as error:
        for fd in ends:
            os.close(fd)
        raise NotStarted(f"no pipe can be made: {error}") from error
    return ends


def start(
    command: Sequence[str],
    config: CodeConfig,
    base: Path,
    *,
    lang: str,
    fds: Sequence[int],
    stdin: int = subprocess.DEVNULL,
    variables: dict[str, str] | None = None,
) -> Launched:
    """Start a process that runs `command`. The kernel kills it when the calling thread ends. `lang`: the language of
    the code; the limit of memory depends on it. `base`: directory in which the process gets its home folder. `fds`:
    descriptors that it gets besides `stdin`. `variables`: added to its environment. Raises NotStarted if the machine
    can start no process."""
    owner = owner_of(config.user)
    uid = os.getuid() if owner is None else owner.uid
    prints, printed, complains, complained = open_pipes(2)
    try:
        home = _new_home(base, owner)
    except NotStarted:
        for fd in (prints, printed, complains, complained):
            os.close(fd)
        raise
    if owner is not None:
        for fd in fds:
            os.fchown(fd, owner.uid, owner.gid)  # a shell opens them as /dev/fd/N, which needs the rights
    is_apart = config.sandbox == "bwrap"
    seen = HOME if is_apart else str(home)
    given = {"HOME": seen, "TMPDIR": seen, "JQD_CODE": "1"}
    try:
        child = subprocess.Popen(
            sandboxed(command, config) if is_apart else command,
            stdin=stdin,
            stdout=printed,
            stderr=complained,
            pass_fds=fds,
            cwd=home,
            env=passed_on(config.environment) | given | (variables or {}),
            start_new_session=True,
            preexec_fn=_prepared(config.limits, lang, uid, own_privileges=not is_apart),
            **as_owner(owner),
        )
    except (OSError, subprocess.SubprocessError) as error:
        os.close(prints)
        os.close(complains)
        shutil.rmtree(home, ignore_errors=True)
        raise NotStarted(f"{command[0]} cannot be started: {error}") from error
    finally:
        os.close(printed)
        os.close(complained)
    for fd in (prints, complains):
        os.set_blocking(fd, False)
    _offer_to_the_kernel(child.pid)
    return Launched(child, home, prints, complains)


def _offer_to_the_kernel(pid: int) -> None:
    """Have the kernel kill this process first when memory is short. The child cannot set that itself before exec."""
    try:
        Path(f"/proc/{pid}/oom_score_adj").write_bytes(OOM_SCORE)
    except OSError as error:
        get_logger("code").debug("code.no_oom_score", pid=pid, error=str(error))


def _new_home(base: Path, owner: Owner | None) -> Path:
    """Make a new folder in `base`, which belongs to `owner`, and return it. Makes `base` again if somebody has deleted
    it. Raises NotStarted."""
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        if base.stat().st_uid != os.geteuid():
            raise NotStarted(f"{base} was taken by another user: restart this worker")
        home = Path(tempfile.mkdtemp(prefix="home-", dir=base))
        if owner is not None:
            base.chmod(0o711)
            os.chown(home, *owner)
        return home
    except OSError as error:
        raise NotStarted(f"no folder can be made in {base}: {error}; look at that disk") from error


def _prepared(limits: Limits, lang: str, uid: int, *, own_privileges: bool) -> Callable[[], None]:
    """Return a function that the new process calls before exec, to set its limits. `uid`: user of the process.
    `own_privileges`: whether it also keeps the process from gaining privileges; a sandbox does that itself."""
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()
    bounds = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_NOFILE, limits.files),
        (resource.RLIMIT_FSIZE, limits.file_mib * MIB),
    ]
    if lang != "node":  # node reserves some ten GiB that it never uses; `--max-old-space-size` and the pool limit it
        bounds.append((resource.RLIMIT_AS, limits.memory_mib * MIB))
    if uid:  # no such limit holds for root; all processes of the user count
        bounds.append((resource.RLIMIT_NPROC, PROCESSES_MAX))
    lower = [(what, _within(value, resource.getrlimit(what)[1])) for what, value in bounds]

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before prctl was called
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if own_privileges:
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        for what, value in lower:
            resource.setrlimit(what, (value, value))
        os.umask(0o077)

    return prepare


def _within(value: int, hard: int) -> int:
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
