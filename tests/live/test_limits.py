"""Three daemons and what they may start together, while one of them is killed and the store is emptied: a rate holds in
every second, five at once are never six. Each customer has a limit of its own; what is limited holds up nobody. The
same in each partition of two servers, of which one is emptied and the other one killed."""

from pathlib import Path
from typing import Any

import msgpack
import pytest
import redis

from jqd.client import Client, Invalid
from jqd.domain.jobid import partition_of
from jqd.store.keys import Keys
from tests.directories import short_directory
from tests.live.harness import QUICK, Daemon, Worker, cluster, wait_for
from tests.live.test_crash import wait_all_ended
from tests.live.test_servers import HERE, THERE, two_servers

JOBS, RATE, AT_ONCE = 120, 50, 5


def claimed_us(store: "redis.Redis", job_ids: list[str], partition: int = 0) -> list[int]:
    """When each was claimed, by the clock of the store: the fence that its outcome names."""
    rows: Any = store.hmget(Keys("jqd", partition)["outcome"], job_ids)
    return sorted(msgpack.unpackb(row)[1] for row in rows)


def most_at_once(entries: list[dict[str, object]], among: set[str]) -> int:
    """How many of these were at work at one time."""
    running: set[object] = set()
    most = 0
    for entry in entries:
        if entry["job_id"] in among:
            (running.add if entry["event"] == "start" else running.discard)(entry["job_id"])
            most = max(most, len(running))
    return most


def test_limits_hold_over_three_daemons_through_a_kill_and_a_wipe() -> None:
    with (
        cluster(QUICK) as here,
        Daemon(here.base / "three", "--store", here.server.url, env=QUICK),
        Client(here.two.url) as client,
        Client(here.one.url) as first,
    ):
        here.one.wait_worker("cube")
        client.set_constraint("fifty", 'job.name == "square"', rate={"limit": RATE, "per_s": 1})
        client.set_constraint("five", 'job.name == "slow"', concurrency=AT_ONCE)
        each = client.set_constraint("customers", 'job.name == "cube"', concurrency=1, key="string(job.argument.n)")
        assert each["key"] == "string(job.argument.n)"
        wait_for(lambda: len(first.constraints()) == 3, "one daemon does not hear of them")
        rated = [first.push("square", {"n": n}) for n in range(JOBS)]
        slow = [client.push("slow", 0.1) for _ in range(25)]
        free = [client.push("cube", {"n": n}) for n in range(20)]
        wait_for(lambda: set(free) <= set(here.worker.starts()), "what is limited holds up the others")
        wait_for(lambda: len(set(here.worker.starts()) & set(rated)) > RATE, "nothing goes on")
        here.one.kill()
        with redis.Redis.from_url(here.server.url) as store:
            wait_for(lambda: len(set(here.worker.starts()) & set(rated)) > RATE + 20, "nothing goes on")
            store.flushall()
        with Daemon(here.base / "one", "--store", here.server.url, env=QUICK):
            wait_for(lambda: {*rated, *slow} <= set(here.worker.starts()), "not all are started")
            wait_for(lambda: all(client.get(one).state == "succeeded" for one in rated), "not all are told")
            with redis.Redis.from_url(here.server.url) as store:
                starts = claimed_us(store, rated)
            gaps = [late - early for early, late in zip(starts, starts[RATE:], strict=False)]
            assert min(gaps) >= 1_000_000, f"more than {RATE} in a second"
            assert most_at_once(here.worker.entries(), set(slow)) <= AT_ONCE
            client.set_constraint("shut", "true", pause=True)
            held = [client.push("cube", {"n": 1}) for _ in range(3)]
            assert not set(held) & set(here.worker.starts())
            for name in ("shut", "five", "fifty", "customers"):
                client.delete_constraint(name)
            wait_for(lambda: set(held) <= set(here.worker.starts()), "what waited does not start")


@pytest.mark.long
def test_limits_hold_over_two_servers_through_a_kill_of_each_kind_and_a_wipe(tmp_path: Path) -> None:
    rate, at_once = 20, 3
    with (
        two_servers() as (*servers, flags),
        short_directory() as base,
        Daemon(base / "one", *flags, env=QUICK) as one,
        Daemon(base / "two", *flags, env=QUICK) as two,
        Daemon(base / "three", *flags, env=QUICK) as three,
        Worker(tmp_path / "book", one.url, two.url, three.url) as worker,
        Client(two.url) as client,
    ):
        both = f'job.name in ["{HERE}", "{THERE}"]'
        with pytest.raises(Invalid, match="each of the store's 2 partitions counts by itself"):
            client.set_constraint("twenty", both, rate={"limit": rate, "per_s": 1}, exact=True)
        twenty = client.set_constraint("twenty", both, rate={"limit": rate, "per_s": 1})
        assert (twenty["partitions"], "up to 2 times as much" in twenty["warning"]) == (2, True)
        three_at_once = client.set_constraint("three", 'job.name == "slow"', concurrency=at_once)
        assert "up to 2 times as much" in three_at_once["warning"]
        rated = client.push_many([{"name": (HERE, THERE)[n % 2], "argument": {"n": n}} for n in range(160)])
        slow = client.push_many([{"name": "slow", "argument": 0.1} for _ in range(15)])
        assert {partition_of(one, 2) for one in rated} == {0, 1}
        (home,) = {partition_of(one, 2) for one in slow}
        wait_for(lambda: len(set(worker.starts()) & set(rated)) > 2 * rate, "nothing goes on")
        one.child.kill()
        one.child.wait()
        with redis.Redis.from_url(servers[home].url) as store:
            store.flushall()
        wait_for(lambda: len(set(worker.starts()) & set(rated)) > 2 * rate + 10, "nothing goes on after the wipe")
        servers[1 - home].kill()
        servers[1 - home].start()
        with Daemon(base / "one", *flags, bind=one.bind, env=QUICK):
            wait_all_ended(two.url, [*rated, *slow])
            for partition, server in enumerate(servers):
                its = [job_id for job_id in rated if partition_of(job_id, 2) == partition]
                with redis.Redis.from_url(server.url) as store:
                    starts = claimed_us(store, its, partition)
                gaps = [late - early for early, late in zip(starts, starts[rate:], strict=False)]
                assert min(gaps) >= 1_000_000, f"more than {rate} in a second in partition {partition}"
            assert set(slow) <= set(worker.starts())
            assert most_at_once(worker.entries(), set(slow)) <= at_once
