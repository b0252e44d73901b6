"""Isolates code from its worker: by another user, if the worker is root, and by bubblewrap.

In bubblewrap code sees the system's programs, its interpreter and its home folder, and no other process or file. It can
write only to its home and to /dev/shm. Both are in memory that counts for no process, so each has a limit of its own.
"""

import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jqd.code.config import MIB, CodeConfig
from jqd.domain.errors import ConfigError
from jqd.domain.log import get_logger

HOME = "/tmp"  # noqa: S108 - private, empty at first; at this path because many programs write there anyway
PROBE_S = 10.0  # for a trial sandbox, which usually takes some milliseconds
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
KNOWN = ("ld.so.cache", "ca-certificates", "alternatives", "localtime", "passwd", "group")
# Without the private keys beside them, which a worker of root could read.
TRUSTED = (
    *("ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf"),
    *("pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf"),  # of Red Hat and its kin
)
NAMESPACES_MAX = Path("/proc/sys/user/max_user_namespaces")
NETWORK = ("resolv.conf", "hosts", "nsswitch.conf", "services")


def sandboxed(command: Sequence[str], config: CodeConfig) -> list[str]:
    rows = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    size = ["--size", str(config.limits.memory_mib * MIB)] if _knows("--size") else []
    if _knows("--disable-userns") and _may_nest():  # in a namespace of its own code might mount memory without a bound
        rows += ["--unshare-user", "--disable-userns"]
    rows += ["--proc", "/proc", "--dev", "/dev", *size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    rows += [*size, "--tmpfs", HOME]
    for path in SYSTEM:
        if Path(path).is_symlink():
            rows += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).exists():
            rows += ["--ro-bind", path, path]
    names = KNOWN + TRUSTED + (NETWORK if config.network else ())
    shims = Path(__file__).parent / "shims"
    for path in [f"/etc/{name}" for name in names] + [sys.base_prefix, sys.prefix, str(shims)]:
        if Path(path).exists() and not path.startswith(tuple(f"{root}/" for root in SYSTEM)):
            rows += ["--ro-bind", path, path]
    if config.network:
        rows.append("--share-net")
    return [*rows, "--remount-ro", "/", "--chdir", HOME, "--", *command]


def _may_nest() -> bool:
    """Return whether processes on this machine may make user namespaces. If not, bubblewrap works only for a worker
    that runs as root."""
    try:
        return NAMESPACES_MAX.read_text().strip() != "0"
    except OSError:
        return False  # this kernel has none


@cache
def _knows(option: str) -> bool:
    """Return whether the installed bubblewrap has an option: `--size` came with 0.5, `--disable-userns` with 0.8."""
    helped = subprocess.run(["bwrap", "--help"], capture_output=True, timeout=PROBE_S, check=False)
    return option.encode() in helped.stdout + helped.stderr


def expect_sandbox(config: CodeConfig) -> None:
    """Check that the configured sandbox works, by starting a process in it that does nothing. Raises ConfigError."""
    if config.sandbox == "none":
        return
    try:
        tried = subprocess.run(
            sandboxed(["true"], config),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_S,
            check=False,
            **as_owner(owner_of(config.user)),
        )
        why = "" if tried.returncode == 0 else tried.stderr.decode("utf-8", "replace").strip()[-300:]
    except (OSError, subprocess.TimeoutExpired) as error:
        why, tried = str(error), None
    if tried is None or tried.returncode:
        message = why or "it ended without a word"
        raise ConfigError(f"--sandbox bwrap does not work here: {message}. {_remedy(message)}; no code runs without it")
    if missing := [option for option in ("--size", "--disable-userns") if not _knows(option)]:
        why = f"this bubblewrap has no {' and no '.join(missing)}: code may write to memory without a limit"
        get_logger("code").warning("code.memory_unbounded", why=f"{why}; install 0.8 or newer, or bound the worker")


def _remedy(message: str) -> str:
    """Return what to do about a sandbox that does not work. `message`: that of bubblewrap or the system."""
    if "source path" in message and "Permission denied" in message:
        return (
            "The user that runs the code must be able to read this path, and to enter the folders above it: put jqd and"
            " its Python elsewhere, like /opt, or change the folders' mode"
        )
    return (
        "Install bubblewrap, and allow user namespaces to this user (a systemd unit: no RestrictNamespaces,"
        " ProtectKernelTunables or ProtectKernelLogs)"
    )


class Owner(NamedTuple):
    uid: int
    gid: int


@cache
def owner_of(user: str) -> Owner | None:
    """Return the user id and group id of a user name; None: it is empty, or the worker's own user. Raises ConfigError
    if there is no such user."""
    if not user:
        return None
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise ConfigError(f"--user {user}: this machine has no such user") from None
    return None if found.pw_uid == os.geteuid() else Owner(found.pw_uid, found.pw_gid)


def as_owner(owner: Owner | None) -> dict[str, Any]:
    """Return the arguments with which `subprocess` starts a process as this user; None: as the own user."""
    return {} if owner is None else {"user": owner.uid, "group": owner.gid, "extra_groups": []}


def expect_owner(user: str) -> None:
    """Check that code can run as this user. Raises ConfigError if it cannot, or if it would run as root without `--user
    root`."""
    is_root = os.geteuid() == 0
    if is_root and not user:
        raise ConfigError(
            "this worker is root, and so would be all code: no limit of processes holds for root, and it may read the"
            " worker's token. Give the code a user with --user NAME, or say --user root if it must be so"
        )
    if not is_root and owner_of(user) is not None:
        raise ConfigError(f"--user {user}: only a worker of root can run code as somebody else; start it as that user")
