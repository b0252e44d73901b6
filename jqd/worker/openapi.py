"""The OpenAPI 3.1 document of a worker's native protocol, which each worker serves at `/openapi.json`.

docs/use/WORKERS.md explains the protocol. The schemas are made from the types in `wire.py`.
"""

from functools import cache
from typing import Any

import msgspec

from jqd import __version__
from jqd.domain import media
from jqd.worker.refusal import RefusalAnswer
from jqd.worker.wire import BatchIn, Failure, Health, Refused, Snoozed, Started, Success

PATH = "/openapi.json"
OUTCOMES = (Success, Failure, Snoozed, Refused, Started)
SCHEMAS = "#/components/schemas/"
TEXT: dict[str, Any] = {"type": "string"}
HEADERS = {
    "jqd-batch-id": "the batch, which a cancel names again",
    "jqd-lease-id": "the lease that its jobs are in, for reports and heartbeats",
    "jqd-job-type": "the jobtype, percent-encoded outside of printable ASCII",
    "jqd-tenant": "whose they are",
    "traceparent": "W3C Trace Context",
    "webhook-id": "Standard Webhooks, where the worker gave a secret",
    "webhook-timestamp": "the same",
    "webhook-signature": "the same",
}


@cache
def document() -> bytes:
    return msgspec.json.encode(draw())


def draw() -> dict[str, Any]:
    kinds = (BatchIn, *OUTCOMES, Health, RefusalAnswer)
    drawn, schemas = msgspec.json.schema_components(kinds, ref_template=SCHEMAS + "{name}")
    schema = dict(zip(kinds, drawn, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "jqd worker",
            "version": __version__,
            "description": "A daemon posts batches of jobs; the answer is a stream of their outcomes.",
        },
        "servers": [{"url": "/"}],
        "paths": {
            "/": {"post": _batch(schema), "get": _health(schema), "delete": _cancel(schema)},
            PATH: {"get": _itself()},
        },
        "components": {"schemas": schemas},
    }


def _batch(schema: dict[Any, Any]) -> dict[str, Any]:
    one = {"anyOf": [schema[kind] for kind in OUTCOMES]}
    many = {"type": "array", "items": one}
    bare = {"anyOf": [one, many], "description": "one behind the other, with no array around them"}
    return {
        "operationId": "run",
        "summary": "Run a batch of jobs of one type",
        "parameters": _headers(HEADERS),
        "requestBody": {"required": True, "content": _both(schema[BatchIn])},
        "responses": {
            "200": {
                "description": "The outcome of each job, by its id, as soon as it is there, in any order.",
                "content": {media.JSON: {"schema": many}, media.MSGPACK: {"schema": bare}},
            },
            **_refused(schema, "400", "403", "408", "413", "415", "421", "503"),
        },
    }


def _health(schema: dict[Any, Any]) -> dict[str, Any]:
    fields = {"content": {media.JSON: {"schema": schema[Health]}}}
    return {
        "operationId": "health",
        "summary": "How the worker is",
        "responses": {
            "200": {"description": "It takes batches.", **fields},
            "503": {"description": "It takes none now.", **fields},
            **_refused(schema, "403", "415", "421"),
        },
    }


def _cancel(schema: dict[Any, Any]) -> dict[str, Any]:
    which = {"name": "job_id", "in": "query", "required": True, "schema": {**TEXT, "minLength": 1}}
    batch = {"jqd-batch-id": "the batch that it came in; without it, any"}
    return {
        "operationId": "cancel",
        "summary": "Tell jobs in flight to stop",
        "parameters": [which, *_headers(batch)],
        "responses": {
            "204": {"description": "The jobs are asked to stop; their outcomes come in the answer to their batch."},
            **_refused(schema, "400", "403", "404", "415", "421"),
        },
    }


def _itself() -> dict[str, Any]:
    return {
        "operationId": "openapi",
        "summary": "This document",
        "responses": {"200": {"description": "The document.", "content": {media.JSON: {"schema": {}}}}},
    }


def _headers(named: dict[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "in": "header", "description": words, "schema": TEXT} for name, words in named.items()]


def _both(schema: dict[str, Any]) -> dict[str, Any]:
    return {media.MSGPACK: {"schema": schema}, media.JSON: {"schema": schema}}


def _refused(schema: dict[Any, Any], *statuses: str) -> dict[str, Any]:
    content = {media.PROBLEM: {"schema": schema[RefusalAnswer]}, media.MSGPACK: {"schema": schema[RefusalAnswer]}}
    return {status: {"description": "Refused; `detail` says why.", "content": content} for status in statuses}
