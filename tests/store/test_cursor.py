"""Where a list goes on: a place in each queue, small enough for a URL."""

import base64
import zlib

import msgspec
import pytest

from jqd.api.head_limits import TARGET_LENGTH_MAX
from jqd.store.cursor import CURSOR_BYTES_MAX, _masked, _seal, decode_cursor, encode_cursor

LIFE = "0123456789abcdef"


def test_a_place_in_each_of_a_thousand_queues_fits_into_a_url() -> None:
    walked = {
        f"ready:billing.send_mail.{n}": (float(n % 7), f"01M80EX{n * 7_919:08X}4X4FVJW4KD7") for n in range(1_000)
    }
    cursor = encode_cursor(walked, LIFE)
    assert len(cursor) < TARGET_LENGTH_MAX * 3 // 4, "the rest is for other query parameters"
    assert decode_cursor(cursor, LIFE) == walked


def test_nobody_reads_a_cursor_or_makes_one_who_does_not_know_the_life_of_the_store() -> None:
    """It held the id and the end of a job of whoever had one where the look stopped, for every tenant to unpack."""
    walked = {"dead:": (1_790_000_000_000.0, "01M80EX0000004X4FVJW4KD7")}
    cursor = encode_cursor(walked, LIFE)
    held = base64.urlsafe_b64decode(cursor)
    for at in range(len(held)):
        with pytest.raises((ValueError, zlib.error)):
            msgspec.msgpack.decode(zlib.decompressobj().decompress(held[at:], CURSOR_BYTES_MAX))
    for wrong in (cursor[:-5] + "AAAA=", base64.urlsafe_b64encode(bytes([held[0] ^ 1]) + held[1:]).decode()):
        with pytest.raises(ValueError, match="none that was given here"):
            decode_cursor(wrong, LIFE)
    with pytest.raises(ValueError, match="none that was given here"):
        decode_cursor(cursor, "another life of it")


@pytest.mark.parametrize("content", [b"", b"x", zlib.compress(b"x"), zlib.compress(bytes(CURSOR_BYTES_MAX * 10))])
def test_another_cursor_is_refused_whatever_it_would_unpack_to(content: bytes) -> None:
    seal = _seal(content, LIFE)
    for held in (b"1" + content, seal + _masked(content, seal, LIFE)):
        with pytest.raises(ValueError, match="none that was given here"):
            decode_cursor(base64.urlsafe_b64encode(held).decode(), LIFE)
