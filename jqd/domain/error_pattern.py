"""Makes a pattern of an error message, to group similar errors: parts that differ from job to job are replaced by "…".

    no user 4711 in 'eu-west' after 30.5s   →   no user … in '…' after …s

Replaced are numbers, dates, UUIDs, addresses, hexadecimal numbers, ids, NULs, and text in quotes. Names with a few
digits stay (`sha256`, `s3`, `utf8`). A pattern is never longer than its line, and the pattern of a pattern is the same
pattern.
"""

import re
from functools import lru_cache

LENGTH_MAX = 300  # characters of a line, as much as is shown anywhere; folding them takes some 10 to 50 µs
FOLDED = "…"
HEX_LENGTH_MIN = 6  # a shorter hexadecimal text counts as a word or a number
ID_LENGTH_MIN, ID_DIGITS_MIN = 10, 2  # a shorter word, or one with fewer digits, counts as a name, not an id
NUMBERED_DIGITS_MIN = 3  # digits behind letters that are folded: of `user123`, but `node12` and `s3` are names
_NAMES = (
    "base64 float16 float32 float64 int128 int16 int32 int64 iso8601 rfc3339 sha224 sha256 sha384 sha512 uint128"
    " uint16 uint32 uint64 utf16 utf32 x509"
)
NAMES = frozenset(_NAMES.split())

# Each part has a limited length, or goes through the text once: so no line can make the search slow.
_VARIABLE = re.compile(
    r"""
    (?P<quoted> (?<![\w…])(?:'[^'\n]*'|"[^"\n]*"|`[^`\n]*`)(?![\w…]) | “[^”\n]*” | «[^»\n]*» )
    | (?P<sure>
        (?<![^\W_])(?:
            [0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}
            | \d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?
            | \d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?
            | \d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?
        )(?![^\W_])
        | (?<![\w:…])(?=\[?[0-9a-f:]{0,39}\d)\[?(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?:\](?::\d{1,5})?)?(?![\w:])
    )
    | (?P<number> (?:(?<![\w.…])[-+])?(?<![^\W_])\d+(?:[.,]\d+)*(?![^\W_]) )
    | (?P<word> (?<![^\W_])[^\W\d_]*\d[^\W_]* )
    | \x00  # as a pattern is given to commands, and no argument of a command holds a NUL
    """,
    re.VERBOSE | re.IGNORECASE,
)
_HEX = re.compile(r"[0-9a-f]+", re.IGNORECASE)
_UNIT = re.compile(r"\d+([^\W\d_]{1,4})")
_NUMBERED = re.compile(r"([^\W\d_]+)\d+")
_SEVERAL = re.compile(r"…(?:[,;]?[ ]?…)+")  # a list of folded parts, which becomes one "…" whatever its length


@lru_cache(maxsize=1_024)
def fold(line: str) -> str:
    """Return the pattern of an error message of one line."""
    text, before = line[:LENGTH_MAX], ""
    while text != before:  # it ends, as each round but the last makes the text shorter or leaves fewer digits
        before = text
        text = _SEVERAL.sub(FOLDED, _VARIABLE.sub(_fold, text))
    return text


def _fold(found: re.Match[str]) -> str:
    text = found[0]
    if found["quoted"] is not None:
        return f"{text[0]}{FOLDED}{text[-1]}" if len(text) > 2 else text
    return _fold_word(text) if found["word"] is not None else FOLDED


def _fold_word(word: str) -> str:
    if word.lower() in NAMES:
        return word
    if word[:2] in ("0x", "0X") or (len(word) >= HEX_LENGTH_MIN and _HEX.fullmatch(word)):
        return FOLDED
    if unit := _UNIT.fullmatch(word):
        return FOLDED + unit[1]
    digits = sum(map(str.isdigit, word))
    if len(word) >= ID_LENGTH_MIN and digits >= ID_DIGITS_MIN:
        return FOLDED
    numbered = _NUMBERED.fullmatch(word)
    return numbered[1] + FOLDED if numbered and digits >= NUMBERED_DIGITS_MIN else word
