"""`python docs/reference.py`: writes use/REFERENCE.md from the table of routes and the types of its bodies.

Limits come from the types, meanings from the text below a field, or, where the field has none, from WORDS here. A field
of a request that has neither is an error: so none is added that the page does not explain.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from docs.words import INTRO, SECTIONS, SHORT, STATUSES
from jqd.api.meanings import WORDS, meaning, structs_in, texts_of
from jqd.api.openapi import draw
from jqd.api.problems import STATUSES as ERRORS
from jqd.api.problems import Details, Error
from jqd.api.route import Document, Route
from jqd.domain.fields import allowed
from jqd.domain.job_spec import default_of
from jqd.routes import ROUTES

PAGE = Path(__file__).parent / "use" / "REFERENCE.md"
PLAIN = {str: "text", int: "integer", float: "number", bool: "flag", dict: "map", NoneType: "null", bytes: "bytes"}
_MODULE = re.compile(r" \(`?\w+\.py`?\)")


def render() -> str:
    """The whole page."""
    return "".join(_page()).rstrip().replace(" |", "|") + "\n"


def _page() -> Iterator[str]:
    yield INTRO
    document, asked = draw(ROUTES)["paths"], dict[Any, str]()
    for title, paths in SECTIONS.items():
        routes = [route for route in ROUTES if _section(route.path) == title]
        if not paths:
            yield _foreign(title, routes)
            continue
        yield f"\n## {title}\n\ncall | role | | takes | answers\n---|---|---|---|---\n"
        for route in routes:
            yield _call(route, document)
        requests = [
            row
            for route in routes
            for kind in structs_in((route.query, *_several(route.body)))
            for row in _request(kind, asked, route)
        ]
        if requests:
            yield "\nquery or body, and its fields | may be; default | meaning\n---|---|---\n"
            yield from requests
    yield from _errors()


def _section(path: str) -> str:
    """Under which title a path stands: the last one is for what no other has."""
    *_, last = SECTIONS
    return next((title for title, paths in SECTIONS.items() if path.startswith(paths)), last)


def _foreign(title: str, routes: list[Route]) -> str:
    """Calls of foreign interfaces, by role: a page of their own has what they take and answer."""
    by_role: dict[str, list[str]] = {}
    for route in routes:
        by_role.setdefault(" ".join(route.needs) or ("a key in the request" if route.heeds else "none"), []).append(
            f"`{route.method} {_path(route)}`"
        )
    calls = "".join(f"* {role}: {', '.join(paths)}\n" for role, paths in by_role.items())
    return f"\n## {title}\n\nWhat they take and answer: [DIALECTS.md](DIALECTS.md). Roles:\n\n{calls}"


def _call(route: Route, document: dict[str, Any]) -> str:
    path = _path(route)
    drawn = document[path][route.method.lower()]
    roles = " ".join(route.needs) or "none"
    query = "`?`" if route.query.__struct_fields__ else ""
    headers = "".join(f"`{name}` " for name in (*route.headers, *route.heeds))
    body = " or ".join(_type(kind) for kind in _several(route.body))
    kinds: dict[str, list[str]] = {}
    for status, answer in route.answers.items():
        kinds.setdefault(_union(answer), []).append(str(status))
    answers = "; ".join(
        words if statuses == ["200"] and words else f"{' '.join(statuses)} {words}".strip()
        for words, statuses in kinds.items()
    )
    refused = "".join(f", {status}" for status in route.refuses)
    words = ". ".join(filter(None, (drawn["summary"], drawn.get("description", "").rstrip("."))))
    words = re.sub(r"^20[0-4]( and the \w+| \{[^}]*\})?[:,.] ", "", words).replace(" → 200 the job", "")
    shown = f"{headers}{query} {body}".strip()
    return f"`{route.method} {path}` | {roles} | {_capital(words)} | {shown} | {answers}{refused}\n".replace("  ", " ")


def _path(route: Route) -> str:
    return re.sub(r"<(\w+)>", r"{\1}", route.path)


def _union(kinds: Any) -> str:
    return "" if kinds is None else " or ".join(_wrapped(kind) for kind in _several(kinds))


def _wrapped(kind: Any) -> str:
    """A type, or what it holds where that is one field."""
    if not _is_wrapper(kind):
        return _type(kind)
    (field,) = msgspec.structs.fields(kind)
    return f"`{field.encode_name}`: {_type(field.type)}"


def _is_wrapper(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct) and len(kind.__struct_fields__) == 1


def _several(kinds: Any) -> tuple[Any, ...]:
    return () if kinds is None else kinds if type(kinds) is tuple else (kinds,)


def _request(kind: type[Struct], asked: dict[Any, str], route: Route) -> Iterator[str]:
    """The rows of a query or a body. A field that is as one of a type before it is only named."""
    if kind in asked:
        return
    asked[kind] = kind.__name__
    rows, again = [], list[str]()
    for field in msgspec.structs.fields(kind):
        name, may_be = field.encode_name, _allowed(field.type)
        key = (name, may_be)
        if key in asked and f"{kind.__name__}.{name}" not in WORDS:
            again.append(f"`{name}`")
            continue
        asked[key] = _meaning(kind, field.name, name)
        rows.append(f"`{name}` | {may_be}{_default(field)} | {asked[key]}\n")
    title = f"`{route.method} {_path(route)}?`" if kind is route.query else f"**{kind.__name__}**"
    about = "" if kind is route.query else _about(kind)
    above = f"as above: {', '.join(again)}" if again else ""
    yield f"{title} | {above} | {about}".replace("  ", " ").rstrip() + "\n"
    yield from rows


def _allowed(hint: Any) -> str:
    words = re.sub(r"^an? (?=whole|number|array|map|text|list|URL|32)", "", allowed(hint))
    words = words.replace("whole number", "integer").replace("number of seconds", "seconds")
    words = words.replace("1 to 128 printable characters, no blank at the ends", "label")
    words = re.sub(r"^integer(?: from|,) (?=\d)", "", words)
    words = re.sub(r"^text(?:,| of) (?:at most|up to|1 to) (\d+) characters$", r"text to \1", words)
    words = re.sub(r"^array of (?:at most|up to) ", "up to ", words)
    kinds = structs_in([hint])
    if kinds and words.startswith(("map:", "array")):
        return _type(hint)
    if words.startswith("one of "):
        words = _words(words.removeprefix("one of ").split(", "))
    return SHORT.get(words, words)


def _default(field: Any) -> str:
    """After what it may be."""
    if field.required:
        return "; **required**"
    value = default_of(field) if field.default_factory is msgspec.NODEFAULT else None
    if value in (None, UNSET, "", ()) or value is False or value == "0" or isinstance(value, Struct | dict):
        return ""
    return f"; `{value:g}`" if isinstance(value, float) else f"; `{value}`"


def _meaning(kind: type[Struct], name: str, shown: str) -> str:
    text = meaning(kind, name, shown)
    if not text:
        raise SystemExit(
            f"{kind.__name__}.{name} says nothing of itself: write a text below the field, or in jqd/api/meanings.py"
        )
    return _plain(text)


def _answer(kind: type[Struct]) -> str:
    """Its fields, and what they mean."""
    fields = [(field.encode_name, texts_of(kind).get(field.name)) for field in msgspec.structs.fields(kind)]
    return "; ".join(f"`{name}`: {_plain(text)}" if text else f"`{name}`" for name, text in fields)


def _words(several: Iterable[str]) -> str:
    """Sorted: two Literals of the same words are one, with the order of whichever was imported first."""
    return " ".join(f"`{word}`" for word in sorted(several))


def _plain(text: str) -> str:
    return _MODULE.sub("", " ".join(text.split()).rstrip(".")).replace("None:", "left out:")


def _about(kind: type[Struct]) -> str:
    words = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    return _capital(re.sub(r"^The (body|query|answer) (of|to) `?[A-Z]+ /[^ `]*`?\.? ?", "", words))


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _type(hint: Any) -> str:
    """A type in a word or two; what may be left out or null is not said of answers."""
    if isinstance(hint, Document):
        return f"`{hint.kind}`"
    if get_origin(hint) is Annotated:
        return _type(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return _words(get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in get_args(hint) if part not in (NoneType, UnsetType)]
        return " or ".join(dict.fromkeys(map(_type, parts)))
    if isinstance(hint, type) and issubclass(hint, Struct):
        return f"`{hint.__name__}`"
    if hint is Raw or hint is Any:
        return "any value"
    origin: Any = get_origin(hint) or hint
    if origin is dict or getattr(origin, "__name__", "") in ("Mapping",):
        return "map"
    if get_args(hint) and getattr(origin, "__name__", "") in ("list", "tuple", "Sequence"):
        return f"[{_type(get_args(hint)[0])}]"
    return PLAIN.get(origin, getattr(origin, "__name__", "value").lower())


def _errors() -> Iterator[str]:
    yield "\n## Errors\n\n"
    yield f"Problem details (RFC 9457): {_answer(Details)}. "
    yield f"In `errors`: {_answer(Error)}.\n\n"
    yield "status | when, and what to do\n---|---\n"
    if missing := {status for _, status in ERRORS} - STATUSES.keys():
        raise SystemExit(f"docs/words.py has no words for the statuses {missing}")
    for status, words in STATUSES.items():
        yield f"{status} | {words}\n"


if __name__ == "__main__":
    PAGE.write_text(render())
