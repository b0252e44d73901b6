"""The handlers of miniq, and its switch: what is set by one surface is what the other shows."""

from typing import Any

import pytest

from jqd.api import ApiConfig
from jqd.domain.lease import Peer
from jqd.domain.pauses import DRAIN
from jqd.http import Guard
from tests.api.edge import JSON, Answer
from tests.api.test_code_handlers import allow
from tests.api.tokened import ROOT, call, make
from tests.api.whole import Whole

URL = "http://127.0.0.1:8000/lines"
ADD, GET, DEL = "/-/handler/add/mail/add", "/-/handler/get/mail", "/-/handler/del/mail/delete"
OF_ACME: dict[str, Any] = {"tenant": "acme"}
CODE = {"lang": "python", "body": "print(200)"}


@pytest.fixture
async def edge() -> Whole:
    whole = await Whole().begin()
    whole.control.peers = [Peer("d1", 7, True, True, True, 0.1)]
    return whole


async def ask(edge: Whole, method: str, path: str, body: Any = None, status: int = 200, **more: Any) -> Any:
    told = await edge.call(method, path, body, accept=JSON, **more)
    assert told.status == status, told.body
    return told.body


async def test_a_handler_is_set_shown_and_deleted_by_the_paths_of_the_seed(edge):
    assert await ask(edge, "POST", ADD, f"{URL}\n".encode(), kind="text/plain") == {"ok": True, "id": "mail@1"}
    told = await ask(edge, "GET", GET)
    assert (told["id"], told["type"], told["client"], told["dt"][-1]) == ("mail@1", "mail", "-", "Z")
    assert told["data"]["body"] == URL
    assert told["data"]["options"] == {
        "batch": False, "batchSize": 1, "max_retry": 72, "backoff": [300.0, 300.0], "timeout": 120.0
    }  # fmt: skip
    (worker,) = edge.workers.list()
    assert (worker.style, worker.batch, worker.takes("mail", 0)) == ("lines", 1, True)
    assert await ask(edge, "POST", DEL) == {"ok": True}
    for method, path in (("GET", GET), ("POST", DEL)):
        await ask(edge, method, path, status=404)


async def test_versions_go_by_name(edge):
    for number in (1, 2):
        told = await ask(edge, "POST", ADD, {"body": f"{URL}/{number}"})
        assert told["id"] == f"mail@{number}"
    for path, body in ((GET, f"{URL}/2"), (f"{GET}@1", f"{URL}/1"), (f"{GET}@2", f"{URL}/2")):
        assert (await ask(edge, "GET", path))["data"]["body"] == body
    for none in ("3", "0", "00", "9" * 21):
        assert f"no version {none.lstrip('0') or 0} " in (await ask(edge, "GET", f"{GET}@{none}", status=404))["detail"]
    await ask(edge, "POST", "/-/handler/add/mail@3/add", {"body": URL}, status=422)
    await ask(edge, "POST", "/-/job/mail@1/add", b"x\n", kind="text/plain")
    told = await ask(edge, "POST", "/-/job/mail@3/add", b"x\n", status=400, kind="text/plain")
    assert "atomic" not in told["detail"], "nobody asked for it"


@pytest.mark.parametrize(
    ("lang", "options", "batch"),
    [
        ("http", {}, 1),
        ("http", {"batch": True}, 10),
        ("http", {"batch": True, "batchSize": 3}, 3),
        ("http", {"batch": True, "batchSize": 500}, 500),
        ("http", {"batch": False, "batchSize": 3}, 1),
        ("sh", {}, 5),
        ("sh", {"batch": False}, 1),
        ("sh", {"batchSize": 3}, 3),
    ],
)
async def test_options_are_those_of_node_miniq(edge, lang, options, batch):
    allow(edge)
    said = {"max_retry": 3, "backoff": 0.5}
    await ask(edge, "POST", f"{ADD}?method={lang}", {"body": URL, "eid": "e", "options": options | said})
    row = await ask(edge, "GET", "/v1/handlers/mail")
    assert (row["lang"], row["eid"], row["options"]["batch"]) == (lang, "e", batch)
    assert (row["options"]["max_retry"], row["options"]["backoff"], row["options"]["timeout"]) == (3, 0.5, 120)
    assert row["options"].get("max_jobs") == (None if lang == "sh" else max(16, batch))
    shown = (await ask(edge, "GET", GET))["data"]["options"]
    assert (shown["batch"], shown["batchSize"]) == (batch > 1, batch)


async def test_code_goes_by_the_same_rules_as_on_the_native_surface(edge):
    for body, query in ((CODE, ""), ({"body": "x"}, "?method=python")):
        assert "runner.allow_code" in (await ask(edge, "POST", ADD + query, body, status=403))["detail"]
    parts = allow(edge).api._parts
    parts.auth = parts.auth._replace(required=True, root=ROOT)
    acme = "/acme/handler/add/mail/add"
    tokens = {role: (await make(edge, role))["token"] for role in ("push", "worker", "viewer", "operator", "master")}
    tokens["acme"] = (await make(edge, "master", tenant="acme"))["token"]

    async def status(who: str, path: str, body: Any = CODE) -> int:
        return (await call(edge, tokens[who], "POST", path, body)).status

    assert {who: await status(who, ADD) for who in tokens} == dict.fromkeys(tokens, 403) | {"master": 200}
    assert {who: await status(who, acme) for who in tokens} == dict.fromkeys(tokens, 403)
    allow(edge, sandbox="bwrap")
    assert {who: await status(who, acme) for who in tokens} == dict.fromkeys(tokens, 403) | {"master": 200}
    assert await status("acme", acme, {"body": URL}) == 200
    assert await status("acme", "/other/handler/add/mail/add", {"body": URL}) == 403
    assert (await call(edge, tokens["acme"], "GET", "/-/handler/get/mail")).status == 403
    seen = {who: (await call(edge, tokens[who], "GET", GET)).status for who in tokens}
    assert seen == {"push": 403, "worker": 200, "viewer": 200, "operator": 200, "master": 200, "acme": 403}
    for who in ("push", "worker", "viewer", "acme"):
        assert (await call(edge, tokens[who], "POST", DEL)).status == 403


@pytest.mark.parametrize("kind", ["text/plain", None, "application/x-www-form-urlencoded"])
async def test_code_does_not_come_as_what_pages_can_send(edge, kind):
    told = await ask(allow(edge), "POST", f"{ADD}?method=python", b"print(200)", 415, kind=kind)
    assert "any web page can send" in told["detail"]
    assert edge.journal.frames == []


@pytest.mark.parametrize(
    ("path", "body", "kind", "status", "pointer"),
    [
        (ADD, b"nowhere", "text/plain", 422, "/body"),
        (ADD, b"\xff", "text/plain", 400, None),
        (ADD, b"x" * 70_000, "text/plain", 422, "/body"),
        (ADD, {"body": URL, "lang": "cobol"}, JSON, 422, "/lang"),
        (f"{ADD}?method=python", {"body": URL, "lang": "http"}, JSON, 422, "/lang"),
        (f"{ADD}?method=POST", {"body": URL}, JSON, 422, None),
        (ADD, {"lang": "http"}, JSON, 422, "/body"),
        (ADD, {"body": URL, "options": {"batch": 7}}, JSON, 422, "/options/batch"),
        (ADD, {"body": URL, "options": {"style": "native"}}, JSON, 422, "/options/style"),
        (ADD, {"body": URL, "id": 7}, JSON, 422, "/id"),
        (ADD, b"<x/>", "text/xml", 415, None),
        ("/*/handler/add/mail/add", {"body": URL}, JSON, 422, None),
    ],
)
async def test_what_is_wrong_with_a_handler_is_named(edge, path, body, kind, status, pointer):
    told = await ask(edge, "POST", path, body, status, kind=kind)
    assert (told.get("errors") or [{"pointer": None}])[0]["pointer"] == pointer
    assert edge.journal.frames == []


async def test_server_only_jobtypes_are_for_the_server_here_too():
    edge = await Whole(ApiConfig(master_key="m" * 20)).begin()
    await ask(edge, "PUT", "/v1/handlers/mail", {"lang": "http", "body": URL, "server_only": True}, 201)
    for path, body in ((ADD, {"body": URL}), (DEL, None)):
        await ask(edge, "POST", path, body, 403)


async def test_a_daemon_says_ok_and_is_stopped_and_started(edge):
    told = await edge.call("GET", "/")
    assert (told.status, told.raw, told.headers["content-type"]) == (200, b"OK\n", "text/plain")
    for method in ("POST", "GET"):
        for path, drained in (("/stop", True), ("/stop", True), ("/start", False), ("/start", False)):
            answer: Answer = await edge.call(method, path)
            assert (answer.status, answer.raw) == (200, b"OK\n")
            setting = edge.workers.settings.get(DRAIN, "d1")
            assert (setting is not None and not setting.is_deleted) == drained
    assert (await edge.call("POST", "/-/job/mail/add", b"x\n", kind="text/plain")).status == 200


@pytest.mark.parametrize("path", ["/start", "/stop"])
async def test_no_page_switches_a_daemon_by_a_get(edge, path):
    for header in ("origin", "sec-fetch-site", "referer"):
        said = {"origin": "http://localhost", "sec-fetch-site": "same-origin", "referer": "http://localhost/x"}[header]
        told = await edge.call("GET", path, headers={header: said}, accept=JSON)
        assert (told.status, f"POST {path}" in told.body["detail"]) == (403, True)
    assert edge.workers.settings.get(DRAIN, "d1") is None


@pytest.mark.parametrize("path", ["/start", "/stop"])
async def test_where_nobody_tells_that_it_is_a_page_only_a_token_makes_a_get_count(edge, path):
    parts, host = edge.api._parts, {"host": "10.0.0.1"}
    parts.guard = Guard(hosts=("jobs.example.org",))
    assert (await edge.call("GET", path)).status == 403, "a proxy may pass on what pages send"
    parts.guard = Guard(loopback=False)
    for said in ({}, {"authorization": "Basic dXNlcjpwYXNz"}, {"authorization": "bearer"}):
        assert (await edge.call("GET", path, headers=host | said)).status == 403
    assert (await edge.call("POST", path, headers=host)).status == 200
    parts.auth = parts.auth._replace(required=True, root=ROOT)
    operator, tenant = [(await make(edge, "operator", **said))["token"] for said in ({}, OF_ACME)]
    viewer = (await make(edge, "viewer"))["token"]
    for token, status in ((operator, 200), (viewer, 403), (tenant, 403), ("", 401)):
        assert (await call(edge, token, "GET", path, **host)).status == status
