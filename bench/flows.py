"""What it costs that jobs have to do with others: chains of ten, one long chain, and one job that waits for all others.

Each against as many plain jobs, on the same daemon and worker, one after the other in one run.
"""

import time

import httpx2
import msgspec

from bench.e2e import LIMIT_S, MSGPACK, POLL_S, succeeded, wait_worker
from bench.processes import daemon, worker
from bench.result import Result

ARRAY = 500
STEPS = 10  # of each of many chains
LONG = 1_000  # steps of the one chain

Job = dict[str, object]
JOB: Job = {"name": "noop", "argument": "x" * 100}


def chain(jobs: int) -> Result:
    """Jobs per second: many chains of ten by `then`, one chain of 1,000 by `after`, and plain jobs."""
    with daemon() as url, worker(url), httpx2.Client(timeout=60) as client:
        wait_worker(client, url)
        plain_s = _timed(client, url, [JOB] * jobs)
        chains = max(1, jobs // STEPS)
        chained_s = _timed(client, url, [_nested(STEPS)] * chains, chains * STEPS)
        one_by_one_s = _one_by_one(client, url, LONG // 10) * 10
        began = time.perf_counter()
        before = succeeded_at(client, url)
        post(
            client,
            url,
            [JOB | {"job_id": f"step-{n}"} | ({"after": [f"step-{n - 1}"]} if n else {}) for n in range(LONG)],
        )
        _wait(client, url, before + LONG)
        long_s = time.perf_counter() - began
    rates = {"plain_per_s": jobs / plain_s, "chains_per_s": chains * STEPS / chained_s, "long_per_s": LONG / long_s}
    ratios = {
        "chains_of_plain": rates["chains_per_s"] / rates["plain_per_s"],
        "long_of_one_by_one": one_by_one_s / long_s,
    }
    return Result("chain", rates | ratios)


def fanin(jobs: int) -> Result:
    """Jobs per second: as many parents and one child that waits for all of them, and plain jobs."""
    parents = min(jobs, 10_000)
    with daemon() as url, worker(url), httpx2.Client(timeout=60) as client:
        wait_worker(client, url)
        plain_s = _timed(client, url, [JOB] * parents)
        before = succeeded_at(client, url)
        began = time.perf_counter()
        ids = post(client, url, [JOB] * parents)
        post(client, url, [JOB | {"after": ids}])
        _wait(client, url, before + parents + 1)
        waited_s = time.perf_counter() - began
    rates = {"plain_per_s": parents / plain_s, "fanin_per_s": (parents + 1) / waited_s}
    return Result("fanin", rates | {"fanin_of_plain": rates["fanin_per_s"] / rates["plain_per_s"]})


def _nested(steps: int) -> Job:
    job: Job = dict(JOB)
    for _ in range(steps - 1):
        job = JOB | {"then": job}
    return job


def post(client: httpx2.Client, url: str, jobs: list[Job]) -> list[str]:
    """Push them in arrays; their ids."""
    ids: list[str] = []
    for at in range(0, len(jobs), ARRAY):
        body = msgspec.msgpack.encode(jobs[at : at + ARRAY])
        ids += client.post(url + "/v1/jobs", content=body, headers=MSGPACK).raise_for_status().json()["job_ids"]
    return ids


def _timed(client: httpx2.Client, url: str, jobs: list[Job], ends: int = 0) -> float:
    """Seconds from the first push to the last end. `ends`: how many jobs they are in the end."""
    before = succeeded_at(client, url)
    began = time.perf_counter()
    post(client, url, jobs)
    _wait(client, url, before + (ends or len(jobs)))
    return time.perf_counter() - began


def _one_by_one(client: httpx2.Client, url: str, steps: int) -> float:
    """Seconds for jobs of which each is pushed when the one before it has ended: a chain made by hand."""
    began = time.perf_counter()
    for _ in range(steps):
        pushed = client.post(url + "/v1/jobs", content=msgspec.msgpack.encode(JOB), headers=MSGPACK).json()
        client.get(f"{url}/v1/jobs/{pushed['job_id']}?wait=10").raise_for_status()
    return time.perf_counter() - began


def succeeded_at(client: httpx2.Client, url: str) -> int:
    """How many have, once the store knows it of all of them."""
    return succeeded(client.get(url + "/v1/stats", headers={"accept": "application/json"}).json())


def _wait(client: httpx2.Client, url: str, ended: int) -> None:
    deadline = time.perf_counter() + LIMIT_S
    while succeeded_at(client, url) < ended:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"not {ended} jobs ended in {LIMIT_S:.0f} s")
        time.sleep(POLL_S)
