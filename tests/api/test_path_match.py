"""Which route a path has, and what is told of a path's methods."""

from functools import partial

import pytest
import trio

from jqd.api.path_match import RouteTable
from jqd.api.route import Route as ApiRoute
from jqd.domain.job import State
from tests.api.edge import Edge

Route = partial(ApiRoute, handler=trio.sleep_forever, answers={})

TABLE = RouteTable(
    [
        Route("GET", "/"),
        Route("POST", "/jobs/cancel"),
        Route("GET", "/jobs/<job_id>"),
        Route("POST", "/jobs/<job_id>/retry"),
        Route("POST", "/<client>/job/<type>/add"),
    ]
)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/", {"GET": ("/", {})}),
        ("/jobs/a%2Fb%25", {"GET": ("/jobs/<job_id>", {"job_id": "a/b%"})}),
        ("/jobs/cancel", {"POST": ("/jobs/cancel", {}), "GET": ("/jobs/<job_id>", {"job_id": "cancel"})}),
        ("/jobs/cancel/retry", {"POST": ("/jobs/<job_id>/retry", {"job_id": "cancel"})}),
        ("/c/job/%C3%BC/add", {"POST": ("/<client>/job/<type>/add", {"client": "c", "type": "ü"})}),
        ("/jobs/job/x/add", {"POST": ("/<client>/job/<type>/add", {"client": "jobs", "type": "x"})}),
        ("/%6Aobs/x", {"GET": ("/jobs/<job_id>", {"job_id": "x"})}),
    ],
)
def test_what_a_path_has(path, found):
    assert {method: (route.path, names) for method, (route, names) in TABLE.match(path).items()} == found


@pytest.mark.parametrize(
    "path", ["", "x", "//", "/jobs", "/jobs/", "/jobs//retry", "/jobs/x/", "/jobs%2Fx", "/<client>", "/jobs/x/retry/y"]
)
def test_what_is_no_path(path):
    assert TABLE.match(path) == {}


async def test_methods_that_every_path_has():
    edge = Edge()
    job_id = edge.add(State.WAITING)
    told = await edge.call("OPTIONS", f"/v1/jobs/{job_id}")
    assert (told.status, told.headers["allow"], told.raw) == (200, "DELETE, GET, HEAD, OPTIONS, PATCH", b"")
    told = await edge.call("PUT", "/worker")
    assert (told.status, told.headers["allow"]) == (405, "DELETE, OPTIONS, POST")
    told = await edge.call("HEAD", "/worker")
    assert told.status == 405
    assert (await edge.call("OPTIONS", "/nowhere")).status == 404
    assert (await edge.call("HEAD", "/livez")).status == 200


async def test_a_job_may_be_called_as_a_call_is():
    edge = Edge()
    told = await edge.call("GET", "/v1/jobs/cancel")
    assert (told.status, "there is no job" in told.body["detail"]) == (404, True), told.body
