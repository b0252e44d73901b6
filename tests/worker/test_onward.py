"""What jobs print goes on to the worker's log, whoever reads that."""

import os

from jqd.worker.onward import WAITING_BYTES_MAX, Onward

PATIENCE_S = 20.0  # for a thread to be scheduled on a busy machine


def test_a_log_that_nobody_reads_holds_nobody_up_and_what_was_dropped_is_said() -> None:
    reader, writer = os.pipe()
    onward, piece = Onward(writer), b"x" * 65_535 + b"\n"
    try:
        for _ in range(WAITING_BYTES_MAX // len(piece) + 5):  # a pipe takes one of them
            onward.add(piece)
        assert not onward.flush(0.0)
        told = b""
        while b"dropped" not in told:
            told += os.read(reader, len(piece))
        dropped = int(told.split(b"jqd worker: ")[1].split()[0])
        assert dropped >= 4 * len(piece)
        assert dropped % len(piece) == 0, "whole pieces"
    finally:
        os.close(reader)
    onward.add(b"to nobody")
    assert onward.flush(PATIENCE_S), "a log that is closed takes nothing, and holds nobody up"
    os.close(writer)
