"""Where a list goes on: a place in each queue, small enough for a URL."""

import base64
import zlib

import pytest

from jqd.api.head_limits import TARGET_LENGTH_MAX
from jqd.store.listing import CURSOR_BYTES_MAX, _decode_cursor, _encode_cursor


def test_a_place_in_each_of_a_thousand_queues_fits_into_a_url() -> None:
    walked = {
        f"ready:billing.send_mail.{n}": (float(n % 7), f"01M80EX{n * 7_919:08X}4X4FVJW4KD7") for n in range(1_000)
    }
    cursor = _encode_cursor(walked)
    assert len(cursor) < TARGET_LENGTH_MAX * 3 // 4, "the rest is for other query parameters"
    assert _decode_cursor(cursor) == walked


@pytest.mark.parametrize("content", [b"", b"x", zlib.compress(b"x"), zlib.compress(bytes(CURSOR_BYTES_MAX * 10))])
def test_another_cursor_is_refused_whatever_it_would_unpack_to(content: bytes) -> None:
    with pytest.raises(ValueError, match="none that was given here"):
        _decode_cursor(base64.urlsafe_b64encode(b"1" + content).decode())
    if content:
        with pytest.raises(ValueError, match="none that was given here"):
            _decode_cursor(base64.urlsafe_b64encode(content).decode())
