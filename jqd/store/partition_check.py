"""Checks that a server has the partitions that the configuration puts there, and no others.

The number of partitions and the order of the servers decide where a job lies. When first used, each partition notes its
number and the number of all. A partition with another note is not used, as its jobs would be looked for elsewhere.
"""

from collections.abc import Mapping
from typing import Any

import redis

from jqd.domain.diagnostic import Diagnostic, Severity
from jqd.domain.jobid import HOMES
from jqd.store.config import StoreConfig
from jqd.store.keys import Keys

OTHER_NUMBER, ELSEWHERE = "partitions", "partition_elsewhere"
MISPLACED = frozenset({OTHER_NUMBER, ELSEWHERE})


def read_places(client: "redis.Redis", config: StoreConfig, info: Mapping[str, Any]) -> dict[int, str]:
    """Return number → note of all partitions that this server has. Raises redis.RedisError.

    On a node of a cluster only the configured partition is read: keys of others may be on other nodes.
    """
    mine = config.partition
    numbers = [mine] if info.get("cluster_enabled") else range(HOMES)
    asked = client.pipeline(transaction=False)
    for number in numbers:
        asked.hmget(Keys(config.prefix, number)["life"], "id", "partition")
    places: dict[int, str] = {}
    for number, row in zip(numbers, asked.execute(raise_on_error=False), strict=True):
        if isinstance(row, redis.RedisError):
            if number == mine:
                raise row
            continue  # this user may not use that partition, so has no jobs there
        begun, note = row
        if begun is not None:
            places[number] = bytes(note or b"").decode(errors="replace")
    return places


def judge_places(config: StoreConfig, places: Mapping[int, str]) -> list[Diagnostic]:
    """Return what is wrong with the partitions on a server, by their notes."""
    mine = places.get(config.partition, config.place)
    if mine != config.place:
        return [_other_number(config, mine)]
    strangers = [number for number in places if number not in config.neighbours]
    return [_strangers(config, strangers)] if strangers else []


def _other_number(config: StoreConfig, note: str) -> Diagnostic:
    number, _, count = note.partition("/")
    begun = f"the store was begun as partition {number} of {count}, and is to be used as {config.partition}"
    if count != str(config.count):
        begun = f"store.partitions is {config.count} here, and the store was begun with {count}"
    return Diagnostic(
        OTHER_NUMBER,
        Severity.REFUSE,
        begun,
        "where a job lies follows from the number of partitions: jobs would be looked for where they are not, and the "
        "same one could run twice",
        f"set store.partitions = {count}, as it was. To change it, let all jobs end, stop all daemons, and empty the "
        "store and the journals' directories",
    )


def _strangers(config: StoreConfig, strangers: list[int]) -> Diagnostic:
    named = ", ".join(map(str, strangers))
    keys = Keys(config.prefix, strangers[0])
    return Diagnostic(
        ELSEWHERE,
        Severity.REFUSE,
        f"partition {named} of the store lies on this server, which the configuration does not put there",
        "the URLs stand in another order than when the store was begun, one is missing, or two lead to one server: "
        "jobs would be looked for where they are not",
        "name the servers in store.urls in the order they had, each once. What was moved to another server on purpose "
        f"is no longer meant here when its {keys['life']} is deleted",
    )
