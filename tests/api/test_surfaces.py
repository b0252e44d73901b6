"""Errors are told in the words of the surface that a path is of; what is of none is told in those of /v1."""

import pytest

from tests.api.edge import JSON, MSGPACK, Edge

PROBLEM = "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/worker/abc", 404, PROBLEM),
        ("GET", "/done/abc", 404, PROBLEM),
        ("POST", "/worker/x/y", 404, PROBLEM),
        ("GET", "/job", 405, MSGPACK),
        ("PUT", "/job/enqueue", 405, MSGPACK),
        ("GET", "/job/a/b/c", 404, MSGPACK),
        ("PUT", "/worker", 405, MSGPACK),
        ("DELETE", "/add", 405, PROBLEM),
        ("PUT", "/", 405, PROBLEM),
        ("POST", "/job/enqueue?x=%1f", 400, JSON),
        ("POST", "/add?jobtype=a&x=%1F", 422, PROBLEM),
        ("POST", "/acme/job/a%1Fb/add", 404, PROBLEM),
        ("GET", "/metrics?x=%1f", 422, PROBLEM),
        ("GET", "/v1/jobs/a%1Fb", 422, PROBLEM),
        ("PUT", "/v1/jobs/a%1Fb", 422, PROBLEM),
        ("GET", "/v1/nothing%1F", 422, PROBLEM),
        ("POST", "/v1/nothing?x=%1F", 422, PROBLEM),
    ],
)
async def test_what_is_refused_is_told_as_the_surface_of_its_path_does(
    method: str, path: str, status: int, kind: str
) -> None:
    told = await Edge().call(method, path)
    assert (told.status, told.headers["content-type"]) == (status, kind)


@pytest.mark.parametrize(
    ("headers", "status"), [({"content-length": "99999999"}, 413), ({"content-encoding": "gzip"}, 415)]
)
async def test_so_is_what_is_refused_by_its_head(headers: dict[str, str], status: int) -> None:
    for path, told_as in (("/worker/x", status), ("/done/x", status), ("/job/x", 400), ("/worker", 400)):
        assert (await Edge().call("POST", path, headers={"content-type": JSON, **headers})).status == told_as, path
