"""The two languages that jqd speaks over HTTP, and the names of their media types. Pure."""

from functools import lru_cache
from typing import Literal

Language = Literal["msgpack", "json"]

MSGPACK = "application/msgpack"
JSON = "application/json"
PROBLEM = "application/problem+json"
MSGPACK_TYPES = frozenset({MSGPACK, "application/x-msgpack", "application/vnd.msgpack"})
JSON_TYPES = frozenset({JSON})
NDJSON_TYPES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})
NAMES: dict[Language, str] = {"msgpack": MSGPACK, "json": JSON}
BOTH = f"{MSGPACK} or {JSON}"  # for messages


@lru_cache(maxsize=128)  # clients say few; a header has at most 16 KB
def bare(content_type: str) -> str:
    """A `Content-Type` without its parameters, in lower case; empty when there is none."""
    return content_type.partition(";")[0].strip().lower()


@lru_cache(maxsize=128)
def language_of(content_type: str) -> Language | None:
    """The language of a body, problem documents and lines of JSON included; None when it is neither."""
    kind = bare(content_type)
    if kind in MSGPACK_TYPES:
        return "msgpack"
    return "json" if kind == PROBLEM or kind in JSON_TYPES or kind in NDJSON_TYPES else None
