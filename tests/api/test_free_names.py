"""When an own id is free again: what was cancelled or deleted, and what a refusal says differs."""

import pytest

from jqd.domain.job import Fate
from tests.api.edge import JSON
from tests.api.named import JOB, arguments, push
from tests.api.whole import Whole


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def test_a_cancelled_job_stays_cancelled_when_it_is_pushed_again(edge):
    await push(edge, JOB)
    assert (await edge.call("DELETE", "/v1/jobs/order%2F17")).status == 204
    assert (await push(edge, JOB))[0] == 200, "it may be the repetition of a push that came before the cancel"
    assert await edge.claim() == []
    assert (await push(edge, {**JOB, "replace": True}))[0] == 201
    assert await arguments(edge) == [{"n": 1}]


@pytest.mark.parametrize("ingested", [True, False])
async def test_a_cancelled_job_leaves_its_id_to_another_content_at_once(edge, ingested):
    told = await edge.call("POST", "/v1/jobs", {**JOB, "delay": 600})
    if ingested:
        await edge.apply()
    assert (await edge.call("DELETE", "/v1/jobs/order%2F17")).status in (202, 204)
    await edge.apply()
    assert await push(edge, JOB) == (201, {"job_id": "order/17", "ack": "fsync"})
    assert (await push(edge, {**JOB, "delay": 600}))[0] == 409, "what it replaced is no repeat of anything by now"
    assert (await push(edge, JOB))[0] == 200
    assert told.status == 201
    assert await arguments(edge) == [{"n": 1}]


async def test_two_that_take_the_id_of_a_cancelled_job_are_one_and_a_refusal(edge):
    await push(edge, JOB)
    assert (await edge.call("DELETE", "/v1/jobs/order%2F17")).status == 204
    one = await edge.call("POST", "/v1/jobs", {**JOB, "argument": 2})
    other = await edge.call("POST", "/v1/jobs", {**JOB, "argument": 3})  # before the first is in the store
    assert (one.status, other.status) == (201, 409)
    assert (await edge.call("POST", "/v1/jobs", {**JOB, "argument": 2})).status == 200
    await edge.apply()
    assert (await push(edge, {**JOB, "argument": 3}))[0] == 409
    assert await arguments(edge) == [2]


async def test_what_runs_though_its_cancel_is_recorded_keeps_its_id_until_it_has_ended(edge):
    await push(edge, JOB)
    (held,) = await edge.claim()
    assert (await edge.call("DELETE", "/v1/jobs/order%2F17")).status == 202
    await edge.apply()
    assert (await push(edge, {**JOB, "argument": 2}))[0] == 409
    await edge.end(held, Fate.FAILED)
    assert (await push(edge, {**JOB, "argument": 2}))[0] == 201
    assert await arguments(edge) == [2]


async def test_a_cancelled_request_under_a_key_leaves_it_to_no_other(edge):
    key = {"idempotency-key": "k"}
    told = await edge.call("POST", "/v1/jobs", {"name": "mail"}, headers=key)
    await edge.apply()
    assert (await edge.call("DELETE", f"/v1/jobs/{told.body['job_id']}")).status == 204
    assert (await edge.call("POST", "/v1/jobs", {"name": "mail", "priority": 1}, headers=key)).status == 422
    assert (await edge.call("POST", "/v1/jobs", {"name": "mail"}, headers=key)).status == 200


@pytest.mark.parametrize(
    ("other", "fields"),
    [
        ({"argument": 2}, "argument"),
        ({"priority": 2, "tags": ["a"], "timeout": 31}, "priority, timeout, tags"),
        ({"delay": 5}, "run_at or delay"),
        ({"run_at": 4e9, "max_retry": 6}, "max_retry, run_at or delay"),
        ({"expires_in": 5, "backoff": [1, 2]}, "backoff, expires_in"),
        ({"name": "other"}, "name, priority"),
    ],
)
async def test_a_refusal_names_the_fields_that_differ(edge, other, fields):
    """What was registered since is no difference: both leave it out."""
    card = {"name": "w", "max_jobs": 1, "url": "http://127.0.0.1:9/", "jobs": [{"name": "mail", "priority": 7}]}
    assert (await edge.call("POST", "/v1/workers", card)).status == 201
    await push(edge, JOB)
    told = await edge.call("POST", "/v1/jobs", {**JOB, **other}, accept=JSON)
    assert told.status == 409
    assert f"with other content ({fields});" in told.body["detail"]
    await edge.end((await edge.claim())[0], Fate.SUCCEEDED)
    told = await edge.call("POST", "/v1/jobs", {**JOB, **other}, accept=JSON)
    assert f"with other content ({fields});" in told.body["detail"]


async def test_the_id_of_a_deleted_job_is_free(edge):
    await edge.ended(Fate.FAILED, **{**JOB, "job_id": "b"})
    assert (await edge.call("DELETE", "/v1/jobs/b?purge=1")).status == 204
    assert (await push(edge, {**JOB, "job_id": "b", "argument": 3}))[0] == 201
    assert await arguments(edge) == [3]
