"""Handlers: set, shown, deleted, in versions, each of which is a worker."""

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from jqd.domain.shares import Share
from jqd.service import handlers
from jqd.service.push_checks import why_gone
from jqd.service.settings import REFRESH_S
from tests.api.edge import JSON
from tests.api.whole import Whole

URL = "http://127.0.0.1:8000/hook"
HOOK: dict[str, Any] = {"lang": "http", "body": URL}


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def put(edge: Whole, name: str = "mail", **said: Any) -> dict[str, Any]:
    told = await edge.call("PUT", f"/v1/handlers/{name}", {**HOOK, **said}, accept=JSON)
    assert told.status == 201, told.body
    row: dict[str, Any] = told.body
    return row


async def test_each_put_is_a_new_version_and_old_ones_go(edge):
    options = {"style": "webhook", "format": "json", "headers": {"X-Key": "top secret"}, "weight": 100, "timeout": 9}
    row = await put(edge, options=options, server_only=True, before="x = 1", afterEach="y()", eid="e")
    assert (row["name"], row["version"], row["body"], row["server_only"]) == ("mail", 1, URL, True)
    assert (row["before"], row["afterEach"], row["eid"], row["beforeEach"]) == ("x = 1", "y()", "e", None), (
        "kept as data"
    )
    assert (row["options"]["headers"], row["options"]["timeout"]) == (["X-Key"], 9)
    assert "top secret" not in str(row)
    assert [(await put(edge))["version"] for _ in range(11)] == list(range(2, 13))
    newest = (await edge.call("GET", "/v1/handlers/mail", accept=JSON)).body
    assert newest["version"] == 12
    assert [one["version"] for one in newest["versions"]] == list(range(3, 13))
    assert (await edge.call("GET", "/v1/handlers/mail?version=3", accept=JSON)).body["version"] == 3
    gone = await edge.call("GET", "/v1/handlers/mail?version=2", accept=JSON)
    assert (gone.status, "it has 3, 4" in gone.body["detail"]) == (404, True)
    await put(edge, "bill")
    listed = (await edge.call("GET", "/v1/handlers", accept=JSON)).body["handlers"]
    assert [(row["name"], row["version"]) for row in listed] == [("bill", 1), ("mail", 12)]
    assert (await edge.call("DELETE", "/v1/handlers/mail")).status == 204
    assert (await edge.call("DELETE", "/v1/handlers/mail")).status == 404
    assert (await edge.call("GET", "/v1/handlers/mail")).status == 404
    assert [worker.id for worker in edge.workers.list()] == ["bill@1"]
    assert (await put(edge))["version"] == 13, "it goes on counting"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"lang": "cobol"}, "/lang"),
        ({"body": "nowhere"}, "/body"),
        ({"options": {"weight": 101}}, "/options/weight"),
        ({"options": {"colour": "red"}}, "/options/colour"),
        ({"options": 7}, "/options"),
        ({"options": {"secrets": ["hidden", 5]}}, "/options/secrets/1"),
        ({"options": {"secrets": "hidden"}}, "/options/secrets"),
        ({"options": {"headers": {"X-Key": "hidden", "X-Age": 5}}}, "/options/headers"),
        ({"options": {"headers": {"X Key": "hidden"}}}, "/options/headers"),
        ({"options": {"secrets": ["hidden"]}}, "/options/secrets"),
        ({"options": {"format": "msgpack", "style": "lines"}}, "/options/format"),
        ({"bodies": 1}, "/bodies"),
    ],
)
async def test_what_is_wrong_is_named(edge, said, why):
    told = await edge.call("PUT", "/v1/handlers/mail", {**HOOK, **said}, accept=JSON)
    assert (told.status, told.body["errors"][0]["pointer"]) == (422, why)
    assert "hidden" not in str(told.body)
    assert (await edge.call("PUT", f"/v1/handlers/{'x' * 120}", HOOK)).status == 422
    assert (await edge.call("GET", "/v1/handlers?version=1")).status == 422
    assert edge.workers.list() == []


async def test_the_newest_version_takes_the_jobs_and_the_others_those_for_them_alone(edge):
    for _ in range(3):
        row = await put(edge)
    assert row["versions"] == [
        {"version": number, "lang": "http", "share": 100 * (number == 3), "out": None} for number in (1, 2, 3)
    ]
    workers = edge.workers.list()
    assert [(worker.id, worker.style, worker.takes("mail", 0)) for worker in workers] == [
        (f"mail@{number}", "webhook", number == 3) for number in (1, 2, 3)
    ]
    assert [worker.takes("mail@2", 0) for worker in workers] == [False, True, False]
    await put(edge)
    assert [worker.takes("mail", 0) for worker in edge.workers.list()] == [False, False, False, True]
    assert edge.workers.get("mail@2") is not None, "it is there for who asks for it"


async def test_a_weight_is_kept_and_says_what_each_version_gets(edge):
    await put(edge)
    await put(edge, options={"weight": 40})
    row = await put(edge, options={"weight": 10})
    assert row["options"]["weight"] == 10
    assert [(one["version"], one["share"]) for one in row["versions"]] == [(1, 0), (2, 90), (3, 10)]
    assert [worker.takes("mail", 0) for worker in edge.workers.list()] == [False, True, True]
    assert edge.workers.unregister("mail@2", "it answered 410")
    said = edge.workers.farewells()
    edge.workers.settings.take(edge.workers.settings.make(said, now_ms=1, origin=1))
    row = (await edge.call("GET", "/v1/handlers/mail", accept=JSON)).body
    assert [(one["version"], one["share"]) for one in row["versions"]] == [(1, 90), (2, 0), (3, 10)]


@pytest.mark.parametrize("number", ["0", "01", "9" * 20])
async def test_jobs_for_a_number_that_no_version_can_have_are_refused_where_the_handler_is_known(edge, number):
    told = await edge.call("POST", "/v1/jobs", {"name": f"mail@{number}"})
    assert told.status == 201, "a worker of any type may take it: there is no such handler"
    await put(edge)
    told = await edge.call("POST", "/v1/jobs", {"name": f"mail@{number}"}, accept=JSON)
    assert (told.status, told.body["errors"][0]["pointer"]) == (422, "/name")
    assert told.body["errors"][0]["detail"].startswith(f"'mail@{number}' can be no version of a handler")
    card = {"name": "w", "max_jobs": 1, "jobs": [f"mail@{number}"]}
    assert (await edge.call("POST", "/v1/workers", card)).status == 201
    assert (await edge.call("POST", "/v1/jobs", {"name": f"mail@{number}"})).status == 201, "somebody takes it"


async def test_jobs_for_a_version_that_was_never_set_are_refused_and_others_are_taken(edge):
    told = await edge.call("POST", "/v1/jobs", {"name": "mail@1"}, accept=JSON)
    assert told.status == 201, "who knows what it is for: there is no such handler"
    for _ in range(2):
        await put(edge)
    jobs = [
        {"name": "mail@3"},
        {"name": "mail@2"},
        {"name": 7},
        {"name": "mail@0"},
        {"name": "mail@1"},
        {"name": "x@9"},
    ]
    told = await edge.call("POST", "/v1/jobs", jobs, accept=JSON)
    assert [job_id is not None for job_id in told.body["job_ids"]] == [False, True, False, False, True, True]
    assert [fault["pointer"] for fault in told.body["errors"]] == ["/0/name", "/2/name", "/3/name"]
    assert told.body["errors"][0]["detail"] == "handler 'mail' never had a version 3; it has 1, 2"
    assert [job.jobtype for job in edge.journal.jobs()] == ["mail@1", "mail@2", "mail@1", "x@9"]
    for path, body in (("/v1/jobs", {"name": "mail@3"}), ("/job", {"name": "mail@3", "argument": None})):
        told = await edge.call("POST", path, body, accept=JSON)
        assert told.status in (400, 422)
        assert "never had a version 3" in str(told.body)
    for then in ({"name": "mail@3"}, [{"name": "x", "then": {"name": "y"}}, {"name": "x", "then": {"name": "mail@3"}}]):
        told = await edge.call("POST", "/v1/jobs", {"name": "mail", "then": then}, accept=JSON)
        fault = told.body["errors"][0]
        assert (told.status, fault["pointer"], "never had" in fault["detail"]) == (422, "/then", True), "it would wait"
    told = await edge.call("POST", "/v1/jobs?atomic=1", jobs[:2], accept=JSON)
    assert (told.status, len(edge.journal.jobs())) == (400, 4)
    card = {"name": "w", "max_jobs": 1, "jobs": ["mail@3"]}
    assert (await edge.call("POST", "/v1/workers", card)).status == 201
    assert (await edge.call("POST", "/v1/jobs", {"name": "mail@3"})).status == 201, "somebody takes it"


async def test_however_many_versions_a_push_names_the_store_is_asked_once(edge, autojump_clock):
    """Each name was looked for by itself: 5,000 of them held a push up for more than an hour."""
    await put(edge)
    edge.workers.settings.askers = 1  # of a store that does not answer
    began_s = trio.current_time()
    jobs = [{"name": f"mail@{number}"} for number in range(1, 100)]
    told = await edge.call("POST", "/v1/jobs", jobs, accept=JSON)
    assert [job_id is not None for job_id in told.body["job_ids"]] == [True] + [False] * 98
    assert trio.current_time() - began_s == pytest.approx(REFRESH_S)


async def test_jobs_for_a_version_that_is_gone_wait_and_say_so(edge):
    for _ in range(8):
        await put(edge)
    await edge.call("DELETE", "/v1/handlers/mail")
    for _ in range(2):
        await put(edge)
    await edge.call("POST", "/v1/jobs", [{"name": "mail"}, {"name": "mail@9"}, {"name": "mail@7"}, {"name": "a@b"}])
    await edge.apply()
    rows = {row["name"]: row for row in (await edge.call("GET", "/v1/types", accept=JSON)).body["types"]}
    assert {name: (row["handler"], bool(row["note"])) for name, row in rows.items()} == {
        "mail": ("mail@10", False),
        "mail@9": (None, False),
        "mail@7": (None, True),
        "a@b": (None, True),
    }
    assert rows["a@b"]["note"] == "no worker takes these jobs"
    assert "version 7 of handler 'mail' is gone: these jobs wait" in rows["mail@7"]["note"]
    never = why_gone(edge.api._parts.services, "mail@13")  # as a worker may name it for what follows
    assert never is not None
    assert never.startswith("handler 'mail' never had a version 13: these jobs wait until it has")
    assert not any(worker.takes("mail@7", 0) for worker in edge.workers.list())


async def test_an_endpoint_that_says_410_takes_its_version_out_and_no_worker_is_unregistered(edge):
    await put(edge)
    for _ in range(2):
        await put(edge)
    assert (await edge.call("DELETE", "/v1/workers/mail@2")).status == 409
    for number in (2, 3):  # in one moment
        assert edge.workers.unregister(f"mail@{number}", "it answered 410")
    assert [worker.id for worker in edge.workers.list()] == ["mail@1"]
    said = edge.workers.farewells()
    edge.workers.settings.take(edge.workers.settings.make(said, now_ms=1, origin=1))
    row = (await edge.call("GET", "/v1/handlers/mail", accept=JSON)).body
    assert (row["version"], row["out"]) == (3, "it answered 410")
    assert [one["out"] for one in row["versions"]] == [None, "it answered 410", "it answered 410"]
    assert [worker.takes("mail", 0) for worker in edge.workers.list()] == [True], "the one before takes them again"
    assert edge.workers.farewells() == {}


async def test_options_of_a_handler_hold_for_its_jobs_and_go_with_it(edge):
    async def pushed() -> float:
        await edge.call("POST", "/v1/jobs", {"name": "mail"})
        timeout_s: float = edge.journal.jobs()[-1].timeout
        return timeout_s

    await put(edge, options={"timeout": 9})
    assert await pushed() == 9
    (row,) = (await edge.call("GET", "/v1/workers", accept=JSON)).body["workers"]
    assert (row["worker_id"], row["name"], row["options"]) == ("mail@1", "mail@1", {"mail": {"timeout": 9}})
    await put(edge)
    assert await pushed() == 30
    await put(edge, options={"timeout": 8})
    assert (await edge.call("DELETE", "/v1/handlers/mail")).status == 204
    assert await pushed() == 30


async def test_two_puts_in_one_moment_are_two_versions(edge):
    await put(edge)
    edge.journal.hold = trio.Event()
    async with trio.open_nursery() as nursery:
        for jobs in (10, 20):
            nursery.start_soon(partial(put, edge, options={"max_jobs": jobs}))
        await trio.testing.wait_all_tasks_blocked()
        edge.journal.hold.set()
    handler = edge.workers.handler("mail")
    assert [version.number for version in handler.versions] == [1, 2, 3]
    assert {version.options.max_jobs for version in handler.versions[1:]} == {10, 20}


async def test_a_put_waits_for_what_others_said_of_the_handler_and_is_refused_without(edge, autojump_clock):
    for _ in range(3):
        await put(edge)
    said = edge.workers.settings.get("handler", "mail")
    edge = await Whole().begin()
    edge.workers.settings.synced = trio.Event()  # as at a daemon that has just begun
    assert (await edge.call("PUT", "/v1/handlers/mail", HOOK)).status == 503
    assert (await edge.call("DELETE", "/v1/handlers/mail")).status == 503
    async with trio.open_nursery() as nursery:
        nursery.start_soon(put, edge)
        await trio.testing.wait_all_tasks_blocked()
        edge.workers.settings.take([said])
        edge.workers.settings.synced.set()
    assert [version.number for version in edge.workers.handler("mail").versions] == [1, 2, 3, 4]


async def test_nobody_else_is_called_as_a_version_is(edge: Whole) -> None:
    """Who registered as `mail@1` got all jobs of that handler."""
    await put(edge)
    card = {"name": "w", "worker_id": "mail@1", "jobs": ["other"], "max_jobs": 1, "url": URL}
    told = await edge.call("POST", "/v1/workers", card, accept=JSON)
    assert (told.status, told.body["errors"][0]["pointer"]) == (422, "/worker_id")
    told = await edge.call("PUT", "/v1/handlers/mail@2", HOOK, accept=JSON)
    assert (told.status, "@ and a number" in told.body["detail"]) == (422, True)
    assert [worker.id for worker in edge.workers.list()] == ["mail@1"]


async def test_large_versions_go_before_there_are_ten_and_a_larger_one_is_refused(edge):
    scripts = dict.fromkeys(("eid", "before", "beforeEach", "afterEach"), "x" * 30_000)
    for _ in range(6):
        await put(edge, **scripts)
    assert [version.number for version in edge.workers.handler("mail").versions] == [4, 5, 6]
    told = await edge.call("PUT", "/v1/handlers/mail", {**HOOK, **scripts, "eid": "é" * 30_000}, accept=JSON)
    assert told.status == 422
    assert "may take 131072 bytes with all its texts, and this one has 150" in told.body["detail"]


async def test_there_are_only_so_many_handlers(edge, monkeypatch):
    monkeypatch.setattr(handlers, "HANDLERS", Share("handlers", 2))
    for name in ("a", "b", "a"):
        await put(edge, name)
    told = await edge.call("PUT", "/v1/handlers/c", HOOK, accept=JSON)
    assert (told.status, "there may be 2 handlers, and no more" in told.body["detail"]) == (422, True)
    assert (await edge.call("DELETE", "/v1/handlers/a")).status == 204
    await put(edge, "c")
