"""The daemon and the worker that a benchmark measures, as processes on loopback with their own data."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2
import msgspec

LOOK_S = 0.05  # between looks whether something is so
HOOK_JOBS = 32  # at once: enough that neither side waits for the other
QUIET = {**os.environ, "JQD_LOG__LEVEL": "warning"}
SILENT = {"JQD_LOG__LEVEL": "error"}  # where what is warned of is what is measured


@contextmanager
def directory() -> Iterator[Path]:
    """A new one, where the project lies: one for temporary files may be memory, and would sync for free."""
    with tempfile.TemporaryDirectory(prefix=".jqd-bench-", dir=Path.cwd()) as name:
        yield Path(name)


@contextmanager
def daemon(settings: dict[str, str] | None = None) -> Iterator[str]:
    """A `jqd serve` with its own store and new data; yields its URL."""
    with directory() as base, serve(base / "data", settings) as (url, _):
        yield url


@contextmanager
def serve(
    data: Path, settings: dict[str, str] | None = None, program: Sequence[str] = ("-m", "jqd")
) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A `jqd serve` with its own store on this data directory; yields its URL and its process."""
    args = [sys.executable, *program, "serve", "--bind", "127.0.0.1:0", "--data-dir", str(data)]
    env = {**QUIET, **(settings or {})}
    with subprocess.Popen(args, stdout=subprocess.PIPE, env=env, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(line.split()[-1] for line in process.stdout if "http://" in line), process
        finally:
            process.terminate()
            process.wait(timeout=60)


@contextmanager
def worker(
    *urls: str, concurrency: int = 8, flags: Sequence[str] = (), env: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker that does nothing, as well as it can."""
    command = ["jqd", "worker", "bench.noop:app", "--concurrency", str(concurrency), "--quiet", *flags]
    args = [sys.executable, "-m", *command, *(word for url in urls for word in ("--daemon", url))]
    with subprocess.Popen(args, stdout=subprocess.DEVNULL, env={**QUIET, **(env or {})}) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=60)


@contextmanager
def hook(url: str) -> Iterator[None]:
    """A web hook in Node that does nothing, registered."""
    args = ["node", str(Path(__file__).with_name("hook.js"))]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            where = f"http://127.0.0.1:{process.stdout.readline().strip()}/"
            card = {"name": "hook", "url": where, "jobs": ["noop"], "style": "webhook", "max_jobs": HOOK_JOBS}
            httpx2.post(url + "/v1/workers", json=card).raise_for_status()
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)


def wait_until(ready: Callable[[], bool], seconds: float) -> bool:
    """Whether it became so in time."""
    deadline_s = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(LOOK_S)
    return True


def memory_mb(pid: int) -> float:
    """What a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4_096 / 1e6


def batch(size: int, name: str) -> bytes:
    """A MessagePack array of jobs with 200-byte arguments and mixed priorities."""
    return msgspec.msgpack.encode([{"name": name, "argument": "x" * 200, "priority": k % 7} for k in range(size)])


def decode(data: bytes) -> dict[str, object]:
    """A JSON answer."""
    answer: dict[str, object] = json.loads(data)
    return answer
