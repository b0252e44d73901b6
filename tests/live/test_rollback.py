"""The shared store loses its tail, comes back an hour old, or empty, under two living daemons."""

import shutil
import time
from pathlib import Path

import pytest
import redis

from jqd.client import Client
from tests.live.harness import cluster
from tests.live.test_crash import wait_all_ended, wait_ready
from tests.valkey import Valkey

LONG_S = 4.0  # a job that is at work while the store is lost, and longer than a lease


def cut_tail(server: Valkey, path: Path) -> None:
    """The last part of the append-only file never reached the disk."""
    (tail,) = path.glob("appendonlydir/*.incr.aof")
    server.kill()
    whole = tail.read_bytes()
    # At a command's edge: a call is one transaction in the file, and a torn one is dropped by the server itself.
    begin = b"*1\r\n$5\r\nMULTI\r\n"
    first = whole.index(begin)  # behind the library, which is longer than all the rest
    edge = whole.rindex(begin, 0, first + (len(whole) - first) * 2 // 3)
    tail.write_bytes(whole[:edge])
    server.start()


def restore(server: Valkey, copy: Path) -> None:
    """An old copy of its files takes the place of the present ones."""
    server.kill()
    shutil.rmtree(server.directory / "appendonlydir")
    shutil.copytree(copy, server.directory / "appendonlydir")
    server.start()


def empty(server: Valkey) -> None:
    """FLUSHALL: no connection is closed by it."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()


def lose_files(server: Valkey) -> None:
    """The server comes back with nothing."""
    server.kill()
    shutil.rmtree(server.directory / "appendonlydir")
    server.start()


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param("tail", marks=pytest.mark.long),  # the simulation rolls back with each change
        "flushed",
        pytest.param("old copy", marks=pytest.mark.long),
        pytest.param("files", marks=pytest.mark.long),
    ],
)
def test_what_the_store_forgot_is_applied_again(tmp_path: Path, loss: str) -> None:
    with cluster() as here, Client(here.one.url) as one, Client(here.two.url) as two:
        copy = here.base / "copy"
        done = one.push_many([{"name": "square", "argument": {"n": n}} for n in range(50)])
        done += two.push_many([{"name": "square", "argument": {"n": n}} for n in range(50)])
        wait_all_ended(here.one.url, done[:50])
        with redis.Redis.from_url(here.server.url) as client:
            client.wait(0, 0)
        shutil.copytree(here.server.directory / "appendonlydir", copy)
        more = two.push_many([{"name": "square", "argument": {"n": n}} for n in range(50)])
        wait_all_ended(here.two.url, done[50:] + more)
        done += more
        running = [one.push("slow", LONG_S), two.push("slow", LONG_S)]
        waiting = one.push_many([{"name": "nobody", "argument": n} for n in range(50)])
        dated = two.push("square", {"n": 1}, delay=LONG_S)
        cancelled = two.push_many([{"name": "square", "argument": {"n": 1}, "delay": 3.0} for _ in range(5)])
        for job_id in cancelled:
            assert one.cancel(job_id), "confirmed: it will not start"
        started = set(done) | set(running)
        deadline = time.monotonic() + 20
        while not set(here.worker.starts()) >= started:
            assert time.monotonic() < deadline
            time.sleep(0.05)  # watches a process of its own
        time.sleep(1.2)  # the append-only file is synced every second; then the copy and the cut have something to lose
        {
            "tail": lambda: cut_tail(here.server, here.server.directory),
            "old copy": lambda: restore(here.server, copy),
            "flushed": lambda: empty(here.server),
            "files": lambda: lose_files(here.server),
        }[loss]()
        wait_all_ended(here.one.url, [*running, dated])
        wait_ready(here.one, push=True, run=True)
        wait_ready(here.two, push=True, run=True)
        fresh = [one.push("square", {"n": 3}), two.push("square", {"n": 3})]
        wait_all_ended(here.two.url, fresh)
        assert one.stats()["not_ready_reason"] is None
        assert one.stats()["durability"].strip()
        starts = here.worker.starts()
        assert {job_id: starts[job_id] for job_id in [*done, *running, dated, *fresh]} == dict.fromkeys(
            [*done, *running, dated, *fresh], 1
        )
        assert not set(cancelled) & set(starts)
        assert {one.get(job_id).state for job_id in cancelled} == {"cancelled"}
        assert {one.get(job_id).state for job_id in waiting} == {"waiting"}
        assert {one.get(job_id).state for job_id in done} == {"succeeded"}
        assert here.worker.stop() == 0
        assert here.one.stop() == 0
        assert here.two.stop() == 0
