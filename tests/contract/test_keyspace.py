"""The data server in memory beside a real one: the same commands, and the same MessagePack, have the same answers."""

import math
import random
from typing import Any

import msgpack
import pytest
import redis
from lupa.lua51 import LuaError

from jqd.store.functions import FIRST, Library, load, shipped
from jqd.store.keys import Keys
from jqd.testing.keyspace import READS, WRITES, Keyspace
from jqd.testing.lua import ScriptError, machine
from tests.valkey import Valkey

WALKS, COMMANDS = 12, 400


def function(name: str, body: str, flags: str = "") -> tuple[str, Library]:
    """A library of one function, and its name."""
    base = shipped().files[FIRST]
    return name, Library({FIRST: base, name: f"register('{name}', {{{flags}}}, function()\n{body}\nend)\n"})


CALL = function("call", "return redis.call(unpack(ARGV))")
# The last arguments of a command as Lua has them after some arithmetic: no text any more.
CALL_NUMBERS = function(
    "call_numbers",
    "for at = 3, #ARGV do ARGV[at] = tonumber(ARGV[at]) or ARGV[at] end\nreturn redis.call(unpack(ARGV))",
)
UNPACK = function(
    "unpack",
    """
local function show(value)
  if type(value) == 'number' then
    return string.format('%.17g', value)
  elseif type(value) ~= 'table' then
    return type(value) .. ':' .. tostring(value)
  end
  local rows = {}
  for key, each in pairs(value) do
    rows[#rows + 1] = show(key) .. '=' .. show(each)
  end
  table.sort(rows)
  return '{' .. table.concat(rows, ',') .. '}'
end
local shown = {}
local function keep(...)
  for at = 1, select('#', ...) do
    shown[at] = show((select(at, ...)))
  end
end
local good, wrong = pcall(function() keep(cmsgpack.unpack_limit(ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]))) end)
return good and shown or 'refused'
""",
    "'no-writes'",
)
KEYS = {"hash": (b"h1", b"h2"), "zset": (b"z1", b"z2"), "list": (b"l1", b"l2"), "string": (b"s1",)}
UNORDERED = {"HKEYS", "HVALS"}
SAYS_OK = {"SET", "LTRIM", "RENAME"}  # nothing of ours looks at that


class Speaker:
    """Makes up commands: of each kind, now and then on a key of another one."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def command(self) -> tuple[object, ...]:
        """Any of those that the server in memory knows."""
        name = self._random.choice(sorted({**READS, **WRITES}))
        kind = {"H": "hash", "Z": "zset", "L": "list", "R": "list"}.get(name[0], "string")
        if name in ("TYPE", "EXISTS", "UNLINK") or self._random.random() < 0.02:
            kind = self._random.choice(list(KEYS))
        return (name.encode(), self._random.choice(KEYS[kind]), *getattr(self, f"_{name.lower()}", self._nothing)())

    def field(self) -> bytes:
        return self._random.choice((b"a", b"b", b"B", b"\xff", b"", b"\xc3\xa9"))

    def number(self) -> Any:
        """Fractions that are short in any base: servers differ in how they write the others, and none is ours."""
        return self._random.choice((0, 1, -1, 3, 1.5, -0.25, 1e17, 1_800_000_000_000_001, 2**53 - 1))

    def score(self) -> Any:
        return self._random.choice((self.number(), b"-inf", b"+inf", b"(%d" % self._random.randint(-1, 3)))

    def _many(self, make: Any) -> tuple[Any, ...]:
        return tuple(make() for _ in range(self._random.randint(1, 4)))

    def _nothing(self) -> tuple[object, ...]:
        return ()

    def _hget(self) -> tuple[object, ...]:
        return (self.field(),)

    _hexists = _hstrlen = _zscore = _lpos = _hget

    def _hscan(self) -> tuple[object, ...]:
        return 0, b"MATCH", self._random.choice((b"*", b"a*", b"\xc3*")), b"COUNT", 100

    _zscan = _hscan

    def _hmget(self) -> tuple[object, ...]:
        return self._many(self.field)

    _hdel = _zmscore = _zrem = _rpush = _hmget

    def _set(self) -> tuple[object, ...]:
        return (self.number(),)

    def _rename(self) -> tuple[object, ...]:
        return (self._random.choice(KEYS[self._random.choice(list(KEYS))]),)

    def _hset(self) -> tuple[object, ...]:
        return tuple(word for _ in range(2) for word in (self.field(), self.number()))

    def _hsetnx(self) -> tuple[object, ...]:
        return self.field(), self.number()

    def _hincrby(self) -> tuple[object, ...]:
        return b"count", self._random.randint(-3, 3)

    def _place(self) -> int:
        return self._random.randint(-4, 4)

    def _lindex(self) -> tuple[object, ...]:
        return (self._place(),)

    def _lrange(self) -> tuple[object, ...]:
        return self._place(), self._place()

    _ltrim = _lrange

    def _lrem(self) -> tuple[object, ...]:
        return 1, self.field()

    def _zadd(self) -> tuple[object, ...]:
        option = self._random.choice(((), (), (b"LT",), (b"GT",), (b"XX",), (b"XX", b"GT")))
        return *option, *(word for _ in range(2) for word in (self.number(), self.field()))

    def _zcount(self) -> tuple[object, ...]:
        return self.score(), self.score()

    def _zrandmember(self) -> tuple[object, ...]:
        return (9,)

    def _zrange(self) -> tuple[object, ...]:
        scores = (b"WITHSCORES",) if self._random.random() < 0.5 else ()
        if self._random.random() < 0.4:
            return self._place(), self._place(), *scores
        way = (b"BYSCORE", b"REV") if self._random.random() < 0.3 else (b"BYSCORE",)
        limit = (
            (b"LIMIT", self._random.randint(0, 2), self._random.randint(-1, 3)) if self._random.random() < 0.5 else ()
        )
        return self.score(), self.score(), *way, *limit, *scores


EMPTY = Keys("x")
"""Of no matter: commands name their keys."""


def words(command: tuple[object, ...]) -> list[bytes]:
    """As a client sends them."""
    return [word if isinstance(word, bytes) else repr(word).encode() for word in command]


def ours(called: tuple[str, Library], keyspace: Keyspace, arguments: list[bytes]) -> object:
    """The answer, or the first word of the error."""
    try:
        return machine().run(called[1], called[0], keyspace, b"", tuple(arguments))
    except ScriptError as error:
        return str(error).split()[0]


def theirs(answer: Any) -> object:
    """The same of what a real server said."""
    return str(answer).split()[0] if isinstance(answer, redis.ResponseError) else answer


@pytest.mark.parametrize("seed", range(WALKS))
def test_commands_are_answered_as_by_a_real_server(fresh_valkey: Valkey, seed: int) -> None:
    speaker, keyspace = Speaker(seed), Keyspace()
    called = function_name, library = CALL_NUMBERS if seed % 2 else CALL
    commands = [speaker.command() for _ in range(COMMANDS)]
    with redis.Redis.from_url(fresh_valkey.url) as client:
        load(client, library)
        asked = client.pipeline(transaction=False)
        for command in commands:
            asked.execute_command(*library.words(EMPTY, function_name, tuple(words(command))))
        answers = [theirs(answer) for answer in asked.execute(raise_on_error=False)]
    for command, answer in zip(commands, answers, strict=True):
        name, said = command[0], ours(called, keyspace, words(command))
        assert isinstance(name, bytes)
        if name.decode() in SAYS_OK and answer == b"OK":
            continue
        if name.decode() in UNORDERED or name == b"ZRANDMEMBER":
            assert isinstance(said, list) == isinstance(answer, list), command
            said, answer = (sorted(each) if isinstance(each, list) else each for each in (said, answer))
        if name in (b"HSCAN", b"ZSCAN") and isinstance(said, list) and isinstance(answer, list):
            assert (said.pop(0), answer.pop(0)) == (b"0", b"0"), "few fields are told at once"
            said, answer = said[0], answer[0]
        if name in (b"HGETALL", b"HSCAN", b"ZSCAN") and isinstance(said, list) and isinstance(answer, list):
            said, answer = ({*zip(each[::2], each[1::2], strict=True)} for each in (said, answer))
        assert said == answer, command


def values(source: random.Random, depth: int = 3) -> Any:
    """Something to be packed."""
    plain = [None, True, False, b"", b"x" * source.choice((1, 40, 300, 70_000)), "é" * 20, source.uniform(-1e9, 1e9)]
    plain += [
        0.0,
        -0.0,
        math.inf,
        5e-324,
        *(source.choice((-1, 1)) * source.randrange(2**bits) for bits in (6, 15, 31, 53)),
    ]
    if depth == 0 or source.random() < 0.6:
        return source.choice(plain)
    rows = [values(source, depth - 1) for _ in range(source.choice((0, 2, 17)))]
    return rows if source.random() < 0.7 else {f"k{at}": row for at, row in enumerate(rows) if row is not None}


def test_messagepack_is_read_as_by_a_real_server(fresh_valkey: Valkey) -> None:
    source = random.Random(7)
    asked: list[list[bytes]] = []
    for _ in range(150):
        packed = b"".join(
            msgpack.packb(values(source), use_single_float=source.random() < 0.3) for _ in range(source.randint(1, 4))
        )
        if source.random() < 0.3:
            packed = packed[: source.randrange(len(packed))]
        asked.append([packed, b"%d" % source.randint(1, 4), b"%d" % source.choice((0, 0, 0, min(1, len(packed))))])
    asked += [[bytes([first]) + b"\x00" * 20, b"1", b"0"] for first in range(256)]
    with redis.Redis.from_url(fresh_valkey.url) as client:
        name, library = UNPACK
        load(client, library)
        pipe = client.pipeline(transaction=False)
        for one in asked:
            pipe.execute_command(*library.words(EMPTY, name, tuple(one)))
        answers = pipe.execute()
    for one, answer in zip(asked, answers, strict=True):
        assert ours(UNPACK, Keyspace(), one) == answer, one[0][:40]
    assert b"refused" in answers


def test_a_script_does_no_more_than_a_real_server_lets_it() -> None:
    for body, flags, wrong in (
        ("redis.call('SET', 'a', '1')", "'no-writes'", "SET is no command"),
        ("redis.call('KEYS', '*')", "", "KEYS is no command"),
        ("loose = 1", "", "readonly table: global variable 'loose'"),
        ("return loose", "", "nonexistent global variable 'loose'"),
    ):
        name, library = function("wrong", body, flags)
        with pytest.raises(ScriptError, match=wrong):
            machine().run(library, name, Keyspace(), b"", ())


@pytest.mark.parametrize("early", ["redis.call('TIME')", "string.rep('a', 3)", "ipairs({})"])
def test_a_library_does_no_more_while_it_is_loaded_than_a_real_server_lets_it(fresh_valkey: Valkey, early: str) -> None:
    name, library = function("early", "return 1")
    library = Library({**library.files, "shared/early": f"local _ = {early}\n"})
    with redis.Redis.from_url(fresh_valkey.url) as client, pytest.raises(redis.ResponseError):
        load(client, library)
    with pytest.raises(LuaError):
        machine().run(library, name, Keyspace(), b"", ())
