"""Checks how deep MessagePack nests.

Decoders recurse, so each has a limit of depth. The limit may be lower in a decoder called with a fuller stack, in a
worker's, or in one of another language. So jqd accepts only data far below the limit of every decoder, which can always
be decoded again.
"""

import msgpack

NESTING_MAX = 256  # levels in one argument or result; a quarter of what jqd's decoders take
COUNTED_BYTES_MAX = 65_536  # in larger data, counting containers takes longer than measuring the depth

_NESTED_FORMS = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])  # bytes that may begin an array or a map


def nests_deeper(data: bytes, levels: int) -> bool:
    """Return whether well-formed MessagePack nests more than `levels` deep.

    Short data, and data with few arrays and maps, cannot nest so deep. Other data is wrapped in so many arrays that
    only `levels` levels are left of msgpack's fixed limit, and is then parsed without building objects. (Python's
    recursion limit is no reliable measure.)
    """
    if len(data) <= levels:
        return False
    if len(data) < COUNTED_BYTES_MAX and len(data) - len(data.translate(None, _NESTED_FORMS)) <= levels:
        return False
    return not _takes(b"\x91" * (_ROOM - levels) + data)


def _takes(data: bytes) -> bool:
    """Return whether msgpack's parser, whose stack has a fixed size, can skip over the value in `data`. No objects are
    built."""
    reader = msgpack.Unpacker(max_buffer_size=len(data))
    reader.feed(data)
    try:
        reader.skip()
    except msgpack.StackError:
        return False
    return True


_ROOM = next(levels for levels in range(NESTING_MAX, 1 << 20) if not _takes(b"\x91" * (levels + 1) + b"\xc0"))
