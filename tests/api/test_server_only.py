"""What only the server may push, change or end: on every surface, whoever said so, and by every way around it."""

from typing import Any

import pytest

from jqd.api import ApiConfig
from jqd.service import cancel as cancel_words
from tests.api.edge import JSON
from tests.api.test_skygear import CLIENT, MASTER, ask, cancel, enqueue, expect_error
from tests.api.whole import Whole

HOOK = {"lang": "http", "body": "http://127.0.0.1:8000/"}
BEARER = {"authorization": f"Bearer {MASTER}"}


@pytest.fixture
async def edge() -> Whole:
    return await Whole(ApiConfig(master_key=MASTER, client_key=CLIENT)).begin()


async def test_what_is_server_only_refuses_everybody_but_the_master_and_jobs(edge):
    """On every surface, and also what would give such a job by another way."""
    put = await edge.call("PUT", "/v1/handlers/secret", {**HOOK, "server_only": True})
    assert put.status == 201
    pushes = [
        ("POST", "/v1/jobs", {"name": "secret", "argument": 1}),
        ("POST", "/v1/jobs", [{"name": "mail"}, {"name": "secret@1"}]),
        ("PUT", "/v1/schedules/nightly", {"every": 60, "job": {"name": "secret"}}),
        ("PUT", "/v1/handlers/secret", HOOK),
    ]
    for method, path, body in pushes:
        for headers in ({}, {"authorization": f"Bearer {CLIENT}"}, {"authorization": MASTER}):
            answer = await edge.call(method, path, body, headers=headers)
            assert answer.status == 403, (path, answer.body)
            assert "server_only" in answer.body["detail"]
    frames = len(edge.journal.frames)
    assert (await edge.call("POST", "/job", {"name": "secret", "argument": 1})).status == 400
    assert (await edge.call("DELETE", "/v1/handlers/secret")).status == 403
    assert len(edge.journal.frames) == frames, "nothing of them was taken, nor of their neighbours"
    for method, path, body in pushes[:3]:
        assert (await edge.call(method, path, body, headers=BEARER)).status == 201
    assert (await enqueue(edge, job={"action": "secret"})).status == 200
    assert (await edge.call("POST", "/v1/schedules/nightly/run-now")).status == 201, "a schedule is the server's own"


async def test_nor_is_such_a_job_given_another_argument(edge):
    assert (await edge.call("PUT", "/v1/handlers/secret", {**HOOK, "server_only": True})).status == 201
    job_id = (await enqueue(edge, job={"action": "secret", "args": [1]})).body["result"]["job_id"]
    assert (await edge.call("PATCH", f"/v1/jobs/{job_id}", {"argument": 2})).status == 403
    assert (await edge.call("PATCH", f"/v1/jobs/{job_id}", {"priority": 2})).status == 403
    assert (await edge.call("PATCH", f"/v1/jobs/{job_id}", {"argument": 2}, headers=BEARER)).status == 200
    assert (await cancel(edge, job_id)).status == 200
    assert (await edge.call("POST", f"/v1/jobs/{job_id}/retry", {"argument": 3})).status == 403
    assert (await edge.call("POST", f"/v1/jobs/{job_id}/retry", headers=BEARER)).status == 200


RESERVED = {"name": "own", "server_only": True, "timeout": 9}
WORKER: dict[str, Any] = {"name": "w", "max_jobs": 1, "url": "http://127.0.0.1:9/"}


async def register(edge: Whole, *jobs: Any, **more: Any) -> str:
    told = await edge.call("POST", "/v1/workers", {**WORKER, "jobs": [*jobs], **more})
    assert told.status == 201
    worker_id: str = told.body["worker_id"]
    return worker_id


async def push_status(edge: Whole, **headers: str) -> int:
    told = await edge.call("POST", "/v1/jobs", {"name": "own"}, headers=headers)
    await edge.apply()
    return told.status


async def test_a_registration_says_it_too_until_another_says_otherwise_or_long_after_it(edge):
    worker_id = await register(edge, "mail", RESERVED)
    assert (await push_status(edge), await push_status(edge, **BEARER)) == (403, 201)
    rows = (await edge.call("GET", "/v1/workers", accept=JSON)).body["workers"]
    assert rows[0]["options"] == {"own": {"timeout": 9, "server_only": True}}
    assert edge.journal.jobs()[-1].timeout == 9.0
    assert (await edge.call("DELETE", f"/v1/workers/{worker_id}")).status == 204
    assert await push_status(edge) == 403, "it holds as options do: a deploy is no gap"
    other = await register(edge, "own", url="http://127.0.0.1:10/")
    assert await push_status(edge) == 403, "a name alone says nothing of options"
    await register(edge, {"name": "own"}, worker_id=other, url="http://127.0.0.1:10/")
    assert await push_status(edge) == 201, "a map says what it leaves out, too"


async def test_what_is_server_only_is_cancelled_changed_and_deleted_with_the_key(edge):
    await register(edge, RESERVED)
    ids = []
    for _ in range(3):
        told = await edge.call("POST", "/v1/jobs", {"name": "own"}, headers=BEARER)
        ids.append(told.body["job_id"])
        assert (await edge.call("DELETE", f"/v1/jobs/{ids[-1]}")).status in (403, 503), "on its way it may be any"
    await edge.apply()
    for method, path, body in (
        ("DELETE", f"/v1/jobs/{ids[0]}", None),
        ("DELETE", f"/v1/jobs/{ids[0]}?purge=1", None),
        ("PATCH", f"/v1/jobs/{ids[0]}", {"priority": 2}),
    ):
        told = await edge.call(method, path, body)
        assert (told.status, "server_only" in told.body["detail"]) == (403, True)
    assert (await edge.call("POST", f"/v1/jobs/{ids[0]}/run-now")).status == 403
    assert (await edge.call("POST", f"/v1/jobs/{ids[0]}/run-now", headers=BEARER)).status == 200
    assert (await edge.call("DELETE", f"/job/{ids[0]}")).status == 400, "its interface has no 403"
    for path in ("/v1/jobs/cancel", "/v1/jobs/delete"):
        told = await edge.call("POST", path, {"name": "own", "state": "waiting" if "cancel" in path else "cancelled"})
        assert told.body["changed"] == 0
        told = await edge.call("POST", path, {"job_ids": ids})
        assert [row["status"] for row in told.body["refused"]] == [409] * 3
        assert "only for the master key" in told.body["refused"][0]["detail"]
    frames = len(edge.journal.frames)
    assert (await edge.call("PATCH", f"/v1/jobs/{ids[1]}", {"priority": 2}, headers=BEARER)).status == 200
    assert (await edge.call("DELETE", f"/v1/jobs/{ids[0]}", headers=BEARER)).status == 204
    assert (await edge.call("POST", "/v1/jobs/cancel", {"name": "own"}, headers=BEARER)).body["changed"] == 2
    assert len(edge.journal.frames) > frames


async def test_what_is_server_only_is_tried_anew_with_the_key(edge):
    """It was pushed by the server, and may have been cancelled by it for good reason."""
    await register(edge, RESERVED)
    for name, headers in (("own", BEARER), ("own", BEARER), ("mail", {})):
        told = await edge.call("POST", "/v1/jobs", {"name": name}, headers=headers)
        await edge.apply()
        job_id = told.body["job_id"]
        assert (await edge.call("DELETE", f"/v1/jobs/{job_id}", headers=BEARER)).status == 204
    ids = [row["job_id"] for row in (await edge.call("GET", "/v1/jobs?name=own")).body["jobs"]]
    told = await edge.call("POST", f"/v1/jobs/{ids[0]}/retry")
    assert (told.status, "server_only" in told.body["detail"]) == (403, True)
    told = await edge.call("POST", "/v1/jobs/retry", {"job_ids": ids})
    assert (told.body["changed"], [row["status"] for row in told.body["refused"]]) == (0, [409] * 2)
    assert "only for the master key" in told.body["refused"][0]["detail"]
    told = await edge.call("POST", "/v1/jobs/retry", {"state": "cancelled"})
    assert (told.body["matched"], told.body["changed"]) == (1, 1), "the filter passes over them"
    assert (await edge.call("POST", f"/v1/jobs/{ids[0]}/retry", headers=BEARER)).status == 200
    told = await edge.call("POST", "/v1/jobs/retry", {"state": "cancelled"}, headers=BEARER)
    assert told.body["changed"] == 1


async def test_the_id_of_a_cancelled_one_is_for_the_server_alone(edge):
    """Another content took it without `replace`, and what stood there was gone."""
    await register(edge, RESERVED)
    own = {"name": "own", "argument": 1, "job_id": "inv-1"}
    assert (await edge.call("POST", "/v1/jobs", own, headers=BEARER)).status == 201
    await edge.apply()
    assert (await edge.call("DELETE", "/v1/jobs/inv-1", headers=BEARER)).status == 204
    for more in ({}, {"replace": True}):
        told = await edge.call("POST", "/v1/jobs", {"name": "other", "job_id": "inv-1", **more})
        assert (told.status, len(await edge.claim("other"))) == (422 if more else 409, 0), told.body
    assert (await edge.call("GET", "/v1/jobs/inv-1")).body["name"] == "own"
    assert (await edge.call("POST", "/v1/jobs", {**own, "argument": 2}, headers=BEARER)).status == 201


async def test_where_a_tenant_has_none_its_cancelled_jobs_leave_their_ids_as_ever(edge):
    """What another tenant says of its jobtypes is nothing to it."""
    put = await edge.call("PUT", "/v1/handlers/secret", {**HOOK, "server_only": True})
    assert put.status == 201
    acme = {"jqd-tenant": "acme"}
    for argument in (1, 2):
        told = await edge.call("POST", "/v1/jobs", {"name": "mail", "argument": argument, "job_id": "x"}, headers=acme)
        assert told.status == 201
        await edge.apply()
        assert (await edge.call("DELETE", "/v1/jobs/x", headers=acme)).status == 204


@pytest.mark.parametrize("tenant", [{}, {"jqd-tenant": "acme"}], ids=["all", "one"])
async def test_a_clean_leaves_what_is_server_only_to_the_key(edge, tenant):
    assert (await edge.call("POST", "/v1/workers", {**WORKER, "jobs": [RESERVED]}, headers=tenant)).status == 201
    for name in ("own", "mail"):
        told = await edge.call("POST", "/v1/jobs", {"name": name, "job_id": name}, headers={**BEARER, **tenant})
        assert told.status == 201
        await edge.apply()
        assert (await edge.call("DELETE", f"/v1/jobs/{name}", headers={**BEARER, **tenant})).status == 204
    before = {"before": edge.clock.wall_ms() / 1000 + 9}
    for keys, changed in (({}, 1), (BEARER, 1), (BEARER, 0)):
        told = await edge.call("POST", "/v1/jobs/clean", before, headers={**keys, **tenant})
        assert (told.status, told.body["changed"]) == (200, changed)
        left = (await edge.call("GET", "/v1/jobs/own", headers=tenant)).status
        assert left == (404 if keys else 200)


async def test_a_cancel_does_not_follow_its_job_to_one_that_is_not_for_who_cancels(edge, monkeypatch):
    """The server replaced it meanwhile, and the second cancel of the request was for that."""
    await register(edge, RESERVED)
    await edge.push(job_id="x")
    record, cancels = cancel_words.record_cancels, list[Any]()

    async def replaced(services: Any, found: Any, **how: Any) -> Any:
        cancels.append(found)
        to = await record(services, found, **how)
        told = await edge.call("POST", "/v1/jobs", {"name": "own", "job_id": "x", "replace": True}, headers=BEARER)
        assert told.status == 201
        await edge.apply()
        return to

    monkeypatch.setattr(cancel_words, "record_cancels", replaced)
    told = await edge.call("DELETE", "/v1/jobs/x")
    assert (told.status, "server_only" in told.body["detail"], len(cancels)) == (403, True, 1)
    assert len(await edge.claim("own")) == 1


async def test_nobody_is_asked_for_a_key_that_is_not_set():
    edge = await Whole().begin()
    assert (await edge.call("PUT", "/v1/handlers/secret", {**HOOK, "server_only": True})).status == 201
    assert (await edge.call("POST", "/v1/jobs", {"name": "secret"})).status == 201


async def test_a_tenant_has_ids_lambdas_and_what_is_server_only_of_its_own(edge):
    acme = {"jqd-tenant": "acme"}
    put = await edge.call("PUT", "/v1/handlers/secret", {**HOOK, "server_only": True}, headers=acme)
    assert put.status == 201
    assert (await edge.call("POST", "/v1/jobs", {"name": "secret"})).status == 201, "theirs is not ours"
    assert (await edge.call("POST", "/v1/jobs", {"name": "secret"}, headers=acme)).status == 403
    told = {"api_key": MASTER, "job": {"action": "secret"}, "job_id": "one"}
    for headers in (acme, {}):
        answer = await ask(edge, "/job/enqueue", told, headers=headers)
        assert answer.body == {"result": {"job_id": "one"}}
    assert (await cancel(edge, "one")).status == 200
    answer = await ask(edge, "/job/cancel", {"api_key": MASTER, "job_id": "one"}, headers=acme)
    assert answer.status == 200, "each cancels its own"
    answer = await ask(edge, "/job/cancel", {"api_key": MASTER, "job_id": "one"}, headers={"jqd-tenant": "other"})
    expect_error(answer, "ResourceNotFound")
