"""When what was applied would survive a crash of the server. Servers differ, and one kind of answer lies.

appendfsync always     the answer to a write comes after its sync
WAITAOF                waits for the sync of this connection's last write, where it is honest: Valkey 9.1.2 and Redis
                       7.4.0 to 7.4.2 answer at once under `everysec`, without one. A trial tells
everysec               the server syncs every second, by itself: two of those later it has, if its own status says so
snapshots only         a snapshot that began after the write and succeeded
nothing                the operator accepted that a crash of the server loses what it holds
"""

import enum
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import redis
import trio

from jqd.clock import Clock

HONEST_S = 0.05  # a second sync within one second must wait for the next round; a lie comes back at once
TRIAL_MS = 2_500  # two rounds and a half of `everysec`
PERIODS_S = 2.0  # two of those rounds
CALL_S = 4.0  # of one wait, below the time an answer may take
SAVED_LOOK_S = 1.0  # between looks for a snapshot


class Rule(enum.StrEnum):
    """How this server's word is taken. The values are for people."""

    UNKNOWN = "not looked yet"
    ALWAYS = "applied is safe: the server syncs before it answers (appendfsync always)"
    WAITAOF = "safe when WAITAOF says so: it was found honest on this server"
    PERIOD = (
        "safe two seconds after it was applied: the server syncs every second, and its WAITAOF is not to be trusted"
    )
    SNAPSHOT = "safe when a snapshot that began later has succeeded: the server keeps no append-only file"
    NOTHING = "never safe: the server keeps nothing, or leaves its syncs to chance; a crash of it loses what it holds"


T = TypeVar("T")
# Runs blocking work on one connection of its own, in a thread, and translates what the server says.
OnOneConnection = Callable[[Callable[["redis.Redis"], T]], Awaitable[T]]


class Durability:
    """The rule for one server, found when it is first needed, and its use."""

    def __init__(self, on_one_connection: "OnOneConnection[Any]", life_key: str, clock: Clock) -> None:
        self.rule = Rule.UNKNOWN
        self._run = on_one_connection
        self._life_key = life_key
        self._clock = clock

    def forget(self) -> None:
        """Another server answers."""
        self.rule = Rule.UNKNOWN

    async def wait(self, replicas: int, timeout_s: float) -> bool:
        """See Store.wait_durable."""
        deadline_s = trio.current_time() + timeout_s
        if self.rule is Rule.UNKNOWN:
            self.rule = await self._run(partial(_choose_rule, life_key=self._life_key, clock=self._clock))
        aof = self.rule is Rule.WAITAOF
        if replicas or aof:
            left_s = min(CALL_S, max(0.001, deadline_s - trio.current_time()))
            ask = partial(_wait_replicas, life_key=self._life_key, replicas=replicas, timeout_s=left_s, aof=aof)
            if not await self._run(ask):
                return False
        match self.rule:
            case Rule.PERIOD:
                return await self._wait_periods(deadline_s)
            case Rule.SNAPSHOT:
                return await self._wait_snapshot(deadline_s)
            case _:
                return True

    async def _wait_periods(self, deadline_s: float) -> bool:
        """Both looks go to the server that was accepted: another one raises StoreChanged."""
        if trio.current_time() + PERIODS_S > deadline_s or not await self._run(_is_syncing):
            return False
        await trio.sleep(PERIODS_S)
        return bool(await self._run(_is_syncing))

    async def _wait_snapshot(self, deadline_s: float) -> bool:
        last, under_way = await self._run(_snapshots)
        wanted = 2 if under_way else 1  # the one under way began before
        while trio.current_time() + SAVED_LOOK_S < deadline_s:
            await trio.sleep(SAVED_LOOK_S)
            saved, _ = await self._run(_snapshots)
            if saved != last:
                last, wanted = saved, wanted - 1
            if not wanted:
                return True
        return False


def _choose_rule(client: "redis.Redis", life_key: str, clock: Clock) -> Rule:
    """Look at the server, and try its WAITAOF. Blocking, up to some seconds. Raises redis.RedisError."""
    facts: dict[str, Any] = client.info("persistence")
    if not facts.get("aof_enabled"):
        return Rule.SNAPSHOT if _setting(client, "save") else Rule.NOTHING
    policy = _setting(client, "appendfsync")
    if policy == "always":
        return Rule.ALWAYS
    if policy == "no":
        return Rule.NOTHING
    return Rule.WAITAOF if _is_honest(client, life_key, clock) else Rule.PERIOD


def _setting(client: "redis.Redis", name: str) -> str:
    """A managed server may keep its settings to itself: then its usual ones are supposed."""
    try:
        return str(client.config_get(name).get(name, ""))
    except redis.ResponseError:
        return {"appendfsync": "everysec", "save": "3600 1"}[name]


def _is_honest(client: "redis.Redis", life_key: str, clock: Clock) -> bool:
    try:
        for _ in range(2):
            client.hincrby(life_key, "trial", 1)
            began_s = clock.mono_s()
            local, _replicas = _ask(client, "WAITAOF", 1, 0, TRIAL_MS)
            took_s = clock.mono_s() - began_s
    except redis.ResponseError:
        return False  # a server older than WAITAOF
    return bool(local >= 1 and took_s >= HONEST_S)


def _wait_replicas(client: "redis.Redis", life_key: str, replicas: int, timeout_s: float, *, aof: bool) -> bool:
    """One wait for this connection's own last write, which comes after all that was applied before. Blocking."""
    client.hincrby(life_key, "trial", 1)
    timeout_ms = max(1, round(timeout_s * 1000))
    if aof:
        local, others = _ask(client, "WAITAOF", 1, replicas, timeout_ms)
        return bool(local >= 1 and others >= replicas)
    return bool(_ask(client, "WAIT", replicas, timeout_ms) >= replicas)


def _ask(client: "redis.Redis", *words: object) -> Any:
    execute: Any = client.execute_command
    return execute(*words)


def _is_syncing(client: "redis.Redis") -> bool:
    """Whether the server's last write to its file went well. Blocking."""
    return client.info("persistence").get("aof_last_write_status") == "ok"


def _snapshots(client: "redis.Redis") -> tuple[int, bool]:
    """When the last good snapshot ended, Unix seconds of the server, and whether one is under way. Blocking."""
    facts: dict[str, Any] = client.info("persistence")
    return int(facts["rdb_last_save_time"]), bool(facts["rdb_bgsave_in_progress"])
