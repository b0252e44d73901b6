"""The interface as it shows itself: all of it, in three forms that agree, and nothing from elsewhere."""

import re
import threading
from collections.abc import Iterator
from html import unescape
from typing import Any

import msgspec
import trio
import trio.testing

from jqd.api.openapi import TAGS
from jqd.api.pages import Pages
from jqd.api.route import Document
from jqd.routes import ROUTES
from tests.api.edge import Edge

PATIENCE_S = 60
REFERENCE = re.compile(r'"\$ref":"#/components/(\w+)/([^"]+)"')


async def drawn() -> dict[str, Any]:
    told = await Edge().call("GET", "/openapi.json", accept="application/json")
    assert told.status == 200
    document: dict[str, Any] = msgspec.json.decode(told.raw)
    return document


async def test_every_route_of_the_table_is_in_it_with_all_it_takes_and_gives() -> None:
    document = await drawn()
    calls = {(method.upper(), path): call for path, its in document["paths"].items() for method, call in its.items()}
    assert calls.keys() == {(route.method, re.sub("<(.*?)>", r"{\1}", route.path)) for route in ROUTES}
    for route in ROUTES:
        call = calls[route.method, re.sub("<(.*?)>", r"{\1}", route.path)]
        named = {(one["in"], one["name"]) for one in call.get("parameters", ())}
        assert named == {
            *(("path", name) for name in re.findall("<(.*?)>", route.path)),
            *(("query", name) for name in route.query.__struct_encode_fields__),
            *(("header", name) for name in (*route.headers, *route.heeds)),
        }
        kinds = {route.body.kind} if isinstance(route.body, Document) else {"application/json", "application/msgpack"}
        assert set(call.get("requestBody", {}).get("content", ())) >= (kinds if route.body else set())
        assert call["responses"].keys() == {*map(str, (*route.answers, *route.refuses)), "4XX", "5XX"}
        for status, kinds in route.answers.items():
            content = call["responses"][str(status)].get("content", {})
            if isinstance(kinds, Document):
                assert [*content] == [kinds.kind, *kinds.also]
            else:
                assert [*content] == (["application/json", "application/msgpack"] if kinds else [])
        assert re.fullmatch(r"[^a-z\W].*\w\W?", call["summary"]), "it says something, and ends in no full stop"
        assert not call["summary"].endswith(".")
        assert call["tags"][0] in TAGS
    assert len({call["operationId"] for call in calls.values()}) == len(ROUTES)
    assert "application/x-ndjson" in calls["POST", "/v1/jobs"]["requestBody"]["content"]


async def test_each_type_has_one_short_name_and_is_there() -> None:
    document = await drawn()
    components = document["components"]
    for room, name in REFERENCE.findall(msgspec.json.encode(document).decode()):
        assert name in components[room], name
        assert name.isidentifier(), f"two types are called so: {name}"
    assert components["schemas"]["JobSpec"]["properties"]["priority"]["maximum"] == 2**31 - 1


async def test_generators_of_clients_find_what_they_need() -> None:
    """Of whole numbers that are no 32 bits, and of fractions, they are told; defaults are values that code can have; no
    two types make one name: in Go `NewToken` is what makes a `Token`."""
    document = await drawn()
    assert not [name for name in document["components"]["schemas"] if name.startswith("New")]
    kinds = [*schemas_in(document)]
    assert len(kinds) > 100
    for kind in kinds:
        assert not isinstance(kind.get("default"), list | dict), kind
        if kind["type"] == "integer":
            bounds = [kind.get("minimum", 2**31), kind.get("maximum", 2**31)]
            assert (kind.get("format") == "int64") == any(not -(2**31) <= bound < 2**31 for bound in bounds), kind
        assert kind["type"] != "number" or kind["format"] == "double"


async def test_fields_say_what_they_are_for() -> None:
    """Each of a request, as in use/REFERENCE.md; of answers those whose names and types do not say it."""
    document = await drawn()
    kinds = document["components"]["schemas"]
    for name in ("JobSpec", "Outcome", "Registration", "Limits", "Plan", "TokenWanted", "Definition"):
        assert [field for field, one in kinds[name]["properties"].items() if "description" not in one] == []
    assert kinds["JobSpec"]["properties"]["run_at"]["description"] == "not before"
    assert kinds["JobSpec"]["properties"]["job_id"]["description"] == "your own id", "links of a page are none here"
    assert kinds["Why"]["properties"]["ahead"]["description"] == "jobs of its type before it"
    assert "description" not in kinds["Why"]["properties"]["state"], "what a filter is for is not said of an answer"
    (wait,) = [one for one in document["paths"]["/v1/jobs/{job_id}"]["get"]["parameters"] if one["name"] == "wait"]
    assert wait["description"].startswith("answer when there is something")
    page = (await Edge().call("GET", "/docs")).raw.decode()
    assert "jobs of its type before it" in page


async def test_a_document_is_made_by_one_thread_however_many_ask_for_it_first() -> None:
    """No lock keeps the others from making it, too, since Python 3.12: forty of them stall the loop for seconds."""
    pages, began, go, made = Pages(), trio.Event(), threading.Event(), list[int]()

    def make() -> bytes:
        made.append(len(made))
        trio.from_thread.run_sync(began.set)
        assert go.wait(PATIENCE_S)
        return b""

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(pages._in_thread, make)
        await began.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert made == [0]
        go.set()
    assert made == [0, 1, 2]


def schemas_in(part: Any) -> Iterator[dict[str, Any]]:
    """Those that say their type, however deep."""
    if isinstance(part, dict) and isinstance(part.get("type"), str):
        yield part
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from schemas_in(each)


async def test_yaml_and_the_page_say_the_same_and_need_nothing_from_elsewhere() -> None:
    document, edge = await drawn(), Edge()
    assert msgspec.yaml.decode((await edge.call("GET", "/openapi.yaml")).raw) == document
    told = await edge.call("GET", "/docs")
    page = told.raw.decode()
    assert "default-src 'none'" in told.headers["content-security-policy"]
    assert not re.search(r"<script|<link|<img|@import|url\(|(?:src|href)=.?(?:https?:)?//", page)
    shown = unescape(re.sub(r"<[^>]+>", " ", page))
    for path, calls in document["paths"].items():
        for method, call in calls.items():
            assert f"{method.upper()} {path}" in shown
            assert call["summary"] in shown
    anchors = set(re.findall(r"""href=["']#(\w+)["']""", page))
    assert anchors <= set(re.findall(r'id="(\w+)"', page)), "a link leads nowhere"
