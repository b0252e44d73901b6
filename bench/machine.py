"""What a figure was measured on: cores, interpreter, and how long the disk takes to sync."""

import os
import platform
import tempfile
import time
from pathlib import Path
from statistics import median

SYNCS = 20
BLOCK = b"x" * 4_096


def machine() -> str:
    """One line."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {platform.release()}, "
        f"a sync of 4 KiB in {sync_ms():.2f} ms"
    )


def sync_ms() -> float:
    """Milliseconds that this directory's disk takes to have 4 KiB more on it."""
    took_ms = []
    with tempfile.TemporaryFile(prefix=".jqd-bench-", dir=Path.cwd()) as file:
        for _ in range(SYNCS):
            began_s = time.perf_counter()
            file.write(BLOCK)
            file.flush()
            os.fdatasync(file.fileno())
            took_ms.append((time.perf_counter() - began_s) * 1e3)
    return median(took_ms)
