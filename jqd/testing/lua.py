"""Runs the Lua functions of the store on a `Keyspace`, in the Lua version of Redis (5.1).

Needs `lupa`, which is no dependency of jqd itself: the extra `testing` installs it.
"""

from functools import cache
from importlib import resources
from typing import Any

from jqd.domain.extras import install_with
from jqd.store.functions import Library
from jqd.testing.keyspace import ARRAYS, READS, WRITES, Keyspace, NoSuchKey, WrongType, text

try:
    from lupa.lua51 import LuaRuntime
except ImportError as error:
    raise ImportError(
        f"jqd.testing.store runs the store's functions in Lua, and lupa is not installed: {install_with('testing')}"
    ) from error

FEW = 200  # values of an array that are passed on Lua's stack, which has room for some thousand


class ScriptError(Exception):
    """A Lua function failed. The first word of the message is the name of the error."""


class Machine:
    """A Lua interpreter. Loads each function library once; runs its functions on any keyspace."""

    def __init__(self) -> None:
        self._lua = lua = LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False)
        self._keyspace = Keyspace()
        self._loaded: dict[str, Any] = {}
        prelude = resources.files("jqd.testing").joinpath("server.lua").read_bytes()
        table = lua.table_from
        reads, writes = (
            table({name.encode(): self._command(name, method) for name, method in commands.items()})
            for commands in (READS, WRITES)
        )
        self._load = lua.execute(prelude, reads, writes, table({name.encode(): True for name in ARRAYS}))

    def _command(self, name: str, method: Any) -> Any:
        table = self._lua.table_from

        def one(*words: Any) -> Any:
            return method(self._keyspace, *words)

        def many(*words: Any) -> Any:
            found = method(self._keyspace, *words)
            return found if len(found) <= FEW else table(found)

        return many if name in ARRAYS else one

    def run(self, library: Library, name: str, keyspace: Keyspace, key: bytes, arguments: tuple[Any, ...]) -> object:
        """Call a function of the library on a keyspace. Returns its answer as a Redis client would get it. Raises
        ScriptError."""
        loaded = self._loaded.get(library.digest)
        if loaded is None:
            loaded = self._loaded[library.digest] = self._load(library.source.partition("\n")[2].encode())
        self._keyspace = keyspace
        table = self._lua.table_from
        function = library.function(name).encode()
        good, answer = loaded(function, table([key]), table([_sent(word) for word in arguments]))
        if good:
            return _read(answer)
        if isinstance(answer, (NoSuchKey, WrongType)):
            raise ScriptError(str(answer))
        if isinstance(answer, (ValueError, OverflowError)):  # a stored value or an argument is no number
            raise ScriptError(f"ERR value is not an integer or a valid float: {answer}")
        if isinstance(answer, Exception):
            raise answer  # a bug in `Keyspace`, or a command that it lacks
        if isinstance(answer, bytes):
            raise ScriptError(f"ERR {name}: {answer.decode(errors='replace')}")
        raise ScriptError(answer[b"err"].decode(errors="replace"))


@cache
def machine() -> Machine:
    """Return the Lua interpreter that this whole process shares."""
    return Machine()


def _sent(word: Any) -> bytes:
    """Encode an argument as a Redis client would send it."""
    return word if isinstance(word, bytes) else word.encode() if isinstance(word, str) else text(word)


def _read(answer: Any) -> object:
    """Convert an answer of Lua to what a Redis client returns: int, bytes, None, or a list. A list ends before its
    first nil."""
    if isinstance(answer, bytes):
        return answer
    if answer is None or answer is False:
        return None
    if isinstance(answer, (int, float)):
        return int(answer)
    if (status := answer[b"ok"]) is not None:
        return status
    found = []
    at = 1
    while (value := answer[at]) is not None:
        found.append(_read(value))
        at += 1
    return found
