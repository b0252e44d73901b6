"""Nothing waits for who reads a log, and nothing fails where it cannot be written: lines are dropped, counted, told."""

import errno
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import structlog

from jqd.domain import log
from jqd.domain.lossy_stream import PIECE_BYTES, WAITING_BYTES_MAX, LossyStream, LossyWriter

PATIENCE_S = 60.0  # for a thread to be scheduled on a busy machine
REFUSALS = (errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EBADF, errno.EAGAIN, errno.EFBIG, errno.EDQUOT)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):  # closed by the test
            os.close(end)


@pytest.mark.parametrize("code", REFUSALS, ids=errno.errorcode.get)
def test_whatever_a_descriptor_refuses_is_dropped_counted_and_told_when_it_goes_again(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        writer, write = LossyWriter(file.fileno()), os.write

        def refuse(fd: int, data: memoryview) -> int:
            if bytes(data[:3]) == b"sec":
                return write(fd, data[:3])  # as a disk does that becomes full
            raise OSError(code, os.strerror(code))

        writer.add(b"first\n")
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", refuse)
            for line in (b"second\n", b"third\nfourth\n"):
                writer.add(line)
        assert writer.dropped == 3
        writer.add(b"fifth\n")
        assert path.read_bytes().endswith(b"\nlog.dropped lines=3\nfifth\n")
        assert path.read_bytes().startswith(b"first\nsec\n"), "what was torn is a line of its own"
        writer.add(b"sixth\n")
        assert path.read_bytes().endswith(b"fifth\nsixth\n"), "it is told once"


def test_a_reader_that_stands_still_holds_nobody_up_and_what_was_dropped_is_said(pipe: tuple[int, int]) -> None:
    reader, end = pipe
    writer, piece = LossyWriter(end), b"x" * 65_535 + b"\n"
    for _ in range(WAITING_BYTES_MAX // len(piece) + 5):  # a pipe takes one of them
        writer.add(piece)
    assert not writer.drain(0.0)
    assert 3 <= writer.dropped <= 5
    told = b""
    while told.count(b"\n") < WAITING_BYTES_MAX // len(piece):
        told += os.read(reader, len(piece))
    os.set_blocking(reader, False)  # the last piece may be read before its writer has noted that it is written
    while not writer.drain(0.0):
        with suppress(BlockingIOError):
            told += os.read(reader, len(piece))
    os.set_blocking(reader, True)
    writer.add(b"again\n")
    while b"again" not in told:
        told += os.read(reader, len(piece))
    assert sum(map(int, re.findall(rb"log\.dropped lines=(\d+)\n", told))) == writer.dropped, "in one note or in two"
    assert told.count(b"x" * 65_535 + b"\n") == WAITING_BYTES_MAX // len(piece) + 5 - writer.dropped, "whole lines"
    os.close(reader)
    for _ in range(20):
        writer.add(b"to nobody\n")
    assert writer.drain(PATIENCE_S), "a log that nobody will read takes nothing, and holds nobody up"
    assert writer.dropped >= 23


def test_where_the_machine_has_no_more_threads_lines_are_dropped(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    writer = LossyWriter(pipe[1])
    writer.add(b"x" * (1 << 20) + b"\n")
    assert writer.dropped == 1


def test_a_fork_begins_with_nothing_that_waits(pipe: tuple[int, int]) -> None:
    writer = LossyWriter(pipe[1])
    writer.add(b"x" * (1 << 19) + b"\n")
    assert not writer.drain(0.0)
    child = os.fork()
    if child == 0:
        os._exit(0 if writer.drain(0.0) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_logger_and_print_never_fail_by_their_stream(pipe: tuple[int, int]) -> None:
    reader, end = pipe
    os.close(reader)
    try:
        with os.fdopen(end, "w", closefd=False) as stream:
            log.configure(level="info", form="json", stream=stream)
            log.get_logger("x").info("x.batch", name="\udcff")
            print("a line", "\udcff" * PIECE_BYTES, file=LossyStream(stream), flush=True)
        closed = io.StringIO()
        closed.close()
        log.configure(level="info", form="json", stream=closed)
        log.get_logger("x").info("x.batch")
    finally:
        structlog.reset_defaults()


def test_what_was_dropped_is_an_event_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, __: memoryview) -> int:
        raise OSError(errno.ENOSPC, "full")

    path = tmp_path / "log"
    try:
        with path.open("w") as stream:
            log.configure(level="info", form="json", stream=stream)
            with monkeypatch.context() as patched:
                patched.setattr(os, "write", refuse)
                log.get_logger("x").info("x.lost")
            log.get_logger("x").info("x.goes_on")
    finally:
        structlog.reset_defaults()
    dropped, goes_on = path.read_text().splitlines()
    assert '"event": "log.dropped"' in dropped
    assert '"lines": 1' in dropped
    assert "x.goes_on" in goes_on


def test_a_closed_descriptor_is_not_the_next_files(tmp_path: Path) -> None:
    code = (
        "from jqd.domain.lossy_stream import open_missing as o; o(); import sys; print(open('/dev/null').fileno() > 2)"
    )
    script = f"import os; [os.close(fd) for fd in (0, 2)]; os.execv({sys.executable!r}, ['python', '-c', {code!r}])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert ran.stdout == b"True\n"
