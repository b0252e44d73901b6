"""Finds the jobs in a JSON body without decoding them.

A number may take two bytes in JSON, and sixty as a Python object. So jobs and values must be counted without decoding
them. Each function stops at the first item above its limit.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec
from msgspec import Raw

from jqd.domain.decode_errors import without_halves

SMALL_BYTES = 1 << 20  # up to this size a body is decoded at once, into items of some 40 MB at most: that is quicker
VALUES_MAX = 1_000_000  # in one JSON body: twice what the largest job can hold, 100 MB as objects

_json_array = msgspec.json.Decoder(list[Raw]).decode
_json_skim = msgspec.json.Decoder(Raw).decode  # checks one value and builds nothing
_LINE = re.compile(rb"[^ \t\n\r\f\v][^\r\n]*+")  # a line without its leading blanks
_BEHIND = re.compile(r"trailing characters \(byte (\d+)\)")
_TO_VALUE = re.compile(rb'(?:[^",:\[{]++|"(?:[^"\\]++|\\.)*+")*+[,:\[{]', re.DOTALL)
_BEFORE_VALUES = (b",", b":", b"[", b"{")
_BLANK = re.compile(rb"[ \t\n\r]*+")


def json_lines(body: bytes, most: int) -> list[bytes]:
    """Return the lines that are not blank; at most `most + 1`, so that a caller can tell that there are too many."""
    return [match.group() for match in islice(_LINE.finditer(body), most + 1)]


def json_items(body: bytes, most: int) -> Sequence[bytes | Raw]:
    """Return the undecoded items of a JSON array. For a large body it stops after `most + 1` items.

    Raises msgspec.DecodeError or RecursionError if the part that was read is no JSON. Texts with invalid Unicode pass
    here, because the error concerns only the item that contains them.
    """
    try:
        if len(body) <= SMALL_BYTES:
            return _json_array(body)
        return list(islice(_each_item(body, body), most + 1))
    except msgspec.DecodeError:
        readable = without_halves(body)
        if readable == body:
            raise
    return list(islice(_each_item(body, readable), most + 1))


def has_values(body: bytes, most: int) -> bool:
    """Return whether a JSON text has more than `most` values. Each value except the first follows one of the characters
    `, : [ {`, so these are counted."""
    if sum(map(body.count, _BEFORE_VALUES)) < most:
        return False
    # Some may be in strings, where they do not count.
    return next(islice(_signs(body), most - 1, None), None) is not None


def _signs(body: bytes) -> Iterator[int]:
    at = 0
    while match := _TO_VALUE.match(body, at):
        at = match.end()
        yield at


def _each_item(body: bytes, readable: bytes) -> Iterator[bytes]:
    """Yield the items of an array one after another. An item's end is found by giving the rest of the body to the
    decoder, whose error message names the position of the comma after the item.

    `readable`: a copy of the body of the same length, without characters that the decoder refuses. It is searched
    instead of the body.
    """
    view = memoryview(readable)
    at = _after_blanks(body, 0) + 1  # behind the bracket
    while True:
        end = _end_of_value(view, at)
        if body[end] not in b",]":
            raise msgspec.DecodeError(f"JSON is malformed: expected ',' or ']' (byte {end})")
        yield body[at:end]
        at = end + 1
        if body[end] == ord("]"):
            if _after_blanks(body, at) != len(body):
                raise msgspec.DecodeError(f"JSON is malformed: trailing characters (byte {at})")
            return


def _end_of_value(view: memoryview, at: int) -> int:
    """Return the position of the first character after the value at `at` that is not blank."""
    try:
        _json_skim(view[at:])
    except msgspec.DecodeError as error:
        behind = _BEHIND.search(str(error))
        if behind is None:
            raise
        return at + int(behind[1]) - 1
    raise msgspec.DecodeError("Input data was truncated")


def _after_blanks(body: bytes, at: int) -> int:
    match = _BLANK.match(body, at)
    assert match is not None, "it matches nothing, too"
    return match.end()
