"""The daemon's own token: a file in its data directory. Whoever may read that directory is the daemon's master.

So the first token of a fresh daemon is made by who runs it, and by nobody else; nothing is printed, and nothing lasts:
each start draws another one, and no other daemon takes it.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

FILE = "root.json"
SECRET_BYTES = 32


class Root(msgspec.Struct, frozen=True):
    """What the file says."""

    url: str
    token: str

    def __repr__(self) -> str:
        """Without the token, whoever asks."""
        return f"Root({self.url!r})"


_decoder = msgspec.json.Decoder(Root)


def draw() -> str:
    """A new secret."""
    return secrets.token_urlsafe(SECRET_BYTES)


@contextmanager
def lying(data_dir: Path, root: Root, failed: Callable[..., object]) -> Iterator[None]:
    """While the file lies there, for its owner's eyes alone. `failed`: told of a disk that does not take it."""
    path = data_dir / FILE
    try:
        _write(path, root)
    except OSError as error:
        failed(path=str(path), error=str(error))  # a full disk stops no start
    try:
        yield
    finally:
        with suppress(OSError):  # a disk that is gone: the secret dies with this process anyway
            path.unlink()


def _write(path: Path, root: Root) -> None:
    new = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        new.unlink()
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump({"url": root.url, "token": root.token}, file)
    new.replace(path)


def read(data_dir: Path) -> Root | None:
    """What a running daemon left there; None: there is none. Raises OSError, msgspec.MsgspecError."""
    try:
        return _decoder.decode((data_dir / FILE).read_bytes())
    except FileNotFoundError:
        return None
