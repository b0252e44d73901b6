"""Finds out when applied records would survive a crash of the server.

appendfsync always     the answer to a write comes after its sync
everysec               the server syncs every second, by itself: a write is safe two syncs later, unless the server
                       cannot write, or a sync is still running. WAITAOF would say so sooner, but Valkey 9.1.2 and
                       Redis 7.4.0 to 7.4.2 answer it before any sync
snapshots only         a snapshot that began after the write and succeeded
nothing                the operator accepted that a crash of the server loses its data
"""

import enum
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import redis
import trio

PERIODS_S = 2.0  # two periods of `everysec`: a slow sync may delay a write by one period
STEP_S = 0.1  # between checks of a sync that still runs after PERIODS_S
CALL_S = 4.0  # longest wait in the server; such an answer may take this much longer than others
SNAPSHOT_LOOK_S = 0.5  # between looks for a snapshot
LEARN_S = 10.0  # between looks at the server's settings, which may be changed while it runs

T = TypeVar("T")
Mark = Callable[[], object]


class Rule(enum.StrEnum):
    """When a write counts as safe. The values are shown to people."""

    UNKNOWN = "not looked at yet: found out when it is first needed"
    ALWAYS = "applied is safe: the server syncs before it answers (appendfsync always)"
    PERIOD = "safe two seconds after it was applied: the server syncs every second"
    SNAPSHOT = "safe when a snapshot that began later has succeeded: the server keeps no append-only file"
    NOTHING = "never safe: the server keeps nothing, or leaves its syncs to chance; a crash of it loses what it holds"


class OneConnection(Protocol):
    """What `Durability` needs of a connection to the accepted server."""

    @property
    def identity(self) -> str: ...

    async def on_one(self, work: Callable[["redis.Redis", Mark], T]) -> T:
        """Run blocking work on one connection. `work` also gets a function that makes a write without effect. Raises
        StoreAway, StoreChanged."""
        ...


class Settings(NamedTuple):
    """Settings of the server that decide which `Rule` holds: when a write to the server would survive a crash of it."""

    append_only: bool
    appendfsync: str
    save: str


class _Look(Generic[T]):
    """A question to the server. Simultaneous callers share an answer; it was asked after each of them came."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._turn = trio.Lock()
        self._begun = 0  # number of the last question
        self._last: tuple[int, T] | None = None  # number and answer of the last one that was answered

    async def get(self) -> T:
        before = self._begun
        async with self._turn:
            if self._last is None or self._last[0] <= before:
                self._begun += 1
                self._last = self._begun, await self._ask()
            return self._last[1]


class Durability:
    """Waits until writes to one server would survive its crash. Which rule tells this is found out at the first wait.
    Simultaneous callers share questions to the server, and waits for snapshots and replicas."""

    def __init__(self, connection: OneConnection) -> None:
        self.rule = Rule.UNKNOWN
        self._connection = connection
        self._learned_s: float | None = None
        self._settings = _Look(partial(self._run, _read_settings))
        self._can_sync = _Look(partial(self._run, _can_sync))
        self._has_synced = _Look(partial(self._run, _has_synced))
        self._snapshot = _Look(self._wait_snapshot)
        self._turn = trio.Lock()  # of waits for replicas
        self._begun = 0  # number of the last one; one that begins after a caller came covers what it applied
        self._good, self._good_replicas = 0, 0  # the last one that succeeded, and for how many replicas

    def forget(self) -> None:
        self.rule, self._learned_s = Rule.UNKNOWN, None

    async def wait(self, replicas: int, timeout_s: float, *, or_accepted: bool = False) -> bool:
        """Wait until all earlier writes to the server would survive its crash. Returns False if that is not certain
        within `timeout_s`.

        `replicas`: this many replicas must have the writes, too. `or_accepted`: if the server keeps nothing on disk,
        return True, because the operator accepted that; without it return False."""
        is_kept = await self._wait(replicas, timeout_s)
        return is_kept and (or_accepted or self.rule is not Rule.NOTHING)

    async def _wait(self, replicas: int, timeout_s: float) -> bool:
        if not replicas and self._known() and self.rule in (Rule.ALWAYS, Rule.NOTHING):
            return True
        began_s = trio.current_time()
        deadline_s, identity = began_s + timeout_s, self._connection.identity
        with trio.move_on_at(deadline_s):
            rule = await self._learn()
            if rule is Rule.PERIOD and not await self._wait_periods(began_s, deadline_s):
                return False
            if rule is Rule.SNAPSHOT:
                await self._snapshot.get()
            if replicas and not await self._wait_replicas(replicas, deadline_s):
                return False
            return identity == self._connection.identity  # if that changed, this waited for two servers
        return False

    async def _wait_replicas(self, replicas: int, deadline_s: float) -> bool:
        before = self._begun
        async with self._turn:
            if self._good > before and self._good_replicas >= replicas:
                return True
            self._begun += 1
            if not await self._run(partial(_wait_replicas, replicas=replicas, timeout_ms=_left_ms(deadline_s))):
                return False
            self._good, self._good_replicas = self._begun, replicas
            return True

    def _known(self) -> bool:
        return self._learned_s is not None and trio.current_time() - self._learned_s < LEARN_S

    async def _learn(self) -> Rule:
        if not self._known():
            self.rule, self._learned_s = choose_rule(await self._settings.get()), trio.current_time()
        return self.rule

    async def _wait_periods(self, began_s: float, deadline_s: float) -> bool:
        if began_s + PERIODS_S > deadline_s or not await self._can_sync.get():
            return False
        await trio.sleep_until(began_s + PERIODS_S)
        while not await self._has_synced.get():  # noqa: ASYNC110 - the server sends no event
            await trio.sleep(STEP_S)
        return True

    async def _wait_snapshot(self) -> None:
        last_s, under_way = await self._run(_snapshots)
        wanted = 2 if under_way else 1  # a snapshot that runs already began too early
        while wanted > 0:
            await trio.sleep(SNAPSHOT_LOOK_S)
            saved_s, _ = await self._run(_snapshots)
            if saved_s != last_s:
                last_s, wanted = saved_s, wanted - 1

    async def _run(self, work: Callable[["redis.Redis", Mark], T]) -> T:
        return await self._connection.on_one(work)


def choose_rule(settings: Settings) -> Rule:
    """Return the rule for a server with these settings."""
    if not settings.append_only:
        return Rule.SNAPSHOT if settings.save else Rule.NOTHING
    if settings.appendfsync == "always":
        return Rule.ALWAYS
    if settings.appendfsync == "no":
        return Rule.NOTHING
    return Rule.PERIOD


def _left_ms(deadline_s: float) -> int:
    return max(1, round(min(CALL_S, deadline_s - trio.current_time()) * 1000))


# ---------------------------------------------------------------- blocking, on one connection


def _read_settings(client: "redis.Redis", _mark: Mark) -> Settings:
    facts: dict[str, Any] = client.info("persistence")
    return Settings(
        bool(facts.get("aof_enabled")), _setting(client, "appendfsync", "everysec"), _setting(client, "save", "3600 1")
    )


def _setting(client: "redis.Redis", name: str, usual: str) -> str:
    """Return a setting, or its usual value if a managed server hides it."""
    try:
        return str(client.config_get(name).get(name, usual))
    except redis.ResponseError:
        return usual


def _wait_replicas(client: "redis.Redis", mark: Mark, replicas: int, timeout_ms: int) -> bool:
    mark()
    execute: Callable[..., Any] = client.execute_command
    return bool(execute("WAIT", replicas, timeout_ms) >= replicas)


def _can_sync(client: "redis.Redis", _mark: Mark) -> bool:
    """Return whether the server's last write to its file succeeded and nothing delays its syncs."""
    facts: dict[str, Any] = client.info("persistence")
    busy = facts.get("aof_rewrite_in_progress") or facts.get("rdb_bgsave_in_progress")
    is_delayed = busy and _setting(client, "no-appendfsync-on-rewrite", "no") == "yes"
    return bool(facts.get("aof_enabled")) and facts.get("aof_last_write_status") == "ok" and not is_delayed


def _has_synced(client: "redis.Redis", mark: Mark) -> bool:
    """Return whether the server can sync and no sync runs."""
    return _can_sync(client, mark) and not client.info("persistence").get("aof_pending_bio_fsync")


def _snapshots(client: "redis.Redis", _mark: Mark) -> tuple[int, bool]:
    """Return when (s) the last snapshot succeeded, and whether one runs.

    Two snapshots within one second look like one. `rdb_saves` does not help: it counts snapshots that began."""
    facts: dict[str, Any] = client.info("persistence")
    return int(facts.get("rdb_last_save_time", 0)), bool(facts.get("rdb_bgsave_in_progress"))
