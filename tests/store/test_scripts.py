"""Functions in Lua as text: joined, headed, and named as the house wants them; and what becomes of each error."""

import re
from pathlib import Path
from typing import Any

import pytest
import redis

from jqd.domain.errors import (
    ConfigError,
    PositionMismatch,
    StaleOwner,
    StoreAway,
    StoreChanged,
    StoreFull,
    StoreRefused,
    SysidTaken,
)
from jqd.store import RedisStore, StoreConfig
from jqd.store.functions import Library, read_library, shipped
from jqd.store.keys import Keys
from jqd.store.scripts import OtherServer, translate
from jqd.testing.keyspace import Keyspace
from jqd.testing.lua import machine

LUA = Path(__file__).parents[2] / "jqd" / "store" / "lua"
FILES = sorted(LUA.glob("*.lua"))
KEYS = Keys("jqd")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_function_is_headed_and_names_its_arguments_once(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"^register\('(\w+)'", text, re.MULTILINE) == [path.stem]
    for word in ("ARGV ", "Returns", "Errors", "Cost"):
        assert f"\n-- {word}" in text, f"the header says nothing of {word}"
    code = "\n".join(line.split("--")[0] for line in text.splitlines())
    assert not re.search(r"\bKEYS\b", code), "keys are named by shared/base.lua alone"
    arguments = re.findall(r"ARGV\[\d+\]", code)
    assert len(arguments) == len(set(arguments)), "each argument is named once"
    for banned in ("'KEYS'", "'SCAN'", "'SMEMBERS'"):
        assert banned not in text


def test_functions_that_free_memory_run_on_a_full_server() -> None:
    flags = shipped().flags
    assert flags.keys() == {path.stem for path in FILES}
    plain = {name for name, its in flags.items() if not its}
    reading = {name for name, its in flags.items() if its == {"no-writes"}}
    assert plain == {"apply_jobs", "put_history", "put_piece", "reserve_edit", "reserve_names", "reserve_unique"}
    looking = {"allowed", "get_ends", "get_held", "get_jobs", "get_outbox", "is_owed", "resolve", "unfinished"}
    looking |= {"get_piece", "get_history"}
    assert reading == looking | {
        "get_group",
        "get_waiting_jobtypes",
        "list_failed",
        "list_ids",
        "list_links",
        "list_members",
        "list_ready",
        "list_shelves",
        "list_types",
        "queue_place",
        "stats",
    }
    assert all(its == {"allow-oom"} for name, its in flags.items() if name not in plain | reading)


def test_every_function_has_a_method_or_helps_one() -> None:
    helpers = {
        "allowed",
        "bury",
        "drop_pieces",
        "get_jobs",
        "give_back",
        "list_ids",
        "list_members",
        "list_ready",
        "mark",
        "put_piece",
    }
    assert {path.stem for path in FILES} - helpers <= set(dir(RedisStore))


def test_keys_are_spelled_alike_in_python_and_lua() -> None:
    assert KEYS.ready("a:b") == "{jqd:0}:ready:a:b"
    with pytest.raises(KeyError):
        KEYS["job"]
    library = shipped()
    probe = "register('probe', {}, function() return {K.jobs, K.ready, K.historic} end)\n"
    files = {name: text for name, text in library.files.items() if "/" in name}
    told = machine().run(Library({**files, "probe": probe}), "probe", Keyspace(), KEYS.stem.encode(), ())
    assert told == [KEYS[name].encode() for name in ("jobs", "ready", "historic")][:1] + [
        f"{KEYS[name]}:".encode() for name in ("ready", "historic")
    ]


def test_a_library_is_named_by_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "base.lua").write_text("local one = 1\n")
    (tmp_path / "shared" / "two.lua").write_text("Two.two = 2\n")
    (tmp_path / "sum.lua").write_text("register('sum', {'no-writes'}, function() return one + Two.two end)\n")
    library = read_library(tmp_path)
    assert library.source.startswith(f"#!lua name=jqd_{library.digest}\nlocal DIGEST = '{library.digest}'\n")
    assert library.source.endswith(
        "}\nlocal one = 1\nlocal Two = {}\ndo\nTwo.two = 2\nend\ndo\n"
        "register('sum', {'no-writes'}, function() return one + Two.two end)\nend\n"
    )
    assert library.flags == {"sum": {"no-writes"}}
    assert library.function("sum") == f"sum_{library.digest}"
    other = library.changed("sum", "one + Two", "Two")
    assert other.digest != library.digest
    assert library.changed("sum", "one", "one").digest == library.digest
    with pytest.raises(LookupError, match="sum"):
        library.changed("sum", "three", "")


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (redis.ConnectionError("Error 111 connecting to 10.0.0.5:6379"), StoreAway),
        (redis.TimeoutError("no answer"), StoreAway),
        (redis.BusyLoadingError("loading", status_code="LOADING"), StoreAway),
        (redis.ReadOnlyError("a replica", status_code="READONLY"), StoreChanged),
        (redis.OutOfMemoryError("full", status_code="OOM"), StoreFull),
        (redis.ResponseError("MISCONF errors writing to the AOF file"), StoreAway),
        (redis.ResponseError("BUSY running a script"), StoreAway),
        (redis.ResponseError("MOVED 7 10.0.0.5:6379", status_code="MOVED"), StoreChanged),
        (redis.ResponseError("NOREPLICAS not enough"), StoreAway),
        (redis.ResponseError("Function not found"), StoreAway),
        (redis.AuthenticationError("wrong"), StoreRefused),
        (redis.ResponseError("WRONGTYPE of a key"), StoreRefused),
        (redis.ResponseError("JQD_WRONG_TYPE jobs script: x"), StoreRefused),
        (redis.ResponseError("JQD_ARGUMENT count"), StoreRefused),
        (redis.ResponseError("JQD_POSITION x"), StoreRefused),
        (redis.InvalidResponse("noise"), StoreRefused),
        (OtherServer("it restarted"), StoreChanged),
        (redis.ResponseError("JQD_STORE_CHANGED life"), StoreChanged),
        (redis.ResponseError("JQD_STALE_OWNER 7"), StaleOwner),
        (redis.ResponseError("JQD_SYSID_TAKEN 7"), SysidTaken),
        (redis.ResponseError("JQD_POSITION 7"), PositionMismatch),
    ],
)
def test_errors_become_ours(error: redis.RedisError, becomes: type[Exception]) -> None:
    translated = translate(error, "promote", KEYS)
    assert "10.0.0.5" not in str(translated), "the driver names the store's address, and pushers are told this"
    assert type(translated) is becomes
    assert str(translated).count("MISCONF") == str(error).count("MISCONF"), "it is named once"
    inner = becomes in (StoreRefused, StaleOwner, PositionMismatch)
    assert ("promote" in str(translated)) == inner, "what passes by itself is told to pushers, who know no functions"


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://x"},
        {"url": "redis://host:port"},
        {"url": "redis://h", "prefix": "a{b"},
    ],
)
async def test_a_wrong_setting_is_told_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RedisStore(StoreConfig(**wrong))


async def test_a_sysid_that_would_end_up_in_keys_is_checked() -> None:
    store = RedisStore(StoreConfig(url="redis://127.0.0.1:1"))
    with pytest.raises(ValueError, match="sysid"):
        await store.reserve_sysid("a:b", previous_epoch_dead=True, through=True)
    store.close()
