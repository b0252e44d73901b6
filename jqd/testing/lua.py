"""Runs the store's own Lua scripts on a `Keyspace`, in the Lua that Redis has (5.1).

Needs `lupa`, which is no dependency of jqd itself: the extra `testing` brings it.
"""

from functools import cache
from importlib import resources
from typing import Any

from jqd.domain.extras import install_with
from jqd.store.scripts import Script
from jqd.testing.keyspace import ARRAYS, READS, WRITES, Keyspace, NoSuchKey, WrongType, text

try:
    from lupa.lua51 import LuaRuntime
except ImportError as error:
    raise ImportError(
        f"jqd.testing.store runs the store's Lua scripts, and lupa is not installed: {install_with('testing')}"
    ) from error

FEW = 200  # values of an array that are handed over on Lua's stack; it has room for some thousand


class ScriptError(Exception):
    """What a script failed with: its first word is the name of the error."""


class Machine:
    """One Lua for all servers of a process: scripts are compiled once, and run on the keyspace they are called for."""

    def __init__(self) -> None:
        self._lua = lua = LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False)
        self._keyspace = Keyspace()
        self._compiled: dict[str, Any] = {}
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

    def run(self, script: Script, keyspace: Keyspace, keys: Any, arguments: tuple[Any, ...]) -> object:
        """What the script answers, as a client reads it. Raises ScriptError."""
        compiled = self._compiled.get(script.sha) or self._compile(script)
        self._keyspace = keyspace
        table = self._lua.table_from
        good, answer = compiled(table(keys), table([_sent(word) for word in arguments]))
        if good:
            return _read(answer)
        if isinstance(answer, (NoSuchKey, WrongType)):
            raise ScriptError(str(answer))
        if isinstance(answer, (ValueError, OverflowError)):  # a number that is none, in a row or made of one
            raise ScriptError(f"ERR value is not an integer or a valid float: {answer}")
        if isinstance(answer, Exception):
            raise answer  # a mistake in a command, or a call that we do not have
        if isinstance(answer, bytes):
            raise ScriptError(f"ERR {script.name}: {answer.decode(errors='replace')}")
        raise ScriptError(answer[b"err"].decode(errors="replace"))

    def _compile(self, script: Script) -> Any:
        first, _, rest = script.source.partition("\n")
        may_write = "no-writes" not in first
        compiled = self._load(f"--\n{rest}".encode(), script.name.encode(), may_write)
        self._compiled[script.sha] = compiled
        return compiled


@cache
def machine() -> Machine:
    """The one of this process."""
    return Machine()


def _sent(word: Any) -> bytes:
    """As a client sends it."""
    return word if isinstance(word, bytes) else word.encode() if isinstance(word, str) else text(word)


def _read(answer: Any) -> object:
    """As a client reads it: whole numbers, bytes, lists that end at their first nil, None."""
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
