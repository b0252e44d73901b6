"""The guard in front of every route: what a page in somebody's browser can send here, and what it hears."""

import re

import pytest
import trio

from jqd.config import load
from jqd.domain import media
from jqd.domain.errors import ConfigError
from jqd.domain.job import State
from jqd.http import Foreign, Guard
from jqd.http.guard import FORM_TYPES
from jqd.routes import ROUTES
from tests.api.edge import JSON, MSGPACK, Edge

# Any path, also those that are no route: a page must not even learn which are.
TARGETS = [(route.method, re.sub("<.*?>", "x", route.path)) for route in ROUTES] + [
    ("GET", "/"),
    ("OPTIONS", "/v1/jobs"),
    ("HEAD", "/livez"),
    ("POST", "/v1/jobs/x/none"),
]
PLAIN = {re.sub("<.*?>", "x", route.path): route.plain for route in ROUTES if route.plain and route.body}
FOREIGN: list[tuple[dict[str, str], int]] = [
    ({"sec-fetch-site": "cross-site"}, 403),
    ({"sec-fetch-site": "same-site"}, 403),
    ({"sec-fetch-site": "?"}, 403),
    ({"origin": "https://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "http://localhost:8000"}, 403),
    ({"origin": "file://"}, 403),
    ({"host": "evil.example"}, 421),
    ({"host": "evil.example:7420", "origin": "http://evil.example:7420", "sec-fetch-site": "same-origin"}, 421),
    ({"host": "localhost.evil.example"}, 421),
    ({"host": "127.0.0.1.evil.example"}, 421),
    ({"host": "192.168.1.2:7420"}, 421),
    ({"host": "user@localhost"}, 421),
    ({"host": ""}, 421),
    *(({"content-type": f"{kind}; charset=utf-8"}, 415) for kind in sorted(FORM_TYPES)),
    ({"content-type": "TEXT/plain;application/json"}, 415),
]


@pytest.mark.parametrize(("headers", "status"), FOREIGN, ids=str)
async def test_no_route_hears_a_foreign_page(headers, status):
    edge = Edge()
    job_id = edge.add(State.FAILED)
    kind = media.bare(headers.get("content-type", "none"))
    for method, path in [*TARGETS, ("POST", f"/v1/jobs/{job_id}/retry")]:
        if kind in PLAIN.get(path, ()):
            continue
        told = await edge.call(method, path, headers=headers)
        assert told.status == status, (method, path, told.raw)
        assert told.body["detail"]
        assert not any(name.startswith("access-control") for name in told.headers)
    assert (edge.journal.frames, edge.workers.list(), edge.store.looks) == ([], [], 0)


@pytest.mark.parametrize(
    "path", [path for method, path in TARGETS if method in ("POST", "PATCH") and path not in PLAIN]
)
async def test_a_body_says_what_it_is(path):
    """`fetch(url, {mode: "no-cors", body: new Uint8Array(…)})` sends any bytes without a type."""
    edge = Edge()
    worker = {"name": "w", "max_jobs": 1, "url": "http://127.0.0.1:9/"}
    method = "PATCH" if path.endswith("/x") else "POST"
    told = await edge.call(method, path, worker, kind=None)
    assert told.status == 415
    chunked = await edge.call(method, path, kind=None, chunks=[b"\x80"], headers={"transfer-encoding": "chunked"})
    unsaid = await edge.call(method, path, kind=None, chunks=[b"\x80"])
    assert (chunked.status, unsaid.status) == (415, 404 if path.endswith("/none") else 415)
    assert edge.workers.list() == []


@pytest.mark.parametrize("path", sorted(PLAIN))
@pytest.mark.parametrize(
    "said", [{"origin": "http://localhost"}, {"sec-fetch-site": "same-origin"}, {"origin": "null"}]
)
async def test_where_programs_need_not_say_what_it_is_pages_must(path, said):
    edge = Edge()
    chunked = {"transfer-encoding": "chunked"}
    for headers in ({}, chunked):
        told = await edge.call("POST", path, kind=None, chunks=[b"\x80"], headers={**headers, **said})
        assert told.status == (403 if said == {"origin": "null"} else 415)
        told = await edge.call("POST", path, kind=None, chunks=[b"\x80"], headers=headers)
        assert told.status == 400


async def test_a_refused_body_is_not_read():
    edge = Edge()
    headers = {"host": "evil.example", "content-length": "100", "content-type": MSGPACK}
    told = await edge.exchange("POST", "/v1/jobs", headers, [], trio.Event())
    assert (told.status, told.headers["connection"]) == (421, "close")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "none"},
        {"host": "LOCALHOST:7420", "origin": "http://localhost:7420", "sec-fetch-site": "same-origin"},
        {"host": "localhost", "origin": "http://localhost"},
        {"host": "127.0.0.1:80", "origin": "http://127.0.0.1"},
        {"host": "127.9.9.9"},
        {"host": "[::1]:7420", "origin": "http://[::1]:7420"},
    ],
    ids=str,
)
async def test_our_own_are_let_through(headers):
    edge = Edge()
    job_id = edge.add(State.FAILED)
    assert (await edge.call("GET", f"/v1/jobs/{job_id}", headers=headers)).status == 200
    assert (await edge.call("POST", "/v1/jobs", {"name": "a"}, kind=JSON, headers=headers)).status == 201


def status_of(guard: Guard, host: str | None) -> int:
    try:
        guard.check("/livez", {} if host is None else {"host": host})
    except Foreign as foreign:
        return foreign.status
    return 200


@pytest.mark.parametrize(
    ("guard", "fine", "wrong"),
    [
        (Guard(), [None, "localhost", "127.0.0.1:1"], ["jqd", "10.0.0.7:7420", "localhost:x", "[::1", "a b"]),
        (Guard(hosts=("jqd.lan",)), ["jqd.lan", "JQD.lan:443", "localhost"], ["other.lan", "10.0.0.7"]),
        (Guard(loopback=False), [None, "jqd", "jqd.ns.svc:7420", "10.0.0.7:7420", "[fd00::1]"], ["a/b", "@", ""]),
        (Guard(loopback=False, hosts=("jqd",)), ["jqd:7420", "10.0.0.7:7420", "localhost"], ["evil.example"]),
        (
            Guard(loopback=False, hosts=("a.lan",), is_open=True),
            ["jqd:7420", "10.0.0.7", "localhost", "a.lan", "jqd.ns.svc.cluster.local", "host.docker.internal:1", None],
            ["evil.example:7420", "evil.example.", "local.evil.example", ".evil", "b.lan"],
        ),
    ],
)
def test_by_which_names_it_is_reached(guard, fine, wrong):
    """Kubelets and balancers ask by address, whatever names are set."""
    assert [status_of(guard, host) for host in fine] == [200] * len(fine)
    assert [status_of(guard, host) for host in wrong] == [421] * len(wrong)


@pytest.mark.parametrize(
    ("bind", "loopback"),
    [("127.0.0.1:1", True), ("localhost:1", True), ("[::1]:1", True), ("0.0.0.0:1", False), ("jqd:1", False)],
)
def test_what_an_address_means(bind, loopback):
    config = load(environ={"JQD_HTTP__HOSTS": "JQD.lan b"}, flags={"http.bind": bind, "insecure": True})
    own = () if loopback else (bind.partition(":")[0],)
    assert config.guard == Guard(loopback, ("jqd.lan", "b", *own), is_open=True)


def test_a_name_that_a_page_chose_opens_no_daemon_that_asks_nobody():
    """A page of that name finds it by DNS, once its name leads here: to browsers that is its own site."""
    pods = {"JQD_HTTP__BIND": "0.0.0.0:7420", "JQD_HTTP__ADVERTISE": "http://jqd-0.jqd-daemons:7420"}
    known = load(environ=pods | {"JQD_INSECURE": "true"}).guard
    asked = ["evil.example:7420", "jqd-0.jqd-daemons:7420", "jqd:7420"]
    assert [status_of(known, host) for host in asked] == [421, 200, 200]
    named = load(environ={"JQD_HTTP__BIND": "Jqd.lan:7420", "JQD_INSECURE": "true"}).guard
    assert [status_of(named, host) for host in ("jqd.lan:7420", "evil.example")] == [200, 421]
    assert [status_of(load(environ=pods).guard, host) for host in asked] == [200, 200, 200], "it has no token"


def test_a_name_is_no_url():
    with pytest.raises(ConfigError, match=r"http.hosts must be a list of names without scheme and port.*http://a"):
        load(environ={"JQD_HTTP__HOSTS": "http://a"})


# ------------------------------------------------------------ targets


async def test_a_path_is_never_written_another_way():
    edge = Edge()
    assert "location" not in (await edge.call("GET", "//livez")).headers
    for path in ("/v1//jobs", "/v1/jobs//x", "//evil.example/livez", "/livez/", "/job//x"):
        told = await edge.call("GET", path)
        assert (told.status, told.headers.get("location")) == (404, None), path


@pytest.mark.parametrize(
    ("method", "path", "status", "told"),
    [
        ("PUT", "/", 405, "it takes GET, POST; jobs are pushed with POST /v1/jobs"),
        ("POST", "/nothing", 404, "there is no path '/nothing'; jobs are pushed with POST /v1/jobs"),
        ("POST", "/jobs", 404, "there is no path '/jobs'; did you mean '/v1/jobs'?"),
        ("GET", "/jobs", 404, "there is no path '/jobs'; did you mean '/v1/jobs'?"),
        ("GET", "/jobs/a/result", 404, "did you mean '/v1/jobs/a/result'?"),
        ("GET", "/v1%2fjobs", 404, "there is no path '/v1%2fjobs'; jobs are pushed with POST /v1/jobs"),
        ("GET", "/v1/job", 404, "there is no path '/v1/job'; jobs are pushed with POST /v1/jobs"),
        ("GET", f"/{'x' * 3_000}", 404, f"there is no path '/{'x' * 99}…'; jobs are pushed"),
        ("PUT", "/v1/jobs", 405, "PUT is nothing that '/v1/jobs' takes; it takes GET, POST"),
    ],
)
async def test_a_wrong_path_or_method_is_named_with_what_there_is(method, path, status, told):
    answer = await Edge().call(method, path)
    assert answer.status == answer.body["status"] == status
    assert told in answer.body["detail"]


@pytest.mark.parametrize("target", ["", "?x", "x", "http://[::1/livez", "*"])
async def test_a_target_is_a_path(target):
    assert (await Edge().call("GET", target)).status == 400


async def test_every_route_of_ours_knows_its_query():
    edge = Edge()
    for route in ROUTES:
        path = re.sub("<.*?>", edge.add(State.FAILED), route.path)
        told = await edge.call(route.method, f"{path}?atomc=1", {} if route.method in ("POST", "PATCH") else None)
        if not route.query.__struct_config__.forbid_unknown_fields:
            assert told.status != 422, "LightJQ has no such answer"
        else:
            assert (told.status, told.body["detail"][:35]) == (422, "there is no query parameter 'atomc'"), path
    assert edge.journal.frames == []


async def test_head_takes_nothing():
    edge = Edge()
    job_id = edge.add(State.SUCCEEDED, keep_result=True, result=b"\x07")
    assert (await edge.call("HEAD", f"/v1/jobs/{job_id}/result?consume=1")).status == 200
    assert edge.store.dropped == []
    assert (await edge.call("GET", f"/v1/jobs/{job_id}/result?consume=1")).body == {"result": 7}
    assert edge.store.dropped == [job_id]
