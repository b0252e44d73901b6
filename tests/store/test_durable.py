"""When what was applied counts as safe: every rule on a server acted out in virtual time."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import redis
import trio
import trio.testing

from jqd.domain.errors import StoreAway
from jqd.store import durable
from jqd.store.durable import LEARN_S, PERIODS_S, Durability, Rule, Settings, choose_rule

T = TypeVar("T")


class Acted:
    """A server that is acted out: what it says of itself, and how its WAIT answers."""

    def __init__(self, **facts: object) -> None:
        self.identity = "run.life"
        self.facts: dict[str, object] = {
            "aof_enabled": 1,
            "aof_last_write_status": "ok",
            "rdb_last_save_time": 3,
            **facts,
        }
        self.settings: dict[str, str] = {"appendfsync": "everysec", "save": ""}
        self.replicas = 0
        self.calls: list[str] = []
        self.looks = 0
        """Looks at whether the server can sync."""
        self.before_answer: Callable[[], None] = lambda: None
        self.gate = trio.Event()
        self.gate.set()

    async def on_one(self, work: Callable[[Any, Callable[[], object]], T]) -> T:
        """As a connection does, in one step."""
        await self.gate.wait()
        self.before_answer()
        self.looks += work is durable._can_sync
        return work(self, lambda: self.calls.append("mark"))

    def info(self, _section: str) -> dict[str, object]:
        """Facts."""
        return self.facts

    def config_get(self, name: str) -> dict[str, str]:
        """One setting."""
        if not self.settings:
            raise redis.ResponseError("NOPERM this user has no permissions to run the 'config' command")
        return {name: self.settings[name]} if name in self.settings else {}

    def execute_command(self, name: str, *arguments: int) -> object:
        """WAIT. It must come after a write on the same connection."""
        assert (name, self.calls[-1]) == ("WAIT", "mark")
        self.calls.append(name)
        return self.replicas


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (Settings(True, "always", ""), Rule.ALWAYS),
        (Settings(True, "everysec", "3600 1"), Rule.PERIOD),
        (Settings(True, "no", ""), Rule.NOTHING),
        (Settings(False, "always", "3600 1"), Rule.SNAPSHOT),
        (Settings(False, "everysec", ""), Rule.NOTHING),
    ],
)
def test_settings_choose_the_rule(settings: Settings, rule: Rule) -> None:
    assert choose_rule(settings) is rule


def found(safe: Durability) -> Rule:
    """The rule it goes by at present."""
    return safe.rule


async def test_two_periods_must_fit_and_the_server_must_say_it_could_write(autojump_clock: None) -> None:
    server = Acted()
    safe = Durability(server)
    assert not await safe.wait(0, PERIODS_S - 0.1)
    assert await safe.wait(0, 5.0)
    server.facts["aof_last_write_status"] = "err"
    assert not await safe.wait(0, 5.0)
    server.facts["aof_last_write_status"] = "ok"
    assert await safe.wait(0, 5.0)
    server.facts["aof_enabled"] = 0
    assert not await safe.wait(0, 5.0)


async def test_a_sync_under_way_is_waited_for(autojump_clock: None) -> None:
    server = Acted(aof_pending_bio_fsync=1)
    safe = Durability(server)
    began_s = trio.current_time()

    def end_later() -> None:
        server.facts["aof_pending_bio_fsync"] = int(trio.current_time() - began_s < PERIODS_S + 1)

    server.before_answer = end_later
    assert await safe.wait(0, 5.0)
    assert trio.current_time() - began_s >= PERIODS_S + 1
    server.before_answer = lambda: None
    server.facts["aof_pending_bio_fsync"] = 1
    assert not await safe.wait(0, 5.0), "it never ended"


@pytest.mark.parametrize("busy", ["aof_rewrite_in_progress", "rdb_bgsave_in_progress"])
async def test_a_rewrite_may_hold_up_syncs(autojump_clock: None, busy: str) -> None:
    server = Acted()
    server.facts[busy] = 1
    safe = Durability(server)
    assert await safe.wait(0, 5.0)
    server.settings["no-appendfsync-on-rewrite"] = "yes"
    assert not await safe.wait(0, 5.0)
    server.facts[busy] = 0
    assert await safe.wait(0, 5.0)


async def test_only_a_snapshot_that_began_later_counts(autojump_clock: None) -> None:
    server = Acted(aof_enabled=0, rdb_bgsave_in_progress=1)
    server.settings["save"] = "3600 1"
    safe = Durability(server)
    began_s = trio.current_time()

    def save_every_two_seconds() -> None:
        server.facts["rdb_last_save_time"] = 3 + int((trio.current_time() - began_s) / 2)

    server.before_answer = save_every_two_seconds
    assert await safe.wait(0, 9.0)
    assert trio.current_time() - began_s >= 4, "the one under way began before"
    assert found(safe) is Rule.SNAPSHOT
    server.before_answer = lambda: None
    assert not await safe.wait(0, 9.0)
    server.facts["rdb_bgsave_in_progress"], began_s = 0, trio.current_time()
    server.facts["rdb_last_save_time"] = 3
    server.before_answer = save_every_two_seconds
    assert await safe.wait(0, 3.0)


@pytest.mark.parametrize("appendfsync", ["always", "no"])
async def test_what_needs_no_wait_needs_no_call(autojump_clock: None, appendfsync: str) -> None:
    server = Acted()
    server.settings["appendfsync"] = appendfsync
    safe = Durability(server)
    assert await safe.wait(0, 0.1, or_accepted=True)
    assert await safe.wait(0, 0.1) is (appendfsync == "always"), "a loss that was accepted is a loss"

    def away() -> None:
        raise StoreAway("cable")

    server.before_answer = away
    assert await safe.wait(0, 0.1, or_accepted=True)
    await trio.sleep(LEARN_S)
    with pytest.raises(StoreAway):
        await safe.wait(0, 0.1)
    server.before_answer = lambda: None
    server.settings["appendfsync"] = "everysec"
    assert await safe.wait(0, 5.0)
    assert found(safe) is Rule.PERIOD, "somebody changed the settings while the server ran"


async def test_a_server_that_keeps_its_settings_to_itself_is_taken_as_usual(autojump_clock: None) -> None:
    server = Acted(aof_enabled=0)
    server.settings = {}
    safe = Durability(server)
    assert not await safe.wait(0, 5.0)
    assert found(safe) is Rule.SNAPSHOT
    safe.forget()
    assert found(safe) is Rule.UNKNOWN
    server.facts["aof_enabled"] = 1
    assert await safe.wait(0, 5.0)
    assert found(safe) is Rule.PERIOD


async def test_replicas_are_counted(autojump_clock: None) -> None:
    server = Acted()
    server.settings["appendfsync"] = "always"
    server.replicas = 1
    safe = Durability(server)
    assert await safe.wait(1, 1.0)
    assert not await safe.wait(2, 1.0)
    assert server.calls == ["mark", "WAIT"] * 2


async def test_waiters_share_looks(autojump_clock: None) -> None:
    """A look at the server covers whoever came before it began; whoever comes during it needs the next."""
    server = Acted()
    safe = Durability(server)
    assert await safe.wait(0, 5.0)
    assert server.looks == 1
    answers = []

    async def ask(replicas: int = 0) -> None:
        answers.append(await safe.wait(replicas, 9.0))

    async def ask_one_by_one(*replicas: int) -> None:
        server.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            for number in replicas:
                nursery.start_soon(ask, number)
                await trio.testing.wait_all_tasks_blocked()
            server.gate.set()

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask)
    assert answers == [True] * 20
    assert server.looks == 2, "all came before it began"
    await ask_one_by_one(0, 0, 0)
    assert answers == [True] * 23
    assert server.looks == 4
    assert server.calls == []
    server.facts["aof_last_write_status"] = "err"
    await ask_one_by_one(0, 0, 0)
    assert answers == [True] * 23 + [False] * 3
    assert server.looks == 6


async def test_waiters_share_waits_for_replicas(autojump_clock: None) -> None:
    server = Acted()
    server.settings["appendfsync"] = "always"
    safe = Durability(server)
    assert await safe.wait(0, 5.0)
    answers = []

    async def ask(replicas: int) -> None:
        answers.append(await safe.wait(replicas, 9.0))

    async def waits(*replicas: int) -> int:
        """How many waits they make, one coming after the other."""
        before, server.gate = server.calls.count("WAIT"), trio.Event()
        async with trio.open_nursery() as nursery:
            for number in replicas:
                nursery.start_soon(ask, number)
                await trio.testing.wait_all_tasks_blocked()
            server.gate.set()
        return server.calls.count("WAIT") - before

    server.replicas = 2
    assert await waits(1, 2, 1, 2) == 2, "who wants one copy takes a wait for two"
    assert await waits(1, 1, 2) == 3, "but not the other way round"
    assert answers == [True] * 7
    server.replicas = 0
    assert await waits(1, 1, 1) == 3, "one that failed is nobody else's"
    assert answers[7:] == [False] * 3


@pytest.mark.parametrize("late_s", [0.01, 1.0, 1.99])
async def test_who_comes_during_a_wait_for_a_sync_waits_no_longer_than_the_first(
    autojump_clock: None, late_s: float
) -> None:
    safe = Durability(Acted())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(safe.wait, 0, 5.0)
        await trio.sleep(late_s)
        began_s = trio.current_time()
        assert await safe.wait(0, PERIODS_S + 0.1)
        assert trio.current_time() - began_s == pytest.approx(PERIODS_S)


async def test_who_waits_for_a_sync_waits_no_longer_than_it_said(autojump_clock: None) -> None:
    server = Acted(aof_pending_bio_fsync=1)
    safe = Durability(server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(safe.wait, 0, 60.0)
        await trio.testing.wait_all_tasks_blocked(0)
        began_s = trio.current_time()
        assert not await safe.wait(0, 3.0)
        assert trio.current_time() - began_s == pytest.approx(3.0)
        server.facts["aof_pending_bio_fsync"] = 0


async def test_two_looks_at_two_servers_prove_nothing(autojump_clock: None) -> None:
    server = Acted()
    safe = Durability(server)
    began_s = trio.current_time()

    def move() -> None:
        server.identity = "other.life" if trio.current_time() - began_s > 1 else "run.life"

    server.before_answer = move
    assert not await safe.wait(0, 5.0)
    assert await safe.wait(0, 5.0)
