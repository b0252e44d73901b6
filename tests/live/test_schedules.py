"""A schedule at two daemons: said at one, fired once a date while the other is killed and the store is emptied."""

import time
from datetime import UTC, datetime, timedelta

import redis

from jqd.client import Client
from tests.live.harness import QUICK, Daemon, cluster, wait_for

DATES = 10


def test_each_date_is_fired_once_through_a_kill_and_a_wipe() -> None:
    with cluster(QUICK) as here, Client(f"{here.one.url},{here.two.url}") as client:
        server, one, two, worker, base = here
        wait_for(lambda: len(two.get("/v1/daemons").json()["daemons"]) == 2, "they do not know each other")
        one.wait_worker("cube")
        until = datetime.now(UTC) + timedelta(seconds=DATES + 0.5)
        job = {"name": "cube", "argument": {"n": 2}}
        told = client.set_schedule("tick", job, every=1, missed="all", until=until)
        first = datetime.fromisoformat(told["next"][0])
        dates = [first + timedelta(seconds=n) for n in range(DATES)]
        ids = {f"tick@{date.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}" for date in dates}

        def fired(count: int) -> bool:
            return len(worker.starts()) >= count

        wait_for(lambda: fired(2), "no date is fired")
        time.sleep(0.3)  # the job of that date is over, the next date is still to come
        one.kill()
        wait_for(lambda: fired(4), "the other does not go on")
        with Daemon(base / "one", "--store", server.url, env=QUICK) as again, Client(again.url) as other:
            wait_for(lambda: fired(5), "they do not go on together")
            time.sleep(0.3)
            with redis.Redis.from_url(server.url) as store:
                store.flushall()
            wait_for(lambda: fired(DATES), "dates are lost with the store")
            wait_for(lambda: not other.schedule("tick")["next"], "not all dates are seen to")
            assert worker.starts() == {client.get(name).id: 1 for name in ids}
            wait_for(lambda: client.schedule("tick")["fired"] == DATES, "the other is not told")
            client.delete_schedule("tick")
            wait_for(lambda: not other.schedules(), "it stays at the other")
