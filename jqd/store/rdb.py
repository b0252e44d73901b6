"""Copies all that a server of the store holds into one file, and puts such a file where a server begins with it.

The server sends its copy as it would to a replica (`SYNC`), so it needs no access to the server's machine. What is
written behind that moment follows on the connection and is not read.
"""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import redis

from jqd.domain.errors import StoreAway, StoreRefused
from jqd.domain.synced_files import copy_synced, sync_directory
from jqd.store.config import StoreConfig
from jqd.store.connect import _client

SILENT_S = 120.0  # of a server that writes its copy to its own disk first; it sends blank lines meanwhile
PIECE_BYTES = 1 << 20
LINE_BYTES_MAX = 256  # the answer before the copy: a length, or why not
BASE = "appendonly.aof.1.base.rdb"
MANIFEST = f"file {BASE} seq 1 type b\n"  # of a multi-part append-only file, as Redis 7 and Valkey have it


def copy_rdb(config: StoreConfig, target: Path) -> int:
    """Write what the server holds to a new file, synced. Returns its size.

    Raises StoreAway when it does not answer or breaks off, StoreRefused when it does not give a copy (some hosted
    servers do not), FileExistsError.
    """
    pool = _client(config, "").connection_pool
    try:
        connection: Any = pool.get_connection()
        connection.send_command("SYNC")
        wire: socket.socket = connection._sock
        wire.settimeout(SILENT_S)
        with target.open("xb") as file:
            size = _received(wire.recv, file)
            file.flush()
            os.fsync(file.fileno())
    except redis.AuthenticationError as error:
        raise StoreRefused(f"the store refuses a copy: {error}") from error
    except (redis.RedisError, TimeoutError, ConnectionError) as error:
        raise StoreAway(f"the store gave no whole copy: {error}") from error
    finally:
        pool.disconnect()
    return size


def _received(receive: Callable[[int], bytes], file: IO[bytes]) -> int:
    """Read `$<length>\\r\\n` and that many bytes. Raises StoreRefused, ConnectionError."""
    line = b""
    while not line.endswith(b"\n") or not line.strip():
        line = line.lstrip(b"\n")
        byte = receive(1)
        if not byte or len(line) > LINE_BYTES_MAX:
            raise ConnectionError("it closed the connection before the copy began")
        line += byte
    text = line.strip()
    if not (text.startswith(b"$") and text[1:].isdigit()):
        raise StoreRefused(f"the store refuses a copy: {text.decode(errors='replace').lstrip('-')}")
    size = left = int(text[1:])
    while left:
        piece = receive(min(left, PIECE_BYTES))
        if not piece:
            raise ConnectionError(f"{left} of {size} bytes are missing")
        file.write(piece)
        left -= len(piece)
    return size


def place_rdb(copy: Path, directory: Path) -> None:
    """Have a server that keeps an append-only file in `directory` begin with that copy: as its base, so that it is
    read whatever the settings for snapshots are. Raises FileExistsError where a server has data."""
    own = directory / "appendonlydir"
    own.mkdir(parents=True, mode=0o700)
    directory.chmod(0o700)
    copy_synced(copy, own / BASE)
    with (own / "appendonly.aof.manifest").open("x") as file:
        file.write(MANIFEST)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(own)
    sync_directory(directory)
