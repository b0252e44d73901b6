"""The store's Lua: one library of functions, made of all files in `lua/`, named by its digest, loaded into the server.

Each file of `lua/` has one function; `lua/shared/` has what functions share, in a table for each file: other files use
`Index.…` of `index.lua`. Two versions of jqd have two libraries, whose functions have different names. Whoever calls a
function that the server does not have loads the library (pipeline.py), so any library may be deleted at any time.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import redis

from jqd.store.keys import KINDS, STEMS, Keys

PREFIX = "jqd_"  # begins the names of all our libraries
DIGEST_CHARS = 16  # 64 bits tell versions apart
OTHERS_MAX = 4  # libraries of other versions left at a server: some 1 MB each, and more than are in use at once
FIRST = "shared/base"

_OURS = re.compile(rb"jqd_[0-9a-f]{16}")
_REGISTERED = re.compile(r"^register\('(\w+)', \{(.*?)\}", re.MULTILINE)


class Library:
    """The Lua files by name, and the library that they make together."""

    def __init__(self, files: Mapping[str, str]) -> None:
        """`files`: path below `lua/`, without its ending → the file's text."""
        self.files = files
        shared = sorted(name for name in files if name.startswith("shared/") and name != FIRST)
        tables = [name.removeprefix("shared/").capitalize() for name in shared]
        kinds = ", ".join(f"{name} = '{kind}'" for name, kind in KINDS.items())
        stems = ", ".join(f"{name} = true" for name in sorted(STEMS))
        text = f"local KINDS, STEMS = {{{kinds}}}, {{{stems}}}\n{files[FIRST]}"
        text += f"local {', '.join(tables)} = {', '.join('{}' for _ in tables)}\n" if tables else ""
        blocks = [*shared, *sorted(name for name in files if "/" not in name)]
        text += "".join(f"do\n{files[name]}end\n" for name in blocks)
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARS]
        self.name = PREFIX + self.digest
        self.source = f"#!lua name={self.name}\nlocal DIGEST = '{self.digest}'\n{text}"
        self.flags = {name: frozenset(re.findall(r"[a-z-]+", flags)) for name, flags in _REGISTERED.findall(text)}
        """Function → its flags (`allow-oom` …)."""

    def function(self, name: str) -> str:
        """Return the name that a function has at the server. It ends with the library's digest, because two libraries
        at one server must not have functions of the same name."""
        return f"{name}_{self.digest}"

    def words(self, keys: Keys, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the command that calls a function. The command's only key is the beginning of all key names, to which
        the function adds the rest of each name."""
        return "FCALL", self.function(name), 1, keys.stem, *arguments

    def load_words(self) -> tuple[str, ...]:
        """Return the command that loads the library. A server that has the library already answers it with an error,
        for which `is_loaded` is True."""
        return "FUNCTION", "LOAD", self.source

    def changed(self, name: str, old: str, new: str) -> "Library":
        """Return the library with one text in one file replaced, for tests. Raises LookupError unless the file has that
        text exactly once.
        """
        if self.files[name].count(old) != 1:
            raise LookupError(f"{name}.lua has not once: {old}")
        return Library({**self.files, name: self.files[name].replace(old, new)})


def read_library(root: Traversable | None = None) -> Library:
    """Read the library in the directory `root`; None: the one that is shipped with jqd."""
    lua = root or resources.files("jqd.store").joinpath("lua")
    places = (("", lua), ("shared/", lua.joinpath("shared")))
    files = ((before, entry) for before, place in places for entry in place.iterdir() if entry.name.endswith(".lua"))
    return Library({before + entry.name[: -len(".lua")]: entry.read_text(encoding="utf-8") for before, entry in files})


@cache
def shipped() -> Library:
    """Return the library that is shipped with jqd. It is read once: reading takes longer than a call to the store."""
    return read_library()


def is_missing(answer: object) -> bool:
    """Return whether an answer is the error of a server that does not have the function."""
    return isinstance(answer, redis.ResponseError) and str(answer).startswith("Function not found")


def is_loaded(answer: object) -> bool:
    """Return whether an answer is the error of a server that already has the library."""
    return isinstance(answer, redis.ResponseError) and "already exists" in str(answer)


def others(answer: Any) -> list[bytes]:
    """Return the names of libraries of other jqd versions from an answer of FUNCTION LIST."""
    names = (bytes(dict(zip(row[::2], row[1::2], strict=True))[b"library_name"]) for row in answer)
    return sorted(name for name in names if _OURS.fullmatch(name) and name != shipped().name.encode())


def call_on(client: "redis.Redis", words: tuple[Any, ...]) -> Any:
    """Call a function over a redis-py connection. Loads the library if the server does not have it. Blocks."""
    call: Any = client.execute_command
    try:
        return call(*words)
    except redis.ResponseError as error:
        if not is_missing(error):
            raise
    load(client, shipped())
    return call(*words)


def load(client: "redis.Redis", library: Library) -> None:
    """Load the library unless the server has it. Blocks."""
    command: Any = client.execute_command
    try:
        command(*library.load_words())
    except redis.ResponseError as error:
        if not is_loaded(error):
            raise
