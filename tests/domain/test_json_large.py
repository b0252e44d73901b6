"""Large JSON becomes the same MessagePack as small JSON does, and no call of C has more than a piece."""

import base64
import json
import random
import time
from typing import Any

import msgspec
import pytest

from jqd.domain import json_ext, json_large
from jqd.domain.json_large import packed_of


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few bytes, so that every value is a large one somewhere."""
    monkeypatch.setattr(json_large, "PIECE_BYTES", 24)


def some(source: random.Random, depth: int = 0) -> Any:
    """A value of any kind."""
    kind = source.randrange(9 if depth < 4 else 6)
    match kind:
        case 0:
            return source.choice([None, True, False])
        case 1 | 2:
            return source.choice([0, -1, 12345678901, 1.5, -2e-3, 1 << 63])
        case 3 | 4 | 5:
            return "".join(source.choices('ab"\\\n\u00e9\u20ac😀 ,:]}', k=source.randrange(20)))
        case 6 | 7:
            return [some(source, depth + 1) for _ in range(source.randrange(6))]
    return {f'k{number}"\\': some(source, depth + 1) for number in range(source.randrange(6))}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(300))
def test_it_means_what_it_means_in_one_piece(seed: int) -> None:
    source = random.Random(seed)
    value = some(source)
    text = json.dumps(value, ensure_ascii=source.random() < 0.5, indent=source.choice([None, 1])).encode()
    assert msgspec.msgpack.decode(packed_of(text)) == value, f"seed {seed}"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "text",
    [
        b"[1,2,3,4,5,6,7,8,9,10,11,,12]",
        b"[1,2,3,4,5,6,7,8,9,10,11,12",
        b"[1,2,3,4,5,6,7,8,9,10,11,12]]",
        b"[1,2,3,4,5,6,7,8,9,10,11,12,]",
        b"[1,2,3,4,5,6,7,8,9,10,11,12}",
        b'{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" 1}',
        b'{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa":1,}',
        b'{1:"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}',
        b'"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
        b'["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" "b"]',
        b"1234567890123456789012345678901234567890",
        b"[1234567890123456789012345678901234567890]",
    ],
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises((ValueError, OverflowError, msgspec.MsgspecError)):
        packed_of(text)


@pytest.mark.usefixtures("small")
def test_forms_mean_what_they_mean_in_small() -> None:
    long = base64.b64encode(bytes(99)).decode()
    for value in (
        {"$bytes": long},
        [{"$bytes": long}, 1],
        {"$bytes": "AAEC", "and": "another, and more"},
        {"": [{"$bytes": "AA=="}] * 9},
    ):
        text = json.dumps(value).encode()
        assert msgspec.msgpack.decode(packed_of(text)) == json_ext.read(text)
    with pytest.raises(json_ext.FormError):
        packed_of(b'{"$bytes": "no base64 at all, however long it may be"}')
    assert msgspec.msgpack.decode(packed_of(json.dumps({"$bytes": long}).encode(), json_ext.decode)) == {"$bytes": long}


@pytest.mark.parametrize(
    "text", [b"[" + b"{}," * 200_000 + b"{}]", b'["' + b"x" * (4 << 20) + b'"]', b"[" + b"[1,2]," * 100_000 + b"0]"]
)
def test_much_of_it_is_packed_in_bounded_time(text: bytes) -> None:
    began_s = time.process_time()
    assert msgspec.msgpack.decode(packed_of(text)) == json.loads(text)
    assert time.process_time() - began_s < 20, "a few microseconds for each value"
