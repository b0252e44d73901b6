"""Where a list goes on: a place in each queue, small enough for a URL."""

import base64
import zlib

import msgspec
import pytest

from jqd.api.head_limits import TARGET_LENGTH_MAX
from jqd.domain.errors import StoreAway
from jqd.store import merged_list
from jqd.store.cursor import CURSOR_BYTES_MAX, _masked, _seal, decode_cursor, encode_cursor
from jqd.store.merged_list import PartitionWalk

SEAL = "0123456789abcdef"


def test_a_place_in_each_of_a_thousand_queues_fits_into_a_url() -> None:
    walked = {
        f"ready:billing.send_mail.{n}": (float(n % 7), f"01M80EX{n * 7_919:08X}4X4FVJW4KD7") for n in range(1_000)
    }
    cursor = encode_cursor(walked, SEAL)
    assert len(cursor) < TARGET_LENGTH_MAX * 3 // 4, "the rest is for other query parameters"
    assert decode_cursor(cursor, SEAL) == walked


def test_nobody_reads_a_cursor_or_makes_one_who_does_not_know_the_key_of_the_store() -> None:
    """It held the id and the end of a job of whoever had one where the look stopped, for every tenant to unpack."""
    walked = {"dead:": (1_790_000_000_000.0, "01M80EX0000004X4FVJW4KD7")}
    cursor = encode_cursor(walked, SEAL)
    held = base64.urlsafe_b64decode(cursor)
    for at in range(len(held)):
        with pytest.raises((ValueError, zlib.error)):
            msgspec.msgpack.decode(zlib.decompressobj().decompress(held[at:], CURSOR_BYTES_MAX))
    for wrong in (cursor[:-5] + "AAAA=", base64.urlsafe_b64encode(bytes([held[0] ^ 1]) + held[1:]).decode()):
        with pytest.raises(ValueError, match="none that was given here"):
            decode_cursor(wrong, SEAL)
    with pytest.raises(ValueError, match="none that was given here"):
        decode_cursor(cursor, "another store's")


def test_a_cursor_is_not_judged_before_the_store_was_looked_at() -> None:
    """A daemon that had just started called a good one wrong, for which no client asks again."""
    with pytest.raises(StoreAway):
        decode_cursor(encode_cursor({"dead:": (1.0, "a")}, SEAL), "")


def test_the_cursor_of_several_partitions_is_sealed_as_well() -> None:
    """Ids of whoever's jobs were read could be unpacked from it, and left out by one that was made up."""
    job_id = "01M80EX0000004X4FVJW4KD7"
    cursor = merged_list.encode_cursor([PartitionWalk("x", [job_id], 5), PartitionWalk(done=True)], SEAL)
    assert job_id.encode() not in base64.urlsafe_b64decode(cursor)
    one, other = merged_list.decode_cursor(cursor, 2, SEAL)
    assert (one.start, one.given, one.size, other.done) == ("x", [job_id], 5, True)
    made_up = base64.urlsafe_b64encode(msgspec.msgpack.encode([("", [job_id], 50), None])).decode()
    for wrong in (made_up, encode_cursor({"dead:": (1.0, "a")}, SEAL)):
        with pytest.raises(ValueError, match="none that was given here"):
            merged_list.decode_cursor(wrong, 2, SEAL)


@pytest.mark.parametrize("content", [b"", b"x", zlib.compress(b"x"), zlib.compress(bytes(CURSOR_BYTES_MAX * 10))])
def test_another_cursor_is_refused_whatever_it_would_unpack_to(content: bytes) -> None:
    seal = _seal(content, SEAL)
    for held in (b"1" + content, seal + _masked(content, seal, SEAL)):
        with pytest.raises(ValueError, match="none that was given here"):
            decode_cursor(base64.urlsafe_b64encode(held).decode(), SEAL)
