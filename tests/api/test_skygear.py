"""The Skygear surface: its two actions, its envelope, its keys, and what only the server may push."""

from typing import Any

import msgspec
import pytest

from jqd.api import ApiConfig
from jqd.desk import cancel as cancel_words
from jqd.words.errors import JournalRefused, Pressed
from jqd.words.job import Fate
from tests.api.edge import JSON, MSGPACK, Answer
from tests.api.whole import Whole

MASTER, CLIENT = "the master key", "the key of clients"
JOB = {"action": "user:send-email", "args": {"user_id": 17}}
ERRORS = {
    "NotAuthenticated": (101, 401),
    "PermissionDenied": (102, 403),
    "AccessKeyNotAccepted": (103, 401),
    "BadRequest": (107, 400),
    "InvalidArgument": (108, 400),
    "Duplicated": (109, 409),
    "ResourceNotFound": (110, 404),
    "UndefinedOperation": (117, 404),
}
"""Each name has one code and one status."""


@pytest.fixture
async def edge() -> Whole:
    return await Whole(ApiConfig(master_key=MASTER, client_key=CLIENT)).begin()


async def ask(edge: Whole, path: str, told: Any, **named: Any) -> Answer:
    answer = await edge.call("POST", path, told, **{"kind": JSON, **named})
    await edge.apply()
    return answer


async def enqueue(edge: Whole, **told: Any) -> Answer:
    return await ask(edge, "/job/enqueue", {"api_key": MASTER, "job": JOB, **told})


async def cancel(edge: Whole, job_id: str) -> Answer:
    return await ask(edge, "/job/cancel", {"api_key": MASTER, "job_id": job_id})


def expect_error(answer: Answer, name: str, *arguments: str) -> dict[str, Any]:
    error: dict[str, Any] = answer.body["error"]
    assert list(answer.body) == ["error"]
    assert (error["name"], error["code"], answer.status) == (name, *ERRORS[name]), error
    assert error["message"]
    assert error.get("info", {}).get("arguments", []) == [*arguments]
    return error


# ------------------------------------------------------------ job:enqueue


@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.FAILED, None])
@pytest.mark.parametrize("action", ["user:send-email", "user:other"])
async def test_the_id_of_a_job_that_has_ended_is_free(edge, fate, action):
    assert (await enqueue(edge, job_id="one")).status == 200
    expect_error(await enqueue(edge, job_id="one", job={**JOB, "action": action}), "Duplicated")
    if fate is None:
        assert (await cancel(edge, "one")).status == 200
    else:
        (held,) = await edge.claim("user:send-email")
        expect_error(await enqueue(edge, job_id="one"), "Duplicated")
        await edge.end(held, fate)
    again = await enqueue(edge, job_id="one", job={**JOB, "action": action})
    assert again.body == {"result": {"job_id": "one"}}
    expect_error(await enqueue(edge, job_id="one", job={**JOB, "action": action}), "Duplicated")
    (held,) = await edge.claim(action)
    assert held.job.name == "one"


@pytest.mark.parametrize("args", [{"user_id": 17}, [1, 2], {}, [], [{"a": i} for i in range(20)]])
@pytest.mark.parametrize("kind", [JSON, MSGPACK])
async def test_the_job_is_run_by_the_lambda_of_its_action(edge, args, kind):
    told = {"api_key": MASTER, "job": {"action": "user:send-email", "args": args}}
    answer = await ask(edge, "/job/enqueue", told, kind=kind)
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    (held,) = await edge.claim("user:send-email")
    assert answer.body == {"result": {"job_id": held.job.id}}
    assert msgspec.msgpack.decode(held.job.argument) == args
    assert edge.journal.synced == edge.journal.written


@pytest.mark.parametrize("args", [7, None, "x", {"$bytes": "aGk="}, {"$msgpack": "AA=="}])
async def test_what_args_may_be_is_said_wherever_it_is_told(edge, args):
    """Of a job that is missing the error said that args may be any value."""
    error = expect_error(await enqueue(edge, job={"action": "a", "args": args}), "InvalidArgument", "job/args")
    assert error["message"].startswith("job/args must be an array or a map")
    jobs: list[Any] = [None, 7, {}]
    for job in jobs:
        told = await enqueue(edge, job=job)
        assert "any value" not in told.body["error"]["message"]
    assert (await enqueue(edge, job={})).body["error"]["message"].startswith("job: action is required: 1 to 128")
    told = await ask(edge, "/job/enqueue", {"api_key": MASTER})
    assert told.body["error"]["message"].endswith("perhaps args (an array or a map)")


async def test_args_may_be_left_out(edge):
    assert (await enqueue(edge, job={"action": "tick"})).status == 200
    assert [held.job.argument for held in await edge.claim("tick")] == [b"\xc0"]


@pytest.mark.parametrize("path", ["/", "/job/enqueue"])
@pytest.mark.parametrize("in_header", [True, False])
async def test_the_action_stands_in_the_path_or_in_the_body_and_the_key_in_body_or_header(edge, path, in_header):
    told = {"action": "job:enqueue", "job": JOB, "access_token": "", "_user_id": "whoever"}
    headers = {"x-skygear-api-key": MASTER} if in_header else {}
    answer = await ask(edge, path, told if in_header else {**told, "api_key": MASTER}, headers=headers)
    assert answer.status == 200, "what Skygear's clients send besides is passed over"


async def test_the_path_goes_before_an_action_that_says_otherwise(edge):
    assert (await enqueue(edge, action="job:cancel")).status == 200


@pytest.mark.parametrize("job_id", [None, ""])
async def test_an_id_is_made_where_none_is_given(edge, job_id):
    for replace in (False, True):
        assert len((await enqueue(edge, job_id=job_id, replace=replace)).body["result"]["job_id"]) == 26
    assert len(await edge.claim("user:send-email")) == 2


async def test_a_job_waits_for_its_date(edge):
    edge.clock.set_wall_ms(1_700_000_000_000)
    answer = await enqueue(edge, job_id="later", run_at="2023-11-14T23:13:20+00:00")
    assert answer.body == {"result": {"job_id": "later"}}
    assert await edge.claim("user:send-email") == []
    assert (await edge.call("GET", "/v1/jobs/later")).body["state"] == "scheduled"


async def test_an_id_is_one_job_unless_it_is_replaced(edge):
    assert (await enqueue(edge, job_id="mail:ann")).status == 200
    error = expect_error(await enqueue(edge, job_id="mail:ann"), "Duplicated")  # the same again, too, as Skygear has it
    assert "mail:ann" in error["message"]
    other = {"action": "user:send-email", "args": ["other"]}
    expect_error(await enqueue(edge, job_id="mail:ann", job=other), "Duplicated")
    answer = await enqueue(edge, job_id="mail:ann", job=other, replace=True)
    assert answer.body == {"result": {"job_id": "mail:ann"}}
    (held,) = await edge.claim("user:send-email")
    assert msgspec.msgpack.decode(held.job.argument) == ["other"]


@pytest.mark.parametrize(
    ("told", "arguments"),
    [
        ({"job": {"args": []}}, ["job/action"]),
        ({"job": {"action": "", "args": []}}, ["job/action"]),
        ({"job": {"action": "a\nb", "args": []}}, ["job/action"]),
        ({"job": {"action": "a", "args": 7}}, ["job/args"]),
        ({"job": {"action": "a", "args": None}}, ["job/args"]),
        ({"job": "user:send-email"}, ["job"]),
        ({"run_at": "tomorrow"}, ["run_at"]),
        ({"run_at": "2030-01-31T08:00:00"}, ["run_at"]),
        ({"run_at": 1}, ["run_at"]),
        ({"replace": "yes"}, ["replace"]),
        ({"job_id": 17}, ["job_id"]),
        ({"job_id": "x" * 129}, ["job_id"]),
        ({"job_id": "01MCC5RM000000000000070001"}, ["job_id"]),
    ],
    ids=str,
)
async def test_arguments_that_are_wrong_are_named(edge, told, arguments):
    expect_error(await enqueue(edge, **told), "InvalidArgument", *arguments)
    assert edge.journal.frames == []


async def test_a_job_is_required(edge):
    expect_error(await ask(edge, "/job/enqueue", {"api_key": MASTER}), "InvalidArgument", "job")


@pytest.mark.parametrize("path", ["/", "/job/enqueue", "/job/cancel"])
async def test_what_is_no_body_is_a_bad_request(edge, path):
    for body, kind in ((b"{", JSON), (b"", JSON), (b"\xc1", MSGPACK), (b"{}", "text/html"), (b" " * (1 << 21), JSON)):
        expect_error(await ask(edge, path, body, kind=kind, accept=JSON), "BadRequest")
    assert edge.journal.frames == []


async def test_what_is_no_action(edge):
    for action in ("job:stop", "", None):
        expect_error(await ask(edge, "/", {"api_key": MASTER, "action": action}), "UndefinedOperation")
    expect_error(await ask(edge, "/", {"api_key": MASTER}), "UndefinedOperation")


async def test_what_cannot_be_done_now_is_said_in_the_envelope(edge):
    for refused, status in (
        (JournalRefused("the disk is full", full=True), 507),
        (JournalRefused("no", full=False), 503),
    ):
        edge.journal.refuse = refused
        answer = await enqueue(edge)
        assert (answer.status, answer.headers["retry-after"]) == (status, "1")
        assert (answer.body["error"]["name"], answer.body["error"]["code"]) == ("PluginUnavailable", 118)


# ------------------------------------------------------------ job:cancel


async def test_a_job_that_waits_is_cancelled(edge):
    for told in ({}, {"job_id": "own"}, {"run_at": "2999-01-01T00:00:00Z"}):
        job_id = (await enqueue(edge, **told)).body["result"]["job_id"]
        assert (await cancel(edge, job_id)).body == {"result": {"job_id": job_id}}
        assert (await edge.call("GET", f"/v1/jobs/{job_id}")).body["state"] == "cancelled"
        expect_error(await cancel(edge, job_id), "ResourceNotFound")
    answer = await ask(edge, "/", {"api_key": MASTER, "action": "job:cancel", "job_id": "none"})
    expect_error(answer, "ResourceNotFound")


async def test_of_a_job_that_runs_or_has_ended_there_is_nothing_to_cancel(edge):
    job_id = (await enqueue(edge)).body["result"]["job_id"]
    (held,) = await edge.claim("user:send-email")
    expect_error(await cancel(edge, job_id), "ResourceNotFound")
    assert edge.journal.cancels() == [], "nor is a cancel recorded: it says that there is none"
    await edge.end(held, Fate.SUCCEEDED)
    expect_error(await cancel(edge, job_id), "ResourceNotFound")


async def test_a_cancel_that_nobody_confirms_is_none(edge):
    job_id = (await enqueue(edge)).body["result"]["job_id"]
    edge.apply_fails = True
    answer = await edge.call("POST", "/job/cancel", {"api_key": MASTER, "job_id": job_id}, kind=JSON)
    assert (answer.status, answer.body["error"]["name"]) == (503, "PluginUnavailable")


@pytest.mark.parametrize("told", [{}, {"job_id": 7}, {"job_id": None}])
async def test_which_job_is_required(edge, told):
    expect_error(await ask(edge, "/job/cancel", {"api_key": MASTER, **told}), "InvalidArgument", "job_id")


# ------------------------------------------------------------ keys


@pytest.mark.parametrize("path", ["/", "/job/enqueue", "/job/cancel"])
async def test_both_actions_take_the_master_key_alone(edge, path):
    told = {"action": "job:enqueue", "job": "not even looked at"}
    expect_error(await ask(edge, path, told), "NotAuthenticated")
    expect_error(await ask(edge, path, {**told, "api_key": ""}), "NotAuthenticated")
    error = expect_error(await ask(edge, path, {**told, "api_key": "hidden"}), "AccessKeyNotAccepted")
    assert "hidden" not in str(error)
    expect_error(await ask(edge, path, {**told, "api_key": CLIENT}), "PermissionDenied")
    answer = await ask(edge, path, {**told, "api_key": 8472})
    assert "8472" not in str(expect_error(answer, "InvalidArgument", "api_key"))
    assert edge.journal.frames == []


async def test_with_no_master_key_set_none_is_accepted():
    edge = await Whole().begin()
    expect_error(await enqueue(edge), "AccessKeyNotAccepted")
    expect_error(await enqueue(edge, api_key=""), "NotAuthenticated")


# ------------------------------------------------------------ lambdas that only the server may call

HOOK = {"lang": "http", "body": "http://127.0.0.1:8000/"}
BEARER = {"authorization": f"Bearer {MASTER}"}


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
    assert edge.journal.jobs()[-1].timeout_s == 9.0
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

    async def replaced(desk: Any, found: Any) -> Any:
        cancels.append(found)
        to = await record(desk, found)
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


async def test_back_pressure_is_something_that_is_not_available_now(edge):
    edge.control.pressure = Pressed("100 jobs wait", retry_after_s=7)
    answer = await enqueue(edge)
    assert (answer.status, answer.headers["retry-after"], answer.body["error"]["code"]) == (503, "7", 118)


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


async def test_a_token_of_a_master_is_a_master_key_for_its_tenant_and_no_other_is(edge):
    parts = edge.api._parts
    parts.porter = parts.porter._replace(required=True, root="the daemon's own")
    bearer = {"authorization": "Bearer the daemon's own"}
    tokens = {}
    for role in ("master", "operator", "push"):
        made = await edge.call("POST", "/v1/tokens", {"role": role, "tenant": "acme"}, headers=bearer, accept=JSON)
        tokens[role] = made.body
    assert (await enqueue(edge, api_key=tokens["master"]["token"], job_id="one")).status == 200
    (held,) = await edge.claim("acme\x1fuser:send-email")
    assert held.job.tenant == "acme"
    for role in ("operator", "push"):
        expect_error(await enqueue(edge, api_key=tokens[role]["token"]), "PermissionDenied")
    expect_error(await enqueue(edge, api_key=""), "NotAuthenticated")
    answer = await ask(
        edge,
        "/",
        {"action": "job:cancel", "api_key": tokens["master"]["token"], "job_id": "one"},
        headers={"jqd-tenant": "other"},
    )
    expect_error(answer, "PermissionDenied")
    gone = await edge.call("DELETE", f"/v1/tokens/{tokens['master']['token_id']}", headers=bearer)
    assert gone.status == 200
    expect_error(await enqueue(edge, api_key=tokens["master"]["token"]), "AccessKeyNotAccepted")
