"""Checks how deep MessagePack nests.

Decoders recurse. What one takes here, another may not: with a fuller stack at ingest, in a worker, in another language.
So depth has a limit of its own, well below every decoder's, and nothing that was accepted fails to be read again.
"""

import msgpack

NESTING_MAX = 256  # containers within containers in one argument or result; a quarter of what our own decoders take
COUNTED_BYTES_MAX = 65_536  # from here on counting takes longer than measuring

_NESTED_FORMS = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])  # bytes that may begin an array or a map


def nests_deeper(data: bytes, levels: int) -> bool:
    """Return whether containers in `data`, well-formed MessagePack, nest more than `levels` deep.

    Quick for what is short and holds few containers. Else `data` is read under so many arrays that only `levels` are
    left of what a reader takes. Python's own limit is no measure: a call that was made often takes less of it.
    """
    if len(data) <= levels:
        return False
    if len(data) < COUNTED_BYTES_MAX and len(data) - len(data.translate(None, _NESTED_FORMS)) <= levels:
        return False
    return not _takes(b"\x91" * (_ROOM - levels) + data)


def _takes(data: bytes) -> bool:
    """Return whether msgpack's reader, whose stack has one size of its own, gets through; it builds nothing."""
    reader = msgpack.Unpacker(max_buffer_size=len(data))
    reader.feed(data)
    try:
        reader.skip()
    except msgpack.StackError:
        return False
    return True


_ROOM = next(levels for levels in range(NESTING_MAX, 1 << 20) if not _takes(b"\x91" * (levels + 1) + b"\xc0"))
