"""What a daemon writes about its work: counts per batch, a line per job when asked, never a payload."""

import json
from pathlib import Path

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import Daemon, Worker, ingested

SECRET = "payload-nobody-may-log"


def test_batches_are_logged_with_counts_jobs_in_their_own_log_and_payloads_nowhere(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.jsonl"
    with (
        short_directory() as base,
        Daemon(base / "d", env={"JQD_LOG__JOB_LOG": str(jobs), "JQD_LOG__LEVEL": "debug"}) as daemon,
    ):
        with Worker(tmp_path / "book", daemon.url) as worker, Client(daemon.url) as client:
            ids = client.push_many([{"name": "square", "argument": {"n": n, "s": SECRET}} for n in range(20)])
            cancelled = client.push("nobody", SECRET, delay=3600)
            ingested(client, cancelled)
            client.cancel(cancelled)
            client.wait(ids, timeout=30)
            assert worker.stop() == 0
        assert daemon.stop() == 0
        log = daemon.log.read_text()
    lines = [json.loads(line) for line in jobs.read_text().splitlines()]
    for job_id in ids:
        mine = [line["event"] for line in lines if line["job_id"] == job_id]
        assert mine == ["entered", "ingested", "started", "ended"]
    assert [line["event"] for line in lines if line["job_id"] == cancelled] == ["entered", "ingested", "cancelled"]
    assert all({"ts", "daemon"} <= line.keys() for line in lines)
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    for event in ("push.batch", "ingest.batch", "dispatch.batch", "outcomes.batch"):
        assert sum(e["count"] for e in events if e["event"] == event) >= 20, event
    assert SECRET not in log
    assert SECRET not in jobs.read_text()
