"""The root token: a token in a file of the daemon's data directory, with which the owner of the directory makes the
first tokens. It is never printed. Each start makes a new one, which no other daemon accepts."""

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from jqd.domain.diagnostic import Diagnostic, Severity

FILE = "root.json"
SECRET_BYTES = 32


class RootToken(msgspec.Struct, frozen=True):
    url: str
    token: str

    def __repr__(self) -> str:
        """Return a repr without the token, as reprs end up in logs."""
        return f"RootToken({self.url!r})"


_decoder = msgspec.json.Decoder(RootToken)


def draw() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


class RootTokenFile:
    """Writes the file of the root token, which only its owner can read, and removes the file at the end of the `with`
    block."""

    def __init__(self, data_dir: Path, root: RootToken) -> None:
        self._path = data_dir / FILE
        self._root = root
        self._is_written = False

    def __enter__(self) -> Self:
        self.examine()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # if the disk is gone: the token is invalid after this process anyway
            self._path.unlink()

    def examine(self) -> list[Diagnostic]:
        """Write the file, if that has not succeeded yet. Returns a warning if the file cannot be written, else an empty
        list; the daemon runs in both cases."""
        try:
            if not self._is_written:
                self._write()
                self._is_written = True
        except OSError as error:
            return [
                Diagnostic(
                    "no_root_file",
                    Severity.WARN,
                    f"{self._path} cannot be written",
                    f"{error.strerror or error}; without it `--data-dir` lets nobody make a token",
                    "make room, or mend the directory; it is written again every few seconds",
                )
            ]
        return []

    def _write(self) -> None:
        # First remove the token of an earlier run, which is invalid: that works on a full disk, too.
        self._path.unlink(missing_ok=True)
        new = self._path.with_suffix(".new")
        new.unlink(missing_ok=True)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump({"url": self._root.url, "token": self._root.token}, file)
        new.replace(self._path)


def read(data_dir: Path) -> RootToken | None:
    """Read the root token of a data directory; None: no daemon runs there. Raises OSError, msgspec.MsgspecError."""
    try:
        return _decoder.decode((data_dir / FILE).read_bytes())
    except FileNotFoundError:
        return None
