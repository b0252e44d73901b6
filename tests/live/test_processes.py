"""A worker of several processes under a real daemon: crashes, hangs, stops and reloads cost no other job anything."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jqd.client import Client
from tests.live.harness import Daemon, Process, Worker, pair

WAIT_S = 30.0  # for a job to end on a busy machine


class Crew(Worker):
    """`jqd worker tests.live.crew --processes 3`, whose code is what the file beside its book says."""

    def __init__(self, book: Path, *daemons: str, more: tuple[str, ...] = (), processes: int = 3) -> None:
        self.book = book
        self.load("one")
        flags = [flag for url in daemons for flag in ("--daemon", url)]
        args = ["worker", "tests.live.crew:app", *flags, "--processes", str(processes), *more]
        Process.__init__(self, args, book.with_suffix(".log"), {"JQD_TEST_BOOK": str(book)})

    def load(self, code: str) -> None:
        """What `work` answers from the next start of a process on."""
        Path(f"{self.book}.code").write_text(code)

    def said(self, event: str, times: int = 1) -> str:
        """The log, once it has told of this event."""
        deadline_s = time.monotonic() + WAIT_S
        while (log := self.log.read_text()).count(f'"{event}"') < times:
            assert time.monotonic() < deadline_s, f"no {event} in:\n{log[-3000:]}"
            time.sleep(0.02)  # watches a process of its own
        return log

    def wait_noted(self, count: int, event: str = "start") -> list[dict[str, Any]]:
        """What the book says, once it has so many of these."""
        deadline_s = time.monotonic() + WAIT_S
        while sum(entry["event"] == event for entry in self.entries()) < count:
            assert time.monotonic() < deadline_s, f"{self.entries()}\n{self.log.read_text()[-3000:]}"
            time.sleep(0.02)  # watches a process of its own
        return [entry for entry in self.entries() if entry["event"] == event]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with pair() as (_, daemon, other, _):
        yield daemon
        assert (daemon.stop(), other.stop()) == (0, 0)


@contextmanager
def process_pool(daemon: Daemon, tmp_path: Path, *more: str, processes: int = 3) -> Iterator[tuple[Crew, Client]]:
    with (
        Crew(tmp_path / "book", daemon.url, more=more, processes=processes) as process_pool,
        Client(daemon.url) as client,
    ):
        yield process_pool, client


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def wait_dead(pid: int) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while is_alive(pid):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)  # watches a process of its own


def test_a_crash_and_a_hang_cost_their_own_job_alone_and_their_places_are_filled(
    daemon: Daemon, tmp_path: Path
) -> None:
    with process_pool(daemon, tmp_path) as (worker, client):
        slow = [client.push("work", 2.0, max_retry=0), client.push("nap", 2.0, max_retry=0)]
        worker.wait_noted(2)
        crashing = client.push("crash", max_retry=1)
        program = tmp_path / "program"
        hanging = client.push("hang", str(program), timeout=1.0, max_retry=0)
        hung = client.get(hanging, wait=WAIT_S)
        assert (hung.state, hung.error, hung.attempts) == ("failed", "timeout", 1)
        wait_dead(int(program.read_text()))  # what it had started was killed with it
        crashed = client.get(crashing, wait=WAIT_S)
        assert (crashed.state, crashed.attempts) == ("failed", 2)
        assert "took its process down: it exited with 3" in str(crashed.message)
        assert [client.get(job, wait=WAIT_S).attempts for job in slow] == [1, 1]
        assert [client.get(job).state for job in slow] == ["succeeded", "succeeded"]
        log = worker.said("worker.process_died", 2)
        assert hanging in log, "who was killed is said by its id"
        (said,) = [line for line in log.splitlines() if "works for 2.0 s" in line]
        assert slow[0] in said, "what a job's code logs says whose it is"
        alive = {client.result(client.push("work", 0.0, keep_result=True), wait=WAIT_S)[1] for _ in range(9)}
        assert alive
        assert worker.stop() == 0
        starts = Counter(str(entry["job_id"]) for entry in worker.entries() if entry["event"] == "start")
        assert [starts[job] for job in slow] == [1, 1], "neighbours in other processes ran once"


@pytest.mark.long
def test_async_jobs_that_shared_a_dying_process_are_told_apart_alone(daemon: Daemon, tmp_path: Path) -> None:
    with process_pool(daemon, tmp_path) as (worker, client):
        naps = client.push_many([{"name": "nap", "argument": 1.0, "max_retry": 0, "timeout": 60}] * 5)
        worker.wait_noted(5)
        guilty = client.push("nap", "down", max_retry=0, timeout=60)
        told = client.get(guilty, wait=WAIT_S)
        assert (told.state, told.error, told.attempts) == ("failed", "process died", 1)
        infos = [client.get(job, wait=WAIT_S) for job in naps]
        assert Counter((info.state, info.attempts) for info in infos) == {("succeeded", 1): 5}
        assert worker.stop() == 0


@pytest.mark.parametrize("processes", [0, pytest.param(3, marks=pytest.mark.long)])
def test_sigterm_hands_back_what_the_drain_cannot_wait_for_and_no_attempt_is_spent(
    daemon: Daemon, tmp_path: Path, processes: int
) -> None:
    with process_pool(daemon, tmp_path, "--drain", "0.5s", processes=processes) as (worker, client):
        jobs = [client.push(name, 20.0, max_retry=0, timeout=60) for name in ("work", "nap", "doze")]
        pids = [int(entry["pid"]) for entry in worker.wait_noted(3)]
        began_s = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - began_s < 10
        assert not any(is_alive(pid) for pid in pids), "nothing runs on"
        assert ("worker.runs_on" in worker.log.read_text()) == (not processes), "of a thread that could not be stopped"
        assert [(client.get(job).state, client.get(job).attempts) for job in jobs] == [("waiting", 0)] * 3
        assert client.cancel_many(job_ids=jobs).changed == 3


def test_a_killed_front_takes_its_processes_with_it(daemon: Daemon, tmp_path: Path) -> None:
    with process_pool(daemon, tmp_path) as (worker, client):
        job = client.push("work", 30.0, max_retry=3, timeout=60)
        (pid,) = [int(entry["pid"]) for entry in worker.wait_noted(1)]
        worker.kill()
        wait_dead(pid)
        client.cancel(job)


@pytest.mark.long
def test_sighup_loads_the_code_anew_under_load_and_loses_no_job_and_no_attempt(daemon: Daemon, tmp_path: Path) -> None:
    with process_pool(daemon, tmp_path) as (worker, client):
        ids = [client.push("work", 3.0, max_retry=0, timeout=60)]
        worker.wait_noted(1)
        for number, code in enumerate(("two", "three"), start=1):
            worker.load(code)
            worker.child.send_signal(signal.SIGHUP)
            deadline_s = time.monotonic() + WAIT_S
            while worker.log.read_text().count('"worker.reloaded"') < number:
                assert time.monotonic() < deadline_s
                ids += client.push_many([{"name": "work", "argument": 0.02, "max_retry": 0}] * 4)
                time.sleep(0.05)  # jobs come all the time while the code is loaded
        infos = [client.get(job, wait=WAIT_S) for job in ids]
        assert Counter((info.state, info.attempts) for info in infos) == {("succeeded", 1): len(ids)}
        starts = worker.starts()
        assert {starts[job] for job in ids} == {1}, "each ran once: nothing was handed back in the middle"
        Path(f"{worker.book}.code").unlink()
        worker.child.send_signal(signal.SIGHUP)
        assert "FileNotFoundError" in worker.said("worker.not_reloaded"), "what is wrong with the new code stands there"
        assert client.result(client.push("work", 0.0, keep_result=True), wait=WAIT_S)[0] == "three"
        assert worker.stop() == 0


def test_a_worker_whose_threads_are_stuck_says_so_and_its_daemon_shows_it_until_it_is_over(
    daemon: Daemon, tmp_path: Path
) -> None:
    with Worker(tmp_path / "book", daemon.url, concurrency=1) as worker, Client(daemon.url) as client:
        job = client.push("patient", 4.0, timeout=0.3, max_retry=0)
        assert client.get(job, wait=WAIT_S).error == "timeout"

        def wait_status(status: str) -> str:
            deadline_s = time.monotonic() + WAIT_S
            while (told := daemon.get("/readyz").json())["status"] != status:
                assert time.monotonic() < deadline_s, told
                time.sleep(0.05)  # watches processes of their own
            return str(told["warnings"])

        assert f"1 threads are stuck in jobs past their timeout: {job} (patient)" in wait_status("degraded")
        log = worker.log.read_text()
        assert job in next(line for line in log.splitlines() if '"worker.stuck"' in line)
        wait_status("ready")
        assert worker.stop() == 0
