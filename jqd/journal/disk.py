"""Examines, by writing a small file of its own, whether the disk of a journal would lose jobs."""

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jqd.domain.diagnostic import Diagnostic, Severity

FREE_BYTES = 256 << 20  # four segments: below that a burst of pushes may meet a full disk
FREE_FILES = 1_000  # a journal needs one for each segment, but other programs on that disk take them, too
MOUNTS = Path("/proc/self/mountinfo")

# File systems that go with a restart or with a container, which a journal has to outlive.
PASSING = {
    "tmpfs": "it is memory: a restart of the machine forgets all jobs",
    "ramfs": "it is memory: a restart of the machine forgets all jobs",
    "overlay": "it is the writable layer of a container and goes with it",
    "aufs": "it is the writable layer of a container and goes with it",
}
REMOTE = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.glusterfs"}
)


def examine_disk(directory: Path, *, mounts: Path = MOUNTS) -> list[Diagnostic]:
    """Return findings about the disk where the journal lies, or will lie once it is made."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    return [*_writes(place, directory), *examine_room(place), *_kind(place, mounts)]


def _writes(place: Path, directory: Path) -> Iterator[Diagnostic]:
    try:
        with tempfile.TemporaryFile(dir=place, prefix=".doctor-") as file:
            file.write(b"jqd")
            file.flush()
            os.fdatasync(file.fileno())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        there = "" if place == directory.absolute() else f" ({directory} does not exist yet)"
        yield Diagnostic(
            "disk_unwritable",
            Severity.REFUSE,
            f"nothing can be written and synced in {place}",
            f"the system says: {error.strerror}",
            "make room: delete nothing in that directory; a daemon that runs goes on by itself"
            if full
            else f"give this user (id {os.geteuid()}) a directory of its own on a healthy disk: --data-dir{there}",
        )


def examine_room(place: Path) -> Iterator[Diagnostic]:
    """Return a finding if the disk of this directory is nearly full or read-only. Raises OSError."""
    state = os.statvfs(place)
    free = state.f_bavail * state.f_frsize
    if state.f_flag & os.ST_RDONLY:
        yield Diagnostic(
            "disk_read_only",
            Severity.WARN,
            f"{place} is mounted read-only",
            "nothing can be accepted; the system does that to a disk with errors",
            "look at the disk and at the log of the system, and mount it for writing again",
        )
    elif state.f_files and state.f_favail < FREE_FILES:  # f_files 0: this file system has no limit of files
        yield Diagnostic(
            "disk_nearly_full",
            Severity.WARN,
            f"{place} has room for {state.f_favail} more files (inodes; `df -i`)",
            "when there is none the journal begins no new segment, and pushes are refused (507) after any error",
            "delete files elsewhere on that disk",
        )
    elif free < FREE_BYTES:
        yield Diagnostic(
            "disk_nearly_full",
            Severity.WARN,
            f"{place} has {free >> 20} MiB left",
            "when the disk is full pushes are refused (507) until there is room again",
            f"make room, at least {FREE_BYTES >> 20} MiB, or keep less of the journal (journal.retention_s)",
        )


def _kind(place: Path, mounts: Path) -> Iterator[Diagnostic]:
    kind = _file_system(place, mounts)
    if kind in PASSING:
        yield Diagnostic(
            "disk_passing",
            Severity.WARN,
            f"{place} lies on {kind}",
            PASSING[kind],
            "name a directory on a disk with --data-dir; for a container, one that is mounted from outside",
        )
    elif kind in REMOTE:
        yield Diagnostic(
            "disk_remote",
            Severity.WARN,
            f"{place} lies on {kind}",
            "a sync goes over the network: it is slow, it stands still when the server does, and whether it is kept "
            "there is that server's word; locks between machines may not hold",
            "name a directory on a local disk with --data-dir",
        )


def _file_system(place: Path, mounts: Path) -> str:
    """Return the type of file system that holds `place`; empty if unknown (not Linux)."""
    try:
        device = os.stat(place).st_dev
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [wanted]:
            return after.split(" ")[0]
    return ""
