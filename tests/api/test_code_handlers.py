"""Handlers in code: kept, versioned and shown like URLs; who may set them, who sees them, what their jobs wait for."""

from dataclasses import replace
from typing import Any

import pytest

from jqd.api import ApiConfig
from jqd.runner.handler import SOURCE_LENGTH_MAX
from jqd.service.workers import unneeded_options
from tests.api.edge import JSON
from tests.api.tokened import ROOT, call, make
from tests.api.whole import Whole

CODE: dict[str, Any] = {"lang": "python", "body": "print(200)"}
HOOK: dict[str, Any] = {"lang": "http", "body": "http://127.0.0.1:8000/hook"}


def allow(edge: Whole, **said: Any) -> Whole:
    parts = edge.api._parts
    edge.api._parts = replace(parts, services=replace(parts.services, **{"allow_code": True, **said}))
    return edge


@pytest.fixture
async def edge() -> Whole:
    return allow(await Whole().begin())


@pytest.fixture
async def tokened(edge: Whole) -> Whole:
    parts = edge.api._parts
    parts.auth = parts.auth._replace(required=True, root=ROOT)
    return edge


async def put(edge: Whole, name: str = "mail", **said: Any) -> dict[str, Any]:
    told = await edge.call("PUT", f"/v1/handlers/{name}", {**CODE, **said}, accept=JSON)
    assert told.status == 201, told.body
    row: dict[str, Any] = told.body
    return row


async def why(edge: Whole, name: str) -> str:
    job_id = await edge.push(name=name)
    text: str = (await edge.call("GET", f"/v1/jobs/{job_id}/why", accept=JSON)).body["text"]
    return text


@pytest.mark.parametrize("lang", ["python", "node", "sh"])
async def test_code_is_kept_in_versions_and_shown(edge, lang):
    parts = {"eid": "e", "before": "import x", "beforeEach": "x.open()", "afterEach": "x.close()"}
    row = await put(edge, lang=lang, **parts, options={"batch": 10, "timeout": 9}, server_only=True)
    assert (row["version"], row["lang"], row["body"], row["server_only"]) == (1, lang, "print(200)", True)
    assert {name: row[name] for name in parts} == parts
    assert row["options"] == {"batch": 10, "timeout": 9}
    assert "waits for a code worker" in row["note"]
    row = await put(edge, body="print(500)")
    assert [one["version"] for one in row["versions"]] == [1, 2]
    for number, body in ((1, "print(200)"), (2, "print(500)")):
        told = await edge.call("GET", f"/v1/handlers/mail?version={number}", accept=JSON)
        assert (told.status, told.body["body"]) == (200, body)
    assert edge.workers.list() == [], "the daemon posts nothing to it"


async def test_nothing_is_code_unless_the_setting_says_so(edge):
    told = await allow(edge, allow_code=False).call("PUT", "/v1/handlers/mail", CODE, accept=JSON)
    assert (told.status, "`runner.allow_code = true` (JQD_RUNNER__ALLOW_CODE=true)" in told.body["detail"]) == (
        403,
        True,
    )
    assert edge.journal.frames == []
    assert (await edge.call("PUT", "/v1/handlers/mail", HOOK)).status == 201


async def test_only_the_master_of_no_tenant_sets_code(tokened):
    for said, status in (
        ({"role": "push"}, 403),
        ({"role": "worker"}, 403),
        ({"role": "viewer"}, 403),
        ({"role": "operator"}, 403),
        ({"role": "master", "tenant": "acme"}, 403),
        ({"role": "master"}, 201),
    ):
        token = (await make(tokened, **said))["token"]
        assert (await call(tokened, token, "PUT", "/v1/handlers/mail", CODE)).status == status, said
    assert (await call(tokened, ROOT, "PUT", "/v1/handlers/mail", CODE)).status == 201
    operator = (await make(tokened, "operator"))["token"]
    assert (await call(tokened, operator, "PUT", "/v1/handlers/mail", HOOK)).status == 201
    assert (await call(tokened, operator, "DELETE", "/v1/handlers/mail")).status == 204, "to stop code is not to set it"


async def test_where_there_is_a_master_key_who_comes_without_sets_no_code():
    edge = allow(await Whole(ApiConfig(master_key="m" * 20)).begin())
    assert (await edge.call("PUT", "/v1/handlers/mail", CODE)).status == 403
    bearer = {"authorization": "Bearer " + "m" * 20}
    assert (await edge.call("PUT", "/v1/handlers/mail", CODE, headers=bearer)).status == 201


async def test_code_of_a_tenant_needs_a_sandbox(tokened):
    acme = {"jqd-tenant": "acme"}
    own = (await make(tokened, "master", tenant="acme"))["token"]
    told = await call(tokened, ROOT, "PUT", "/v1/handlers/mail", CODE, **acme)
    assert (told.status, "runner.sandbox" in told.body["detail"], "'none'" in told.body["detail"]) == (403, True, True)
    allow(tokened, sandbox="bwrap")
    assert (await call(tokened, ROOT, "PUT", "/v1/handlers/mail", CODE, **acme)).status == 201
    told = await call(tokened, own, "PUT", "/v1/handlers/mail", CODE)
    assert told.status == 403, "nor does its own master then"
    assert (await call(tokened, own, "GET", "/v1/handlers/mail")).body["body"] == CODE["body"]


@pytest.mark.parametrize(
    ("said", "pointer"),
    [
        ({"body": ""}, "/body"),
        ({"body": "x" * (SOURCE_LENGTH_MAX + 1)}, "/body"),
        ({"before": "x" * (SOURCE_LENGTH_MAX + 1)}, "/before"),
        ({"body": "é" * SOURCE_LENGTH_MAX, "before": "x"}, ""),
        ({"options": {"style": "native"}}, "/options/style"),
        ({"options": {"headers": {"X-Key": "hidden"}}}, "/options/headers"),
        ({"options": {"weight": 50}}, "/options/weight"),
        ({"options": {"batch": 0}}, "/options/batch"),
    ],
)
async def test_what_is_wrong_is_named(edge, said, pointer):
    told = await edge.call("PUT", "/v1/handlers/mail", {**CODE, **said}, accept=JSON)
    assert (told.status, told.body["errors"][0]["pointer"]) == (422, pointer), told.body
    assert "hidden" not in str(told.body)
    assert edge.journal.frames == []


async def test_who_works_sees_the_code_of_his_jobs_and_nothing_else(tokened):
    for name, said in (("mail", CODE), ("pay", CODE), ("mail.url", HOOK)):
        assert (await call(tokened, ROOT, "PUT", f"/v1/handlers/{name}", said)).status == 201
    scoping: dict[str, Any] = {"scopes": ["mail*"]}
    scoped, all_of_them = [(await make(tokened, "worker", **said))["token"] for said in (scoping, {})]
    for token, names in ((scoped, ["mail"]), (all_of_them, ["mail", "pay"])):
        told = await call(tokened, token, "GET", "/v1/handlers")
        assert (told.status, [row["name"] for row in told.body["handlers"]]) == (200, names)
    seen = [(await call(tokened, scoped, "GET", f"/v1/handlers/{name}")).status for name in ("mail", "pay", "mail.url")]
    assert seen == [200, 404, 404]
    pusher = (await make(tokened, "push"))["token"]
    assert (await call(tokened, pusher, "GET", "/v1/handlers/mail")).status == 403
    assert (await call(tokened, ROOT, "PUT", "/v1/handlers/mail", HOOK)).status == 201
    assert (await call(tokened, scoped, "GET", "/v1/handlers/mail?version=2")).status == 404
    (row,) = (await call(tokened, scoped, "GET", "/v1/handlers")).body["handlers"]
    assert (row["version"], row["body"]) == (1, CODE["body"]), "jobs for that version alone go on"
    assert row["versions"] == [
        {"version": 1, "lang": "python", "share": 0, "out": None},
        {"version": 2, "lang": "http", "share": 100, "out": None},
    ]  # fmt: skip
    assert HOOK["body"] not in str(row)


async def test_a_token_for_one_version_reads_that_version_alone(tokened):
    for body in ("one", "two", "three"):
        assert (await call(tokened, ROOT, "PUT", "/v1/handlers/mail", CODE | {"body": body})).status == 201
    scoped = (await make(tokened, "worker", scopes=["mail@2"]))["token"]
    (row,) = (await call(tokened, scoped, "GET", "/v1/handlers")).body["handlers"]
    assert (row["version"], row["body"], [one["version"] for one in row["versions"]]) == (2, "two", [2])
    paths = ("mail", "mail?version=2", "mail?version=3")
    seen = [(await call(tokened, scoped, "GET", f"/v1/handlers/{path}")) for path in paths]
    assert [(told.status, told.body.get("body")) for told in seen] == [(200, "two"), (200, "two"), (404, None)]


async def test_jobs_wait_for_a_code_worker_and_say_so(edge):
    await put(edge)
    await put(edge, lang="node")
    waits = "code: waits for a code worker (`jqd worker --code`)"
    assert await why(edge, "mail") == f"handler is node.js {waits}"
    assert await why(edge, "mail@1") == f"handler is python {waits}"
    (row, *_) = (await edge.call("GET", "/v1/types", accept=JSON)).body["types"]
    assert (row["handler"], waits in row["note"]) == ("mail@2", True)
    trouble = "handler mail@2 is broken since 2027: no module; or: handler"
    card = {
        "name": "code",
        "jobs": ["pay"],
        "max_jobs": 4,
        "trouble": f"handler pay@1 is broken; {trouble}; handler fax@1 is",
    }
    assert (await edge.call("POST", "/v1/workers", card)).status == 201
    assert await why(edge, "mail") == f"a code worker says: {trouble}", "of other handlers nothing"
    assert await why(edge, "mail@1") == f"handler is python {waits}", "another version"
    card = {"name": "code", "jobs": ["mail"], "max_jobs": 4}
    assert (await edge.call("POST", "/v1/workers", card)).status == 201
    assert "code worker" not in await why(edge, "mail")
    assert (await edge.call("POST", "/v1/types/mail/pause")).status == 200
    assert "paused" in await why(edge, "mail")


async def test_a_newer_version_takes_the_jobs_of_code_and_of_urls_alike(edge):
    await put(edge)
    assert (await edge.call("PUT", "/v1/handlers/mail", HOOK)).status == 201
    assert [worker.takes("mail", 0) for worker in edge.workers.list()] == [True]
    await put(edge)
    assert [worker.takes("mail", 0) for worker in edge.workers.list()] == [False], "the URL is there for mail@2 alone"
    assert "code worker" in await why(edge, "mail")


async def test_options_of_code_stay_while_no_worker_runs_it(edge):
    await put(edge, options={"timeout": 9})
    services = edge.api._parts.services
    for _ in range(2):
        assert unneeded_options(services) == {}
        edge.clock.advance(30 * 86_400)
    await edge.call("POST", "/v1/jobs", {"name": "mail"})
    assert edge.journal.jobs()[-1].timeout == 9
