"""A large frame on its way to the store is decoded once, in pieces, and what cannot be read is said in its turn."""

from typing import cast

import msgspec
import pytest
from trio.testing import MockClock

from jqd.domain.array_split import Steps
from jqd.domain.errors import JournalStuck
from jqd.domain.job import Job
from jqd.domain.jobid import IdSource
from jqd.domain.record import Head, Lane, decode_in_pieces, decode_jobs, encode_jobs
from jqd.journal import Journal, Slice
from jqd.loops import lane_records
from jqd.loops.lane_records import LARGE_BYTES, LaneFrames
from jqd.testing.clock import ManualClock

SIZE = 9
HEAD = Head(IdSource(journal=3, salt=1, clock=ManualClock()).take(SIZE).first, 5_000)
LARGE = encode_jobs(HEAD, msgspec.msgpack.encode([{"name": "t", "argument": [1] * 40_000}] * SIZE))


class Places:
    """A journal, as far as it says where something stands."""

    def place_of(self, position: int) -> str:
        return f"position {position}"


def part(first: int, stop: int, body: bytes = LARGE, start: int = 100) -> Slice:
    return Slice(Lane.JOBS, start, body, first, stop, start + stop)


def made() -> LaneFrames[Job]:
    return LaneFrames(Lane.JOBS, cast("Journal", Places()))


async def test_a_large_frame_is_decoded_once_however_many_reads_it_takes(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    decoded: list[int] = []

    def decode(body: bytes) -> Steps[list[Job]]:
        decoded.append(len(body))
        return decode_in_pieces(body)

    monkeypatch.setattr(lane_records, "decode_in_pieces", decode)
    held = made()
    assert len(LARGE) > LARGE_BYTES
    for first in range(0, SIZE, 3):
        await held.open([part(first, first + 3)])
        assert held.records(part(first, first + 3)) == decode_jobs(LARGE)
    assert decoded == [len(LARGE)]
    assert not held._large, "and nothing of it is kept"
    await held.open([part(3, 6)])
    await held.open([])
    assert not held._large, "nor of one that is left"


async def test_what_cannot_be_read_is_said_when_all_before_it_was_given(autojump_clock: MockClock) -> None:
    held, good, bad = made(), part(0, SIZE), part(0, SIZE, LARGE + b"\xc0", 900)
    await held.open([good, bad])
    assert len(held.records(good)) == SIZE
    with pytest.raises(JournalStuck, match="position 900"):
        held.records(bad)
