"""Every cut and every flipped bit of a small journal: no wrong record is ever accepted, no good one silently dropped.

The long form takes some twenty minutes:
`python -m pytest tests/crash --journal-bytes 65536 --flip-bytes 65536 --timeout 0 -n 2`.
"""

import random

import pytest

from jqd.domain.errors import JournalVersion
from jqd.domain.record import Lane
from jqd.journal.frame import (
    FRAME_HEADER_BYTES,
    HEAD_BYTES,
    HEADER_COPY_BYTES,
    SegmentHeader,
    pack_frame_header,
    unpack_head,
)
from tests.crash.disk import SEED, Built, bodies_of, build, read_back
from tests.journal.conftest import opened, push, read_lane, segments


async def test_cut_at_every_byte(journal_bytes: int) -> None:
    built = await build(journal_bytes)
    (ends,), (bodies,) = built.ends, built.bodies
    whole = 0
    for cut in range(HEAD_BYTES, ends[-1] + 1):
        found = read_back(built.changed(0, lambda content, cut=cut: content.__delitem__(slice(cut, None))))  # type: ignore[misc]
        whole += whole < len(ends) and ends[whole] == cut
        assert found.bodies == bodies[:whole], f"cut at {cut}"
        assert found.damaged == []
    assert whole == len(ends)


async def test_cut_inside_the_head() -> None:
    """No crash leaves that, for a segment gets its name when its head is on disk; so it is damage, and loud."""
    built = await build(500)
    for cut in (0, 1, 7, 95, 96, 4_095, HEADER_COPY_BYTES + 95, HEAD_BYTES - 1):
        found = read_back(built.changed(0, lambda content, cut=cut: content.__delitem__(slice(cut, None))))  # type: ignore[misc]
        assert found.bodies == []
        assert bool(found.damaged) is (cut < 96)  # with its head whole, it looks as if it had taken nothing


async def test_cut_of_an_older_segment_at_every_byte() -> None:
    built = await build(900, segment_bytes=300)
    assert len(built.paths) >= 3
    for cut in range(HEAD_BYTES, built.ends[1][-1]):
        found = read_back(built.changed(1, lambda content, cut=cut: content.__delitem__(slice(cut, None))))  # type: ignore[misc]
        kept = [body for body, end in zip(built.bodies[1], built.ends[1], strict=True) if end <= cut]
        assert found.bodies == [*built.bodies[0], *kept, *bodies_of(built.bodies[2:])]
        assert found.damaged, f"cut at {cut}"


async def test_flip_every_bit(flip_bytes: int) -> None:
    built = await build(flip_bytes, segment_bytes=flip_bytes // 3)
    assert len(built.paths) >= 3
    for which, (bodies, ends) in enumerate(zip(built.bodies, built.ends, strict=True)):
        others_before, others_after = bodies_of(built.bodies[:which]), bodies_of(built.bodies[which + 1 :])
        hit = 0
        for offset in range(HEAD_BYTES, ends[-1]):
            hit += ends[hit] == offset
            for bit in range(8):
                found = read_back(built.changed(which, lambda content, at=offset, bit=bit: flip(content, at, bit)))  # type: ignore[misc]
                kept = bodies[:hit] + bodies[hit + 1 :]
                assert found.bodies == [*others_before, *kept, *others_after], f"{which}: byte {offset} bit {bit}"
                # Only the very last frame of all may go quietly: that is what a torn tail looks like.
                assert found.damaged or (which == len(built.paths) - 1 and hit == len(ends) - 1)


async def test_flip_every_bit_of_the_heads() -> None:
    built = await build(600, segment_bytes=200)
    for which in range(len(built.paths)):
        for start in (0, HEADER_COPY_BYTES):
            for offset in range(start, start + 81):
                for bit in range(8):
                    found = read_back(built.changed(which, lambda content, at=offset, bit=bit: flip(content, at, bit)))  # type: ignore[misc]
                    assert found.bodies == built.all_bodies
                    assert found.damaged == []


def flip(content: bytearray, offset: int, bit: int) -> None:
    content[offset] ^= 1 << bit


@pytest.mark.parametrize("size", [512, 4_096])
@pytest.mark.parametrize("fill", [0x00, 0xFF])
async def test_lost_sectors_and_pages(size: int, fill: int) -> None:
    built = await build(6 * size, segment_bytes=3 * size)
    for which, content in enumerate(built.contents[path] for path in built.paths):
        for start in range(0, len(content), size):

            def wipe(content: bytearray, start: int = start) -> None:
                content[start : start + size] = bytes([fill]) * len(content[start : start + size])

            found = read_back(built.changed(which, wipe))
            check(built, found.bodies, which, start, start + size)
            # With the last frame of all hit, everything lost looks like a torn tail.
            last_frame = which == len(built.paths) - 1 and [HEAD_BYTES, *built.ends[-1]][-2] < start + size
            assert found.damaged or start < HEAD_BYTES or last_frame


def check(built: Built, read: list[bytes], which: int, start: int, stop: int) -> None:
    """All bodies whose frames lie outside the damaged bytes were read, in order, and nothing else was."""
    expected = []
    for n, (bodies, ends) in enumerate(zip(built.bodies, built.ends, strict=True)):
        begins = [HEAD_BYTES, *ends[:-1]]
        for body, begin, end in zip(bodies, begins, ends, strict=True):
            if n != which or end <= start or begin >= stop:
                expected.append(body)
    assert read == expected


async def test_chunks_copied_elsewhere_frames_swapped_and_repeated() -> None:
    """A good frame is good in its own place only."""
    built = await build(3_000, segment_bytes=1_500)
    source = random.Random(SEED)
    for _ in range(1_500):
        which = source.randrange(len(built.paths))
        donor = built.contents[built.paths[source.randrange(len(built.paths))]]
        frame = source.random() < 0.5
        ends = built.ends[which]
        borders = [HEAD_BYTES, *ends]
        start = source.choice(borders[:-1]) if frame else source.randrange(HEAD_BYTES, ends[-1])
        size = source.randint(1, 300)
        origin = source.choice(borders[:-1]) if frame else source.randrange(HEAD_BYTES, len(donor))
        chunk = donor[origin : origin + size]

        def paste(content: bytearray, start: int = start, chunk: bytes = chunk) -> None:
            content[start : start + len(chunk)] = chunk

        found = read_back(built.changed(which, paste))
        remaining = iter(built.all_bodies)
        assert all(body in remaining for body in found.bodies), "a wrong record, or one in a wrong place"
        hit = sum(start < end and start + len(chunk) > begin for begin, end in zip(borders, ends, strict=False))
        assert len(found.bodies) >= len(built.all_bodies) - hit


async def test_what_stands_behind_the_end() -> None:
    """Garbage, zeros, an old tail, whole frames of this and of other segments: a torn tail, whatever it looks like."""
    built = await build(900, segment_bytes=400)
    source = random.Random(SEED)
    other = (await build(900)).contents
    tails = [bytes(4_096), source.randbytes(3_000), b"\xf6JQ\x01" * 50, *other.values(), *built.contents.values()]
    tails += [tail[HEAD_BYTES:] for tail in tails]
    for tail in tails:
        found = read_back(built.changed(-1, lambda content, tail=tail: content.extend(tail)))  # type: ignore[misc]
        assert found.bodies == built.all_bodies
        assert found.damaged == []
        # Behind an older segment it is ignored: the next one says where the accepted part ends.
        found = read_back(built.changed(0, lambda content, tail=tail: content.extend(tail)))  # type: ignore[misc]
        assert found.bodies == built.all_bodies
        assert found.damaged == []


async def test_many_faults_at_once() -> None:
    built = await build(3_000, segment_bytes=1_000)
    source = random.Random(SEED)
    for _ in range(1_500):

        def spoil(content: bytearray) -> None:
            for _ in range(source.randint(1, 12)):
                at = source.randrange(len(content))
                match source.randrange(3):
                    case 0:
                        content[at] ^= 1 << source.randrange(8)
                    case 1:
                        content[at : at + source.randrange(600)] = source.randbytes(source.randrange(600))
                    case _:
                        del content[at : at + source.randrange(20)]
                if len(content) < 2:
                    return

        try:
            found = read_back(built.changed(source.randrange(len(built.paths)), spoil))
        except JournalVersion:
            continue
        remaining = iter(built.all_bodies)
        assert all(body in remaining for body in found.bodies)


async def test_a_hostile_payload_full_of_good_looking_frames() -> None:
    """Whoever knows a segment's id and guesses the position can forge a frame; it counts only where ours is broken."""
    async with opened(files := (await build(100)).changed(0, lambda content: None)) as journal:
        path = segments(files)[-1]
        header = unpack_head(files.contents[path], path.name)
        assert isinstance(header, SegmentHeader)
        inner = header.first + FRAME_HEADER_BYTES
        forged = pack_frame_header(
            header.segment_id, inner, kind=Lane.JOBS, records=1, back=0, seq=1, at_ms=1, body=b"evil"
        )
        await push(journal, forged + b"evil", b"good")
        before = await read_lane(journal)
    assert before[-2:] == [forged + b"evil", b"good"]
    assert read_back(files).bodies == before
