"""What a worker says of itself for programs: whatever it answers is in it."""

from typing import Any

import jsonschema_rs
import msgspec
import pytest

from jqd import App
from jqd.worker.demo import app as demo
from jqd.worker.openapi import PATH
from jqd.worker.service import Service
from tests.worker.exchange import Exchange, run_batch

SCHEMAS = "#/components/schemas/"


async def drawn(service: Service | None = None, path: str = PATH) -> dict[str, Any]:
    told = Exchange(service or Service(App().jobs), b"", {}, method="GET")
    told.scope["path"] = path
    await told.run()
    assert (told.status, told.headers["content-type"]) == (200, "application/json")
    document: dict[str, Any] = told.body
    return document


def expect(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    """The value is one that the schema has."""
    jsonschema_rs.validator_for({**schema, "components": document["components"]}).validate(value)


def answer_of(document: dict[str, Any], method: str, status: int, kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = document["paths"]["/"][method]["responses"][str(status)]["content"][kind]["schema"]
    return schema


JOBS: list[dict[str, Any]] = [
    {"job_id": "1", "name": "echo", "argument": {"a": [1]}},
    {"job_id": "2", "name": "fail", "argument": 1},
    {"job_id": "3", "name": "add", "argument": "no numbers"},
    {"job_id": "4", "name": "nobody knows it", "argument": None},
]


@pytest.mark.parametrize("kind", ["application/msgpack", "application/json"])
async def test_every_kind_of_outcome_is_in_it(kind):
    service = Service(demo.jobs)
    document = await drawn(service)
    body = {"batch_id": "b", "jobs": JOBS}
    expect(document, document["paths"]["/"]["post"]["requestBody"]["content"][kind]["schema"], body)
    data = msgspec.json.encode(body) if kind.endswith("json") else msgspec.msgpack.encode(body)
    told = await Exchange(service, data, {"content-type": kind}).run()
    service.close()
    outcomes = told.body
    assert {each["job_id"] for each in outcomes} == {"1", "2", "3", "4"}
    expect(document, answer_of(document, "post", 200, kind), outcomes)
    with pytest.raises(jsonschema_rs.ValidationError):
        expect(document, answer_of(document, "post", 200, kind), [{"job_id": "1", "type": "done"}])


async def test_so_are_health_and_refusals():
    service = Service(demo.jobs)
    document = await drawn(service)
    for reason, status in ((None, 200), ("it stops", 503)):
        if reason:
            service.refuse(reason)
        told = await Exchange(service, b"", {}, method="GET").run()
        assert told.status == status
        expect(document, answer_of(document, "get", status, "application/json"), told.body)
    refused = [
        ("post", b"", {"content-type": "application/json"}, "", 503),
        ("post", b"{}", {"content-type": "text/html"}, "", 415),
        ("delete", b"", {}, "", 400),
        ("delete", b"", {}, "job_id=none", 404),
    ]
    for method, body, headers, query, status in refused:
        exchange = Exchange(service, body, {"accept": "application/json", **headers}, method.upper(), query)
        told = await exchange.run()
        assert told.status == status
        expect(document, answer_of(document, method, status, "application/problem+json"), told.body)
    service.close()


async def test_it_is_there_wherever_the_worker_is_mounted_and_names_what_there_is():
    document = await drawn(path="/some/where/openapi.json")
    assert document["openapi"] == "3.1.0"
    text = msgspec.json.encode(document).decode()
    for name in text.split(SCHEMAS)[1:]:
        assert name.partition('"')[0] in document["components"]["schemas"]
    assert len((await run_batch(demo, JOBS[0])).body) == 1, "and a batch is run as ever"
