"""Jobs pulled in batches of 100 by one worker process, each batch reported before the next is asked for.

All jobs are pushed before the worker begins. A job counts when its outcome is acknowledged, which means synced.
"""

import subprocess
import sys

import httpx2

from bench.processes import QUIET, batch, daemon
from bench.puller import Puller
from bench.result import Result

ARRAY = 1_000
MSGPACK = {"content-type": "application/msgpack", "accept": "application/json"}


def run(jobs: int) -> Result:
    """Jobs a second from the first lease to the last acknowledgement."""
    arrays = max(1, jobs // ARRAY)
    total = arrays * ARRAY
    with daemon() as url, httpx2.Client(timeout=60) as client:
        body = batch(ARRAY, "pulled")
        for _ in range(arrays):
            client.post(url + "/v1/jobs", content=body, headers=MSGPACK).raise_for_status()
        bind = url.removeprefix("http://")
        card = {"name": "bench", "jobs": ["pulled"], "max_jobs": 100}
        worker_id = Puller(bind, "").call("/v1/workers", card)["worker_id"]
        args = [sys.executable, "-m", "bench.puller", bind, worker_id, str(total)]
        told = subprocess.run(args, capture_output=True, text=True, env=QUIET, timeout=300, check=True).stdout.split()
    ended, seconds = int(told[0]), float(told[1])
    return Result("pull", {"jobs_per_s": ended / seconds, "jobs": float(total)}, ok=ended == total)
