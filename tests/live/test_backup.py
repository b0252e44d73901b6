"""The backup of OPERATIONS.md: the store first, then the journals, while all runs; and what comes back of it."""

import shutil
import time
from pathlib import Path

import pytest
import redis

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import LEASE, START_S, Daemon, Worker
from tests.valkey import Valkey, valkey

WAIT_S = 30.0  # for jobs to end on a busy machine

pytestmark = pytest.mark.long


def snapshot(server: Valkey, target: Path) -> None:
    """What `valkey-cli --rdb` brings: the store as it is now, in one file."""
    with redis.Redis.from_url(server.url) as client:
        client.save()
    shutil.copy(server.directory / "dump.rdb", target)


def restored(directory: Path) -> Valkey:
    """A server that begins with that file, and keeps an append-only file from then on."""
    server = Valkey(directory, "--appendonly", "no")
    server.start()
    with redis.Redis.from_url(server.url) as client:
        client.config_set("appendonly", "yes")
        deadline_s = time.monotonic() + START_S
        while client.info("persistence")["aof_rewrite_in_progress"] or not client.info("persistence")["aof_enabled"]:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)  # a process of its own
    return server


def push(client: Client, jobs: int) -> list[str]:
    return client.push_many([{"name": "square", "argument": {"n": n}} for n in range(jobs)], ack="store")


def test_a_backup_of_a_running_queue_brings_back_all_that_it_had(tmp_path: Path) -> None:
    with short_directory() as base:
        new = base / "new"
        new.mkdir()
        with valkey() as server, Daemon(base / "d", "--store", server.url, env=LEASE) as daemon:
            with Client(daemon.url) as client, Worker(tmp_path / "one", daemon.url) as worker:
                ended = push(client, 20)
                client.wait(ended, timeout=WAIT_S)
                assert worker.stop() == 0
                waiting = push(client, 20)
                snapshot(server, new)
                # What happens between the two copies is known from the journal alone.
                assert client.cancel(waiting[0])
                later = push(client, 20)
                with Worker(tmp_path / "two", daemon.url) as other:
                    client.wait([*waiting, *later], timeout=WAIT_S)
                    assert other.stop() == 0
                late = push(client, 5)
            shutil.copytree(base / "d", base / "copy")
            daemon.kill()
        server = restored(new)
        try:
            with Daemon(base / "copy", "--store", server.url, env=LEASE) as daemon, Client(daemon.url) as client:
                with Worker(tmp_path / "three", daemon.url) as worker:
                    infos = client.wait([*ended, *waiting, *later, *late], timeout=WAIT_S)
                    assert worker.stop() == 0
                assert [info.state for info in infos] == [*["succeeded"] * 20, "cancelled", *["succeeded"] * 44]
                again = set(worker.starts()) - set(late)
                assert again == set(), "what had ended before the second copy does not run again"
                assert daemon.stop() == 0
        finally:
            server.kill()
