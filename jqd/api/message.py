"""Decodes bodies in MessagePack or JSON (Content-Type), and encodes lists and errors (Accept). Integers stay exact."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from jqd.api.json_stream import VALUES_MAX, has_values
from jqd.api.problems import Problem, as_problem
from jqd.domain import decode_errors, json_ext, media
from jqd.domain.array_split import Steps, in_steps
from jqd.domain.errors import Invalid, JqdError, Unreadable
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.media import JSON_TYPES, MSGPACK_TYPES, Language
from jqd.http import Request, Response, answer

_msgpack_encoder = msgspec.msgpack.Encoder()
_json_encoder = msgspec.json.Encoder()


async def answer_rows(request: Request, page: Struct, rows: Iterable[Any]) -> Response:
    """Answer 200 with a page whose first field has these items (`rows`). They are encoded one by one, because encoding
    a thousand at once would block the event loop for a tenth of a second."""
    language, field = request.answer_language(), page.__struct_fields__[0]
    body = await in_steps(_rendered(rows, language), request.breathe)
    if language == "msgpack":
        return answer(200, structs.replace(page, **{field: body}), language)
    return Response(200, _json_encoder.encode({**json_ext.show(page), field: body}), media.JSON)


def _rendered(rows: Iterable[Any], language: Language) -> Steps[list[Raw]]:
    found: list[Raw] = []
    for row in rows:
        found.append(
            Raw(_msgpack_encoder.encode(row) if language == "msgpack" else _json_encoder.encode(json_ext.show(row)))
        )
        yield
    return found


def alike(kind: type[Struct], noun: Struct, **others: Any) -> dict[str, Any]:
    """Return the field values for a struct `kind`: those of the fields that `noun` has under the same names, and
    `others`."""
    return {name: getattr(noun, name) for name in kind.__struct_fields__ if name in noun.__struct_fields__} | others


def problem_answer(problem: Problem, language: Language) -> Response:
    """Return the response for a problem, in the format that the client wants."""
    headers = {**problem.headers}
    if problem.retry_after_s is not None:
        headers["retry-after"] = str(problem.retry_after_s)
    rendered = answer(problem.status, problem.body(), language, headers)
    if language == "json":
        return Response(rendered.status, rendered.body, media.PROBLEM, headers)
    return rendered


def refuse(request: Request, error: JqdError) -> Response:
    """Return the response for an error, in the format of jqd's own API."""
    return problem_answer(as_problem(error), request.answer_language())


def read_value(request: Request) -> Any:
    """Decode the body to Python values. Raises Invalid, Unreadable; Problem 413 or 415."""
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
    """Return the error for JSON that contains an integer of more than 64 bits, or an invalid `$` form (`json_ext`)."""
    pointer, why = json_ext.fault_of(body)
    return Invalid.at(pointer, f"{pointer[1:] or 'the body'}: {why}")


def not_read(language: str, body: bytes, error: BaseException) -> Unreadable:
    """Return the error for a body that cannot be decoded in its declared format."""
    if not body.strip():
        return Unreadable(f"the body is empty; send a map of fields, as {language}")
    text = body if language == "JSON" else b""
    return Unreadable(f"the body is no {language}: {decode_errors.why(error, text=text)}")


def unsupported(kind: str) -> Problem:
    """Return the error 415 for an unsupported Content-Type. It names the supported ones."""
    named = f"Content-Type {kind!r} is not understood" if kind else "there is no Content-Type"
    return Problem(415, f"{named}; send {media.BOTH}")
