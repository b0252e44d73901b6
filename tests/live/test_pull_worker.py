"""`jqd worker --pull`: a module's jobs where no daemon reaches the worker, for it has no port."""

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import LEASE, WAIT_S, Daemon, Process, pair, wait_for
from tests.live.test_tokens import jqd
from tests.valkey import valkey


class PullWorker(Process):
    def __init__(self, book: Path, daemons: Sequence[str], *flags: str, token: str = "", app: str = "recorder") -> None:
        said = [flag for url in daemons for flag in ("--daemon", url)]
        env = {"JQD_TEST_BOOK": str(book), **({"JQD_TOKEN": token} if token else {})}
        self.book = book
        super().__init__(["worker", f"tests.live.{app}:app", "--pull", *said, *flags], book.with_suffix(".log"), env)

    def noted(self, event: str) -> int:
        return self.book.read_text().count(f'"event": "{event}"') if self.book.exists() else 0


def listens(pid: int) -> bool:
    """Whether a process has a socket that listens, of TCP."""
    mine = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.exists() or fd.is_symlink()}
    tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [row.split() for table in tables for row in table.splitlines()[1:]]
    return any(row[3] == "0A" and f"socket:[{row[9]}]" in mine for row in rows)


@contextmanager
def pulling(
    daemon: Daemon, base: Path, *flags: str, app: str = "recorder", job: str = "square"
) -> Iterator[PullWorker]:
    with PullWorker(base / "book", [daemon.url], *flags, app=app) as worker:
        daemon.wait_worker(job)
        yield worker


def test_a_worker_without_a_port_runs_the_jobs_of_a_module_with_its_token() -> None:
    env = LEASE | {"JQD_HTTP__TOKENS": "required"}
    with valkey() as server, short_directory() as base, Daemon(base / "d", "--store", server.url, env=env) as daemon:

        def as_master(*words: str) -> str:
            return jqd(*words, "--url", daemon.url, "--data-dir", str(base / "d"))

        token, push = as_master("tokens", "create", "worker"), as_master("tokens", "create", "operator")
        with Client(daemon.url, token=push) as client:
            with PullWorker(base / "book", [daemon.url], token=token) as worker:
                many = client.push_many([{"name": "noop"} for _ in range(500)])
                kept = client.push("square", {"n": 7}, keep_result=True)
                told = [client.push("moody", how) for how in ("fail", "soon")]
                slow = client.push("slow", 600)
                assert client.result(kept, wait=WAIT_S) == {"n": 7, "square": 49}
                failed, late = client.wait(told, timeout=WAIT_S)
                assert (failed.state, failed.attempts, failed.message) == ("failed", 1, "the data are wrong")
                assert (late.state, late.attempts) == ("succeeded", 3)
                assert {info.state for info in client.wait(many, timeout=WAIT_S)} == {"succeeded"}
                wait_for(lambda: client.get(slow).state == "running", "it does not begin")
                client.cancel(slow)
                assert client.get(slow, wait=WAIT_S).state == "cancelled"
                (row,) = client.workers()
                assert (row["url"], row["name"]) != (None, "")
                assert not listens(worker.child.pid)
                assert listens(daemon.child.pid), "this can tell who does"
                assert worker.stop() == 0, worker.log.read_text()
            assert client.workers() == [], "it took its leave"
        assert worker.noted("stop") == 1, "a cancel stops an async function"


@pytest.mark.parametrize("way", [("--pull",), pytest.param((), marks=pytest.mark.long)], ids=["pull", "port"])
def test_a_worker_whose_token_is_of_another_role_ends_and_says_what_to_do(way: Sequence[str]) -> None:
    env = LEASE | {"JQD_HTTP__TOKENS": "required"}
    with short_directory() as base, Daemon(base / "d", env=env) as daemon:
        token = jqd("tokens", "create", "push", "--url", daemon.url, "--data-dir", str(base / "d"))
        said = {"JQD_URL": daemon.url, "JQD_TOKEN": token}
        with Process(["worker", "jqd.worker.demo", *way], base / "worker.log", said) as worker:
            assert worker.child.wait(timeout=WAIT_S) == 2
        told = worker.log.read_text()
        assert "this token is of the role push; the call is for" in told
        assert "`jqd tokens create worker` makes one" in told.splitlines()[-1]


def test_a_result_that_nests_too_deep_fails_its_job_by_name_and_no_worker() -> None:
    """Up to 256 levels come back. Deeper ones a daemon refuses, and past what Python reads the worker itself."""
    with ExitStack() as stack:
        server, base = stack.enter_context(valkey()), stack.enter_context(short_directory())
        daemon = stack.enter_context(Daemon(base / "d", "--store", server.url))
        with pulling(daemon, base, job="nested") as worker, Client(daemon.url) as client:
            ids = [client.push("nested", levels, keep_result=True, max_retry=0) for levels in (256, 257, 972, 988, 5)]
            most, *deep, last = client.wait(ids, timeout=WAIT_S)
            assert [most.state, last.state] == ["succeeded", "succeeded"], (most, last)
            assert msgspec.msgpack.encode(client.result(ids[0])) == b"\x91" * 256 + b"\xc0"
            for job in deep:
                assert (job.state, job.attempts) == ("failed", 1)
                message = job.message or ""
                assert "INVALID_RESPONSE: " in message or "cannot be encoded" in message, job
            assert "256 levels" in (deep[0].message or "")
            assert worker.child.poll() is None
            assert worker.stop() == 0, worker.log.read_text()


def register(daemon: Daemon) -> dict[str, list[str]]:
    """What a registration there is answered."""
    probe = {"name": "probe", "max_jobs": 1, "jobs": ["probe"], "ttl": 60}
    answer: dict[str, list[str]] = httpx2.post(f"{daemon.url}/v1/workers", json=probe, timeout=10).json()
    return answer


@pytest.mark.long
def test_whichever_daemon_dies_the_other_one_of_its_store_gives_and_takes() -> None:
    """The worker knows the first by its URL alone. What it has in hand when that is killed ends, and counts once."""
    with pair() as (_, one, two, base), ExitStack() as stack:
        # It learns of the second in the answer to its registration: the first must know that one by then.
        wait_for(lambda: len(register(one)["urls"]) == 2, "they do not know each other")
        worker = stack.enter_context(pulling(one, base, "--concurrency", "2"))
        client = stack.enter_context(Client(two.url))
        two.wait_worker("square")
        at_work = client.push("patient", 3, keep_result=True, max_retry=0)
        wait_for(lambda: worker.noted("start") == 1, "it does not begin")
        one.kill()
        assert client.result(at_work, wait=WAIT_S) == 3
        ids = [client.push("square", {"n": n}, keep_result=True) for n in range(20)]
        assert [client.result(job_id, wait=WAIT_S)["square"] for job_id in ids] == [n * n for n in range(20)]
        assert client.get(at_work).attempts == 1
        assert worker.stop() == 0, worker.log.read_text()


def test_what_is_in_hand_ends_and_is_reported_before_it_stops(shared_daemon: Daemon) -> None:
    with short_directory() as base, pulling(shared_daemon, base) as worker, Client(shared_daemon.url) as client:
        at_work = client.push("patient", 2, keep_result=True)
        wait_for(lambda: worker.noted("start") == 1, "it does not begin")
        worker.child.send_signal(signal.SIGTERM)
        wait_for(lambda: "worker.draining" in worker.log.read_text(), "it is not told to stop")
        later = client.push("square", {"n": 1})
        assert client.result(at_work, wait=WAIT_S) == 2
        assert worker.child.wait(timeout=WAIT_S) == 0
        assert client.get(at_work).attempts == 1
        assert client.get(later).state == "waiting", "it took no more"
        client.cancel(later)


def test_a_second_signal_hands_back_what_runs(shared_daemon: Daemon) -> None:
    with short_directory() as base, Client(shared_daemon.url) as client:
        with pulling(shared_daemon, base) as worker:
            at_work = client.push("slow", 600, max_retry=0)
            wait_for(lambda: worker.noted("start") == 1, "it does not begin")
            worker.child.send_signal(signal.SIGTERM)
            wait_for(lambda: "worker.draining" in worker.log.read_text(), "it is not told to stop")
            worker.child.send_signal(signal.SIGTERM)
            worker.child.wait(timeout=WAIT_S)
            told = worker.log.read_text()
        info = client.get(at_work)
        assert (info.state, info.attempts) == ("waiting", 0), (info, told)
        client.cancel(at_work)


@pytest.mark.parametrize(
    "flags",
    [pytest.param((), id="threads"), pytest.param(("--processes", "2"), id="processes", marks=pytest.mark.long)],
)
def test_the_jobs_of_a_killed_worker_run_again_elsewhere(shared_daemon: Daemon, flags: Sequence[str]) -> None:
    with short_directory() as base, Client(shared_daemon.url) as client:
        with pulling(shared_daemon, base, "--silence", "2s", *flags) as worker:
            job_id = client.push("patient", 1, keep_result=True)
            wait_for(lambda: worker.noted("start") == 1, "it does not begin")
            os.killpg(worker.child.pid, signal.SIGKILL)
        (base / "book").unlink()
        with pulling(shared_daemon, base, "--silence", "2s", *flags) as worker:
            assert client.result(job_id, wait=WAIT_S) == 1
            assert client.get(job_id).attempts == 2
            assert worker.stop() == 0, worker.log.read_text()


@pytest.mark.long
def test_after_a_job_past_its_timeout_the_only_process_of_a_worker_runs_the_next_one(shared_daemon: Daemon) -> None:
    with short_directory() as base, Client(shared_daemon.url) as client:
        (base / "book.code").write_text("one")
        flags = ("--processes", "1", "--concurrency", "1")
        with pulling(shared_daemon, base, *flags, app="crew", job="hang") as worker:
            for _ in range(4):  # whether it asks while the dead one still counts is a matter of luck
                late = client.push("hang", str(base / "child"), timeout=0.5)
                (info,) = client.wait([late], timeout=WAIT_S)
                assert info.state == "failed"
            assert client.result(client.push("work", 0.0), wait=WAIT_S)[0] == "one"
            assert worker.stop() == 0, worker.log.read_text()


def test_a_worker_with_one_process_holds_one_job_and_its_death_costs_that_one_alone(shared_daemon: Daemon) -> None:
    with short_directory() as base, Client(shared_daemon.url) as client:
        (base / "book.code").write_text("one")
        flags = ("--processes", "1", "--silence", "2s", "--jobs", "work")
        with pulling(shared_daemon, base, *flags, app="crew", job="work") as worker:
            ids = [client.push("work", 600.0, max_retry=0, timeout=3_600) for _ in range(12)]
            wait_for(lambda: worker.noted("start") == 1, "it does not begin")
            os.killpg(worker.child.pid, signal.SIGKILL)
        wait_for(lambda: "failed" in {client.get(each).state for each in ids}, "nobody misses it")
        wait_for(lambda: "running" not in {client.get(each).state for each in ids}, "some are missed later")
        found = Counter((info.state, info.attempts) for info in map(client.get, ids))
        assert found == {("failed", 1): 1, ("waiting", 0): 11}
        for each in ids:
            if client.get(each).state == "waiting":
                client.cancel(each)


@pytest.mark.long
def test_a_worker_that_died_is_gone_soon_and_unknown_where_nobody_can_tell() -> None:
    """Said at both daemons, of which it asked one. While it lives it is well, also with all slots taken."""

    def row(daemon: Daemon) -> dict[str, Any]:
        (row,) = daemon.get("/v1/workers").json()["workers"]
        return dict(row)

    with pair() as (server, one, two, base), pulling(one, base, "--silence", "2s", "--concurrency", "1") as worker:
        with Client(one.url) as client:
            client.push("patient", 60)
        wait_for(lambda: worker.noted("start") == 1, "it does not begin")
        two.wait_worker("square")
        for daemon in (one, two):
            wait_for(lambda daemon=daemon: row(daemon)["state"] == "ok", "it lives")  # type: ignore[misc]
        server.kill()
        wait_for(lambda: row(two)["state"] == "unknown", "it asks the other one, which cannot say so")
        assert "by this daemon; the store is away" in row(two)["why"]
        assert row(one)["state"] == "ok", "it repeats its registration here"
        server.start()
        wait_for(lambda: row(two)["state"] == "ok", "it lives")
        os.killpg(worker.child.pid, signal.SIGKILL)
        for daemon in (one, two):
            wait_for(lambda daemon=daemon: not daemon.get("/v1/workers").json()["workers"], "nobody sees it")  # type: ignore[misc]
            (gone,) = daemon.get("/v1/workers").json()["gone"]
            assert (gone["how"], gone["last_seen_at"][:2]) == ("died", "20")
