"""A worker that asks for its jobs and does nothing with them: `python -m bench.puller HOST:PORT WORKER_ID JOBS`.

Prints how many were acknowledged, and in how many seconds from the first lease on.
"""

import http.client
import sys
import threading
import time
from typing import Any

import msgspec

POLLS = 4  # at once: while one batch is reported, others are on their way
BATCH = 100
WAIT_S = 5.0
HEADERS = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}


class Puller:
    """One connection, and what it asks for."""

    def __init__(self, bind: str, worker_id: str) -> None:
        host, _, port = bind.rpartition(":")
        self._http = http.client.HTTPConnection(host, int(port), timeout=60)
        self._worker_id = worker_id

    def call(self, path: str, body: Any) -> Any:
        """One request."""
        self._http.request("POST", path, msgspec.msgpack.encode(body), HEADERS)
        answer = self._http.getresponse()
        data = answer.read()
        if answer.status not in (200, 201):
            raise RuntimeError(f"{path} is answered with {answer.status}: {data[:300]!r}")
        return msgspec.msgpack.decode(data)

    def lease(self, jobs: int = BATCH, wait_s: float = WAIT_S) -> Any:
        """Jobs, when there are some."""
        return self.call("/v1/leases", {"worker_id": self._worker_id, "max_jobs": jobs, "wait": wait_s})

    def succeed(self, lease: Any) -> int:
        """Report all of it; how many counted."""
        lease_id = lease["lease_id"]
        outcomes = [{"job_id": job["job_id"], "lease_id": lease_id, "type": "success"} for job in lease["jobs"]]
        return sum(one["status"] == 200 for one in self.call("/v1/outcomes", outcomes)["outcomes"])


def main(bind: str, worker_id: str, jobs: int) -> None:
    """Until so many have ended, or none come any more."""
    ended, began = [0], [0.0]
    lock = threading.Lock()

    def work() -> None:
        puller = Puller(bind, worker_id)
        while ended[0] < jobs and (lease := puller.lease())["jobs"]:
            with lock:
                began[0] = began[0] or time.perf_counter()
            counted = puller.succeed(lease)
            with lock:
                ended[0] += counted

    threads = [threading.Thread(target=work) for _ in range(POLLS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and ended[0] < jobs:
        time.sleep(0.001)
    print(ended[0], time.perf_counter() - began[0], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
