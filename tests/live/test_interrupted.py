"""A job that is longer than the time between two deploys: it begins anew each time, all see how often, and it ends."""

import resource
import time
from functools import partial
from pathlib import Path

from redis import Redis

from jqd.client import Client, JobInfo
from tests.directories import short_directory
from tests.live.harness import LEASE, WAIT_S, Daemon, pair
from tests.live.test_processes import Crew
from tests.valkey import valkey

FEW = {**LEASE, "JQD_RUNNER__MAX_INTERRUPTIONS": "2", "JQD_DRAIN_S": "5"}
QUICKLY = ("--concurrency", "1", "--drain", "0.2s")


def until(client: Client, job_id: str, state: str) -> JobInfo:
    deadline_s = time.monotonic() + WAIT_S
    while (info := client.get(job_id)).state != state:
        assert time.monotonic() < deadline_s, info
        time.sleep(0.02)  # watches processes
    return info


def test_what_workers_and_daemons_interrupt_is_counted_shown_and_bounded(tmp_path: Path) -> None:
    with pair(FEW) as (_, one, two, _), Client(two.url) as client:
        job_id, waits = client.push("work", 600.0, max_retry=0, timeout=900), ""
        for number in (1, 2):
            with Crew(tmp_path / "book", one.url, two.url, more=QUICKLY, processes=number - 1) as worker:
                worker.wait_noted(number)
                waits = waits or client.push("work", 600.0, max_retry=0, timeout=900)
                assert worker.stop() == 0
            info = until(client, job_id, "waiting")
            assert (info.attempts, info.interrupted) == (0, number)
            (last,) = info.history
            assert (last["reason"], last["attempt"]) == ("interrupted", 1)
            often = ("once", "2 times")[number - 1]
            assert f"interrupted {often} (INTERRUPTED: handed back: this worker is" in client.why(job_id)["text"]
        told = client.get(waits)
        assert (told.state, told.interrupted, told.history) == ("waiting", None, []), "it never began: no cost"
        client.cancel(waits)
        with Crew(tmp_path / "book", one.url, two.url, more=QUICKLY, processes=1) as worker:
            worker.wait_noted(3)
            (here,) = [row["daemon"] for row in one.get("/v1/daemons").json()["daemons"] if row["this"]]
            holder, other = (one, two) if client.get(job_id).daemon == here else (two, one)
            assert holder.stop() == 0
            with Client(other.url) as left:
                info = until(left, job_id, "failed")
        assert (info.interrupted, info.history[-1]["reason"]) == (3, "interrupted")
        assert info.message is not None
        assert "its daemon was stopped" in info.message
        assert "it was interrupted 3 times, and max_interruptions is 2" in info.message


def test_a_stop_while_the_disk_takes_nothing_is_no_death_of_its_daemon(tmp_path: Path) -> None:
    env = {**LEASE, "JQD_DRAIN_S": "5"}
    with valkey() as server, Redis.from_url(server.url) as store, short_directory() as base:
        daemon = partial(Daemon, base / "d", "--store", server.url, env=env)
        with daemon() as first, Crew(tmp_path / "book", first.url, more=("--concurrency", "1")) as worker:
            with Client(first.url) as client:
                job_id = client.push("work", 600.0, timeout=900)
            worker.wait_noted(1)
            resource.prlimit(first.child.pid, resource.RLIMIT_FSIZE, (0, 0))  # each write fails, as on a full disk
            assert first.stop() == 0
            held = list(store.scan_iter("*:held:*"))
            with daemon(bind=first.bind) as second, Client(second.url) as client:
                worker.wait_noted(2)
                info = until(client, job_id, "running")
        assert (held, store.hgetall("{jqd:0}:deaths"), info.interrupted) == ([], {}, None)
