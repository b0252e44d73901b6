"""How deep MessagePack may nest.

Decoders recurse. What one takes here, another may not: with a fuller stack at ingest, in a worker, in another language.
So depth has a limit of its own, well below every decoder's, and no job that was accepted fails to be read again.
"""

import sys

import msgspec

NESTING_MAX = 256  # containers within containers in one argument; a quarter of what our own decoders take
COUNTED_BYTES_MAX = 65_536  # from here on counting takes longer than measuring

_HEADS = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])  # bytes that may begin an array or a map
_skim = msgspec.msgpack.Decoder(msgspec.Raw).decode  # checks the structure and builds nothing


def nests_deeper(data: bytes, levels: int) -> bool:
    """Whether containers in `data`, well-formed MessagePack, stand more than `levels` deep.

    Quick for what is short and holds few containers. Else it is measured how many arrays within arrays the decoder
    takes from here, and `data` is read under so many of them that only `levels` are left: some 0.2 ms.
    """
    if len(data) <= levels:
        return False
    if len(data) < COUNTED_BYTES_MAX and len(data) - len(data.translate(None, _HEADS)) <= levels:
        return False
    room, too_many = 0, 2 * sys.getrecursionlimit()
    while too_many - room > 1:
        middle = (room + too_many) // 2
        if _reads(b"\x91" * middle + b"\xc0"):
            room = middle
        else:
            too_many = middle
    return not _reads(b"\x91" * (room - levels) + data)


def _reads(data: bytes) -> bool:
    try:
        _skim(data)
    except RecursionError:
        return False
    return True
