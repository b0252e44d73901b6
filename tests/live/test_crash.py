"""kill -9, a store that is away, SIGTERM under load: nothing acknowledged is lost, what ran twice is explained."""

import threading
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from jqd.client import Client, JqdClientError
from tests.directories import short_directory
from tests.live.harness import Daemon, Worker, ingested, pair
from tests.valkey import valkey

ENOUGH = 600  # jobs: a dozen batches, and hundreds of jobs that wait or are at work when the daemon ends


class Pusher(threading.Thread):
    """Pushes batches until told to stop or the daemon is gone; remembers only what was acknowledged."""

    def __init__(self, url: str, batch: int = 50, name: str = "square") -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[str, int] = {}
        self.refused = 0
        self.enough = threading.Event()
        self._stop_now = threading.Event()
        self._url, self._batch, self._name = url, batch, name

    def run(self) -> None:
        with Client(self._url) as client:
            n = 0
            while not self._stop_now.is_set():
                numbers = range(n, n + self._batch)
                n += self._batch
                try:
                    ids = client.push_many([{"name": self._name, "argument": {"n": k}} for k in numbers])
                except JqdClientError:
                    self.refused += 1
                    return
                self.acknowledged.update(zip(ids, numbers, strict=True))
                if len(self.acknowledged) >= ENOUGH:
                    self.enough.set()

    def finish(self) -> dict[str, int]:
        self._stop_now.set()
        self.join(timeout=30)
        assert not self.is_alive()
        return self.acknowledged


def wait_still(worker: Worker) -> Counter[str]:
    """What the worker has started once it starts nothing more: it finishes what a daemon that died had given it."""
    before, now = Counter[str](), worker.starts()
    while now != before:
        time.sleep(0.5)  # watches a process of its own
        before, now = now, worker.starts()
    return now


def wait_all_ended(url: str, job_ids: list[str]) -> None:
    with Client(url) as client:
        states = {info.job_id: info.state for info in client.wait(job_ids, timeout=90)}
    assert [i for i in job_ids if states.get(i) != "succeeded"] == []


def test_after_kill_9_every_acknowledged_job_ends_and_only_what_was_in_flight_runs_twice(tmp_path: Path) -> None:
    with short_directory() as base, Daemon(base / "d") as daemon, Worker(tmp_path / "book", daemon.url) as worker:
        with Client(daemon.url) as client:
            settled = client.push_many([{"name": "square", "argument": {"n": n}} for n in range(300)])
        wait_all_ended(daemon.url, settled)
        pusher = Pusher(daemon.url)
        pusher.start()
        assert pusher.enough.wait(60)
        daemon.kill()
        acknowledged = pusher.finish()
        begun = set(wait_still(worker))
        with Daemon(base / "d", bind=daemon.bind) as again:
            wait_all_ended(again.url, list(acknowledged))
            starts = worker.starts()
            assert worker.stop() == 0
            assert again.stop() == 0
    assert set(acknowledged) <= set(starts)
    twice = {job_id for job_id, count in starts.items() if count > 1}
    assert max(starts.values()) <= 2
    assert twice <= begun  # it was with the worker when the daemon died
    assert twice.isdisjoint(settled)  # and its end was not known yet


def test_pushes_are_acknowledged_while_the_store_is_away_and_run_when_it_is_back(tmp_path: Path) -> None:
    with (
        valkey() as server,
        short_directory() as base,
        Daemon(base / "d", "--store", server.url) as daemon,
        Worker(tmp_path / "book", daemon.url) as worker,
        Client(daemon.url) as client,
    ):
        wait_all_ended(daemon.url, [client.push("square", {"n": 1})])
        server.kill()
        ids = [client.push("square", {"n": n}) for n in range(20)]
        wait_ready(daemon, push=True, run=False)
        assert client.get(ids[-1]).state == "waiting"
        server.start()
        wait_all_ended(daemon.url, ids)
        wait_ready(daemon, push=True, run=True)
        assert worker.stop() == 0
        assert daemon.stop() == 0


def wait_ready(daemon: Daemon, *, push: bool, run: bool) -> None:
    deadline = time.monotonic() + 30
    while True:
        halves = (daemon.get("/readyz/push").status_code == 200, daemon.get("/readyz/run").status_code == 200)
        if halves == (push, run):
            return
        assert time.monotonic() < deadline, f"still {halves}, wanted {(push, run)}"
        time.sleep(0.05)  # polls a process of its own; nothing to wait on


def test_sigterm_under_load_ends_in_time_with_0_and_loses_nothing(tmp_path: Path) -> None:
    with short_directory() as base, Daemon(base / "d") as daemon, Worker(tmp_path / "book", daemon.url) as worker:
        pusher = Pusher(daemon.url)
        pusher.start()
        assert pusher.enough.wait(60)
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < 25
        acknowledged = pusher.finish()
        with Daemon(base / "d", bind=daemon.bind) as again:
            wait_all_ended(again.url, list(acknowledged))
            # An orderly stop hands back what it did not run: nothing runs twice.
            assert worker.starts() == dict.fromkeys(worker.starts(), 1)
            assert set(acknowledged) <= set(worker.starts())
            assert worker.stop() == 0
            assert again.stop() == 0


def test_a_slow_reader_does_not_hold_shutdown(tmp_path: Path) -> None:
    import socket

    with short_directory() as base, Daemon(base / "d", env={"JQD_DRAIN_S": "2"}) as daemon:
        with Client(daemon.url) as client:
            client.push_many([{"name": "nobody", "argument": "x" * 200} for _ in range(1_000)])
            ingested(client, client.push("nobody"))
        host, port = daemon.bind.split(":")
        with socket.create_connection((host, int(port))) as peer:
            for _ in range(50):
                peer.sendall(b"GET /v1/jobs?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert daemon.stop(timeout_s=11) == 0


@pytest.mark.long
def test_a_killed_worker_costs_no_job(tmp_path: Path) -> None:
    with pair() as (_, one, two, _), Client(one.url) as client:
        with Worker(tmp_path / "first", one.url, two.url) as first:
            ids = [client.push("slow", 0.6, max_retry=3) for _ in range(4)]  # afterwards each has the worker to itself
            while sum(first.starts().values()) < len(ids):
                time.sleep(0.02)  # polls another process's file
            first.kill()
        with Worker(tmp_path / "second", one.url, two.url) as second:
            wait_all_ended(two.url, ids)
            assert set(second.starts()) == set(ids)
            assert second.stop() == 0
        assert (one.stop(), two.stop()) == (0, 0)


@pytest.mark.long
def test_data_survive_a_restart_and_the_store_dies_with_a_killed_daemon(tmp_path: Path) -> None:
    with short_directory() as base:
        with Daemon(base / "d") as daemon, Client(daemon.url) as client:
            waiting = client.push("square", {"n": 7}, keep_result=True)
            daemon.kill()
        with Daemon(base / "d") as daemon, Client(daemon.url) as client:
            assert client.get(waiting).state == "waiting"
            with Worker(tmp_path / "book", daemon.url) as worker:
                assert client.result(waiting, wait=30) == {"n": 7, "square": 49}
                assert worker.stop() == 0
            assert daemon.stop() == 0
        with Daemon(base / "d") as daemon, Client(daemon.url) as client:
            assert client.get(waiting).state == "succeeded"
            assert client.result(waiting) == {"n": 7, "square": 49}
            assert daemon.stop() == 0


def test_a_taken_port_and_a_taken_directory_are_named(tmp_path: Path) -> None:
    with short_directory() as base, Daemon(base / "d") as daemon:
        port = daemon.bind.split(":")[1]
        with pytest.raises(AssertionError) as taken:
            Daemon(base / "e", bind=daemon.bind)
        assert port in str(taken.value)
        assert "--bind" in str(taken.value)
        with pytest.raises(AssertionError) as locked:
            Daemon(base / "d")
        assert str(daemon.child.pid) in str(locked.value)
        assert httpx2.get(daemon.url + "/livez").status_code == 200
        assert daemon.stop() == 0
