"""A disk of one file that notes every write and flush, in order: a block device is made of it with a loop.

    ext4 ──▶ loop ──▶ disk.img on FUSE ──▶ memory, and the log: kind 1, offset 8, length 4, data …

Speaks the kernel's FUSE protocol itself (linux/fuse.h, 7.31), the few calls that a loop device makes; anything else is
refused as unknown, which the kernel takes well. `python -m tests.crash.blocklog PLACE BYTES LOG`; needs root; ends
when it is unmounted.
"""

import ctypes
import errno
import os
import stat
import struct
import sys
from pathlib import Path
from typing import NamedTuple

IMAGE = "disk.img"
WRITE, FLUSH = b"W", b"F"
RECORD = struct.Struct("<cQI")

_IN = struct.Struct("<IIQQIIIHH")  # length, opcode, unique, node, …
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<6Q10I")
_INIT = struct.Struct("<4I2H2I2HI7I")
_IO = struct.Struct("<QQIIQII")  # of reads and writes: handle, offset, size, …
_DATA_MAX = 128 << 10
_ROOT, _FILE = 1, 2
_BIG_WRITES = 1 << 5
_NO_REPLY = frozenset({2, 36, 42})  # forget, interrupt, batch forget


class Op(NamedTuple):
    """One entry of the log, and where it ends there."""

    kind: bytes
    offset: int
    data: bytes
    end: int


def read_log(path: Path) -> list[Op]:
    """All entries, in order; one that was not finished is left out."""
    data, at, ops = path.read_bytes(), 0, list[Op]()
    while at + RECORD.size <= len(data):
        kind, offset, length = RECORD.unpack_from(data, at)
        at += RECORD.size
        if at + length > len(data):
            break
        ops.append(Op(kind, offset, data[at : at + length], at + length))
        at += length
    return ops


class Disk:
    """Answers the kernel, one request at a time."""

    def __init__(self, size: int, log: Path) -> None:
        self._content = bytearray(size)
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def serve(self, fd: int) -> None:
        """Until the mount is gone."""
        while True:
            try:
                request = os.read(fd, _DATA_MAX + 4_096)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                raise
            _, opcode, unique, node, *_ = _IN.unpack_from(request)
            if opcode in _NO_REPLY:
                continue
            answer = self._answer(opcode, node, request[_IN.size :])
            code, data = (-answer, b"") if isinstance(answer, int) else (0, answer)
            os.write(fd, _OUT.pack(_OUT.size + len(data), code, unique) + data)

    def _answer(self, opcode: int, node: int, body: bytes) -> bytes | int:
        """What to answer, or an errno."""
        match opcode:
            case 26:  # init
                readahead, flags = struct.unpack_from("<II", body, 8)
                return _INIT.pack(7, 31, readahead, flags & _BIG_WRITES, 16, 12, _DATA_MAX, 1, 0, 0, 0, *[0] * 7)
            case 1:  # lookup
                if body.rstrip(b"\0").decode() != IMAGE:
                    return errno.ENOENT
                return struct.pack("<4Q2I", _FILE, 0, 3_600, 3_600, 0, 0) + self._attributes(_FILE)
            case 3 | 4:  # getattr, setattr
                return struct.pack("<QII", 3_600, 0, 0) + self._attributes(node)
            case 14 | 27:  # open, opendir
                return struct.pack("<QII", 0, 0, 0)
            case 15:
                _, offset, size, *_ = _IO.unpack_from(body)
                return bytes(memoryview(self._content)[offset : offset + size])
            case 16:
                return self._write(body)
            case 20:
                os.write(self._log, RECORD.pack(FLUSH, 0, 0))
                return b""
            case 17:  # statfs
                return struct.pack("<5Q10I", 0, 0, 0, 2, 0, 4_096, 255, 4_096, *[0] * 7)
            case 18 | 25 | 28 | 29 | 38:  # release, flush, readdir, releasedir, destroy
                return b""
        return errno.EOPNOTSUPP if opcode == 43 else errno.ENOSYS

    def _write(self, body: bytes) -> bytes:
        _, offset, size, *_ = _IO.unpack_from(body)
        data = body[_IO.size : _IO.size + size]
        self._content[offset : offset + size] = data
        os.write(self._log, RECORD.pack(WRITE, offset, size) + data)
        return struct.pack("<II", size, 0)

    def _attributes(self, node: int) -> bytes:
        mode = stat.S_IFREG | 0o600 if node == _FILE else stat.S_IFDIR | 0o700
        size = len(self._content) if node == _FILE else 0
        return _ATTR.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4_096, 0)


def main(place: str, size: str, log: str) -> None:
    """Mount and serve."""
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"jqd-test", place.encode(), b"fuse", 0, options):
        sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    sys.stdout.write("mounted\n")
    sys.stdout.flush()
    Disk(int(size), Path(log)).serve(fd)


if __name__ == "__main__":
    main(*sys.argv[1:])
