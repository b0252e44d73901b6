"""Scripts as text: joined, headed, and named as the house wants them; and what becomes of each error."""

import re
from pathlib import Path
from typing import Any

import pytest
import redis
from lupa.lua51 import LuaRuntime

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
from jqd.store.keys import KINDS, Keys
from jqd.store.scripts import OtherServer, load_scripts, translate

LUA = Path(__file__).parents[2] / "jqd" / "store" / "lua"
FILES = sorted(LUA.glob("*.lua"))
KEYS = Keys("jqd")
LOCALS_LEFT = 9  # an include may grow by so many before a script must be divided, or names put into blocks


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_script_is_headed_and_names_its_arguments_once(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("#!lua"), "a full server must refuse the whole script, not half of it"
    for word in ("KEYS ", "ARGV ", "Returns", "Errors", "Cost"):
        assert f"\n-- {word}" in text, f"the header says nothing of {word}"
    code = "\n".join(line.split("--")[0] for line in text.splitlines())
    assert not re.search(r"\bKEYS\b", code), "keys are named by include/keys.lua alone"
    arguments = re.findall(r"ARGV\[\d+\]", code)
    assert len(arguments) == len(set(arguments)), "each argument is named once"
    for banned in ("'KEYS'", "'SCAN'", "'ZSCAN'", "'SMEMBERS'"):
        assert banned not in text


def test_scripts_that_free_memory_run_on_a_full_server() -> None:
    first = {path.stem: path.read_text().splitlines()[0] for path in FILES}
    plain = {name for name, line in first.items() if line == "#!lua"}
    reading = {name for name, line in first.items() if line == "#!lua flags=no-writes"}
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
    assert all(line == "#!lua flags=allow-oom" for name, line in first.items() if name not in plain | reading)


def test_every_script_has_a_method_or_helps_one() -> None:
    helpers = {
        "allowed",
        "bury",
        "drop_pieces",
        "get_aged_jobtypes",
        "get_jobs",
        "give_back",
        "list_ids",
        "list_members",
        "list_ready",
        "mark",
        "put_piece",
    }
    assert {path.stem for path in FILES} - helpers <= set(dir(RedisStore))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_a_shared_piece_needs_stands_before_it(path: Path) -> None:
    """Lua would look for it among the globals, and only when that line is reached."""
    pieces = {piece.stem: piece.read_text() for piece in (LUA / "include").glob("*.lua")}
    line = re.search(r"^--@include (.*)$", path.read_text(), re.MULTILINE)
    before: list[str] = []
    for name in line[1].split() if line else ():
        header = " ".join(line.removeprefix("-- ") for line in pieces[name].splitlines() if line.startswith("--"))
        needs = re.search(r"\bNeeds ([a-z, ]+)", header)
        wanted = re.findall(r"[a-z]+", needs[1]) if needs else []
        assert [each for each in wanted if each in pieces and each not in before] == [], name
        before.append(name)


def test_every_script_has_locals_left() -> None:
    """Lua has 200 in one function: a script that has them all breaks with the next one in any include."""
    names = ", ".join(f"free_{number}" for number in range(LOCALS_LEFT))
    load = LuaRuntime().eval("function(source) return (select(2, loadstring(source))) end")
    mistakes = {
        name: load(f"local {names}\n" + script.source.partition("\n")[2])  # the first line is none of Lua
        for name, script in load_scripts().items()
    }
    assert {name: mistake for name, mistake in mistakes.items() if mistake} == {}


def test_lua_names_the_keys_as_python_does() -> None:
    text = (LUA / "include" / "keys.lua").read_text()
    assert re.findall(r"(\w+) = '(\w+)'", text) == list(KINDS.items())
    places = [(name, int(number)) for name, number in re.findall(r"(\w+) = KEYS\[(\d+)\]", text)]
    assert places == [(name, number) for number, name in enumerate(KINDS, 1)]
    assert KEYS.all[:2] == (b"{jqd:0}:jobs", b"{jqd:0}:ready:")
    assert KEYS.ready("a:b") == "{jqd:0}:ready:a:b"
    with pytest.raises(KeyError):
        KEYS["job"]


def test_includes_are_joined_in_order(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "one.lua").write_text("local one = 1\n")
    (tmp_path / "include" / "two.lua").write_text("local two = 2\n")
    (tmp_path / "sum.lua").write_text("#!lua\n-- adds\n--@include one two\nreturn one + two\n")
    script = load_scripts(tmp_path)["sum"]
    assert script.source == "#!lua\n-- adds\nlocal one = 1\nlocal two = 2\n\nreturn one + two\n"
    assert len(script.sha) == 40


@pytest.mark.parametrize("line", ["--@include gone", "--@include", "--@include Two.lua"])
def test_a_bad_include_is_a_mistake(tmp_path: Path, line: str) -> None:
    (tmp_path / "sum.lua").write_text(f"#!lua\n{line}\nreturn 1\n")
    with pytest.raises(ValueError, match="sum"):
        load_scripts(tmp_path)


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (redis.ConnectionError("refused"), StoreAway),
        (redis.TimeoutError("no answer"), StoreAway),
        (redis.BusyLoadingError("loading", status_code="LOADING"), StoreAway),
        (redis.ReadOnlyError("a replica", status_code="READONLY"), StoreChanged),
        (redis.OutOfMemoryError("full", status_code="OOM"), StoreFull),
        (redis.ResponseError("MISCONF errors writing to the AOF file"), StoreAway),
        (redis.ResponseError("BUSY running a script"), StoreAway),
        (redis.ResponseError("NOREPLICAS not enough"), StoreAway),
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
    assert type(translated) is becomes
    inner = becomes in (StoreRefused, StaleOwner, PositionMismatch)
    assert ("promote" in str(translated)) == inner, "what passes by itself is told to pushers, and they know no scripts"


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
