"""A server that deleted keys to make room: its settings may be good again, and the jobs are gone all the same."""

from typing import Any

import pytest
import redis

from jqd.domain.diagnostic import Diagnostic, Severity
from jqd.store import Evictions, StoreConfig, examine
from jqd.store.checks import Facts
from tests.store.test_doctor import facts, setting, verdict
from tests.valkey import Valkey

ELSEWHERE = Diagnostic("misplaced", Severity.REFUSE, "what", "why", "mend")
NO, LRU, TTL = "noeviction", "allkeys-lru", "volatile-ttl"


def seen(evicted: int, policy: str = NO, seal: str = "s", run_id: str = "r") -> Facts:
    info: dict[str, Any] = {"run_id": run_id, "evicted_keys": evicted, "maxmemory_policy": policy}
    return facts(info)._replace(seal=seal)


@pytest.mark.parametrize(
    ("looks", "lost"),
    [
        ([seen(7), seen(7)], 0),  # before our time
        ([seen(7, LRU), seen(7, LRU)], 0),
        ([seen(7), seen(90, LRU), seen(95)], 88),
        ([seen(7), seen(90)], 83),  # between two looks
        ([seen(0, LRU), seen(5), *[seen(5)] * 9], 5),
        ([seen(0, TTL), seen(5, TTL)], 0),  # jqd's keys have no expiry
        ([seen(0), seen(5, TTL), seen(9)], 0),
        ([seen(0, TTL), seen(5, LRU)], 5),
        ([seen(0), seen(5, LRU), seen(0)], 5),  # CONFIG RESETSTAT
        ([seen(0), seen(5, LRU), seen(0, run_id="next")], 5),  # it was started again: what is gone stays so
        ([seen(9), seen(2, run_id="next")], 0),
        ([seen(0), seen(5, LRU), seen(5, seal="")], 0),  # emptied
        ([seen(0), seen(5, LRU), seen(5, seal="new")], 0),
        ([seen(0), seen(5, LRU, seal=""), seen(5, seal="new"), seen(5, seal="new")], 5),  # the seal was among them
        ([seen(0), seen(5, seal=""), seen(5, seal="new"), seen(5, seal="newer")], 0),
        ([seen(0), seen(5), seen(5, seal="")._replace(misplaced=(ELSEWHERE,)), seen(5)], 5),  # another store was there
        ([seen(0), seen(5), seen(5, seal="")._replace(misplaced=(ELSEWHERE,))], 5),
        ([seen(0), seen(0, seal="")._replace(misplaced=(ELSEWHERE,))], 0),
    ],
)
def test_the_number_of_deleted_keys_tells_and_not_the_policy_of_now(looks: list[Facts], lost: int) -> None:
    evictions = Evictions()
    *_, found = (evictions.note(look) for look in looks)
    assert verdict(found) == [("evicted", "refuse")] * (lost > 0)
    assert all(f"has deleted {lost} keys" in finding.what for finding in found)


async def test_a_real_server_that_evicted_is_refused_until_it_was_emptied(fresh_valkey: Valkey) -> None:
    config, evictions = StoreConfig(url=fresh_valkey.url), Evictions()
    assert await examine(config, evictions=evictions) == []
    with redis.Redis.from_url(fresh_valkey.url) as client:
        used = int(client.info("memory")["used_memory"])
        with setting(fresh_valkey, **{"maxmemory": str(used + (1 << 20)), "maxmemory-policy": LRU}):
            for number in range(400):
                client.set(f"any:{number}", b"x" * 10_000)
        client.hset("{jqd:0}:life", "seal", "first")
        for _ in range(2):
            assert verdict(await examine(config, evictions=evictions)) == [("evicted", "refuse")]
        assert await examine(config) == [], "who did not look before does not know"
        client.flushdb()
        assert await examine(config, evictions=evictions) == []
