"""Which partitions a server has: noted when a store begins, refused when the configuration says otherwise."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis

from jqd.domain.diagnostic import Diagnostic, Severity
from jqd.domain.errors import StoreChanged, StoreMisplaced
from jqd.domain.job import Job
from jqd.domain.jobid import ALPHABET, IdSource
from jqd.store import JobView, StoreConfig, open_store
from jqd.store.doctor import examine
from jqd.store.partition_check import judge_places
from jqd.testing.clock import ManualClock
from tests.store.test_doctor import free_port, user
from tests.valkey import Valkey, valkey

ID = IdSource(journal=7, salt=7, clock=ManualClock())
TWO = StoreConfig(urls=("redis://a", "redis://b"), partitions=4).parts()


@pytest.fixture
def client(fresh_valkey: Valkey) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(fresh_valkey.url) as one:
        yield one


async def begin(*parts: StoreConfig) -> None:
    """The first look at each."""
    for part in parts:
        async with open_store(part) as store:
            await store.look(fresh=True)


def codes(findings: list[Diagnostic]) -> list[str]:
    assert all(finding.severity is Severity.REFUSE and finding.why and finding.mend for finding in findings)
    return [finding.code for finding in findings]


# ---------------------------------------------------------------- the verdict


@pytest.mark.parametrize(
    ("config", "places", "found"),
    [
        (StoreConfig("redis://a"), {}, []),
        (StoreConfig("redis://a"), {0: "0/1"}, []),
        (StoreConfig("redis://a"), {0: "0/2"}, ["partitions"]),
        (StoreConfig("redis://a"), {1: "1/2"}, ["partition_elsewhere"]),  # the other server of two
        (TWO[0], {}, []),
        (TWO[0], {0: "0/4", 2: "2/4"}, []),
        (TWO[2], {0: "0/4"}, []),  # its neighbour has begun, it has not
        (TWO[0], {0: "0/1"}, ["partitions"]),  # begun as the whole store
        (TWO[0], {0: "0/2"}, ["partitions"]),
        (TWO[0], {1: "1/4", 3: "3/4"}, ["partition_elsewhere"]),  # the servers in another order
        (TWO[1], {0: "0/4", 2: "2/4"}, ["partition_elsewhere"]),
        (TWO[3], {1: "1/4", 3: "3/4", 2: "2/4"}, ["partition_elsewhere"]),  # two URLs lead here, or leftovers
        (TWO[1], {1: "1/8", 5: "5/8"}, ["partitions"]),
    ],
)
def test_what_lies_on_a_server_must_be_meant_to(config: StoreConfig, places: dict[int, str], found: list[str]) -> None:
    assert codes(judge_places(config, places)) == found


def test_the_mend_names_what_the_store_was_begun_with() -> None:
    (finding,) = judge_places(TWO[2], {2: "2/6"})
    assert finding.what == "store.partitions is 4 here, and the store was begun with 6"
    assert "store.partitions = 6" in finding.mend
    (finding,) = judge_places(TWO[2], {2: "1/4"})
    assert finding.what == "the store was begun as partition 1 of 4, and is to be used as 2"
    (finding,) = judge_places(TWO[0], {1: "1/4", 3: "3/4"})
    assert "partition 1, 3" in finding.what
    assert "{jqd:1}:life" in finding.mend


# ---------------------------------------------------------------- real servers


async def test_a_store_notes_its_place_when_it_begins(fresh_valkey: Valkey, client: "redis.Redis") -> None:
    parts = StoreConfig(fresh_valkey.url, partitions=3).parts()
    assert [await examine(part) for part in parts] == [[], [], []], "nothing is there yet"
    await begin(*parts)
    assert [client.hget(f"{{jqd:{n}}}:life", "partition") for n in range(3)] == [b"0/3", b"1/3", b"2/3"]
    assert [await examine(part) for part in parts] == [[], [], []]
    await begin(StoreConfig(fresh_valkey.url, prefix="other"))
    assert client.hget("{other:0}:life", "partition") == b"0/1"


async def test_another_number_of_partitions_is_refused_and_never_looked_into(
    fresh_valkey: Valkey, client: "redis.Redis"
) -> None:
    await begin(*StoreConfig(fresh_valkey.url, partitions=3).parts())
    before = client.hgetall("{jqd:0}:life")
    for count in (1, 2, 4):
        wrong = StoreConfig(fresh_valkey.url, partitions=count).parts()
        for part in wrong[:3]:
            assert codes(await examine(part)) == ["partitions"]
            async with open_store(part) as store:
                with pytest.raises(StoreMisplaced, match=rf"^the store was begun as partition {part.partition}/3"):
                    await store.look(fresh=True)
                with pytest.raises(StoreChanged, match=rf"begun as partition {part.partition}/3"):
                    await store.apply_cancels("a" * 32, 0, 1, ["0" * 26])
                with pytest.raises(StoreChanged):
                    await store.wait_durable()
    assert client.hgetall("{jqd:0}:life") == before
    # Emptied, it may be anything.
    client.flushall()
    await begin(*StoreConfig(fresh_valkey.url, partitions=2).parts())


async def test_servers_in_another_order_are_refused(fresh_valkey: Valkey, client: "redis.Redis") -> None:
    """As seen at one of the two: it was the second, and stands first now."""
    parts = StoreConfig(urls=(f"{fresh_valkey.url}?db=0", f"{fresh_valkey.url}?db=1")).parts()
    await begin(*parts)
    assert [await examine(part) for part in parts] == [[], []]
    turned = [replace(part, url=other.url) for part, other in zip(parts, reversed(parts), strict=True)]
    assert [codes(await examine(part)) for part in turned] == [["partition_elsewhere"], ["partition_elsewhere"]]
    only = StoreConfig(f"{fresh_valkey.url}?db=1")
    assert codes(await examine(only)) == ["partition_elsewhere"], "the other one was left out"
    # What moved on purpose: its rest here is disowned by hand.
    client.delete("{jqd:0}:life")
    assert await examine(turned[1]) == []


async def test_a_store_spreads_over_twice_the_servers() -> None:
    """As docs/operate/SERVERS.md says: the new server begins as a copy, and each forgets what lies elsewhere now."""
    port = free_port()
    with valkey("--port", str(port), "--repl-diskless-sync-delay", "0") as old:
        before = StoreConfig(old.url, partitions=4)
        jobs = [Job(ID.take(1, ALPHABET[number]).first, "mail") for number in range(4)]
        await begin(*before.parts())
        with valkey("--replicaof", f"127.0.0.1 {port}") as new:
            for part, job in zip(before.parts(), jobs, strict=True):
                async with open_store(part) as store:
                    await store.apply_jobs("a" * 32, 0, 1, [job])
            with redis.Redis.from_url(old.url) as first, redis.Redis.from_url(new.url) as second:
                while not second.exists("{jqd:3}:jobs"):  # no daemon writes any more, so it has all soon
                    first.wait(1, 100)
                second.replicaof("NO", "ONE")
            after = replace(before, url="", urls=(old.url, new.url)).parts()
            assert [codes(await examine(part)) for part in after] == [["partition_elsewhere"]] * 4
            for url, elsewhere in ((old.url, (1, 3)), (new.url, (0, 2))):
                with redis.Redis.from_url(url) as client:
                    for number in elsewhere:
                        client.unlink(*client.scan_iter(match=f"{{jqd:{number}}}:*"))
            assert [codes(await examine(part)) for part in after] == [[]] * 4
            for part, job in zip(after, jobs, strict=True):
                async with open_store(part) as store:
                    await store.look(fresh=False)
                    assert isinstance(await store.get_job(job.id), JobView)


async def test_a_user_who_sees_one_partition_only_is_told_of_that_one(fresh_valkey: Valkey) -> None:
    part, other = StoreConfig(fresh_valkey.url, partitions=2).parts()
    await begin(part, other)
    with user(fresh_valkey, "~{jqd:0}:*", "+@all") as url:
        assert await examine(replace(part, url=url)) == []
        assert codes(await examine(replace(other, url=url))) == ["acl_narrow"]
