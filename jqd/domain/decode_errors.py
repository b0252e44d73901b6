"""Explains to a client why a body cannot be decoded."""

import re

WIDE_HERE = "an integer of more than 64 bits, which no job can hold; send it as a text"
WIDE = "an integer in it has more than 64 bits, which MessagePack cannot say; send it as a text"
DEEP = "it nests deeper than can be read"
LONE = "a text in it has half a surrogate pair (byte {at}), which is no character; send both halves, or U+FFFD for it"
LENGTH_MAX = 300  # characters of a decoder's message

_PARSER = re.compile(r"(?:JSON|MessagePack data) is malformed: ")
_BYTE = re.compile(r"\(byte (\d+)\)")
_EXPECTED = re.compile(r"expected (.+?)( \(byte \d+\))?$")
_HALF = rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# A "half" is a lone surrogate, escaped. The pattern matches up to the first one or to the end, without backtracking.
_TO_HALF = re.compile(rb"((?:[^\\]++|" + _PAIR + rb"|(?!" + _HALF + rb")\\(?:.|\Z))*+)(" + _HALF + rb"|\Z)", re.DOTALL)
_BY_HALF = ("truncated", "surrogate", "hex escape")  # in the decoder's message if a half may be the cause
_WORDS = {
    "Input data was truncated": "it ends before it is whole",
    "Integer value out of range": WIDE,
    "Number out of range": "a number in it is out of range",
    "trailing characters": "something stands behind its end",
    "invalid opcode": "no value begins with",
}


def half_at(text: bytes) -> int | None:
    r"""Return the byte position of the first lone surrogate (`\uD800` to `\uDFFF`) in a JSON text; None if there is
    none. A lone surrogate is half of a character and no valid text."""
    match = _TO_HALF.match(text)
    return match.start(2) if match and match[2] else None


def without_halves(text: bytes) -> bytes:
    """Return a JSON text with each escaped lone surrogate replaced by U+FFFD; the length stays the same."""
    return _TO_HALF.sub(lambda found: found[1] + (b"\\ufffd" if found[2] else b""), text)


def why(error: BaseException, *, before: int = 0, text: bytes = b"") -> str:
    """Return why a body cannot be decoded, as the end of a sentence like "this is no JSON: …". It contains `(byte N)`,
    counted from 0, if the position is known.

    `before`: number of bytes that were put before the client's bytes. `text`: the body, if it is JSON.
    """
    if isinstance(error, RecursionError):
        return DEEP
    if isinstance(error, OverflowError):
        return WIDE
    if isinstance(error, UnicodeError):
        return "a text in it is no UTF-8"
    if any(words in str(error) for words in _BY_HALF) and (at := half_at(text)) is not None:
        return LONE.format(at=at)
    message = _PARSER.sub("", str(error), count=1).partition(" - at `$")[0]
    message = _BYTE.sub(lambda found: f"(byte {int(found[1]) - before})", message)
    for words, plain in _WORDS.items():
        message = message.replace(words, plain)
    return _EXPECTED.sub(r"there should be \1\2", message)[:LENGTH_MAX] or "no value is there"
