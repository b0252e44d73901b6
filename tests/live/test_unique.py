"""Jobs with a unique key, at two daemons of one store: one lives at a time, and another push names it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from jqd.client import Client, Conflict, Unavailable
from tests.live.harness import LEASE, Pair, Worker, ingested, pair, wait_for

PUSHES = 20
KEYS = [f"customer {number}" for number in range(4)]  # of two partitions some lie in each


ONE = pytest.param(1, id="one partition", marks=pytest.mark.long)


@pytest.fixture(scope="module", params=[ONE, pytest.param(2, id="two partitions")])
def daemons(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with pair({**LEASE, "JQD_STORE__PARTITIONS": str(request.param)}) as both:
        yield both


def living(client: Client, key: str) -> list[str]:
    return [job.job_id for job in client.jobs(tag=key, limit=100) if not job.ended]


def test_the_same_again_is_a_duplicate_that_names_the_first(daemons: Pair, tmp_path: Path) -> None:
    with Client(daemons.one.url) as one, Client(daemons.two.url) as two:
        for key in KEYS:
            job = {"name": "square", "argument": {"n": 2}, "unique": key}
            first = one.push_one(job)
            assert not first.duplicate
            again = two.push_one(job)
            assert (again.job_id, again.duplicate) == (first.job_id, True)
            ids = two.push_many([job, {"name": "square", "argument": {"n": 3}}, {**job, "unique": f"{key}!"}, job])
            assert ids[0] == ids[3] == first.job_id
            assert len(set(ids)) == 3
        with Worker(tmp_path / "book", daemons.one.url):
            for key in KEYS:
                job = {"name": "square", "argument": {"n": 2}, "unique": key}
                before = one.push_one(job).job_id
                wait_for(lambda before=before: one.get(before).ended, "it did not run")  # type: ignore[misc]
                assert two.push_one(job).job_id != before, "it has ended"


def test_a_key_pushed_at_once_at_two_daemons_is_one_job(daemons: Pair) -> None:
    """Property: never two living jobs of one key, and everybody is told of the one that there is."""
    told: dict[str, set[str]] = {key: set() for key in KEYS}
    new = list[str]()

    def push(url: str) -> None:
        with Client(url) as client:
            for at in range(PUSHES):
                key = KEYS[at % len(KEYS)]
                tags = [f"at once {key}"]
                pushed = client.push_one({"name": "nobody", "unique": f"at once {key}", "tags": tags, "argument": at})
                told[key].add(pushed.job_id)
                new.extend([] if pushed.duplicate else [pushed.job_id])

    threads = [threading.Thread(target=push, args=(url,)) for url in (daemons.one.url, daemons.two.url) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len(ids) for ids in told.values()] == [1] * len(KEYS)
    assert sorted(new) == sorted(job_id for ids in told.values() for job_id in ids)
    with Client(daemons.one.url) as client:
        for key, ids in told.items():
            wait_for(lambda key=key, ids=ids: living(client, f"at once {key}") == list(ids), "one lives")  # type: ignore[misc]


def test_a_key_is_of_its_jobtype(daemons: Pair) -> None:
    with Client(daemons.one.url) as one, Client(daemons.two.url, tenant="acme") as acme:
        jobs = [{"name": name, "unique": "customer 7"} for name in ("nobody", "nobody else", "nobody")]
        ids = one.push_many(jobs)
        assert (ids[0] == ids[2], ids[0] == ids[1]) == (True, False)
        assert one.push_one(jobs[1]).job_id == ids[1]
        assert acme.push_one(jobs[0]).job_id not in ids
        assert ingested(one, ids[0]).unique == "customer 7"


def test_a_duplicate_puts_off_what_waits_and_gives_it_its_argument(daemons: Pair) -> None:
    with Client(daemons.one.url) as one, Client(daemons.two.url) as two:
        job = {"name": "nobody", "unique": "index", "while": "waiting", "debounce": 60}
        first = one.push_one({**job, "argument": 1}).job_id
        before = ingested(one, first)
        assert before.state == "scheduled"
        again = two.push_one({**job, "argument": 2, "debounce": 600})
        assert (again.job_id, again.duplicate) == (first, True)
        after = one.get(first)
        assert after.argument == 2
        assert after.eligible_at is not None
        assert before.eligible_at is not None
        assert 500 < (after.eligible_at - before.eligible_at).total_seconds() < 600
        one.run_now(first)
        assert two.push_one({**job, "argument": 3}).job_id == first, "it waits still: nobody runs it"


def test_a_job_that_failed_is_tried_anew_only_while_no_other_has_its_key(daemons: Pair) -> None:
    with Client(daemons.one.url) as client:
        job = {"name": "nobody", "unique": "anew"}
        first = client.push_one(job).job_id
        ingested(client, first)
        client.cancel(first)
        second = client.push_one(job).job_id
        assert second != first
        with pytest.raises(Conflict, match=second):
            client.retry(first)
        client.cancel(second)
        client.retry(first)
        assert client.push_one(job).job_id == first


@pytest.mark.long
def test_a_wiped_store_learns_who_has_a_key() -> None:
    with pair({**LEASE, "JQD_STORE__PARTITIONS": "2"}) as both, Client(both.two.url) as two:
        with Client(both.one.url) as one:
            jobs = {key: one.push("nobody", unique=key) for key in KEYS}
            for job_id in jobs.values():
                ingested(two, job_id)
        with redis.Redis.from_url(both.server.url) as client:
            client.flushall()
        for key, job_id in jobs.items():
            assert _pushed(two, key) == job_id


def _pushed(client: Client, key: str) -> str:
    """The id of the job of that key, as soon as the store is told what it forgot."""
    found = list[str]()

    def push() -> bool:
        try:
            found.append(client.push("nobody", unique=key))
        except Unavailable:
            return False
        return True

    wait_for(push, "the store is not told")
    return found[0]
