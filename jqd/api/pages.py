"""Serves the documentation of the API: OpenAPI in JSON and YAML, and one self-contained HTML page."""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from html import escape
from typing import Any

import msgspec
import trio

from jqd.api.context import ApiContext
from jqd.api.openapi import SCHEMAS, draw
from jqd.api.route import Route
from jqd.domain import media
from jqd.http import Request, Response

YAML = "application/yaml"
HTML = "text/html; charset=utf-8"
# No scripts, and nothing from other places: the page can only be read.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_REFUSAL = re.compile(r"(Refused|Unable)$")  # ends the name of a response; its type is before it, unless Details
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
code, .call { font-family: ui-monospace, monospace; }
.call { font-size: 1.05rem; margin: 2rem 0 .3rem; }
table { border-collapse: collapse; margin: .4rem 0 .8rem; }
td { border-top: 1px solid #8884; padding: .2rem 1rem .2rem 0; vertical-align: top; }
td:first-child { white-space: nowrap; }
"""


class Pages:
    """The documentation in all formats. Each is made in a thread at its first request; all together take 0.2 s."""

    def __init__(self) -> None:
        self.routes: Sequence[Route] = ()
        """All routes, including those of these pages. Set by the code that makes the table of routes."""
        self._making = trio.CapacityLimiter(1)  # so that concurrent requests do not each make the document

    async def as_json(self, parts: ApiContext, request: Request) -> Response:
        """This API as an OpenAPI 3.1 document in JSON."""
        return Response(200, await self._in_thread(lambda: self._json), media.JSON)

    async def as_yaml(self, parts: ApiContext, request: Request) -> Response:
        """This API as an OpenAPI 3.1 document in YAML."""
        return Response(200, await self._in_thread(lambda: self._yaml), YAML)

    async def as_html(self, parts: ApiContext, request: Request) -> Response:
        """This API as an HTML page to read."""
        return Response(200, await self._in_thread(lambda: self._html), HTML, {"content-security-policy": POLICY})

    async def _in_thread(self, make: Callable[[], bytes]) -> bytes:
        return await trio.to_thread.run_sync(make, limiter=self._making)

    @cached_property
    def _json(self) -> bytes:
        return msgspec.json.encode(draw(self.routes))

    @cached_property
    def _yaml(self) -> bytes:
        return msgspec.yaml.encode(msgspec.json.decode(self._json))  # by way of JSON: so YAML has no references inside

    @cached_property
    def _html(self) -> bytes:
        return page(msgspec.json.decode(self._json)).encode()


def page(drawn: dict[str, Any]) -> str:
    """Convert an OpenAPI document to an HTML page."""
    info = drawn["info"]
    parts = [
        "<!doctype html>",
        f'<html lang="en"><meta charset="utf-8"><title>{escape(info["title"])} {escape(info["version"])}</title>',
        f"<style>{STYLE}</style>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>",
        '<p>For programs: <a href="/openapi.json">/openapi.json</a>, <a href="/openapi.yaml">/openapi.yaml</a></p>',
    ]
    for tag in drawn["tags"]:
        parts.append(f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>")
        parts += [
            _call(method, path, call)
            for path, calls in drawn["paths"].items()
            for method, call in calls.items()
            if tag["name"] in call["tags"]
        ]
    parts.append("<h2>Types</h2>")
    parts += [_type(name, schema) for name, schema in sorted(drawn["components"]["schemas"].items())]
    return "\n".join(parts)


def _call(method: str, path: str, call: dict[str, Any]) -> str:
    about = f"<p>{escape('. '.join([call['summary'], *filter(None, [call.get('description')])]))}</p>"
    given = [
        (
            f"<code>{escape(each['name'])}</code>",
            f"{each['in']}, {_words(each['schema'] | {key: each[key] for key in each if key == 'description'})}",
        )
        for each in call.get("parameters", ())
    ]
    if body := call.get("requestBody"):
        given.append(("body", _content(body["content"])))
    rows = [
        (escape(status), _content(answer["content"]) if "content" in answer else _words_of(answer))
        for status, answer in call["responses"].items()
    ]
    return f'<p class="call">{method.upper()} {escape(path)}</p>{about}{_table(given)}{_table(rows)}'


def _words_of(answer: dict[str, Any]) -> str:
    if "$ref" not in answer:
        return escape(answer["description"])
    kind = _REFUSAL.sub("", answer["$ref"].rpartition("/")[2]) or "Details"
    return f'<a href="#{kind}">{kind}</a>'


def _content(content: dict[str, Any]) -> str:
    kinds: dict[str, list[str]] = {}
    for kind, body in content.items():
        kinds.setdefault(_words(body["schema"]), []).append(kind)
    return "<br>".join(f"{words} <small>{escape(', '.join(names))}</small>" for words, names in kinds.items())


def _type(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (f"<code>{escape(field)}</code>{' *' if field in required else ''}", _words(each))
        for field, each in schema.get("properties", {}).items()
    ]
    known = _table(rows) if rows else f"<p>{_words(schema)}</p>"
    return (
        f'<p class="call" id="{escape(name)}">{escape(name)}</p><p>{escape(schema.get("description", ""))}</p>{known}'
    )


def _words(schema: dict[str, Any]) -> str:
    """Describe in a few words which values a schema allows, as HTML."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(SCHEMAS))
        words = f'<a href="#{name}">{name}</a>'
    elif "enum" in schema:
        words = " · ".join(escape(str(value)) for value in schema["enum"])
    elif "anyOf" in schema:
        words = " or ".join(map(_words, schema["anyOf"]))
    elif schema.get("type") == "array":
        words = f"array of {_words(schema.get('items', {}))}"
    else:
        words = escape(str(schema.get("type", "any value")))
    if (default := schema.get("default")) not in (None, [], ""):
        words += f" <small>(default {escape(str(default))})</small>"
    meaning = schema.get("description", "") if "properties" not in schema else ""
    return f"{words}: {escape(meaning)}" if meaning else words


def _table(rows: Sequence[tuple[str, str]]) -> str:
    return f"<table>{''.join(f'<tr><td>{left}<td>{right}' for left, right in rows)}</table>" if rows else ""
