"""What the doctor says: of facts, of real servers with bad settings, and of those who do not let us in."""

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
import trio

from jqd.domain.clock import SystemClock
from jqd.domain.diagnostic import Diagnostic, Severity, refusals
from jqd.domain.errors import StoreAway
from jqd.domain.job import Job
from jqd.store import CALL_JOBS_MAX, RedisStore, StoreConfig, open_embedded, open_store
from jqd.store.checks import CLOCKS_APART_MS, Facts, judge
from jqd.store.doctor import examine
from jqd.store.functions import shipped
from jqd.store.server_versions import FLOORS, FROZEN, judge_version, named
from jqd.testing.clock import ManualClock
from tests.contract.bench import StoreBench
from tests.directories import short_directory
from tests.store.furnished import Furnished
from tests.store.places import short_pages
from tests.store.test_planted import CALLS
from tests.valkey import NO_REDIS, REDIS, Valkey, valkey

GOOD = {
    "valkey_version": "9.1.2",
    "redis_version": "7.2.4",
    "role": "master",
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "aof_last_bgrewrite_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "maxmemory": 0,
    "maxmemory_policy": "noeviction",
    "used_memory": 1000,
}
SETTINGS = {"save": "", "appendfsync": "everysec", "no-appendfsync-on-rewrite": "no"}


def facts(info: Mapping[str, Any] | None = None, settings: Mapping[str, str] | None = None) -> Facts:
    return Facts({**GOOD, **(info or {})}, {**SETTINGS, **(settings or {})}, (), 0)


def verdict(findings: list[Diagnostic]) -> list[tuple[str, str]]:
    return [(finding.code, str(finding.severity)) for finding in findings]


def test_a_good_server_is_well() -> None:
    assert judge(facts()) == []
    assert judge(facts(settings={"appendfsync": "always", "save": "3600 1"})) == []


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (facts({"aof_enabled": 0}), ("no_persistence", "refuse")),
        (facts({"aof_enabled": 0}, {"save": "3600 1"}), ("snapshots_only", "warn")),
        (facts(settings={"appendfsync": "no"}), ("appendfsync_no", "refuse")),
        (facts(settings={"no-appendfsync-on-rewrite": "yes"}), ("rewrite_without_sync", "warn")),
        (facts({"maxmemory_policy": "allkeys-lru"}), ("evicting", "refuse")),
        (facts({"maxmemory_policy": "allkeys-random", "maxmemory": 1 << 30}), ("evicting", "refuse")),
        (facts({"maxmemory_policy": "volatile-ttl", "maxmemory": 1 << 30}), ("evicting_others", "warn")),
        (facts({"maxmemory": 1100}), ("nearly_full", "warn")),
        (facts({"maxmemory": 999})._replace(lacks_library=True), ("no_library", "warn")),
        (facts()._replace(dead_above=9), ("many_dead", "warn")),
        (facts({"aof_last_write_status": "err"}), ("aof_write_failed", "warn")),
        (facts({"aof_last_bgrewrite_status": "err"}), ("aof_rewrite_failed", "warn")),
        (facts({"rdb_last_bgsave_status": "err"}), ("snapshot_failed", "warn")),
        (facts()._replace(settings=None), ("config_unseen", "warn")),
        (facts({"aof_enabled": 0})._replace(settings=None), ("config_unseen", "warn")),
        (facts()._replace(denied=("ZADD",)), ("acl_narrow", "refuse")),
        (facts()._replace(ahead_ms=CLOCKS_APART_MS + 1), ("clocks_apart", "warn")),
        (facts()._replace(ahead_ms=-CLOCKS_APART_MS - 1), ("clocks_apart", "warn")),
        (facts({"valkey_version": "8.0.5"}), ("version", "refuse")),
    ],
)
def test_each_bad_setting_is_named_with_its_mend(given: Facts, found: tuple[str, str]) -> None:
    (finding,) = judge(given)
    assert verdict([finding]) == [found]
    assert all((finding.what, finding.why, finding.mend))
    assert str(finding) == f"{finding.what}: {finding.why}. To mend it: {finding.mend}"
    assert refusals([finding]) == ([finding] if found[1] == "refuse" else [])


def test_all_that_is_wrong_is_told_at_once() -> None:
    worst = facts({"aof_enabled": 0, "maxmemory_policy": "allkeys-lfu", "rdb_last_bgsave_status": "err"})
    assert [code for code, _ in verdict(judge(worst))] == ["no_persistence", "snapshot_failed", "evicting"]


# ---------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("product", "version", "said"),
    [
        ("redis", "6.2.20", "refuse"),  # no script flags there
        ("redis", "7.0.14", "refuse"),
        ("redis", "7.0.15", "warn"),  # Debian 12 mends it under this number
        ("redis", "7.2.10", "refuse"),
        ("redis", "7.2.11", None),
        ("redis", "7.3.1", "refuse"),  # a series that never was
        ("redis", "7.4.5", "refuse"),
        ("redis", "7.4.6", "warn"),
        ("redis", "7.4.9", None),
        ("redis", "8.0.2", "warn"),
        ("redis", "8.0.3", "refuse"),
        ("redis", "8.2.1", "refuse"),
        ("redis", "8.2.6", None),
        ("redis", "8.6.3", None),
        ("redis", "8.8.0", None),  # newer than this file
        ("redis", "9", None),
        ("valkey", "7.2.10", "refuse"),
        ("valkey", "8.1.1", "warn"),
        ("valkey", "8.1.3", "refuse"),
        ("valkey", "8.1.8", "warn"),
        ("valkey", "9.1.1", None),
        ("valkey", "10.0.0-rc1", None),
    ],
)
def test_versions_are_judged_by_their_series(product: str, version: str, said: str | None) -> None:
    found = judge_version({f"{product}_version": version}, managed=False)
    assert [str(finding.severity) for finding in found] == ([said] if said else [])


def test_of_a_managed_server_the_number_proves_nothing() -> None:
    (finding,) = judge_version({"redis_version": "7.1.0"}, managed=True)
    assert finding.severity is Severity.WARN
    assert "provider" in finding.why
    assert refusals(judge_version({"redis_version": "6.0.16"}, managed=True)), "its scripts would not run"


def test_every_line_lies_in_its_series_and_the_frozen_lie_below() -> None:
    for series in FLOORS.values():
        for (major, minor), lines in series.items():
            assert (major, minor) == lines.sandbox_from[:2] == lines.newest_from[:2]
            assert lines.sandbox_from <= lines.newest_from
    for product, version in FROZEN:
        assert judge_version({f"{product}_version": ".".join(map(str, version))}, managed=False)


def test_valkey_is_not_taken_for_the_redis_it_says_it_is() -> None:
    assert named(GOOD) == ("valkey", (9, 1, 2))
    assert named({"redis_version": "7.0.15"}) == ("redis", (7, 0, 15))
    assert named({}) == ("redis", (0, 0, 0))


# ---------------------------------------------------------------- real servers


@contextmanager
def setting(server: Valkey, **settings: str) -> Iterator[None]:
    """The server with other settings for a while."""
    with redis.Redis.from_url(server.url) as client:
        before = {name: client.config_get(name)[name] for name in settings}
        try:
            client.config_set(*[word for pair in settings.items() for word in pair])
            yield
        finally:
            for name, value in before.items():
                client.config_set(name, value)


@contextmanager
def user(server: Valkey, *rules: str) -> Iterator[str]:
    """A user with these rights; yields the URL to come by."""
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "narrow", "reset", "on", ">secret", *rules)
        try:
            yield f"unix://narrow:secret@{server.socket}"
        finally:
            client.execute_command("ACL", "DELUSER", "narrow")


async def test_our_own_server_is_well(fresh_valkey: Valkey) -> None:
    assert await examine(StoreConfig(url=fresh_valkey.url)) == []


async def test_the_embedded_server_is_well() -> None:
    with short_directory() as directory:
        async with open_embedded(directory) as url:
            assert await examine(StoreConfig(url=url)) == []


async def test_bad_settings_of_a_real_server_are_found(fresh_valkey: Valkey) -> None:
    config = StoreConfig(url=fresh_valkey.url)
    with setting(fresh_valkey, **{"maxmemory-policy": "allkeys-lru", "appendfsync": "no"}):
        assert verdict(await examine(config)) == [("appendfsync_no", "refuse"), ("evicting", "refuse")]
    with setting(fresh_valkey, maxmemory="1"):
        assert verdict(await examine(config)) == [("nearly_full", "warn")], "a full server can still be looked at"
        with redis.Redis.from_url(fresh_valkey.url) as client:
            client.function_flush()  # as if another version had been there
        (found,) = await examine(config)
        assert (found.code, found.severity) == ("no_library", "warn"), "no purge runs there, nor any worker"
    with setting(fresh_valkey, appendonly="no"):
        assert verdict(await examine(config)) == [("no_persistence", "refuse")]
        with setting(fresh_valkey, save="3600 1"):
            assert verdict(await examine(config)) == [("snapshots_only", "warn")]
    assert await examine(config) == []
    with redis.Redis.from_url(fresh_valkey.url) as client:
        client.zadd("{jqd:0}:dead", {"one": 1, "two": 2})
    assert [verdict(await examine(replace(config, dead_jobs_warn=limit))) for limit in (2, 1)] == [
        [],
        [("many_dead", "warn")],
    ]


async def test_a_clock_far_from_ours_is_told(fresh_valkey: Valkey) -> None:
    clock = ManualClock(wall_ms=SystemClock().wall_ms())
    clock.advance(3600)
    (finding,) = await examine(StoreConfig(url=fresh_valkey.url), clock)
    assert finding.code == "clocks_apart"
    assert "behind" in finding.what


@pytest.mark.parametrize(
    ("rules", "found", "said"),
    [
        (("~{jqd:*", "+@all", "-zadd", "-hset"), ("acl_narrow", "refuse"), "HSET, ZADD"),
        (("~other:*", "+@all"), ("acl_narrow", "refuse"), "access"),
        (("~*", "+@all", "-info"), ("acl_narrow", "refuse"), "info"),
        (("~*", "+@all", "-fcall"), ("acl_narrow", "refuse"), "fcall"),
        (("~*", "+@all", "-config|get"), ("config_unseen", "warn"), "append-only"),
    ],
)
async def test_a_user_who_may_not_do_enough_is_told_what(
    fresh_valkey: Valkey, rules: tuple[str, ...], found: tuple[str, str], said: str
) -> None:
    with user(fresh_valkey, *rules) as url:
        (finding,) = await examine(StoreConfig(url=url))
    assert verdict([finding]) == [found]
    assert said in str(finding)


@pytest.mark.parametrize("name", ["fresh_valkey", "fresh_redis"])
async def test_the_rights_that_are_named_are_enough(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> None:
    """For every method; and on the oldest server, where some commands do not exist."""
    server: Valkey = request.getfixturevalue(name)
    with user(server, "~other:*", "+@all") as url:
        (finding,) = await examine(StoreConfig(url=url))
    rights = [word for word in finding.mend.split() if word[0] in "+~"]
    with short_pages(tmp_path), user(server, *rights) as url, redis.Redis.from_url(server.url) as client:
        assert not refusals(await examine(StoreConfig(url=url)))
        clock = ManualClock()
        async with open_store(StoreConfig(url=url), now_ms=clock.wall_ms) as store:
            here = Furnished(StoreBench(store, clock), client)
            await here.fill()
            for call in CALLS.values():
                here.again()
                await call(here)
            assert await store.wait_durable()


def test_all_commands_of_our_functions_are_asked_for() -> None:
    files = dict(shipped().files)
    asked = {word.upper() for word in re.findall(r"'([a-z]+)'", files.pop("allowed"))}
    used = {word for text in files.values() for word in re.findall(r"redis\.call\('([A-Z]+)'", text)}
    assert used <= asked, f"name {', '.join(used - asked)} in lua/allowed.lua"


async def test_a_wrong_password_is_told_and_kept_to_ourselves(fresh_valkey: Valkey) -> None:
    (finding,) = await examine(StoreConfig(url=f"unix://nobody:hunter2@{fresh_valkey.socket}"))
    assert verdict([finding]) == [("no_entry", "refuse")]
    assert "hunter2" not in str(finding)


async def test_a_missing_database_is_no_weather(fresh_valkey: Valkey) -> None:
    (finding,) = await examine(StoreConfig(url=f"{fresh_valkey.url}?db=77"))
    assert verdict([finding]) == [("no_store", "refuse")]


async def test_a_server_that_is_away_or_a_copy_is_weather(fresh_valkey: Valkey, tmp_path: Path) -> None:
    with pytest.raises(StoreAway, match="does not answer"):
        await examine(StoreConfig(url=f"unix://{tmp_path}/nobody.sock"))
    with redis.Redis.from_url(fresh_valkey.url) as client:
        client.replicaof("127.0.0.1", 1)
        try:
            with pytest.raises(StoreAway, match="slave"):
                await examine(StoreConfig(url=fresh_valkey.url))
        finally:
            client.replicaof("NO", "ONE")


async def test_a_server_that_loads_its_data_is_not_judged_yet(
    fresh_valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says of itself that it has no append-only file, and may have loaded it when it is asked the next thing."""
    real = redis.Redis.info

    def loading(self: Any, *sections: str) -> Any:
        return {**real(self, *sections), "loading": 1, "aof_enabled": 0}

    monkeypatch.setattr(redis.Redis, "info", loading)
    with pytest.raises(StoreAway, match="loading its data"):
        await examine(StoreConfig(url=fresh_valkey.url))


@pytest.mark.skipif(REDIS is None, reason=NO_REDIS)
async def test_the_oldest_server_runs_under_a_warning(fresh_redis: Valkey) -> None:
    (finding,) = await examine(StoreConfig(url=fresh_redis.url))
    assert verdict([finding]) == [("version", "warn")]
    assert "Debian 12" in finding.why


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.skipif(REDIS is None or shutil.which("openssl") is None, reason=f"{NO_REDIS}, or openssl is not")
async def test_a_certificate_nobody_trusts_is_told(tmp_path: Path) -> None:
    port = free_port()
    key, pem = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    make += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(pem)]
    subprocess.run(make, check=True, capture_output=True)  # noqa: ASYNC221 - nothing else runs here
    options = ["--tls-port", str(port), "--tls-cert-file", str(pem), "--tls-key-file", str(key)]
    with valkey(*options, "--tls-auth-clients", "no", "--tls-ca-cert-file", str(pem), binary=REDIS):
        url = f"rediss://127.0.0.1:{port}/0"
        (finding,) = await examine(StoreConfig(url=url))
        assert verdict([finding]) == [("tls", "refuse")]
        assert "not trusted" in finding.why
        config = StoreConfig(url=f"{url}?ssl_ca_certs={pem}")
        assert not refusals(await examine(config))
        async with open_store(config) as store:
            await store.look(fresh=True)
            await use(store)
            with redis.Redis.from_url(config.url) as client:
                before = client.info("stats")["total_connections_received"]
                assert (await store.stats()).running == 4 * CALL_JOBS_MAX
                assert client.info("stats")["total_connections_received"] == before, "what is open is used again"


async def use(store: RedisStore) -> None:
    """Calls and answers that are larger than what TLS or a socket takes at once, several on their way."""
    jobs = [Job(f"{number:016x}", "mail", msgspec.msgpack.encode("x" * 2_000)) for number in range(4 * CALL_JOBS_MAX)]
    async with trio.open_nursery() as nursery:
        for at in range(0, len(jobs), CALL_JOBS_MAX):
            nursery.start_soon(store.apply_jobs, "ab" * 16, at, at + CALL_JOBS_MAX, jobs[at : at + CALL_JOBS_MAX])
            await trio.lowlevel.checkpoint()
    owner = await store.reserve_sysid("one", previous_epoch_dead=True, through=True)
    for at in range(0, len(jobs), 1_000):
        held = await store.get_waiting_jobs(owner, "mail", 1_000, priority_min=0, priority_max=0, bytes_max=4 << 20)
        assert [one.job for one in held] == jobs[at : at + 1_000]
