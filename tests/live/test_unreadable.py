"""Somebody wrote rubbish into the store by hand: one job has failed for it, and all others go on."""

import redis

from jqd.client import Client
from jqd.store.keys import Keys
from tests.live.harness import ingested, pair, wait_for

KEYS, BAD = Keys("jqd"), b"\x00garbage\xff"


def test_one_bad_row_stops_no_list_and_no_daemon() -> None:
    with (
        pair() as (server, one, two, _),
        Client(one.url) as client,
        Client(two.url) as other,
        redis.Redis.from_url(server.url) as store,
    ):
        waits, kept = client.push("nobody"), client.push("pulled", 1, keep_result=True)
        for job_id in (waits, kept):
            ingested(client, job_id)
        store.hset(KEYS["jobs"], waits, BAD)
        for each in (client, other):
            assert {info.job_id: info.state for info in each.jobs()} == {waits: "failed", kept: "waiting"}
            info = each.get(waits)
            assert (info.state, info.history[-1]["reason"]) == ("failed", "unreadable")
        assert any("holds something" in warning for warning in client.ready()["warnings"])
        assert client.ready()["status"] == "degraded"
        stats = other.stats()["store"]
        assert (stats["dead"], stats["counts"]["failed"], stats["waiting"], stats["counts"]["waiting"]) == (1, 1, 1, 1)
        assert "cannot be read" in str(client.retry_many(job_ids=[waits]).refused)
        client.delete(waits)
        assert [info.job_id for info in other.jobs()] == [kept]
        store.hset(KEYS["result"], kept, BAD)
        info = client.get(kept)
        assert (info.state, "UNREADABLE" in str(info.message)) == ("waiting", True)
        wait_for(lambda: other.stats()["store"]["counts"]["failed"] == 0, "it is counted still")
