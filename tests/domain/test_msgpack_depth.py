import msgspec
import pytest

from jqd.domain.msgpack_depth import NESTING_MAX, nests_deeper


def nested(levels: int) -> bytes:
    return b"\x91" * levels + b"\xc0"


def among_many(levels: int) -> bytes:
    """The same beside so many other containers that counting heads cannot settle it."""
    return b"\xdc\x00\x02" + nested(levels - 1) + b"\xdc\x02\x00" + b"\x90" * 512


@pytest.mark.parametrize("make", [nested, among_many])
def test_the_limit_is_exact(make):
    assert not nests_deeper(make(NESTING_MAX), NESTING_MAX)
    assert nests_deeper(make(NESTING_MAX + 1), NESTING_MAX)


def test_it_does_not_depend_on_the_stack():
    def further_down(frames: int) -> tuple[bool, bool]:
        if frames:
            return further_down(frames - 1)
        return nests_deeper(among_many(NESTING_MAX), NESTING_MAX), nests_deeper(
            among_many(NESTING_MAX + 1), NESTING_MAX
        )

    assert further_down(0) == further_down(300) == (False, True)


def test_wide_is_not_deep():
    three = [[1]] * 5000
    assert not nests_deeper(msgspec.msgpack.encode(three), 3)
    assert nests_deeper(msgspec.msgpack.encode([three]), 2)


def test_text_that_looks_like_heads_is_not_deep():
    assert not nests_deeper(msgspec.msgpack.encode({"text": "\u3042\u306a" * 2000, "bytes": b"\x91" * 5000}), 1)


def test_far_too_deep_is_deep():
    assert nests_deeper(nested(200_000), NESTING_MAX)
