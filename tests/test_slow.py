"""Disks that stand still: what is no promise waits for them in threads, and the daemon keeps its seat meanwhile.

The files are pipes that nobody reads from: whoever opens one to write waits, for as long as the test likes.
"""

import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from jqd.api.v1.push import push
from jqd.api.v1.workers import register
from jqd.config import Config, LogConfig
from jqd.daemon import Daemon
from jqd.domain.clock import SystemClock
from jqd.domain.lease import LeaseConfig
from jqd.http import Request, RequestHead
from jqd.journal import JournalConfig, open_journal
from jqd.store import Owner, Renewed, StoreConfig
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles

LEASE = LeaseConfig(lease_s=0.3, renew_s=0.03, margin_s=0.1)
MSGPACK = {"content-type": "application/msgpack"}


class CountingStore(FakeStore):
    """Says when the seat was kept once more."""

    renewals = 0

    async def renew_sysid(self, owner: Owner, **named: Any) -> Renewed:
        answer = await super().renew_sysid(owner, **named)
        self.renewals += 1
        return answer


@contextmanager
def standing_still(*paths: Path) -> Iterator[None]:
    """Disks that take nothing, until the block is left."""
    for path in paths:
        os.mkfifo(path)
    try:
        yield
    finally:
        # So that the threads that wait there end.
        readers.extend(os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in paths)


readers: list[int] = []


def request(path: str, body: Any) -> Request:
    return Request(RequestHead("POST", path, path, b"", MSGPACK), body=msgspec.msgpack.encode(body))


async def test_the_seat_is_kept_and_requests_are_answered_while_the_disks_of_other_files_stand_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = tmp_path / "jobs.jsonl"
    config = Config(data_dir=tmp_path, log=LogConfig(job_log=str(jobs)), lease=LEASE, store=StoreConfig(url="fake:"))
    clock = SystemClock()
    store = CountingStore(clock)
    async with open_journal(JournalConfig(Path("/j")), clock=clock, files=MemoryFiles()) as journal:
        daemon = Daemon(config, journal, [store], clock, random.Random(1))
        parts = daemon.parts
        (partition,) = daemon.partitions
        with standing_still(jobs):
            async with trio.open_nursery() as nursery:
                for loop in (daemon.joblog.run, daemon.settings_upkeep.run):
                    await nursery.start(loop)
                await partition.start(nursery, partition.loops())
                with trio.fail_after(60):
                    while not partition.membership.settled:
                        await trio.sleep(0.01)
                    began = store.renewals
                    for _ in range(20):
                        await trio.sleep(LEASE.renew_s)
                        answer = await push(parts, request("/v1/jobs", [{"name": "t"}] * 3))
                        assert answer.status == 201
                    assert await register(parts, request("/v1/workers", {"name": "w", "max_jobs": 1, "jobs": ["t"]}))
                assert store.renewals - began >= 10, "it waited for a disk"
                assert partition.membership.trusts()
                nursery.cancel_scope.cancel()
    for reader in readers:
        os.close(reader)


def test_a_line_names_a_job_by_the_daemons_id_and_by_its_pushers(tmp_path: Path) -> None:
    """`entered` had the pusher's id only, all others the daemon's: no line could be joined to another."""
    jobs = tmp_path / "jobs.jsonl"
    config = Config(data_dir=tmp_path, log=LogConfig(job_log=str(jobs)), store=StoreConfig(url="fake:"))
    clock = SystemClock()

    async def main() -> None:
        store = FakeStore(clock)
        async with open_journal(JournalConfig(Path("/j")), clock=clock, files=MemoryFiles()) as journal:
            daemon = Daemon(config, journal, [store], clock, random.Random(1))
            parts = daemon.parts
            (partition,) = daemon.partitions
            async with trio.open_nursery() as nursery:
                await nursery.start(daemon.joblog.run)
                await partition.start(nursery, partition.loops())
                with trio.fail_after(60):
                    while not partition.membership.settled:
                        await trio.sleep(0.01)
                    await push(parts, request("/v1/jobs", [{"name": "t", "job_id": "mine"}, {"name": "t"}]))
                    while (await store.stats()).waiting < 2:
                        await trio.sleep(0.01)
                    await daemon.joblog.flush()
                nursery.cancel_scope.cancel()

    trio.run(main)
    lines = [json.loads(line) for line in jobs.read_text().splitlines()]
    entered = [line for line in lines if line["event"] == "entered"]
    ingested = [line["job_id"] for line in lines if line["event"] == "ingested"]
    assert [line.get("pusher_id") for line in entered] == ["mine", None]
    assert sorted(line["job_id"] for line in entered) == sorted(ingested)
