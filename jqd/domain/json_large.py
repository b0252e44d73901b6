"""Converts large JSON to MessagePack in pieces: decoding it at once would hold up all threads and take much memory."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from jqd.domain import json_ext

PIECE_BYTES = 65_536  # decoded at once: small values take a millisecond and some MB
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},"]', re.DOTALL)
_BLANK = re.compile(rb"[ \t\n\r]*+")
_PLAIN = re.compile(rb'[^\s,\]}"]++')  # a number, true, false or null
_LONG_FORMS = {b"[": b"\xdd", b"{": b"\xdf"}  # MessagePack's first bytes of arrays and maps with a four-byte count
_ENDS = {b"[": b"]", b"{": b"}"}
_FORMS = ("$bytes", "$msgpack")

_pairs = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.msgpack.Encoder().encode


def packed_of(text: bytes, read: Callable[[bytes], Any] = json_ext.read) -> bytes:
    """Convert JSON to MessagePack. `read` decodes one piece of JSON: at most PIECE_BYTES, or a single longer string.

    Raises the errors of `read` and `msgspec.msgpack.encode`, and RecursionError.
    """
    if len(text) <= PIECE_BYTES:
        return _encode(read(text))
    packing = _Packing(text, read)
    at = packing.behind_blanks(packing.value(packing.behind_blanks(0)))
    if at != len(text):
        raise ValueError(f"JSON is malformed: trailing characters (byte {at})")
    return bytes(packing.packed)


class _Packing:
    """The conversion of one JSON text. It goes through the text and appends MessagePack to `packed`. Parameters `at`
    and `begin` are positions in the text."""

    def __init__(self, text: bytes, read: Callable[[bytes], Any]) -> None:
        self._text, self._read = text, read
        self.packed = bytearray()

    def behind_blanks(self, at: int) -> int:
        """Return the position after any white space at `at`."""
        match = _BLANK.match(self._text, at)
        assert match is not None, "it matches nothing, too"
        return match.end()

    def value(self, at: int) -> int:
        """Convert the value that begins at `at`; return the position after it."""
        if self._text[at : at + 1] in _ENDS:
            return self._items(at)
        plain = _PLAIN.match(self._text, at)
        end = plain.end() if plain is not None else self._end_of_string(at)
        self.packed += _encode(self._read(self._text[at:end]))
        return end

    def _items(self, begin: int) -> int:
        """Convert the array or map that begins at `begin`; return the position after it."""
        text, sign, head, count = self._text, self._text[begin : begin + 1], len(self.packed), 0
        self.packed += _LONG_FORMS[sign] + bytes(4)
        at, mark, form = begin, b",", False
        while mark == b",":
            at = self.behind_blanks(at + 1)
            if (cut := self._cut(at)) is not None:
                items, form = self._small(sign, text[at:cut])
                at, count = cut, count + items
            else:  # the next item is larger than a piece
                if sign == b"{":
                    form, at = self._key(at)
                at, count = self.behind_blanks(self.value(at)), count + 1
            mark = text[at : at + 1]
        if mark != _ENDS[sign]:
            raise ValueError(f"JSON is malformed: expected ',' or {_ENDS[sign].decode()!r} (byte {at})")
        if count == 1 and form:  # a $ form (json_ext), whose value is one string: decode it as a whole
            self.packed[head:] = _encode(self._read(text[begin : at + 1]))
        else:
            self.packed[head + 1 : head + 5] = count.to_bytes(4, "big")
        return at + 1

    def _cut(self, at: int) -> int | None:
        """Return the end (comma or bracket) of the last item that lies completely within PIECE_BYTES from `at`; None if
        no item does."""
        text, depth, last = self._text, 0, None
        for match in _TOKEN.finditer(text, at, at + PIECE_BYTES):
            token = text[match.start()]
            if token in b"[{":
                depth += 1
            elif token in b"]}":
                if not depth:
                    return match.start()
                depth -= 1
            elif token == ord(","):
                last = last if depth else match.start()
            elif match.end() == match.start() + 1:  # a quote alone: the string goes on behind the piece
                break
        return last

    def _small(self, sign: bytes, items: bytes) -> tuple[int, bool]:
        """Convert some neighbouring items of an array or a map, each small, to MessagePack. Returns how many there are,
        and whether the last item's key is that of a $ form.

        `sign`: "[" for an array, "{" for a map. `items`: the JSON text of the items.
        """
        if sign == b"[":
            values = self._read(b"[%b]" % items)
            packed = _encode(values)
            self.packed += packed[1 if len(values) < 16 else 3 if len(values) < 65_536 else 5 :]
            last = ""
        else:
            values, last = _pairs(b"{%b}" % items), ""
            for last, value in values.items():
                self.packed += _encode(last) + _encode(self._read(bytes(value)))
        if not values:
            raise ValueError("JSON is malformed: nothing stands between a comma and what follows it")
        return len(values), last in _FORMS

    def _key(self, at: int) -> tuple[bool, int]:
        """Convert the key that begins at `at`. Returns whether it is the key of a $ form, and the position of its
        value."""
        end = self._end_of_string(at)
        key = msgspec.json.decode(self._text[at:end], type=str)
        self.packed += _encode(key)
        at = self.behind_blanks(end)
        if self._text[at : at + 1] != b":":
            raise ValueError(f"JSON is malformed: expected ':' (byte {at})")
        return key in _FORMS, self.behind_blanks(at + 1)

    def _end_of_string(self, at: int) -> int:
        if self._text[at : at + 1] != b'"':
            raise ValueError(f"JSON is malformed: invalid character (byte {at})")
        end = at
        while (end := self._text.find(b'"', end + 1)) > 0:
            before = end
            while self._text[before - 1] == ord("\\"):
                before -= 1
            if (end - before) % 2 == 0:
                return end + 1
        raise ValueError("JSON is malformed: it ends within a string")
