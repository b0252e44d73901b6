"""What open pages of the web UI cost a daemon: jobs pushed a second, in turns without pages and with 500 live ones."""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx2
import trio

from bench.processes import batch, serve
from bench.result import Result

TURNS = 3  # of each kind
BATCH = 100
RATIO_MIN = 0.9  # of the throughput beside open pages to that without
PATH = b"/"  # Now: its stream brings it anew; at a bare tick it is fetched, as htmx does
OPENING = 32  # at once
SETTLE_S = 3.0


def run(pages: int) -> Result:
    """`pages`: how many are open."""
    with tempfile.TemporaryDirectory(prefix=".jqd-bench-", dir=Path.cwd()) as directory:
        settings = {"JQD_PRESSURE__WAITING_JOBS_MAX": "100000000"}
        with serve(Path(directory) / "data", settings) as (url, _), ui(url) as page_url:
            alone, beside = [], []
            for _ in range(TURNS):
                alone.append(_rate(url))
                with _open(page_url, pages):
                    beside.append(_rate(url))
                time.sleep(SETTLE_S)
    ratio = sum(beside) / sum(alone)
    figures = {"pages": pages, "alone/s": max(alone), "beside/s": max(beside), "ratio": ratio}
    return Result("ui", figures, ok=ratio >= RATIO_MIN)


def _rate(url: str, seconds: float = 5.0) -> float:
    body, pushed, began_s = batch(BATCH, "noop"), 0, time.monotonic()
    with httpx2.Client(base_url=url, headers={"content-type": "application/msgpack"}, timeout=30) as client:
        while time.monotonic() - began_s < seconds:
            client.post("/v1/jobs", content=body).raise_for_status()
            pushed += BATCH
    return pushed / (time.monotonic() - began_s)


@contextmanager
def ui(url: str) -> Iterator[str]:
    args = [sys.executable, "-m", "jqd", "ui", "--url", url, "--bind", "127.0.0.1:0"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            process.wait(timeout=60)


@contextmanager
def _open(url: str, pages: int) -> Iterator[None]:
    """That many pages that follow their streams."""
    ready, scope = threading.Event(), trio.CancelScope()
    tokens: list[trio.lowlevel.TrioToken] = []

    async def all_of_them() -> None:
        tokens.append(trio.lowlevel.current_trio_token())
        limiter, opened = trio.CapacityLimiter(OPENING), [0]
        with scope:
            async with trio.open_nursery() as nursery:
                for _ in range(pages):
                    nursery.start_soon(one, limiter, opened)

    async def one(limiter: trio.CapacityLimiter, opened: list[int]) -> None:
        async with limiter:
            stream = await _ask(url, b"/live?page=" + quote(PATH, safe="").encode())
            await stream.receive_some(4096)
        opened[0] += 1
        if opened[0] == pages:
            ready.set()
        while told := await stream.receive_some(4096):
            if b"event: tick" in told:
                page = await _ask(url, PATH, b"Connection: close\r\n")
                async with page:
                    while await page.receive_some(65_536):
                        continue

    thread = threading.Thread(target=trio.run, args=(all_of_them,))
    with ExitStack() as stack:
        thread.start()
        stack.callback(thread.join, 30)
        stack.callback(lambda: tokens[0].run_sync_soon(scope.cancel))
        assert ready.wait(120), "the pages do not open"
        time.sleep(SETTLE_S)
        yield


async def _ask(url: str, path: bytes, headers: bytes = b"") -> trio.SocketStream:
    place = urlsplit(url)
    stream = await trio.open_tcp_stream(place.hostname or "", place.port or 80)
    await stream.send_all(b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (path, headers))
    return stream
