"""The trace of a push stays with its jobs, whoever named it, and is no part of what they are compared by."""

from typing import Any

import pytest
from msgspec import Raw, msgpack

from jqd.domain.job_spec import digest_of, request_digest
from jqd.domain.record import Lane, decode_jobs
from tests.api.edge import Edge
from tests.api.whole import Whole

ONE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-00"


def written(edge: Edge) -> list[str]:
    frames = (body for lane, _, body in edge.journal.frames if lane in (Lane.JOBS, Lane.CHANGES))
    return [job.traceparent for body in frames for job in decode_jobs(body)]


@pytest.mark.parametrize(
    ("body", "header", "traces"),
    [
        ({"name": "mail", "traceparent": ONE}, None, [ONE]),
        ({"name": "mail"}, ONE, [ONE]),
        ([{"name": "mail", "argument": [1]}, {"name": "mail", "traceparent": OTHER}], ONE, [ONE, OTHER]),
        ([{"name": "mail"}] * 1_001, ONE, [ONE] * 1_001),
        ({"name": "mail"}, "00-no-trace", [""]),
        ({"name": "mail"}, f"00-{'0' * 32}-b7ad6b7169203331-01", [""]),
        ({"name": "mail"}, None, [""]),
    ],
)
async def test_a_job_keeps_the_trace_of_its_field_or_its_request(body: Any, header: str | None, traces: list[str]):
    edge = Edge()
    told = await edge.call("POST", "/v1/jobs", body, headers={"traceparent": header} if header else {})
    assert told.status == 201
    assert written(edge) == traces


@pytest.mark.parametrize(("then", "trace"), [({"name": "mail"}, ONE), ({"name": "mail", "traceparent": OTHER}, OTHER)])
async def test_the_job_that_waits_for_a_group_goes_on_with_the_trace_of_the_close(then: Any, trace: str) -> None:
    edge = await Whole().begin()
    await edge.push(group="g")
    for given in (ONE, "no trace"):  # the same again counts once, whatever its trace
        told = await edge.call("POST", "/v1/groups/g/close", {"then": then}, headers={"traceparent": given})
        assert told.status == 200
    assert [each for each in written(edge) if each] == [trace]


@pytest.mark.parametrize("own", [{}, {"job_id": "a"}], ids=["unnamed", "named"])
async def test_a_callback_goes_on_with_the_trace_of_its_job(own: Any) -> None:
    edge = await Whole().begin()
    job = {"name": "mail", "callback": "https://example.org/", **own}
    told = await edge.call("POST", "/v1/jobs", job, headers={"traceparent": ONE})
    assert told.status == 201, told.body
    assert written(edge) == [ONE, ONE]


async def test_the_callback_of_a_group_goes_on_with_the_trace_of_the_close() -> None:
    edge = await Whole().begin()
    await edge.push(group="g")
    said = {"callback": "https://example.org/"}
    told = await edge.call("POST", "/v1/groups/g/close", said, headers={"traceparent": ONE})
    assert told.status == 200, told.body
    assert [each for each in written(edge) if each] == [ONE]


async def test_a_field_that_is_no_traceparent_is_refused() -> None:
    told = await Edge().call("POST", "/v1/jobs", {"name": "mail", "traceparent": "abc"})
    assert told.status == 422


def test_a_trace_is_no_content_of_a_job() -> None:
    """Each try of a push has a trace of its own, and counts as the same push."""
    plain, one, other = (
        msgpack.encode([{"name": "mail", "job_id": "a"} | more])
        for more in ({}, {"traceparent": ONE}, {"traceparent": OTHER})
    )
    assert request_digest(plain, []) == request_digest(one, []) == request_digest(other, [])
    assert len({digest_of(Raw(packed[1:])) for packed in (plain, one, other)}) == 1
