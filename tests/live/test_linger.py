"""A worker that asked for it gets small batches when they have waited for more jobs, and full ones at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import msgpack

from jqd.client import Client
from tests.live.harness import Daemon

LINGER_MS = 2_000  # five pushes take milliseconds, and on a machine with much to do less than this
FULL = 8  # of one request: each of two daemons may give the worker as many


@contextmanager
def counting() -> Iterator[tuple[str, list[int]]]:
    """A worker of twenty lines, and how many jobs each request to it had."""
    sizes: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sizes.append(len(msgpack.unpackb(body)["jobs"]))
            self.send_response(204)
            self.end_headers()

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", sizes
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_few_jobs_wait_for_more_and_many_do_not(shared_daemon: Daemon) -> None:
    with counting() as (url, sizes), Client(shared_daemon.url) as client:
        card = {"name": "lingers", "url": url, "jobs": ["gathered"], "max_jobs": 2 * FULL, "batch_linger_ms": LINGER_MS}
        httpx2.post(f"{shared_daemon.url}/v1/workers", json=card).raise_for_status()
        few = [client.push("gathered", number) for number in range(5)]
        client.wait(few, timeout=30)
        assert sizes == [5]
        infos = client.wait(client.push_many([{"name": "gathered"} for _ in range(FULL)]), timeout=30)
        assert sizes == [5, FULL]
        waited_s = [
            (info.started_at - info.created_at).total_seconds() for info in infos if info.started_at and info.created_at
        ]
        assert max(waited_s) < LINGER_MS / 1000, "nothing more could come"
