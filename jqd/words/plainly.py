"""What a decoder says of bytes that it does not take, in words for who sent them. Pure."""

import re

WIDE_HERE = "an integer of more than 64 bits, which no job can hold; send it as a text"
WIDE = "an integer in it has more than 64 bits, which MessagePack cannot say; send it as a text"
DEEP = "it nests deeper than can be read"
SAID_LENGTH_MAX = 300  # of what a decoder said

_PARSER = re.compile(r"(?:JSON|MessagePack data) is malformed: ")
_BYTE = re.compile(r"\(byte (\d+)\)")
_EXPECTED = re.compile(r"expected (.+?)( \(byte \d+\))?$")
_WORDS = {
    "Input data was truncated": "it ends before it is whole",
    "Integer value out of range": WIDE,
    "Number out of range": "a number in it is out of range",
    "trailing characters": "something stands behind its end",
    "invalid opcode": "no value begins with",
}


def why(error: BaseException, *, before: int = 0) -> str:
    """What follows on 'this is no JSON: '. Where the decoder knows the place, it is told as `(byte N)`, from 0 on.

    `before`: so many bytes of what was decoded stood before what was sent.
    """
    if isinstance(error, RecursionError):
        return DEEP
    if isinstance(error, OverflowError):
        return WIDE
    if isinstance(error, UnicodeError):
        return "a text in it is no UTF-8"
    said = _PARSER.sub("", str(error), count=1).partition(" - at `$")[0]
    said = _BYTE.sub(lambda found: f"(byte {int(found[1]) - before})", said)
    for words, plain in _WORDS.items():
        said = said.replace(words, plain)
    return _EXPECTED.sub(r"there should be \1\2", said)[:SAID_LENGTH_MAX] or "no value is there"
