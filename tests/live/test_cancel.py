"""A running job is cancelled at another daemon than the one that holds it, and its worker stops."""

import time
from pathlib import Path

from jqd.client import Cancel, Client
from tests.directories import short_directory
from tests.live.harness import LEASE, Daemon, Worker, wait_for
from tests.valkey import valkey

WAIT_S = 30.0  # no answer comes near


def wait_event(worker: Worker, event: str, job_id: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not any(e["event"] == event and e["job_id"] == job_id for e in worker.entries()):
        assert time.monotonic() < deadline, f"no {event} of {job_id}"
        time.sleep(0.02)  # watches a process of its own


def test_a_running_job_is_cancelled_from_any_daemon(tmp_path: Path) -> None:
    with valkey() as server, short_directory() as base:
        flags = ("--store", server.url)
        with (
            Daemon(base / "one", *flags, env=LEASE) as one,
            Daemon(base / "two", *flags, env=LEASE) as two,
            Worker(tmp_path / "book", one.url) as worker,
            Client(one.url) as here,
            Client(two.url) as there,
        ):
            wait_for(lambda: sorted(row["this"] for row in there.daemons()) == [False, True], "one knows of no other")
            for asked_at, job in ((there, "slow"), (here, "patient")):
                job_id = there.push(job, 3_600, timeout=7_200)
                neighbour = there.push("slow", 0)
                wait_event(worker, "start", job_id)
                assert asked_at.get(job_id).state == "running"
                assert any(row["name"] == job and row["running"] for row in there.types())
                assert asked_at.cancel(job_id) is Cancel.RECORDED
                info = here.get(job_id, wait=WAIT_S)
                assert (info.state, info.attempts) == ("cancelled", 1)
                assert here.get(neighbour, wait=WAIT_S).state == "succeeded"
                assert asked_at.cancel(job_id) is Cancel.CANCELLED, "asked again, it is so"
            ended = {e["job_id"] for e in worker.entries() if e["event"] == "end"}
            assert len(ended) == 2, "only the neighbours came to their end"
            assert {one_row["in_flight"] for one_row in here.daemons()} == {0}
            assert all(row["living"] and row["through"] for row in here.daemons())
