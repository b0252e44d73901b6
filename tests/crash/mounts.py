"""Small file systems for one test: mounted, and gone with the block. `why_not` says what is missing for that."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


def run(*command: str) -> str:
    """What it printed. AssertionError with its complaint when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout.strip()


@cache
def why_not(*needed: str) -> str | None:
    """Why nothing can be mounted here, or these programs or devices are missing; None when all is there."""
    if os.geteuid() != 0:
        return "only root may mount"
    for name in ("mount", "umount", *needed):
        if shutil.which(name) is None and not Path(name).exists():
            return f"there is no {name}"
    with tempfile.TemporaryDirectory() as directory:
        try:
            with tmpfs(Path(directory)):
                if "losetup" in needed:
                    run("losetup", "-f")
        except AssertionError as error:
            return f"mounting is not permitted here: {error}"
    return None


@contextmanager
def tmpfs(place: Path, size: str = "4m") -> Iterator[Path]:
    """A file system in memory."""
    run("mount", "-t", "tmpfs", "-o", f"size={size}", "jqd-test", str(place))
    with unmounted_after(place):
        yield place


@contextmanager
def unmounted_after(place: Path) -> Iterator[None]:
    """Unmount it in the end; lazily when somebody still stands in it, so that a failed test leaves nothing behind."""
    try:
        yield
    finally:
        if subprocess.run(["umount", str(place)], capture_output=True).returncode:
            run("umount", "-l", str(place))


@contextmanager
def loop_device(image: Path) -> Iterator[str]:
    """The file as a block device."""
    device = run("losetup", "-f", "--show", str(image))
    try:
        yield device
    finally:
        run("losetup", "-d", device)


@contextmanager
def requests_of_one_page(device: str) -> Iterator[None]:
    """Make a loop on a file system that may fill up an honest disk.

    Linux' loop takes a write that was cut short for a whole one, which no program above it can notice; one page is
    never cut short.
    """
    limit = Path(f"/sys/block/{Path(device).name}/queue/max_sectors_kb")
    before = limit.read_text()
    limit.write_text("4")
    try:
        yield
    finally:
        limit.write_text(before)


@contextmanager
def mounted(device: str, place: Path) -> Iterator[Path]:
    """What is on the device, at that place."""
    run("mount", device, str(place))
    with unmounted_after(place):
        yield place
