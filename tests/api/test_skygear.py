"""The Skygear surface: its two actions, its envelope, and its keys."""

from typing import Any

import msgspec
import pytest

from jqd.api import ApiConfig
from jqd.domain.errors import JournalRefused, Overloaded
from jqd.domain.job import Fate
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
    assert error["info"] == ({"arguments": [*arguments]} if arguments else {})
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


async def test_back_pressure_is_something_that_is_not_available_now(edge):
    edge.control.pressure = Overloaded("100 jobs wait", retry_after_s=7)
    answer = await enqueue(edge)
    assert (answer.status, answer.headers["retry-after"], answer.body["error"]["code"]) == (503, "7", 118)


async def test_a_token_of_a_master_is_a_master_key_for_its_tenant_and_no_other_is(edge):
    parts = edge.api._parts
    parts.auth = parts.auth._replace(required=True, root="the daemon's own")
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
