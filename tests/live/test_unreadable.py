"""Somebody wrote rubbish into the store by hand: one job has failed for it, and all others go on."""

import pytest
import redis

from jqd.client import Client, Conflict
from jqd.store.keys import Keys
from tests.live.harness import QUICK, ingested, pair, wait_for
from tests.live.puller import Puller

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
        with pytest.raises(Conflict, match="delete it, and push it anew"):
            client.retry(waits, argument=5)
        client.delete(waits)
        assert [info.job_id for info in other.jobs()] == [kept]
        store.hset(KEYS["result"], kept, BAD)
        info = client.get(kept)
        assert (info.state, "UNREADABLE" in str(info.message)) == ("waiting", True)
        wait_for(lambda: other.stats()["store"]["counts"]["failed"] == 0, "it is counted still")


def test_rows_exchanged_by_hand_end_no_daemon_that_claims_limited_jobs() -> None:
    with (
        pair(QUICK) as (server, one, two, _),
        Client(one.url) as client,
        redis.Redis.from_url(server.url) as store,
        Puller(one.url, "mail") as mail,
        Puller(one.url, "post") as post,
    ):
        client.set_constraint("c", 'job.name == "mail"', concurrency=50)
        bad, other, good = (client.push("mail", number) for number in range(3))
        copied = client.push("post", 3)
        for job_id in (bad, other, good, copied):
            ingested(client, job_id)
        store.hset(KEYS["jobs"], bad, BAD)
        assert {info.job_id: info.state for info in client.jobs()}[bad] == "failed"
        store.hset(KEYS["jobs"], other, store.hget(KEYS["jobs"], copied) or b"")
        assert [job["job_id"] for job in mail.lease()["jobs"]] == [good]
        wait_for(lambda: client.get(bad).name == "mail", "no claim met it")
        given = list[str]()
        while len(given) < 2:
            given += (job["job_id"] for job in (post.lease()["jobs"] or pytest.fail(f"no more than {given} came")))
        assert sorted(given) == sorted([other, copied]), "it runs as what its row says"
        client.delete(bad)
        assert (one.child.poll(), two.child.poll()) == (None, None)
