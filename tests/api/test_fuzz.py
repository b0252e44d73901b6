"""Any bytes at all: an error is the client's, never ours, and nothing is journaled that was not acknowledged."""

from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jqd.api import ApiConfig
from jqd.domain.job import Fate, State
from tests.api.edge import JSON, MSGPACK, Edge
from tests.api.whole import Whole
from tests.stalls import run

CONFIG = ApiConfig(job_bytes_max=2_000, array_bytes_max=8_000, array_jobs_max=20)
KINDS = [MSGPACK, JSON, "application/x-ndjson"]
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=20)
values = st.recursive(
    scalars | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELD_NAMES = [
    "name",
    "argument",
    "priority",
    "max_retry",
    "timeout",
    "delay",
    "run_at",
    "tags",
    "job_id",
    "replace",
    "x",
]
good_jobs = st.fixed_dictionaries(
    {"name": st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=10)},
    optional={"argument": values, "priority": st.integers(-(2**31), 2**31 - 1), "tags": st.just(["a"])},
)
named_jobs = st.fixed_dictionaries(
    {"name": st.just("a"), "job_id": st.text(max_size=3)}, optional={"replace": st.booleans(), "argument": values}
)
odd_jobs = st.dictionaries(st.sampled_from(FIELD_NAMES), values, max_size=6) | values
jobs = good_jobs | named_jobs | odd_jobs
bodies = (jobs | st.lists(jobs, max_size=25)).map(msgspec.msgpack.encode)


def as_json(value: Any) -> bytes:
    return msgspec.json.encode(value)


json_bodies = (good_jobs | st.lists(jobs, max_size=25)).map(as_json)


@st.composite
def damaged(draw: st.DrawFn, sound: st.SearchStrategy[bytes]) -> bytes:
    """A sound body with bytes changed, cut or added."""
    body = bytearray(draw(sound))
    for _ in range(draw(st.integers(0, 3))):
        if body:
            body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body) + draw(st.binary(max_size=2))


async def _push(body: bytes, kind: str, query: str) -> None:
    edge = await Whole(CONFIG).begin()
    told = await edge.call("POST", f"/v1/jobs{query}", body, kind=kind)
    assert 200 <= told.status < 500, told.body
    await edge.apply()
    journaled = edge.journal.jobs()  # as ingest reads it: what was acknowledged can always be read
    if told.status == 201:
        ids = told.body["job_ids"] if "job_ids" in told.body else [told.body["job_id"]]
        assert sorted(ids) == sorted(job.name or job.id for job in journaled), (
            "those with names have frames of their own"
        )
    elif told.status == 207:
        ids = told.body["job_ids"]
        assert sorted(filter(None, ids)) == sorted(job.name or job.id for job in journaled) != []
        assert {error["index"] for error in told.body["errors"]} == {n for n, job_id in enumerate(ids) if not job_id}
    else:
        assert edge.journal.frames == []
        assert told.body["status"] == told.status
        assert told.body["detail"]
    assert len(told.raw) < 64_000


@quick
@given(st.binary(max_size=200), st.sampled_from(KINDS))
def test_any_bytes(body, kind):
    run(_push, body, kind, "")


@quick
@given(bodies | damaged(bodies), st.sampled_from(["", "?atomic=1", "?ack=memory"]))
def test_odd_messagepack(body, query):
    run(_push, body, MSGPACK, query)


@quick
@given(json_bodies | damaged(json_bodies), st.sampled_from(KINDS[1:]), st.sampled_from(["", "?atomic=1"]))
def test_odd_json(body, kind, query):
    run(_push, body, kind, query)


@quick
@given(st.lists(good_jobs, min_size=1, max_size=20))
def test_good_jobs_are_journaled_as_they_are(jobs):
    async def push() -> None:
        edge = Edge()
        told = await edge.call("POST", "/v1/jobs", jobs)
        assert told.status == 201
        for job, sent in zip(edge.journal.jobs(), jobs, strict=True):
            assert (job.jobtype, job.priority) == (sent["name"], sent.get("priority", 0))
            assert job.argument == msgspec.msgpack.encode(sent.get("argument"))

    run(push)


PATHS = ["/job", "/worker", "/done", "/v1/workers"]


@quick
@given(
    st.sampled_from(PATHS),
    damaged(st.one_of(bodies, st.binary(max_size=80))),
    st.sampled_from([*KINDS, "", "text/html"]),
    st.sampled_from([MSGPACK, JSON]),
)
def test_other_calls_with_any_body(path, body, kind, accept):
    async def ask() -> None:
        edge = Edge(CONFIG)
        edge.runner.knows = False
        told = await edge.call("POST", path, body, kind=kind, accept=accept, headers={"worker-id": "w"})
        assert 200 <= told.status < 500, told.body
        assert told.status == 201 or not edge.journal.frames

    run(ask)


@quick
@given(st.text(max_size=40), st.sampled_from(["", "/result", "/polling"]), st.text(max_size=20))
def test_any_id_and_query(job_id, rest, query):
    async def ask() -> None:
        edge = Edge()
        for root in ("/v1/jobs/", "/job/", "/v1/workers/", "/"):
            path = root + job_id.replace("?", "").replace("\ud800", "") + rest
            told = await edge.call("GET", f"{path}?wait=0&consume=1")
            assert told.status < 500
        job_id_of_ours = edge.add(State.SUCCEEDED)
        raw = query.encode("utf-8", "replace").decode("latin-1").replace("?", "")
        assert (
            await edge.call("GET", f"/v1/jobs/{job_id_of_ours}?{raw.encode('ascii', 'replace').decode()}")
        ).status < 500

    run(ask)


@pytest.mark.parametrize("kind", [MSGPACK, JSON])
@given(value=values)
@quick
def test_what_workers_gave_can_always_be_shown(kind, value):
    async def ask() -> None:
        edge = Edge()
        job_id = edge.add(State.SUCCEEDED, keep_result=True, result=msgspec.msgpack.encode(value))
        for path in (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/result", f"/job/{job_id}"):
            told = await edge.call("GET", path, accept=kind)
            assert told.status == 200
            assert "result" in told.body

    run(ask)


@quick
@given(st.binary(min_size=1, max_size=40))
def test_even_bytes_that_are_no_messagepack(raw):
    async def ask() -> None:
        edge = Edge()
        job_id = edge.add(State.SUCCEEDED, keep_result=True, result=raw)
        assert (await edge.call("GET", f"/v1/jobs/{job_id}", accept=JSON)).status == 200

    run(ask)


filters = st.dictionaries(
    st.sampled_from(["state", "name", "tag", "job_ids", "dry_run", "cursor", "before", "priority", "run_at", "x"]),
    st.sampled_from(["failed", "mail", "red", "2030-01-01T00:00:00Z", ""]) | st.lists(st.text(max_size=4)) | values,
    max_size=5,
)


@few
@given(
    damaged(filters.map(msgspec.msgpack.encode)) | filters.map(msgspec.msgpack.encode),
    st.sampled_from(["/v1/jobs/cancel", "/v1/jobs/retry", "/v1/jobs/clean"]),
    st.sampled_from([MSGPACK, JSON]),
)
def test_many_jobs_changed_with_any_body(body, path, accept):
    async def ask() -> None:
        edge = await Whole(CONFIG).begin()
        await edge.push(tags=["red"])
        await edge.ended(Fate.FAILED)
        told = await edge.call("POST", path, body, accept=accept)
        assert 200 <= told.status < 500, told.body
        if told.status == 200:
            assert told.body["changed"] <= told.body["matched"] <= 2
        else:
            assert len(edge.journal.frames) == 2, "nothing is changed by what is not understood"

    run(ask)


@few
@given(damaged(filters.map(msgspec.msgpack.encode)) | filters.map(msgspec.msgpack.encode), st.booleans())
def test_a_job_changed_with_any_body(body, ended):
    async def ask() -> None:
        edge = await Whole(CONFIG).begin()
        job_id = await (edge.ended(Fate.FAILED) if ended else edge.push())
        told = await edge.call("PATCH", f"/v1/jobs/{job_id}", body)
        assert told.status in (200, 400, 409, 422), told.body
        assert (await edge.call("POST", f"/v1/jobs/{job_id}/run-now", body)).status in (200, 409)
        assert (await edge.call("POST", f"/v1/jobs/{job_id}/retry", body)).status in (200, 400, 409, 422)

    run(ask)


@few
@given(
    st.text(max_size=40), st.sampled_from(["state", "name", "tag", "error", "since", "before", "limit", "cursor", "x"])
)
def test_jobs_listed_with_any_query(text, name):
    async def ask() -> None:
        edge = await Whole(CONFIG).begin()
        await edge.push()
        told = await edge.call("GET", f"/v1/jobs?{urlencode({name: text}, errors='replace')}")
        assert told.status in (200, 422), told.body

    run(ask)
