"""What the store's own accidents cost: it is killed and started again, and it comes back empty, with jobs that wait."""

import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import httpx2
import msgspec

from bench.load import NAME
from bench.marks import MARKS, Marks, argument
from bench.peers.servers import free_port, valkey
from bench.processes import SILENT, directory, serve, wait_until, worker
from bench.result import Result

ARRAY = 1_000
MSGPACK = {"content-type": "application/msgpack", "accept": "application/json"}
LIMIT_S = 300.0
AWAY_S = 3.0  # so long the store is away: a daemon notices within a second or two


def run(jobs: int) -> Result:
    """Seconds from the server's start until a daemon starts jobs and all wait again; then a worker runs them all."""
    with directory() as base, ExitStack() as stack:
        store = Store(base / "store")
        stack.callback(store.kill)
        url, _ = stack.enter_context(serve(base / "data", {**SILENT, "JQD_STORE__URL": store.start()}))
        _push(url, jobs)
        _wait(url, jobs)
        figures = {"jobs": float(jobs)}
        for name, empty in (("restarted", False), ("emptied", True)):
            store.kill()
            time.sleep(AWAY_S)
            began_s = time.monotonic()
            store.start(empty=empty)
            _wait(url, jobs)
            figures[f"{name}_s"] = time.monotonic() - began_s
        figures["refilled_per_s"] = jobs / figures["emptied_s"]
        marks = Marks(base / "marks")
        stack.callback(marks.close)
        with worker(url, env={MARKS: str(marks.path)}):
            marks.wait(jobs, LIMIT_S)
        begun = marks.times_ns()
    figures["lost"] = float(jobs - len(begun))
    figures["began_again"] = float(sum(len(at) - 1 for at in begun.values()))
    return Result("recover", figures, ok=not figures["lost"])


class Store:
    """A server on one port, which may be killed and started with or without its data."""

    def __init__(self, data: Path) -> None:
        self._data, self._port = data, free_port()
        self._stack = ExitStack()

    def start(self, *, empty: bool = False) -> str:
        """Its URL, when it answers."""
        if empty:
            shutil.rmtree(self._data)
        self._data.mkdir(exist_ok=True)
        return self._stack.enter_context(valkey(self._data, self._port))

    def kill(self) -> None:
        """As a crash would."""
        self._stack.close()


def _push(url: str, jobs: int) -> None:
    with httpx2.Client(timeout=LIMIT_S) as client:
        for first in range(0, jobs, ARRAY):
            numbers = range(first, min(jobs, first + ARRAY))
            body = msgspec.msgpack.encode([{"name": NAME, "argument": argument(number)} for number in numbers])
            client.post(f"{url}/v1/jobs", content=body, headers=MSGPACK).raise_for_status()


def _wait(url: str, jobs: int) -> None:
    """Return when the daemon starts jobs, and so many wait in the store."""
    with httpx2.Client(timeout=LIMIT_S, headers={"accept": "application/json"}) as client:

        def ready() -> bool:
            if client.get(f"{url}/readyz/run").status_code != 200:
                return False
            answer = client.get(f"{url}/v1/stats")
            return answer.status_code == 200 and bool(answer.json()["store"]["waiting"] == jobs)

        if not wait_until(ready, LIMIT_S):
            raise TimeoutError(f"not {jobs} jobs in the store within {LIMIT_S:.0f} s")
