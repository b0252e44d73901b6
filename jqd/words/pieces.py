"""Large values in MessagePack as JSON text, a piece at a time: what is built of a piece is gone before the next.

What builds or frees a million small objects in one go keeps the interpreter to itself for a second, also in a thread
of its own. The text is the one that `tagged.json_of` gives. A value is walked once; what is small is found by skipping
over it within a window, and whatever does not fit into that is opened.
"""

import msgpack
import msgspec

from jqd.words import tagged

PIECE_BYTES = 4_096  # built at once: a few thousand values at most, some milliseconds

_json = msgspec.json.Encoder().encode


def json_of(packed: bytes) -> bytes:
    """A value in MessagePack as JSON text."""
    if len(packed) <= PIECE_BYTES:
        return tagged.json_of(packed)
    try:
        text, end = _Walk(packed).value(0)
    except (*tagged.UNTOLD, IndexError):  # which is what ends before its end
        end = -1
    return text if end == len(packed) else _json(tagged.whole(packed))  # else it would not be read back as it was


class _Walk:
    """Through one value. What raises tagged.UNTOLD cannot be said in pieces."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._packer = msgpack.Packer(autoreset=True)

    def value(self, at: int) -> tuple[bytes, int]:
        """The text of the value that begins there, and where it ends."""
        count, end = self._ends(at, 1)
        if count:
            return _json(tagged.shown(self._packed[at:end])), end
        header = self._header(at)
        if header is None:  # one long text, or bytes
            unpacker = msgpack.Unpacker(max_buffer_size=0)
            unpacker.feed(memoryview(self._packed)[at:])
            unpacker.skip()
            end = at + unpacker.tell()
            return _json(tagged.shown(self._packed[at:end])), end
        is_map, size, first = header
        return self._map(size, first) if is_map else self._array(size, first)

    def _array(self, size: int, at: int) -> tuple[bytes, int]:
        parts: list[bytes] = []
        while size:
            count, end = self._ends(at, size)
            if count:
                parts.append(_json(self._some(at, end, count))[1:-1])
            else:
                text, end = self.value(at)
                parts.append(text)
                count = 1
            at, size = end, size - count
        return b"[%b]" % b",".join(parts), at

    def _map(self, size: int, at: int) -> tuple[bytes, int]:
        """A map of texts, or what stands for another: that is known when all keys are."""
        rows: list[tuple[bytes, bytes]] = []
        is_plain = True
        left = 2 * size
        while left:
            count, end = self._ends(at, left)
            if count % 2:
                count, end = self._ends(at, count - 1) if count > 1 else (0, at)
            if count:
                told = iter(self._some(at, end, count))
                for key, value in zip(told, told, strict=True):
                    is_plain = is_plain and isinstance(key, str)
                    rows.append((_json(key), _json(value)))
            else:
                key_text, at = self.value(at)
                value_text, end = self.value(at)
                is_plain = is_plain and key_text.startswith(b'"')
                rows.append((key_text, value_text))
                count = 2
            at, left = end, left - count
        is_marked = len(rows) == 1 and rows[0][0].startswith(b'"' + tagged.MARK.encode())
        if is_plain and not is_marked and len({key for key, _ in rows}) == len(rows):
            return b"{%b}" % b",".join(b"%b:%b" % row for row in rows), at
        return b'{"$map":[%b]}' % b",".join(b"[%b,%b]" % row for row in rows), at

    def _ends(self, at: int, most: int) -> tuple[int, int]:
        """How many values from there on, of so many, end within a piece, and where the last of them does."""
        unpacker = msgpack.Unpacker(max_buffer_size=0)
        unpacker.feed(memoryview(self._packed)[at : at + PIECE_BYTES])
        count, end = 0, 0
        try:
            for _ in range(most):
                unpacker.skip()
                end = unpacker.tell()
                count += 1
        except msgpack.OutOfData:
            return count, at + end  # the next one is longer
        return count, at + end

    def _some(self, at: int, end: int, count: int) -> list[object]:
        """So many values as JSON can say them."""
        array = self._packer.pack_array_header(count) + self._packed[at:end]
        shown: list[object] = tagged.shown(array)
        return shown

    def _header(self, at: int) -> tuple[bool, int, int] | None:
        """Of a container: whether it is a map, its size, where its first value begins; None: it is none."""
        head = self._packed[at]
        if 0x80 <= head <= 0x9F:
            return head < 0x90, head & 0x0F, at + 1
        if 0xDC <= head <= 0xDF:
            wide = 4 if head % 2 else 2
            return head >= 0xDE, int.from_bytes(self._packed[at + 1 : at + 1 + wide], "big"), at + 1 + wide
        return None
