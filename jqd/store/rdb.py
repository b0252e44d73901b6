"""Copies all that a store's server holds into one file, and puts such a file where a new server loads it at its start.

The server sends the copy as to a replica (`SYNC`), so no access to its machine is needed. Writes that come after the
copy began follow on the same connection, and are not read.
"""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import redis

from jqd.domain.errors import StoreAway, StoreRefused
from jqd.domain.synced_files import begin_directory, copy_synced, sync_directory
from jqd.store.config import StoreConfig
from jqd.store.connect import _client

SILENT_S = 120.0  # for a server that first writes its copy to its disk; meanwhile it sends blank lines
PIECE_BYTES = 1 << 20
LINE_BYTES_MAX = 256  # of the line before the copy: its length, or an error
BASE = "appendonly.aof.1.base.rdb"
MANIFEST = f"file {BASE} seq 1 type b\n"  # of the multi-part append-only file of Redis 7 and Valkey


def copy_rdb(config: StoreConfig, target: Path) -> int:
    """Write all that the server holds to a new file, synced; return its size.

    Raises StoreAway when the server does not answer or breaks off, StoreRefused when it gives no copy (some hosted
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
    """Read `$<length>\\r\\n` and that many bytes into a file; return their number. Raises StoreRefused,
    ConnectionError."""
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


def place_rdb(copy: Path, directory: Path) -> Path:
    """Put a copy into the directory of a new server, as the base of its append-only file. That file is read whatever
    the server's settings for snapshots are. Returns the directory with that file; to be found by the server, it must
    lose its suffix. Raises FileExistsError if the server has data."""
    own = directory / "appendonlydir"
    if own.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(own))
    part = begin_directory(own)
    directory.chmod(0o700)
    copy_synced(copy, part / BASE)
    with (part / "appendonly.aof.manifest").open("x") as file:
        file.write(MANIFEST)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(part)
    return part
