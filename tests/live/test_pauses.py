"""A jobtype is paused at one of two daemons: its jobs are not begun, through a kill and a wipe, until it is resumed."""

import time

import redis

from jqd.client import Client
from tests.live.harness import QUICK, Daemon, cluster, wait_for

KNOWN_S = 1.0  # so soon all daemons have heard of it


def test_a_pause_holds_at_all_daemons_until_it_is_resumed() -> None:
    with cluster(QUICK) as here, Client(here.two.url) as client:
        server, one, _, worker, base = here
        one.wait_worker("cube")
        with Client(one.url) as first:
            first.pause_type("cube")
        time.sleep(KNOWN_S)
        held, others = ([client.push(name, {"n": 1}) for _ in range(20)] for name in ("cube", "square"))
        wait_for(lambda: len(worker.starts()) == len(others), "another type waits for one that is paused")
        one.kill()
        with redis.Redis.from_url(server.url) as store:
            store.flushall()
        with Daemon(base / "one", "--store", server.url, env=QUICK) as again, Client(again.url) as other:
            wait_for(lambda: again.get("/readyz").json()["run"]["ready"], "they do not run jobs again")
            more = [other.push(name, {"n": 1}) for name in ("cube", "square")]
            wait_for(lambda: more[1] in worker.starts(), "nothing runs any more")
            assert set(worker.starts()) == {*others, more[1]}
            (row,) = [row for row in other.types() if row["name"] == "cube"]
            assert row["note"].startswith("'cube' is paused since")
            other.resume_type("cube")
            wait_for(lambda: {*held, more[0]} <= set(worker.starts()), "they are not begun again")
