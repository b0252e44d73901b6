"""What is said at one of two daemons holds at both while that one is killed and the store is emptied: a schedule fires
each of its dates once, and jobs of a paused type are not begun until it is resumed. Drained daemons begin nothing."""

import time
from datetime import UTC, datetime, timedelta

import pytest
import redis

from jqd.client import Client
from tests.live.harness import QUICK, Daemon, Worker, cluster, ingested, wait_for

DATES = 8  # two before the kill, and one or two after the store was emptied


@pytest.mark.long
def test_a_schedule_and_a_pause_hold_through_a_kill_and_a_wipe() -> None:
    with cluster(QUICK) as here, Client(f"{here.one.url},{here.two.url}") as client, Client(here.two.url) as second:
        server, one, two, worker, base = here
        wait_for(lambda: len(two.get("/v1/daemons").json()["daemons"]) == 2, "they do not know each other")
        one.wait_worker("cube")
        with Client(one.url) as first:
            halted = _halt(second, first, worker)
            first.pause_type("square")
        until = datetime.now(UTC) + timedelta(seconds=DATES + 0.5)
        job = {"name": "cube", "argument": {"n": 2}}
        told = client.set_schedule("tick", job, every=1, missed="all", until=until)
        begin = datetime.fromisoformat(told["next"][0])
        dates = [begin + timedelta(seconds=n) for n in range(DATES)]
        ids = {f"tick@{date.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}" for date in dates}

        def fired(count: int) -> bool:
            return len(starts()) >= count

        def starts() -> dict[str, int]:
            return {job_id: times for job_id, times in worker.starts().items() if job_id != halted}

        wait_for(lambda: fired(2), "no date is fired")
        held = [second.push("square", {"n": 1}) for _ in range(20)]  # a second after the pause, which all know by now
        time.sleep(0.3)  # the job of that date is over, the next date is still to come
        one.kill()
        wait_for(lambda: fired(4), "the other does not go on")
        with Daemon(base / "one", "--store", server.url, env=QUICK) as again, Client(again.url) as other:
            wait_for(lambda: fired(5), "they do not go on together")
            time.sleep(0.3)
            with redis.Redis.from_url(server.url) as store:
                store.flushall()
            held.append(other.push("square", {"n": 1}))
            wait_for(lambda: fired(DATES), "dates are lost with the store")
            wait_for(lambda: not other.schedule("tick")["next"], "not all dates are seen to")
            wait_for(lambda: two.get("/readyz/run").status_code == 200, "it is not through after the wipe")
            assert starts() == {client.get(name).id: 1 for name in ids}, "each once, and nothing that is paused"
            wait_for(lambda: client.schedule("tick")["fired"] == DATES, "the other is not told")
            client.delete_schedule("tick")
            wait_for(lambda: not other.schedules(), "it stays at the other")
            (row,) = [row for row in other.types() if row["name"] == "square"]
            assert row["note"].startswith("'square' is paused since")
            other.resume_type("square")
            wait_for(lambda: set(held) <= set(worker.starts()), "they are not begun again")
            _drain(two, again, second, other, worker)


def _halt(second: Client, first: Client, worker: Worker) -> str:
    """All jobs of a tenant, here of the one without a name: the one that waited."""
    since = first.pause_all()["paused_at"]
    wait_for(lambda: [row["paused_at"] for row in second.paused_tenants()] == [since], "the other does not hear of it")
    job_id = second.push("square", {"n": 2})
    ingested(second, job_id)
    told = second.why(job_id)
    assert (told["reason"], told["text"].partition(" since ")[0]) == ("paused", "all jobs without a tenant are paused")
    assert job_id not in worker.starts()
    assert second.resume_all()["paused_at"] is None
    wait_for(lambda: job_id in worker.starts(), "it is not begun again")
    return job_id


def _drain(two: Daemon, again: Daemon, second: Client, other: Client, worker: Worker) -> None:
    """One is drained at itself, one at the other, which resumes it."""
    here, there = other.drain()["daemon"], second.drain()["daemon"]
    assert [row["drained_at"] for row in other.daemons() if row["living"]] != [None, None]
    wait_for(lambda: all(each.get("/readyz/run").status_code == 503 for each in (two, again)), "they are not drained")
    job_id = other.push("square", {"n": 3})
    ingested(other, job_id)
    told = other.why(job_id)
    assert (told["reason"], f"`jqd daemons resume {here}`" in told["text"]) == ("not_ready", True)
    assert job_id not in worker.starts()
    other.resume_daemon(there)
    wait_for(lambda: job_id in worker.starts(), "the other does not begin again")
    assert "is drained since" in again.get("/readyz/run").json()["reason"]
