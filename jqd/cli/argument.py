"""The argument of a job, from the command line, stdin or a file: JSON when it is JSON, else the text itself.

Text that begins like JSON and is not JSON is a slip of the keyboard, not a string: it is refused.
"""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import msgspec

from jqd.cli.exits import Usage
from jqd.domain import json_ext

STDIN = "-"
# A script of one line that holds this much is a mistake: a daemon takes jobs of a megabyte.
LINE_CHARACTERS_MAX = 64 << 20
JSON_BEGINS = ("{", "[", '"')


def argument(given: str | None, *, as_text: bool = False) -> Any:
    """ARG as `jqd push` takes it: a value, `-` for stdin, `@FILE`. Raises Usage for a value that no job can have."""
    if given is None:
        return None
    if given == STDIN or given.startswith("@"):
        path = Path(given.removeprefix("@"))
        with _reading(path) as file:
            return value(file.read().removesuffix("\n").removesuffix("\r"), str(path), as_text=as_text)
    return value(given, "the argument", as_text=as_text)


def value(text: str, where: str, *, as_text: bool = False) -> Any:
    """JSON as what it means (unless `as_text`), any other text as itself.

    Raises Usage for text that begins like JSON and is not, and when MessagePack cannot carry the value.
    """
    try:
        meant: Any = text if as_text else json_ext.read(text.encode())
    except json_ext.FormError as error:
        pointer, why = json_ext.fault_of(text.encode())
        raise Usage(f"{where}{pointer and f' at {pointer}'}: {why}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        if text.lstrip().startswith(JSON_BEGINS):
            raise Usage(
                f"{where} begins like JSON but is not JSON ({error}); with --text it is taken as text"
            ) from error
        meant = text
    try:
        msgspec.msgpack.encode(meant)
    except (OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise Usage(f"{where} cannot be sent as MessagePack: {error}") from error
    return meant


def arguments(path: Path, *, as_text: bool = False) -> Iterator[tuple[int, Any, int]]:
    """(line number, value, bytes read so far) of every line that is not empty. Only LF ends a line, or CR LF."""
    with _reading(path) as file:
        read_bytes = 0
        for number, line in enumerate(iter(lambda: file.readline(LINE_CHARACTERS_MAX), ""), 1):
            read_bytes += len(line.encode(errors="replace"))
            if len(line) >= LINE_CHARACTERS_MAX:
                raise Usage(
                    f"{path} line {number} is longer than {LINE_CHARACTERS_MAX} characters; is it a job a line?"
                )
            text = line.removesuffix("\n").removesuffix("\r")
            if text.strip():
                yield number, value(text, f"{path} line {number}", as_text=as_text), read_bytes


@contextmanager
def _reading(path: Path) -> Iterator[TextIO]:
    """A file, or stdin, as UTF-8 text. Raises Usage naming the file when it cannot be read."""
    try:
        if str(path) != STDIN:
            with path.open(encoding="utf-8", newline="\n") as file:
                yield file
        elif isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="strict", newline="\n")
            yield sys.stdin
        else:
            yield sys.stdin
    except OSError as error:
        raise Usage(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Usage(f"{path} is no UTF-8 text ({error}); other bytes are sent with jqd.client") from error
