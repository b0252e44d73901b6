"""The two formats of HTTP bodies, and their media types."""

import re
from functools import lru_cache
from typing import Literal

Language = Literal["msgpack", "json"]

LANGUAGES: tuple[Language, Language] = ("msgpack", "json")
MSGPACK = "application/msgpack"
JSON = "application/json"
PROBLEM = "application/problem+json"
MSGPACK_TYPES = frozenset({MSGPACK, "application/x-msgpack", "application/vnd.msgpack"})
JSON_TYPES = frozenset({JSON})
NDJSON_TYPES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})
NAMES: dict[Language, str] = {"msgpack": MSGPACK, "json": JSON}
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")
BOTH = f"{MSGPACK} or {JSON}"  # for messages


@lru_cache(maxsize=128)  # clients send few different ones; a header has at most 16 KB
def bare(content_type: str) -> str:
    """Return a `Content-Type` without parameters, in lower case; empty if there is none."""
    return content_type.partition(";")[0].strip().lower()


@lru_cache(maxsize=128)
def language_of(content_type: str) -> Language | None:
    """Return the format, JSON or MessagePack, of a body with this media type; None for another format. JSON includes
    problem details and JSON lines."""
    kind = bare(content_type)
    if kind in MSGPACK_TYPES:
        return "msgpack"
    return "json" if kind == PROBLEM or kind in JSON_TYPES or kind in NDJSON_TYPES else None


@lru_cache(maxsize=256)
def answer_language(content_type: str, accept: str, otherwise: Language) -> Language:
    """Return the format in which a client wants the answer: by its Accept header, else by the Content-Type that it
    sent, else `otherwise`."""
    return _accepted(accept, language_of(content_type) or otherwise)


def _accepted(accept: str, otherwise: Language) -> Language:
    """Return the format that an Accept header prefers; `otherwise` if it names neither JSON nor MessagePack."""
    named: dict[Language, float] = {}
    others = 0.0
    for part in accept.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((_quality(each[2:]) for each in parameters if each.startswith("q=")), 1.0)
        if kind in ("*/*", "application/*"):
            others = max(others, quality)
        for language in LANGUAGES:
            if language in kind:
                named[language] = max(quality, named.get(language, 0.0))
    liked = {language: named.get(language, others) for language in LANGUAGES}
    fit = [language for language in LANGUAGES if liked[language]] or [each for each in LANGUAGES if each not in named]
    # If both have the same quality: a format that is named wins over a star; of two named ones, MessagePack wins.
    equal = LANGUAGES[0] if len(named) == len(LANGUAGES) else otherwise
    return max(fit or [otherwise], key=lambda language: (liked[language], language in named, language == equal))


def _quality(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text) else 1.0
