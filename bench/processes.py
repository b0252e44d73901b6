"""The daemon and the worker that a benchmark measures, as processes on loopback with their own data."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import msgspec

HOOK_JOBS = 32  # at once: enough that neither side waits for the other
QUIET = {**os.environ, "JQD_LOG__LEVEL": "warning"}


@contextmanager
def daemon(settings: dict[str, str] | None = None) -> Iterator[str]:
    """A `jqd serve` with its own store and new data; yields its URL."""
    # The data lie where the project lies: a directory for temporary files may be memory, and would sync for free.
    with (
        tempfile.TemporaryDirectory(prefix=".jqd-bench-", dir=Path.cwd()) as directory,
        serve(Path(directory) / "data", settings) as (url, _),
    ):
        yield url


@contextmanager
def serve(data: Path, settings: dict[str, str] | None = None) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A `jqd serve` with its own store on this data directory; yields its URL and its process."""
    args = [sys.executable, "-m", "jqd", "serve", "--bind", "127.0.0.1:0", "--data-dir", str(data)]
    env = {**QUIET, **(settings or {})}
    with subprocess.Popen(args, stdout=subprocess.PIPE, env=env, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(line.split()[-1] for line in process.stdout if "http://" in line), process
        finally:
            process.terminate()
            process.wait(timeout=60)


@contextmanager
def worker(url: str) -> Iterator[None]:
    """A worker that does nothing, as well as it can."""
    command = ["jqd", "worker", "bench.noop:app", "--daemon", url, "--concurrency", "8", "--quiet"]
    args = [sys.executable, "-m", *command]
    with subprocess.Popen(args, stdout=subprocess.DEVNULL, env=QUIET) as process:
        try:
            yield
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


def batch(size: int, name: str) -> bytes:
    """A MessagePack array of jobs with 200-byte arguments and mixed priorities."""
    return msgspec.msgpack.encode([{"name": name, "argument": "x" * 200, "priority": k % 7} for k in range(size)])


def decode(data: bytes) -> dict[str, object]:
    """A JSON answer."""
    answer: dict[str, object] = json.loads(data)
    return answer
