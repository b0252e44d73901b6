"""Requests and answers as plain data, and the two languages they are spoken in.

MessagePack and JSON, by Content-Type and Accept. What JSON cannot say is written as jqd/domain/json_ext.py has it.
Integers are exact, whatever their size.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import trio
from msgspec import Raw, Struct, structs

from jqd.api.json_stream import VALUES_MAX, has_values
from jqd.api.problems import Problem, as_problem
from jqd.domain import decode_errors, json_ext, media
from jqd.domain.array_split import Steps, in_steps
from jqd.domain.errors import Fault, Invalid, JqdError, Unreadable
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.media import JSON_TYPES, MSGPACK_TYPES, Language
from jqd.http import Stream
from jqd.service.principal import EVERYBODY, Principal

LANGUAGES: tuple[Language, Language] = ("msgpack", "json")
QUERY_FIELDS_MAX = 32

_NUMBER = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")
_msgpack_encoder = msgspec.msgpack.Encoder()
_json_encoder = msgspec.json.Encoder()


class ApiRequest(Struct, gc=False):
    """One request. Header names are lower case."""

    method: str
    path: str
    query_string: bytes
    headers: Mapping[str, str]
    body: bytes = b""
    """Put in once it was read."""
    packed: bytes | None = None
    """The same as MessagePack, where it was large and was made so aside."""
    peer: str | None = None
    """The address it came from; None: through no network."""
    who: Principal = EVERYBODY
    """Who makes it."""
    hurried: bool = False
    """Its client has left, or only listens on: nothing is waited for."""
    plain: Mapping[str, str] = {}
    """As its route has it."""
    patient: bool = False
    """It came with many of its kind, while others ask, too: see Asked."""
    held_s: float = 0.0
    """For how long the loop did nothing but read its body, in one piece."""
    breathe: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    """Leaves the loop to others between two pieces."""

    def query(self) -> list[tuple[str, str]]:
        """Query parameters, in order. Raises Problem 400."""
        try:
            return parse_qsl(self.query_string.decode("ascii"), keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError as error:
            raise Problem(400, f"the query string cannot be read: {error}") from error

    def wait_s(self, asked_s: float, max_s: float) -> float:
        """How long it may wait of what it asks for: at most `max_s`."""
        return 0.0 if self.hurried else min(max(asked_s, 0.0), max_s)

    def media_type(self) -> str:
        """The Content-Type without its parameters, lower case; empty when there is none."""
        kind = media.bare(self.headers.get("content-type", ""))
        return self.plain.get(kind, kind)

    def answer_language(self, otherwise: Language = "json") -> Language:
        """What the client wants to read: by Accept, else the language it wrote in."""
        return _language(self.headers.get("content-type", ""), self.headers.get("accept", ""), otherwise)


class ApiResponse(Struct):
    """One whole answer."""

    status: int
    body: bytes = b""
    content_type: str = ""
    headers: dict[str, str] = {}
    lost: Sequence[Callable[[], None]] = ()
    """Called when it is known that the client has not got this answer."""
    stream: Stream | None = None
    """Writes its body, where that is not whole from the beginning."""


@lru_cache(maxsize=256)
def _language(content_type: str, accept: str, otherwise: Language) -> Language:
    return _accepted(accept, media.language_of(content_type) or otherwise)


def _accepted(accept: str, otherwise: Language) -> Language:
    """The language an Accept header likes best; `otherwise` where it does not say, or likes none."""
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
    # Of two that are liked as well: the one that is named before a star, of two named the more compact.
    equal = LANGUAGES[0] if len(named) == len(LANGUAGES) else otherwise
    return max(fit or [otherwise], key=lambda language: (liked[language], language in named, language == equal))


def _quality(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text) else 1.0


def answer(status: int, value: Any, language: Language, headers: dict[str, str] | None = None) -> ApiResponse:
    """Render `value`. MessagePack values inside are `msgspec.Raw`."""
    if language == "msgpack":
        return ApiResponse(status, _msgpack_encoder.encode(value), media.MSGPACK, headers or {})
    return ApiResponse(status, _json_encoder.encode(json_ext.show(value)), media.JSON, headers or {})


async def answer_rows(request: ApiRequest, page: Struct, rows: Iterable[Any]) -> ApiResponse:
    """200 and a page, whose first field has these rows. They are made and rendered one by one: so is every answer that
    grows with what there is, for a thousand rows in one piece hold the loop for a tenth of a second."""
    language, field = request.answer_language(), page.__struct_fields__[0]
    told = await in_steps(_rendered(rows, language), request.breathe)
    if language == "msgpack":
        return answer(200, structs.replace(page, **{field: told}), language)
    return ApiResponse(200, _json_encoder.encode({**json_ext.show(page), field: told}), media.JSON)


def _rendered(rows: Iterable[Any], language: Language) -> Steps[list[Raw]]:
    told: list[Raw] = []
    for row in rows:
        told.append(
            Raw(_msgpack_encoder.encode(row) if language == "msgpack" else _json_encoder.encode(json_ext.show(row)))
        )
        yield
    return told


def problem_answer(problem: Problem, language: Language) -> ApiResponse:
    """Render an error in the client's language."""
    headers = {**problem.headers}
    if problem.retry_after_s is not None:
        headers["retry-after"] = str(problem.retry_after_s)
    rendered = answer(problem.status, problem.body(), language, headers)
    if language == "json":
        return ApiResponse(rendered.status, rendered.body, media.PROBLEM, headers)
    return rendered


def refuse(request: ApiRequest, error: JqdError) -> ApiResponse:
    """An error as this interface says it."""
    return problem_answer(as_problem(error), request.answer_language())


def read_value(request: ApiRequest) -> Any:
    """The body as Python values, whatever its language. Raises Invalid, Unreadable; Problem 413 or 415."""
    kind = request.media_type()
    try:
        if kind in MSGPACK_TYPES:
            return msgspec.msgpack.decode(request.body, strict=True)
        if kind in JSON_TYPES:
            if has_values(request.body, VALUES_MAX):
                raise Problem(413, f"the body has more than {VALUES_MAX} values")
            return json_ext.read(request.body)
    except json_ext.FormError as error:
        raise misread(request.body) from error
    except DECODE_ERRORS as error:
        raise not_read("JSON" if kind in JSON_TYPES else "MessagePack", request.body, error) from error
    raise unsupported(kind)


def misread(body: bytes) -> Invalid:
    """Of JSON with an integer of more than 64 bits, or with a map that means nothing."""
    pointer, why = json_ext.fault_of(body)
    detail = f"{pointer[1:] or 'the body'}: {why}"
    return Invalid(detail, [Fault(pointer, detail)])


def not_read(language: str, body: bytes, error: BaseException) -> Unreadable:
    """Of a body that is no value in the language that it was sent as."""
    if not body.strip():
        return Unreadable(f"the body is empty; send a map of fields, as {language}")
    text = body if language == "JSON" else b""
    return Unreadable(f"the body is no {language}: {decode_errors.why(error, text=text)}")


def unsupported(kind: str) -> Problem:
    """415: what can be sent."""
    named = f"Content-Type {kind!r} is not understood" if kind else "there is no Content-Type"
    return Problem(415, f"{named}; send {media.BOTH}")
