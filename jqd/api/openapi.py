"""Generates the OpenAPI 3.1 document: paths and statuses from the table of routes, schemas from the types, and texts
from the docstrings of handlers and fields.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_origin

import msgspec
from msgspec import Struct

from jqd import __version__
from jqd.api.meanings import meaning, structs_in, text_of
from jqd.api.problems import RETRY_AFTER_S, Details
from jqd.api.route import Document, Route
from jqd.domain import media

SCHEMAS = "#/components/schemas/"
LINES = "application/x-ndjson"
ABOUT = (
    "A durable job queue. MessagePack and JSON say the same; what only MessagePack can say, JSON has as a map with one "
    'key that begins with $: {"$bytes": "…"}. A request that is refused is answered with problem details (RFC 9457).'
)
TOKENS = (
    "A token of `jqd tokens create`; asked for where a daemon listens on another address than loopback. Who may speak "
    "for all tenants names one by the header `JQD-Tenant`."
)
TAGS = {
    "jobs": "Push jobs, and look at, change and cancel them",
    "constraints": "What may start when, by what a job is",
    "schedules": "Jobs that are pushed at dates that come again",
    "workers": "Who runs jobs here",
    "daemon": "How this daemon is, and this interface itself",
    "lightjq": "The interface of LightJQ; MessagePack unless JSON is asked for",
    "miniq": "The calls of miniq: jobs as lines of text, and what runs them",
    "skygear": "The interface of Skygear's job queue",
}
SURFACES = ("lightjq", "miniq", "skygear")
PROBLEMS = {
    "4XX": ("Refused", "The request is refused; `detail` and `errors` say why. Nothing was done unless they say so."),
    "5XX": ("Unable", "The daemon cannot do it now, or made a mistake; `detail` says which."),
}

INT32 = 2**31 - 1  # generators of clients take an integer without a format for one of 32 bits

_NAME = re.compile(r"<(\w+)>")
_ASKED = re.compile(r"^`[A-Z]+ /[^`]*`(?:: | → |, )?")  # method and path at the beginning of a handler's docstring
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_RAISES = re.compile(r"\s*\bRaises\b.*", re.DOTALL)


def draw(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes."""
    kinds = [kind for route in routes for kind in (route.refusal, *_kinds(route), route.query)]
    kinds += structs_in(kinds)
    drawn, schemas = msgspec.json.schema_components(kinds, ref_template=SCHEMAS + "{name}")
    schema = dict(zip(kinds, drawn, strict=True))
    asked = structs_in(kind for route in routes for kind in (route.query, *_several(route.body)))
    for kind in structs_in(kinds):
        _add_meanings(kind, schemas[schema[kind]["$ref"].removeprefix(SCHEMAS)], meaning if kind in asked else text_of)
    for each in (*drawn, *schemas.values()):
        _mark_sizes(each)
    schemas = {_name(name): each for name, each in schemas.items()}
    # Query types are not among the document's schemas: each call lists its parameters itself.
    of_queries = {route.query for route in routes}
    queries = {kind: schemas.pop(schema[kind]["$ref"].removeprefix(SCHEMAS)) for kind in of_queries}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        calls = paths.setdefault(_NAME.sub(r"{\1}", route.path), {})
        calls[route.method.lower()] = _call(route, schema, queries[route.query])
    refusals = dict.fromkeys(route.refusal for route in routes)
    responses = {
        _refused(name, kind): _problem(words, kind, schema) for name, words in PROBLEMS.values() for kind in refusals
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "jqd", "version": __version__, "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": words} for name, words in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": responses,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": TOKENS}},
        },
        "security": [{}, {"token": []}],
    }


def _name(name: str) -> str:
    """Return the name for a type in the document: `TokenNew` for `NewToken`, because Go programmers would take
    `NewToken` for a constructor."""
    return f"{name.removeprefix('New')}New" if name.startswith("New") else name


def _add_meanings(
    kind: type[Struct], schema: dict[str, Any], text_for: Callable[[type[Struct], str, str], str]
) -> None:
    """Put the meaning of each field of a class into the class's schema, before the description of the field's values.
    `text_for`: returns the meaning, for class, field and the field's name in JSON."""
    for field in msgspec.structs.fields(kind):
        text = _LINK.sub(r"\1", text_for(kind, field.name, field.encode_name))
        drawn = schema["properties"].get(field.encode_name)
        if text and drawn is not None:
            drawn["description"] = f"{text}; {may_be}" if (may_be := drawn.get("description")) else text


def _mark_sizes(schema: dict[str, Any]) -> None:
    """Add sizes to the numbers in a schema, because generators of clients may assume 32 bits otherwise. Remove defaults
    that are a map or an array, which these generators cannot use."""
    least, most = schema.get("minimum", -INT32 - 2), schema.get("maximum", INT32 + 1)
    if schema.get("type") == "integer" and (least < -INT32 - 1 or most > INT32):
        schema["format"] = "int64"
    elif schema.get("type") == "number":
        schema["format"] = "double"
    if (ref := schema.get("$ref")) is not None:
        schema["$ref"] = SCHEMAS + _name(ref.removeprefix(SCHEMAS))
    if isinstance(schema.get("default"), dict | list | tuple):
        del schema["default"]
    within = [schema[name] for name in ("items", "additionalProperties") if isinstance(schema.get(name), dict)]
    for each in (*within, *schema.get("anyOf", ()), *schema.get("properties", {}).values()):
        _mark_sizes(each)


def tag_of(route: Route) -> str:
    """Return the tag (a key of TAGS) under which a call is listed."""
    path, surface = route.path, route.handler.__module__.rpartition(".")[2]
    if surface in SURFACES:
        return surface
    if path.startswith(("/v1/jobs", "/v1/types")):
        return "jobs"
    if path.startswith("/v1/schedules"):
        return "schedules"
    if path.startswith("/v1/constraints"):
        return "constraints"
    if path.startswith(("/v1/workers", "/v1/leases", "/v1/outcomes")):
        return "workers"
    return "daemon"


def _several(kinds: Any) -> tuple[Any, ...]:
    return kinds if type(kinds) is tuple else (kinds,)


def _kinds(route: Route) -> Iterator[Any]:
    """Yield the types of a route's request and response bodies."""
    for kinds in (route.body, *route.answers.values()):
        for kind in _several(kinds):
            if kind is not None and not isinstance(kind, Document):
                yield kind


def _call(route: Route, schema: dict[Any, Any], query: dict[str, Any]) -> dict[str, Any]:
    text = _RAISES.sub("", route.handler.__doc__ or "").strip()
    summary, _, description = _ASKED.sub("", text).partition("\n\n")
    summary = " ".join(summary.split()).rstrip(".")
    surface = route.handler.__module__.rpartition(".")[2]
    surface = (
        route.path.removeprefix("/v1").split("/")[1] if surface.endswith("api") else surface
    )  # of an optional feature
    call: dict[str, Any] = {
        "operationId": f"{surface}_{route.handler.__name__}",
        "tags": [tag_of(route)],
        "summary": summary[:1].upper() + summary[1:],
        "responses": {str(status): _answer(kinds, schema) for status, kinds in route.answers.items()},
    }
    if description:
        call["description"] = " ".join(description.split())
    for status, (name, _) in PROBLEMS.items():
        call["responses"][status] = {"$ref": f"#/components/responses/{_refused(name, route.refusal)}"}
    refused = {"$ref": f"#/components/responses/{_refused(PROBLEMS['4XX'][0], route.refusal)}"}
    call["responses"] |= {str(status): refused for status in route.refuses}
    if parameters := [*_parameters(route, query)]:
        call["parameters"] = parameters
    if route.body is not None:
        call["requestBody"] = {"required": not route.bare, "content": _body(route.body, schema)}
    return call


def _parameters(route: Route, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in _NAME.findall(route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    for name, words in (*route.headers.items(), *route.heeds.items()):
        required = name in route.headers
        yield {"name": name, "in": "header", "required": required, "description": words, "schema": {"type": "string"}}
    for name, kind in query.get("properties", {}).items():
        # A call that ignores unknown parameters takes an invalid value as the default.
        schema = (
            _without_null(kind)
            if route.query.__struct_config__.forbid_unknown_fields
            else {"default": kind.get("default")}
        )
        parameter = {"name": name, "in": "query", "required": name in query.get("required", ())}
        if "description" in kind:
            parameter["description"] = kind["description"]
        yield parameter | {"schema": schema}


def _without_null(kind: dict[str, Any]) -> dict[str, Any]:
    """Return a type without null. A query cannot contain null: a parameter is left out instead."""
    if {"type": "null"} not in kind.get("anyOf", ()):
        return kind
    several = [each for each in kind["anyOf"] if each != {"type": "null"}]
    others = {name: value for name, value in kind.items() if name != "anyOf" and (name, value) != ("default", None)}
    return {**others, **(several[0] if len(several) == 1 else {"anyOf": several})}


def _body(kinds: Any, schema: dict[Any, Any]) -> dict[str, Any]:
    several = _several(kinds)
    values = tuple(kind for kind in several if not isinstance(kind, Document))
    content = _content(values, schema) if values else {}
    content |= {kind.kind: {"schema": {"type": "string"}} for kind in several if isinstance(kind, Document)}
    if type(kinds) is tuple and any(map(_is_array, kinds)):
        content[LINES] = {"schema": {"type": "string", "description": "the items of the array, one JSON value a line"}}
    return content


def _answer(kinds: Any, schema: dict[Any, Any]) -> dict[str, Any]:
    match kinds:
        case None:
            return {"description": "Done; there is nothing to say."}
        case Document(kind, also):
            return {"description": "The document.", "content": {each: {"schema": {}} for each in (kind, *also)}}
    several = _several(kinds)
    words = [_RAISES.sub("", kind.__doc__ or "") for kind in several if _is_struct(kind)]
    return {"description": " ".join(" ".join(words).split()) or "What it says.", "content": _content(kinds, schema)}


def _content(kinds: Any, schema: dict[Any, Any], json: str = media.JSON) -> dict[str, Any]:
    several = [schema[kind] for kind in _several(kinds)]
    one = {"schema": several[0] if len(several) == 1 else {"anyOf": several}}
    return {json: one, media.MSGPACK: one}


def _refused(name: str, kind: type[Struct]) -> str:
    """Return the name of a response with an error. Each API has errors of another type, so the names differ, too."""
    return name if kind is Details else f"{kind.__name__}{name}"


def _problem(words: str, kind: type[Struct], schema: dict[Any, Any]) -> dict[str, Any]:
    after = {"schema": {"type": "string"}, "description": f"seconds; {RETRY_AFTER_S} where it is worth to try again"}
    if kind is Details:
        content = _content(Details, schema, media.PROBLEM)
    else:  # the other APIs have types of their own, but requests refused before any API is called get Details
        content = {**_content((kind, Details), schema), media.PROBLEM: {"schema": schema[Details]}}
    return {"description": words, "headers": {"retry-after": after}, "content": content}


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _is_array(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is list
