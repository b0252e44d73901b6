"""Checks how deep MessagePack nests.

Decoders recurse, so each has a limit of depth: this one with a fuller stack, a worker's, or another language's may be
lower. So what is accepted has a limit well below every decoder's, and can always be decoded again.
"""

import msgpack

NESTING_MAX = 256  # levels in one argument or result; a quarter of what jqd's decoders take
COUNTED_BYTES_MAX = 65_536  # in larger data, counting containers takes longer than measuring the depth

_NESTED_FORMS = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])  # bytes that may begin an array or a map


def nests_deeper(data: bytes, levels: int) -> bool:
    """Return whether well-formed MessagePack nests more than `levels` deep.

    Short data and data with few containers are answered at once. Other data is put into so many arrays that only
    `levels` are left of msgpack's fixed limit, and skimmed. (Python's recursion limit is no reliable measure.)
    """
    if len(data) <= levels:
        return False
    if len(data) < COUNTED_BYTES_MAX and len(data) - len(data.translate(None, _NESTED_FORMS)) <= levels:
        return False
    return not _takes(b"\x91" * (_ROOM - levels) + data)


def _takes(data: bytes) -> bool:
    """Return whether msgpack's reader, whose stack has a fixed size, can skip the value. It builds nothing."""
    reader = msgpack.Unpacker(max_buffer_size=len(data))
    reader.feed(data)
    try:
        reader.skip()
    except msgpack.StackError:
        return False
    return True


_ROOM = next(levels for levels in range(NESTING_MAX, 1 << 20) if not _takes(b"\x91" * (levels + 1) + b"\xc0"))
